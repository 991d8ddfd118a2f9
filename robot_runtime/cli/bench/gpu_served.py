"""`robot-runtime bench gpu --serve`: a VLA through the real server and the wire, beside the policy alone.

    bare      the policy, asked in its server's process              pictures ─► first row ......... last row
    served    the same, asked by a robot     submit ═ tcp ═ server ─► worker ─► the same ═ tcp ═► the caller

Both have pictures in memory at first and rows in the caller's hands at last, and ask for one chunk after the
other. Blocks of the two alternate, so that drift of the machine cancels. The server says of every answer how
long it waited and how long the policy took; what is left of the whole is the server's and the wire's.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from msgspec import structs
from rich.table import Table

from robot_runtime.cli.bench.robots import percentiles
from robot_runtime.cli.bench.wire_floor import ANY_PORT, process_with_pipe
from robot_runtime.cli.console import plain_console
from robot_runtime.cli.serve import tune_process
from robot_runtime.core.method.sampler_parts import HorizonAwareSchedule
from robot_runtime.core.policy import ChunkRequest, Policy
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.core.values.state import Image, Observation
from robot_runtime.errors import ServerUnavailableError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.server.collector import Collector
from robot_runtime.server.server import PolicyServer
from robot_runtime.server.server_metrics import ServerMetrics
from robot_runtime.server.warm_up import zero_observation

BLOCK = 10
"""Chunks in a row."""
WARM = 3
"""Chunks that do not count, of every kind."""
CONNECTED_FIRST = 5
"""Robots that come and go before it is looked at what the server holds: libraries keep some of the first."""
SETTLE_S = 5.0
"""How long a server may take to let go of the last robot."""
HEARTBEAT_NS = 10 * NS_PER_S
"""How often a sign of life is asked for: whoever computes on the processor's cores may be silent for long."""
_LOOK_S = 0.01
_DEADLINE_NS = 60 * NS_PER_S


@dataclass(frozen=True, kw_only=True)
class Served:
    """What is served, and where it computes."""

    model: str
    cameras: int
    words: int
    small: bool
    device: str
    dtype: str
    compile: bool
    one_graph: bool = False
    max_batch: int = 1
    """Robots that the server warms up for."""
    compile_cache: str = ""
    """Folder of what torch has compiled; empty: the usual one."""


@dataclass(frozen=True, kw_only=True)
class Trip:
    """One chunk [ns]."""

    first_row: int
    """From pictures in memory to the first row."""
    last_row: int
    waited: int = 0
    """Of the last row's time: from receipt of the request to its start."""
    policy: int = 0
    """Of the same: from there to the last row, as the server has it."""


def two_starts(setting: Served, *, n: int, connections: int) -> dict[str, Any]:
    """`served_figures` of a server that finds on the disk what an earlier one has compiled; that one found
    nothing. `starts` are of both."""
    with tempfile.TemporaryDirectory() as folder:
        setting = replace(setting, compile_cache=folder)
        with _server_of(setting) as server:
            first = server.start
        figures = served_figures(setting, n=n, connections=connections)
    return figures | {"starts": [first, *figures["starts"]]}


def served_figures(setting: Served, *, n: int, connections: int) -> dict[str, Any]:
    """How long until the server was open and until all was warm [s], times [ms] of n chunks either way, what
    is on top, and what it holds before and after so many robots have connected, asked once and left.

    ServerUnavailableError: the server's process has ended, or answers no more.
    """
    with _server_of(setting) as server:
        bare, served = list[Trip](), list[Trip]()
        with PolicyClient(server.address, schema=server.info.schema) as client:
            client.wait_until_ready()
            _asked(client, server.observation, WARM)
            while len(served) < n:
                size = min(BLOCK, n - len(served))
                bare += server.bare(size)
                served += _asked(client, server.observation, size)
        held = _held_by(server, connections) if connections else None
    figures = figures_of(bare, served) | {"starts": [server.start]}
    said = {name: value for name, value in asdict(setting).items() if name != "compile_cache"}
    return said | figures | ({} if held is None else {"connections": held})


@contextmanager
def _server_of(setting: Served) -> Iterator["_Server"]:
    started_s = time.monotonic()
    with process_with_pipe(_serve, setting) as pipe:
        yield _Server(pipe, started_s)


def figures_of(bare: Sequence[Trip], served: Sequence[Trip]) -> dict[str, Any]:
    """p50, p95 and p99 of both ways, of the parts of the served one, and what it has on top [ms]."""
    rows = ("first_row", "last_row")
    alone, through = (
        {row: _milliseconds([getattr(trip, row) for trip in trips]) for row in rows}
        for trips in (bare, served)
    )
    parts = {
        "waited": [trip.waited for trip in served],
        "policy": [trip.policy for trip in served],
        "server_and_wire": [trip.last_row - trip.waited - trip.policy for trip in served],
    }
    return {
        "n": len(served),
        "bare": alone,
        "served": through,
        "parts": {name: _milliseconds(times) for name, times in parts.items()},
        "on_top_ms": {row: through[row]["p50"] - alone[row]["p50"] for row in rows},
    }


def _milliseconds(times_ns: Sequence[int]) -> dict[str, float]:
    return percentiles([t / NS_PER_MS for t in times_ns])


def _asked(client: PolicyClient, observation: Observation, n: int) -> list[Trip]:
    """Chunks through the server, one after the other."""
    out = []
    for _ in range(n):
        request = _request(observation, epoch=client.new_epochs())
        started_ns, first_ns = time.monotonic_ns(), 0
        for event in client.parts(request):
            now_ns = time.monotonic_ns()
            first_ns = first_ns or now_ns - started_ns
            part, last_ns = event.part, now_ns - started_ns
        out.append(Trip(first_row=first_ns, last_row=last_ns, waited=part.queue_ns, policy=part.infer_ns))
    return out


def _request(observation: Observation, *, epoch: int = 0) -> ChunkRequest:
    return ChunkRequest(
        observation=observation, sampler=HorizonAwareSchedule(), epoch=epoch, deadline_ns=_DEADLINE_NS
    )


def _held_by(server: "_Server", connections: int) -> dict[str, Any]:
    """What the server holds before and after so many robots were there, one after the other."""

    def come_and_go(num: int) -> None:
        for _ in range(num):
            with PolicyClient(server.address, schema=server.info.schema) as client:
                client.wait_until_ready()
                _asked(client, server.observation, 1)

    come_and_go(CONNECTED_FIRST)
    before = server.settled()
    come_and_go(connections)
    return {"n": connections, "before": before, "after": server.settled()}


class _Server:
    """The process that serves, as the one that measures has it."""

    def __init__(self, pipe: Connection, started_s: float) -> None:
        """started_s: when its process was, by the clock of both."""
        self._pipe = pipe
        self.address, told, open_s, all_warm_s = self._received()
        self.start = {"open_s": open_s - started_s, "all_warm_s": all_warm_s - started_s}
        """How long until it took robots, and until all was warm."""
        self.info = PolicyInfo.from_dict(told)
        self.observation = _observation(self.info)

    def bare(self, n: int) -> list[Trip]:
        """Chunks of the policy alone, in its process."""
        return [Trip(first_row=first, last_row=last) for first, last in self._told(n)]

    def settled(self) -> dict[str, float]:
        """What it holds once the robots that left are gone there too."""
        given_up_s = time.monotonic() + SETTLE_S
        while self._told(None)["robots"] and time.monotonic() < given_up_s:
            time.sleep(SETTLE_S / 100)
        time.sleep(SETTLE_S / 20)  # libzmq lets go of a connection after it has told of its end
        held: dict[str, float] = self._told(None)
        return held

    def _told(self, order: int | None) -> Any:
        self._pipe.send(order)
        return self._received()

    def _received(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError as error:
            raise ServerUnavailableError("the server's process has ended; it says above why") from error


def _observation(info: PolicyInfo) -> Observation:
    """Of a robot at zero that sees noise."""
    nothing, rng = zero_observation(info.schema, info.tasks[0]), np.random.default_rng(0)
    images = {
        name: Image(t_ns=0, pixels=rng.integers(0, 256, image.pixels.shape, np.uint8))
        for name, image in nothing.images.items()
    }
    return structs.replace(nothing, images=images)


def _serve(pipe: Connection, setting: Served) -> None:
    """In a process of its own: serve, and meanwhile do what comes through the pipe."""
    if setting.compile:
        from policies.compiled import keep_compiled

        keep_compiled(Path(setting.compile_cache) if setting.compile_cache else None)
    policy = _policy(setting)
    metrics: dict[str, ServerMetrics] = {}
    tune_process()
    collector = Collector()
    how: dict[str, Any] = {"max_batch": setting.max_batch, "heartbeat_ns": HEARTBEAT_NS, "open_ns": 0}
    how["collector"] = collector
    with PolicyServer(policy, ANY_PORT, metrics=metrics, **how) as server:
        opened_s = time.monotonic()
        (each,) = metrics.values()
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            with collector, suppress(EOFError):  # whoever measures has gone
                all_warm_s = _when_all_is_warm(each)
                _alone(policy, _observation(policy.info), WARM)  # in this thread too
                pipe.send((server.address, policy.info.to_dict(), opened_s, all_warm_s))
                _obey(pipe, policy, each)
        finally:
            server.stop()
            thread.join()


def _when_all_is_warm(metrics: ServerMetrics) -> float:
    """Waits until the server has warmed up all that it means to; the time then [s]."""
    while metrics.pieces_to_warm:
        time.sleep(_LOOK_S)
    return time.monotonic()


def _obey(pipe: Connection, policy: Policy, metrics: ServerMetrics) -> None:
    """Say, as often as asked, how long so many chunks of the policy alone take, or for None what the process
    holds."""
    observation = _observation(policy.info)
    while True:
        n = pipe.recv()
        pipe.send(_holdings() | {"robots": metrics.clients} if n is None else _alone(policy, observation, n))


def _policy(setting: Served) -> Policy:
    from policies.lerobot.random import random_policy
    from policies.lerobot.random_served import random_served

    policy = random_policy(
        setting.model,
        is_small=setting.small,
        num_cameras=setting.cameras,
        device=setting.device,
        dtype=setting.dtype,
    )
    how = {"is_compiled": setting.compile, "is_whole": setting.one_graph}
    return random_served(policy, num_words=setting.words, **how)


def _alone(policy: Policy, observation: Observation, n: int) -> list[tuple[int, int]]:
    """First and last row of n chunks, one after the other [ns]."""
    out = []
    for _ in range(n):
        started_ns, first_ns = time.monotonic_ns(), 0
        for _ in policy.infer(_request(observation)):
            last_ns = time.monotonic_ns() - started_ns
            first_ns = first_ns or last_ns
        out.append((first_ns, last_ns))
    return out


def _holdings() -> dict[str, float]:
    """Memory [MB], threads and open files of this process as Linux counts them, and what torch holds of the
    GPU's memory if it uses one."""
    out: dict[str, float] = {}
    if (own := Path("/proc/self")).is_dir():
        pages = int((own / "statm").read_text().split()[1])
        out = {"memory_mb": pages * os.sysconf("SC_PAGE_SIZE") / 1e6}
        out |= {name: len(os.listdir(own / of)) for name, of in (("threads", "task"), ("files", "fd"))}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        out["gpu_mb"] = torch.cuda.memory_reserved() / 1e6
    return out


def show_served(figures: Sequence[dict[str, Any]]) -> None:
    """Print either way, what is on top and of what, and what the server held."""
    table = Table(title="capture to rows, ms")
    names = "model", "cameras", "words", "way", "first row", "last row", "p99 of it", "n"
    for name in names:
        table.add_column(name, justify="left" if name in ("model", "way") else "right")
    for found in figures:
        of = found["model"], str(found["cameras"]), str(found["words"])
        for way in ("bare", "served"):
            first, last = found[way]["first_row"], found[way]["last_row"]
            times = f"{first['p50']:.2f}", f"{last['p50']:.2f}", f"{last['p99']:.2f}"
            table.add_row(*of, way, *times, str(found["n"]))
        on_top = (f"{found['on_top_ms'][row]:.2f}" for row in ("first_row", "last_row"))
        table.add_row(*of, "on top", *on_top, "", "")
    console = plain_console()
    console.print(table)
    for found in figures:
        parts = ", ".join(f"{name.replace('_', ' ')} {of['p50']:.2f}" for name, of in found["parts"].items())
        console.print(f"{found['model']}, served, last row: {parts} ms")
        for name, start in zip(
            ("first start", "next")[-len(found["starts"]) :], found["starts"], strict=True
        ):
            said = f"open after {start['open_s']:.1f} s, all warm after {start['all_warm_s']:.1f} s"
            console.print(f"{found['model']}, {name}, up to {found['max_batch']} at a time: {said}")
        if (held := found.get("connections")) is not None:
            grown = ", ".join(
                f"{name.replace('_', ' ')} {before:g} -> {held['after'][name]:g}"
                for name, before in held["before"].items()
            )
            console.print(f"{found['model']}, {held['n']} robots came and left: {grown}")
