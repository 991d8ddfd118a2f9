"""Runs an hour of the control loop in minutes, and measures its memory.

    python -m scripts.attack.soak --minutes 60 --control-hz 500

Runner, executor, record and both sessions of the protocol are the real ones; the clock is virtual, the
network a list, the robot ideal. Answers come after 100 ms; one in fifty never does, and the server forgets
all robots every ten minutes. Exit code 1 if the process grew by more than --limit-mb after the first tenth.
"""

import itertools
import time
from dataclasses import dataclass
from typing import Annotated, Literal, cast

import numpy as np

from drivers.fr3 import FR3_LIMITS
from drivers.ideal import Q_HOME, IdealArm, IdealGripper
from policies.scripted import FRANKA, HoldPolicy
from robot_runtime.cli.options import Hertz, Within
from robot_runtime.core.method.table import METHODS, method_named
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.runner import Runner
from robot_runtime.wire.client_session import ClientSession
from robot_runtime.wire.codec import decode, encode, read
from robot_runtime.wire.events import Event
from robot_runtime.wire.messages import Welcome
from robot_runtime.wire.request_queue import QueuedRequest
from robot_runtime.wire.server_session import ServerSession
from scripts.attack.live_server import resident_bytes
from scripts.harness import run_script
from sim.scene.clock import SimClock

DELAY_NS, RESTART_NS, UNANSWERED = NS_PER_S // 10, 600 * NS_PER_S, 50


@dataclass(frozen=True, kw_only=True)
class Args:
    """Run the control loop for a time of its own clock."""

    minutes: Annotated[float, Within(0.01, 100_000)] = 60.0
    control_hz: Hertz = 500.0
    method: Literal[*METHODS] = "time-aligned"  # type: ignore[valid-type]
    limit_mb: Annotated[float, Within(0, 100_000)] = 20.0


class Loopback:
    """Stand-in for a `PolicyClient` of a `Runner`: both sessions in this thread, packets as on the wire."""

    def __init__(self, clock: SimClock, welcome: Welcome) -> None:
        self.thread_id, self.num_answers = 0, 0
        self.new_epochs = itertools.count().__next__
        self._clock, self._welcome = clock, welcome
        self._server = ServerSession(welcome)
        self._client = ClientSession(
            client_id="soak", robot="ideal", schema=FRANKA, session_ids=itertools.count(1)
        )
        self._working: list[tuple[int, ServerSession, QueuedRequest]] = []
        self._restart_ns = RESTART_NS
        self._client.connect(clock.now_ns())

    def submit(self, request: ChunkRequest) -> None:
        self._client.submit(request, self._clock.now_ns())

    def events(self) -> list[Event]:
        now_ns = self._clock.now_ns()
        if now_ns >= self._restart_ns:
            self._restart_ns += RESTART_NS
            self._server = ServerSession(self._welcome)
        self._client.handle_timer(now_ns)
        for packet in self._client.packets_to_send():
            self._server.receive(b"soak", read(encode(packet)), now_ns)
        self._work(now_ns)
        for _, packet in self._server.packets_to_send():
            self._client.receive(decode(encode(packet)), now_ns)
        out = []
        while (event := self._client.next_event()) is not None:
            out.append(event)
        return out

    def _work(self, now_ns: int) -> None:
        server = self._server
        server.handle_timer(now_ns)
        for job in list(server.startable()):
            if (started := server.start(job)) is not None:
                self._working.append((now_ns + DELAY_NS, server, started))
        due = [work for work in self._working if work[0] <= now_ns]
        self._working = [work for work in self._working if work[0] > now_ns]
        for _, asked, job in due:
            self.num_answers += 1
            if asked is server and server.is_wanted(job) and self.num_answers % UNANSWERED:
                rows = self._rows(job.request)
                server.rows_ready(job, job.request.part(rows, infer_ns=DELAY_NS))

    def _rows(self, request: ChunkRequest) -> np.ndarray:
        spec = self._welcome.info.action_spec
        t_s = (request.observation.t_obs_ns + spec.dt_ns * np.arange(spec.horizon)) / NS_PER_S
        return np.column_stack([*(Q_HOME[:, None] + 0.1 * np.sin(t_s)), np.full(spec.horizon, 0.04)])


def main(args: Args) -> int:
    clock, policy = SimClock(), HoldPolicy(FRANKA)
    welcome = Welcome(info=policy.info, heartbeat_ns=NS_PER_S // 10)
    client = Loopback(clock, welcome)
    while not any(isinstance(event, Welcome) for event in client.events()):
        clock.sleep_until_ns(clock.now_ns() + NS_PER_S // 100)
    setting = RunConfig(
        Robot(arm=IdealArm(clock=clock), gripper=IdealGripper(), limits=FR3_LIMITS),
        duration_s=args.minutes * 60,
        clock=clock,
        control_hz=args.control_hz,
        use_fifo=False,
    )
    runner = Runner(setting, cast(PolicyClient, client), welcome, method=method_named(args.method))
    duration_ns = round(args.minutes * 60 * NS_PER_S)
    sizes, next_ns, start = list[float](), 0, time.monotonic()

    def look(tick: Tick) -> None:
        nonlocal next_ns
        if tick.now_ns >= next_ns:
            next_ns += duration_ns // 20
            sizes.append(resident_bytes() / 1e6)
            print(f"{tick.now_ns / 60e9:6.1f} min  {sizes[-1]:7.1f} MB", flush=True)

    record = runner.run(on_tick=look)
    grown = max(sizes[2:]) - sizes[2]
    moving = 1.0 - record.summary()["stalled_s"] / record.summary()["duration_s"]
    print(
        f"{record.num_ticks} ticks and {client.num_answers} answers in {time.monotonic() - start:.0f} s; ",
        end="",
    )
    print(f"moving {moving:.1%} of the time; grown by {grown:.1f} MB after the first tenth")
    return int(grown > args.limit_mb or moving < 0.5)


if __name__ == "__main__":
    run_script(Args, main, description=__doc__)
