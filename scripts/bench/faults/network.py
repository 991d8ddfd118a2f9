"""Rows 1 to 3: the server dies, is slow, or cannot be reached."""

import random
import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from robot_runtime.core.safety import Mode
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.robot.link import SERVER_BACK, SERVER_LOST
from robot_runtime.transport.sockets import HANDSHAKE_MS
from scripts.bench.faults.proxy import FaultProxy
from scripts.bench.faults.rig import (
    Run,
    Running,
    joints,
    missed_ticks,
    num_stale,
    run,
    standing_s,
    surprises,
)
from scripts.bench.faults.servers import LateSwing, PolicyProcess, Swing
from scripts.bench.faults.table import Injection, fault

# ---- 1: the server is killed -------------------------------------------------------------------------------


@fault(
    1,
    "server killed",
    how="kill -9 of the server while the robot moves; another one at its address once it stands",
    behaviour="the plan runs to its end, then HOLD; RUN again on a chunk that was asked for since",
    figures={
        "noticed [ms]": 200.0,
        "plan's end to rest [policy periods]": 2.5,
        "missed ticks": 1.0,
        "back to reconnected [ms]": 1000.0,
        "reconnected to moving [ms]": None,
        "resumed on an old chunk": 0.0,
    },
)
def kill_servers(times: int) -> Iterator[Injection]:
    """Run again and again; kill the server once in each run, at a random moment."""
    rng = random.Random(1)
    for _ in range(times):
        yield killed(moving_s=rng.uniform(0.1, 0.5))


def killed(*, moving_s: float) -> Injection:
    """Kill the server with -9 while the robot moves; start it again once the robot is stationary."""
    server = PolicyProcess(Swing)

    def interfere(running: Running) -> None:
        assert running.wait_until_it_moves()
        time.sleep(moving_s)
        running.mark("killed")
        server.kill()
        assert running.wait_until_it_stands()
        time.sleep(0.1)
        with PolicyProcess(Swing, server.address):
            running.mark("back")
            assert running.wait_until_it_moves()
            running.mark("moves")
            time.sleep(0.05)

    of = run(server.address, interfere)
    return Injection(figures=figures_of_loss(of, of.moments["killed"][0]), surprises=surprises(of))


def figures_of_loss(of: Run, killed_ns: int) -> dict[str, float]:
    """Return the figures of a robot whose server was lost and came back."""
    lost_ns, back_ns = of.said(SERVER_LOST, killed_ns), of.said(SERVER_BACK, killed_ns)
    assert lost_ns is not None
    assert back_ns is not None
    held = of.first_tick(killed_ns, lambda tick: tick.mode is Mode.HOLD)
    resumed = of.first_tick(back_ns, lambda tick: tick.mode is Mode.RUN)
    assert held is not None
    assert resumed is not None
    assert resumed.source is not None
    rest_ns = rest_after(of, held.now_ns, resumed.now_ns)
    return {
        "noticed": (lost_ns - killed_ns) / NS_PER_MS,
        "plan's end to rest": rest_ns / of.spec.dt_ns,
        "back to reconnected": max(0, back_ns - of.moments["back"][0]) / NS_PER_MS,
        "reconnected to moving": (resumed.now_ns - back_ns) / NS_PER_MS,
        "missed ticks": missed_ticks(of, killed_ns - NS_PER_S // 20, held.now_ns + rest_ns),
        "resumed on an old chunk": float(resumed.source.t_obs_ns < lost_ns),
    }


def rest_after(of: Run, held_ns: int, resumed_ns: int) -> int:
    """Return the time from a moment to the last change of the command [ns]; 0: it was stationary already."""
    ticks = of.between(held_ns, resumed_ns)
    q = joints(ticks)
    moves = np.flatnonzero((np.diff(q, axis=0) != 0.0).any(axis=1))
    return ticks[int(moves[-1]) + 1].now_ns - held_ns if len(moves) else 0


# ---- 2: the server is slow ---------------------------------------------------------------------------------


@fault(
    2,
    "slow server",
    how="each answer late by a drawn 0 to 0.8 s, with plans of 0.4 s; the server stopped for 0.05 to 1 s",
    behaviour="rows that are past are dropped, the rest runs; HOLD where none are left, and told",
    figures={
        "stale rows run": 0.0,
        "stood and not told [s]": 0.05,
        "requests at once": 2.0,
    },
)
def slow_servers(times: int) -> Iterator[Injection]:
    """Run once with every answer late by 0 to 2 plans, and once with a server that is paused and resumed."""
    rng = random.Random(2)
    late_s = tuple(rng.uniform(0.0, 0.8) for _ in range(max(1, times * 4 // 5)))

    with PolicyProcess(partial(LateSwing, late_s)) as server:
        of = run(server.address, lambda running: time.sleep(sum(late_s)))
    yield _of_slow(of, len(late_s))
    naps_s = [rng.uniform(0.05, 1.0) for _ in range(max(1, times // 5))]

    def freeze(running: Running) -> None:
        for nap_s in naps_s:
            assert running.wait_until_it_moves()
            time.sleep(0.1)
            server.freeze()
            time.sleep(nap_s)
            server.thaw()

    with PolicyProcess(Swing) as server:
        of = run(server.address, freeze)
    yield _of_slow(of, len(naps_s))


def _of_slow(of: Run, count: int) -> Injection:
    reported_s = of.record.summary()["stalled_s"]
    return Injection(
        figures={
            "stale rows run": float(num_stale(of)),
            "stood and not told": max(0.0, standing_s(of) - reported_s),
            "requests at once": float(of.most_in_flight),
        },
        surprises=surprises(of),
        count=count,
    )


# ---- 3: the network is lost, or late -----------------------------------------------------------------------

BURST_S, GAP_S = 0.02, 0.25


@fault(
    3,
    "network lost, late or wrong",
    how="a TCP proxy that stalls for 20 ms and 0.25 s, goes deaf without a word, cuts, changes bytes",
    behaviour="as for 1 and 2; what is no message is dropped, and the connection made anew",
    figures={
        "held in a burst of 20 ms": 0.0,
        "gone to rest [ms]": 500.0,
        "back to moving [ms]": None,
        "clean to moving [ms]": None,
        "stale rows run": 0.0,
        "resumed on an old chunk": 0.0,
        "requests at once": 2.0,
        "bytes changed": None,
    },
)
def lose_networks(times: int) -> Iterator[Injection]:
    """Run through a proxy: bursts of 20 ms, gaps of 0.25 s, a partitioned, half-open, cut and corrupt
    link."""
    with PolicyProcess(Swing) as server:
        yield from _gaps(server.address, max(1, times // 3), BURST_S)
        yield from _gaps(server.address, max(1, times // 5), GAP_S)
        for i in range(max(1, times // 5)):
            yield lost(server.address, ("stall", "sever", "cut")[i % 3])
        yield corrupted(server.address, max(1, times // 3))


def _gaps(address: str, times: int, gap_s: float) -> Iterator[Injection]:
    rng = random.Random(3)

    def interfere(running: Running) -> None:
        assert running.wait_until_it_moves()
        for _ in range(times):
            time.sleep(rng.uniform(0.15, 0.4))
            proxy.stall()
            running.mark("stalled")
            time.sleep(gap_s)
            proxy.open()
        time.sleep(0.2)

    with FaultProxy(address) as proxy:
        of = run(proxy.address, interfere)
    first_ns = of.moments["stalled"][0]
    held = of.first_tick(first_ns, lambda tick: tick.mode is Mode.HOLD)
    figures = {"requests at once": float(of.most_in_flight), "stale rows run": float(num_stale(of))}
    if gap_s == BURST_S:
        figures["held in a burst of 20 ms"] = float(held is not None)
    found = surprises(of)
    if lost := of.said(SERVER_LOST):
        found = (
            *found,
            f"the server was taken for lost {(lost - first_ns) / NS_PER_S:.2f} s after a gap began",
        )
    yield Injection(figures=figures, surprises=found, count=times)


def lost(address: str, how: str) -> Injection:
    """Break the link until the robot has been stationary for a while, and restore it. how: a method of
    `FaultProxy`."""

    def interfere(running: Running) -> None:
        assert running.wait_until_it_moves()
        time.sleep(0.3)
        running.mark("gone")
        getattr(proxy, how)()
        if how == "cut":
            proxy.stall()  # new connections stall too
        assert running.wait_until_it_stands()
        time.sleep(0.2)
        running.mark("back")
        proxy.open()
        assert running.wait_until_it_moves(10.0)
        time.sleep(0.1)

    with FaultProxy(address) as proxy:
        of = run(proxy.address, interfere)
    (gone_ns,), (back_ns,) = of.moments["gone"], of.moments["back"]
    resumed = of.first_tick(back_ns, lambda tick: tick.mode is Mode.RUN)
    assert resumed is not None
    assert resumed.source is not None
    return Injection(
        figures={
            "gone to rest": rest_after(of, gone_ns, back_ns) / NS_PER_MS,
            "back to moving": (resumed.now_ns - back_ns) / NS_PER_MS,
            "stale rows run": float(num_stale(of)),
            "requests at once": float(of.most_in_flight),
            "resumed on an old chunk": float(resumed.source.t_obs_ns < gone_ns),
        },
        surprises=surprises(of),
    )


_HANDSHAKES_S = 2 * HANDSHAKE_MS / 1000
"""A handshake with corrupt lengths waits for bytes that never come, until it is repeated."""


def corrupted(address: str, times: int) -> Injection:
    """Send bursts of corrupt bytes, which TCP itself would reject: invalid messages are dropped."""

    def interfere(running: Running) -> None:
        for _ in range(times):
            assert running.wait_until_it_moves(_HANDSHAKES_S)
            proxy.corrupt_share = 0.01
            time.sleep(0.1)
            proxy.corrupt_share = 0.0
        running.mark("clean")
        assert running.wait_until_it_moves(_HANDSHAKES_S)
        running.mark("moves")

    with FaultProxy(address) as proxy:
        of = run(proxy.address, interfere)
    return Injection(
        figures={
            "clean to moving": (of.moments["moves"][0] - of.moments["clean"][0]) / NS_PER_MS,
            "bytes changed": float(proxy.num_corrupt),
        },
        surprises=surprises(of),
        count=times,
    )
