"""`python -m scripts.bench robots`: measures one server with many robots, over real sockets.

in a loop   two robots that ask as soon as they are answered, of a policy that takes 100 ms however many
            it answers: in batches, and one at a time as LeRobot's, openpi's and GR00T's servers do
paced       N robots that ask so often a second, of a trained policy: what is answered in time, what is
            shed and with which reason, and whether every chunk is the one for that robot
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from typing import Annotated

import numpy as np
from msgspec import structs
from rich.progress import track

from policies.commands.serve import tuned_process
from robot_runtime.cli.options import HeartbeatMs, Maybe, OutputFile, Some, Within
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest, NewRows, Policy
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import InvalidValueError
from robot_runtime.processes import torch_threads
from robot_runtime.robot.client import PolicyClient
from robot_runtime.server.server import MAX_BATCH, PolicyServer
from robot_runtime.server.warming import zero_observation
from robot_runtime.wire.events import PartReceived, RequestFailed, ServerLost
from robot_runtime.wire.messages import Dropped
from scripts.bench.wire_floor import ANY_PORT, server_process
from scripts.harness import finish, percentiles

LOOP_POLICY_MS = 100
LOOK_EVERY_S = 0.001
ROUNDING = 1e-4
"""By how much an answer in a batch may differ from one alone [rad, m]; robots differ by far more."""


@dataclass(frozen=True, kw_only=True)
class BenchRobots:
    """Measure how many robots one server serves, how soon, and that no robot gets another robot's chunk."""

    policy: str = "pick_place"
    """Policy of the paced robots: name of a shipped one or a checkpoint folder, without cameras."""
    robots: Some[Annotated[int, Within(1, 1000)]] = (1, 8, 32, 64)
    """Numbers of paced robots to measure."""
    requests_per_s: Annotated[float, Within(0.01, 1000)] = 5.0
    """Requests per second of each paced robot; an answer is of use until the next request is due."""
    seconds: Annotated[float, Within(0.1, 3600)] = 10.0
    """How long each number of robots is measured [s]."""
    heartbeat_ms: HeartbeatMs = 100.0
    """Period of each robot's heartbeat requests [ms]; here all robots run in one process."""
    json: Maybe[OutputFile] = None
    """Write the figures to this file, as JSON."""

    def main(self) -> int:
        """Measure, print tables, and write the figures if asked; returns the exit code."""
        from scripts.tables import speed

        with torch_threads(1):
            policy = _load(self.policy)
            modes = ("in batches", 8), ("one at a time", 1)
            loops = [self._loop(name, max_batch) for name, max_batch in modes]
            paced = [self._paced(policy, n) for n in track(self.robots, description="paced robots")]
        figures = {
            "policy": self.policy,
            "requests_per_s": self.requests_per_s,
            "loop": [asdict(row) for row in loops],
            "paced": [asdict(row) for row in paced],
        }
        tables = speed.batches(figures), speed.robots(figures)
        return finish(figures, self.json, *tables, seeds=range(max(self.robots)))

    def _loop(self, name: str, max_batch: int) -> "LoopRow":
        policy = sleeping_policy()
        robots = [Robot(zero_observation(policy.info.schema, ""), deadline_ns=5 * NS_PER_S) for _ in range(2)]
        with server_process(_serve_sleeping, max_batch) as address, ExitStack() as stack:
            for robot in robots:
                robot.connect(address, policy.info.schema, stack)
            end = time.monotonic() + self.seconds / 2
            while time.monotonic() < end:
                for robot in robots:
                    robot.look()
                    if robot.is_free:
                        robot.ask()
                robots[0].wait(LOOK_EVERY_S)
        times = [t for robot in robots for t in robot.response_ms[2:]]
        return LoopRow(server=name, n=len(times), **percentiles(times))

    def _paced(self, policy: Policy, num_robots: int) -> "PacedRow":
        period_ns = round(NS_PER_S / self.requests_per_s)
        robots = list(_robots_of(policy, num_robots, deadline_ns=period_ns))
        arguments = (self.policy, round(self.heartbeat_ms * NS_PER_MS))
        with server_process(_serve_policy, *arguments) as address, ExitStack() as stack:
            for robot in robots:
                robot.connect(address, policy.info.schema, stack)
            start_ns = time.monotonic_ns()
            for i, robot in enumerate(robots):
                robot.next_ns = start_ns + i * period_ns // num_robots
            end_ns = start_ns + round(self.seconds * NS_PER_S)
            while (now_ns := time.monotonic_ns()) < end_ns or not all(robot.is_free for robot in robots):
                for robot in robots:
                    robot.look()
                    if robot.next_ns <= now_ns < end_ns and robot.is_free:
                        robot.ask()
                        robot.next_ns = max(robot.next_ns + period_ns, now_ns)
                time.sleep(LOOK_EVERY_S)
        times = [t for robot in robots for t in robot.response_ms]
        ends = sum((robot.ends for robot in robots), Counter())
        return PacedRow(
            robots=num_robots,
            asked=sum(robot.num_asked for robot in robots),
            answered=len(times),
            shed=ends["overloaded"],
            too_late=ends["deadline"],
            lost=ends["lost"],
            wrong=ends["wrong"],
            **percentiles(times),
        )


@dataclass(frozen=True, kw_only=True)
class LoopRow:
    """Two robots in a loop; times from asking to the last row [ms]."""

    server: str
    n: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, kw_only=True)
class PacedRow:
    """N robots; times of what was answered, from asking to the last row [ms]."""

    robots: int
    asked: int
    answered: int
    shed: int
    """Requests refused because the server is overloaded."""
    too_late: int
    """Requests refused because the deadline has passed, or found so by the robot."""
    lost: int
    """Requests that ended in any other way."""
    wrong: int
    """Requests answered with rows that are not for this robot."""
    p50: float
    p95: float
    p99: float


@dataclass(eq=False)
class Robot:
    """Client that sends the same request again and again, and checks the answer if `expected` is given."""

    observation: Observation
    deadline_ns: int
    seed: int = 0
    expected: np.ndarray | None = None
    next_ns: int = 0
    num_asked: int = 0
    is_free: bool = True
    response_ms: list[float] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    _asked_ns: int = 0
    _rows: list[np.ndarray] = field(default_factory=list)

    def connect(self, address: str, schema: Schema, stack: ExitStack) -> None:
        """Greet; `stack` closes the connection."""
        self._client = stack.enter_context(PolicyClient(address, schema=schema))
        self._client.wait_until_ready(30.0)
        self._client.events()

    def wait(self, timeout_s: float) -> None:
        """Until something happens."""
        self._client.wait_for_events(timeout_s)

    def ask(self) -> None:
        """Send a request."""
        self.is_free, self._rows, self._asked_ns = False, [], time.monotonic_ns()
        self.num_asked += 1
        self._client.submit(
            ChunkRequest(
                request_id=self.num_asked,
                epoch=0,
                observation=self.observation,
                prev_action_chunk=None,
                inference_delay=0,
                sampler=ConstantSchedule(),
                seed=self.seed,
                deadline_ns=self.deadline_ns,
            )
        )

    def look(self) -> None:
        """Take what has come."""
        for event in self._client.events():
            match event:
                case PartReceived(part=part):
                    self._rows.append(part.rows)
                    if part.is_last:
                        self._end("answered")
                        self.response_ms.append((event.arrived_ns - self._asked_ns) / NS_PER_MS)
                        self._compare()
                case Dropped(reason=reason):
                    self._end(reason.value)
                case RequestFailed() | ServerLost():
                    self._end("lost")

    def _compare(self) -> None:
        rows = np.concatenate(self._rows)
        if self.expected is not None and not np.allclose(rows, self.expected, atol=ROUNDING):
            self.ends["wrong"] += 1

    def _end(self, how: str) -> None:
        self.is_free = True
        self.ends[how] += 1


def sleeping_policy() -> Policy:
    """One that takes 100 ms for any batch, as a GPU with room does."""
    from policies.scripted import HoldPolicy

    class SleepingPolicy(HoldPolicy):
        def infer(self, request: ChunkRequest) -> Iterator[np.ndarray]:
            time.sleep(LOOP_POLICY_MS / 1000)
            return super().infer(request)

        def infer_batch(self, requests: Sequence[ChunkRequest]) -> Iterator[NewRows]:
            time.sleep(LOOP_POLICY_MS / 1000)
            answers = (super(SleepingPolicy, self).infer(request) for request in requests)
            return iter([NewRows(num_calls=1, rows=[np.concatenate(list(rows)) for rows in answers])])

    return SleepingPolicy()


def _serve_sleeping(pipe: Connection, max_batch: int) -> None:
    with tuned_process(), PolicyServer(sleeping_policy(), ANY_PORT, max_batch=max_batch) as server:
        pipe.send(server.address)
        server.serve_forever()


def _serve_policy(pipe: Connection, name: str, heartbeat_ns: int) -> None:
    policy = _load(name)
    with (
        torch_threads(1),
        tuned_process(),
        PolicyServer(policy, ANY_PORT, heartbeat_ns=heartbeat_ns, max_batch=MAX_BATCH) as server,
    ):
        pipe.send(server.address)
        server.serve_forever()


def _load(name: str) -> Policy:
    from policies.load import load_policy

    policy = load_policy(name)
    if policy.info.schema.cameras:
        raise InvalidValueError(f"policy {policy.info.name!r} needs cameras, which these robots have not")
    return policy


def _robots_of(policy: Policy, num_robots: int, *, deadline_ns: int) -> Iterator[Robot]:
    """Return robots, each at another pose in its own scene, with the policy's answers to each alone."""
    rng = np.random.default_rng(0)
    nothing = zero_observation(policy.info.schema, next(iter(policy.info.tasks), ""))
    for seed in range(num_robots):
        state = nothing.state.replace(q=rng.uniform(-1.0, 1.0, len(nothing.state.q)))
        scene = rng.uniform(-0.3, 0.3, policy.info.schema.environment_state_dim)
        observation = structs.replace(nothing, state=state, environment_state=scene)
        rows = policy.infer(ChunkRequest(observation=observation, seed=seed))
        yield Robot(observation, deadline_ns, seed=seed, expected=np.concatenate(list(rows)))
