"""`python -m scripts.bench cameras`: two cameras, a policy that sees and the control loop, on these cores.

    ours       the real loop: simulated robot, cameras and network thread; the policy's server is a process
    same tick  the same cameras and as many requests beside a loop whose ticks only burn as much time as ours
    half       and half as much
    no tick    and one that only keeps time: the floor

What the three lose no shorter path through our tick would save: the machine takes it, or the interpreter lock
that they share with the cameras. Rounds of the four alternate; each has as many ticks as ours.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from msgspec import structs
from rich.progress import track

from robot_runtime.cli.options import Count, Maybe, OutputFile, Within
from robot_runtime.clock import MonotonicClock
from robot_runtime.commands.run import loop_figures, refuse_fault
from robot_runtime.core.method.choose import Default
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import RobotRuntimeError
from robot_runtime.robot.cameras import Cameras, camera_threads
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.scheduling import Pacer, real_time_thread
from robot_runtime.server.process import ServerProcess
from robot_runtime.wire.events import PartReceived
from scripts.harness import finish

if TYPE_CHECKING:
    from sim.scene.world import World

TASK, POLICY = "fetch", "fetch-seeing"
ROWS_TO_ASK = 4
"""Rows from one request to the next, in all loops. Left to itself ours asks twice as often where answers take
two rows or more."""
SHARES = {"same tick": 1.0, "half": 0.5, "no tick": 0.0}
"""Of our tick's length, by the name of the bare loop."""
FIRST_SEED = 10_000


@dataclass(frozen=True, kw_only=True)
class Round:
    """What one loop did in one round."""

    loop: str
    ticks: int
    lost: int
    """Deadlines that passed while a tick was still at work, or waited for a processor."""
    tick_ms: float
    """Median length of a tick [ms]."""
    chunks_per_s: float


@dataclass(frozen=True, kw_only=True)
class BenchCameras:
    """Measure chunks per second and lost ticks with two cameras, beside loops that do less in a tick."""

    rounds: Count = 5
    """Number of episodes, each followed by the bare loops."""
    control_hz: Annotated[float, Within(1, 1000)] = 500.0
    """Ticks of the control loop per second."""
    json: Maybe[OutputFile] = None
    """Write the results to this file, as JSON."""

    def main(self) -> int:
        """Measure, print a table, and write the figures if asked; returns the exit code."""
        from scripts.tables import speed

        rounds = list[Round]()
        with ServerProcess(POLICY) as server:
            for i in track(range(self.rounds), description="episodes"):
                seed = FIRST_SEED + i
                ours = our_round(server.address, seed, self.control_hz)
                rounds.append(ours)
                for name, share in SHARES.items():
                    length_ns = round(share * ours.tick_ms * 1e6)
                    rounds.append(
                        bare_round(
                            server.address,
                            seed,
                            self.control_hz,
                            name=name,
                            num_ticks=ours.ticks,
                            length_ns=length_ns,
                        )
                    )
        figures = {"control_hz": self.control_hz, "rounds": [asdict(row) for row in rounds]}
        seeds = range(FIRST_SEED, FIRST_SEED + self.rounds)
        return finish(figures, self.json, speed.cameras(figures), seeds=seeds)


def our_round(address: str, seed: int, control_hz: float) -> Round:
    """An episode of the real loop; RobotStoppedError if the robot did not move, or stopped by itself."""
    from sim.episodes.run_episode import run_real_time

    lengths_ns: list[int] = []

    def note(tick: Tick) -> None:
        lengths_ns.append(time.monotonic_ns() - tick.now_ns)

    method = Default(execution_horizon=ROWS_TO_ASK)
    episode = run_real_time(
        TASK, method=method, policy=address, seed=seed, control_hz=control_hz, on_tick=note
    )
    refuse_fault(episode.record)
    figures = loop_figures(episode.record)
    return Round(
        loop="ours",
        ticks=int(figures["ticks"]),
        lost=int(figures["ticks_skipped"]),
        tick_ms=float(np.median(lengths_ns)) / 1e6,
        chunks_per_s=figures["chunks_per_s"],
    )


def bare_round(
    address: str, seed: int, control_hz: float, *, name: str, num_ticks: int, length_ns: int
) -> Round:
    """Cameras and requests as ours, and ticks of that median length that do nothing [ns]."""
    from sim.scene.drivers import SimCamera
    from sim.scene.world import World
    from sim.tasks import make_task

    clock, task = MonotonicClock(), make_task(TASK)
    with PolicyClient(address, robot="bare loop", schema=task.schema) as client:
        sizes = client.wait_until_ready(10.0).info.schema.cameras
        world = World(task, seed=seed, t_start_ns=clock.now_ns())
        cameras = {eye: SimCamera(world, clock, name=eye, size=size) for eye, size in sizes.items()}
        with camera_threads(cameras, clock) as eyes:
            if not eyes.await_first():
                raise RobotRuntimeError(f"no picture from one of {', '.join(cameras)}")
            ask = _asking(client, world, eyes)
            with real_time_thread(helpers=[client.thread_id]):
                lost, lengths_ns, seen_ns = _bare_loop(clock, control_hz, num_ticks, length_ns, client, ask)
    return Round(
        loop=name,
        ticks=num_ticks,
        lost=lost,
        tick_ms=float(np.median(lengths_ns)) / 1e6,
        chunks_per_s=_chunks_per_s(seen_ns),
    )


def _asking(client: PolicyClient, world: "World", cameras: Cameras) -> Callable[[int], None]:
    """What sends a request with the newest pictures, captured at that time."""
    assert client.welcome is not None
    sampler = client.welcome.info.capabilities.samplers[0]()
    num_asked = 0

    def ask(now_ns: int) -> None:
        nonlocal num_asked
        num_asked += 1
        pictures, _ = cameras.newest(now_ns)
        seen = world.observe()
        observation = structs.replace(seen, state=replace(seen.state, t_ns=now_ns), images=pictures)
        client.submit(
            ChunkRequest(
                request_id=num_asked,
                epoch=0,
                observation=observation,
                prev_action_chunk=None,
                inference_delay=0,
                sampler=sampler,
                seed=num_asked,
                deadline_ns=NS_PER_S,
            )
        )

    return ask


def _bare_loop(
    clock: MonotonicClock,
    control_hz: float,
    num_ticks: int,
    length_ns: int,
    client: PolicyClient,
    ask: Callable[[int], None],
) -> tuple[int, list[int], list[int]]:
    """Ticks lost, how long they were, and the captures that were answered [ns]."""
    assert client.welcome is not None
    request_ns = ROWS_TO_ASK * client.welcome.info.action_spec.dt_ns
    pacer, next_ns = Pacer(clock, period_ns=round(NS_PER_S / control_hz)), 0
    lost, lengths_ns, seen_ns, num_turns = 0, list[int](), list[int](), 1000.0
    for _ in range(num_ticks):
        beat = pacer.wait()
        lost += beat.num_skipped
        if beat.now_ns >= next_ns:
            next_ns = max(next_ns, beat.now_ns) + request_ns
            ask(beat.now_ns)
        seen_ns += [event.part.t_obs_ns for event in client.events() if isinstance(event, PartReceived)]
        # As much work each time, not as much time: what the machine takes away makes a tick longer.
        for _ in range(round(num_turns) if length_ns else 0):
            pass
        lengths_ns.append(time.monotonic_ns() - beat.now_ns)
        num_turns *= 1.005 if lengths_ns[-1] < length_ns else 1 / 1.005  # goes to the median
    return lost, lengths_ns, seen_ns


def _chunks_per_s(seen_ns: list[int]) -> float:
    """By the captures that the answers saw, in order [ns]; 0 for fewer than two."""
    return (len(seen_ns) - 1) * NS_PER_S / (seen_ns[-1] - seen_ns[0]) if len(seen_ns) > 1 else 0.0
