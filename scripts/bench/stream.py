"""`python -m scripts.bench stream`: measures when the first rows of a streamed chunk arrive, over real
sockets.

    submit                first fresh row                                    last row
      |---- wire, call 1 -------|---- call 2 ---- ... ---- call N ---- wire -----|
                             |-------------- in-process: N calls, no wire --------------|

The horizon-aware schedule (FASTER, arXiv 2603.19199) finishes the first open row after the first call of the
network. Committed rows are the robot's own and count for nothing. The server is a process of its own; trips
over the wire alternate with chunks sampled in this process, so that drift of the machine cancels. Both sample
on one thread.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from rich.progress import track

from robot_runtime.cli.options import AnyRows, Count, Maybe, OutputFile, Rows
from robot_runtime.core.method.capabilities import resolve_method
from robot_runtime.core.method.sampler_parts import HorizonAwareSchedule
from robot_runtime.core.method.table import METHODS
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError
from robot_runtime.processes import torch_threads
from robot_runtime.robot.client import PolicyClient
from robot_runtime.server.process import ServerProcess
from scripts.harness import finish, percentiles

if TYPE_CHECKING:
    from policies.flow.policy import FlowPolicy
    from robot_runtime.core.values.state import Observation

NUM_WARM_UP = 10
DEADLINE_NS = 5 * NS_PER_S
WIRE_FIRST, WIRE_WHOLE, SAMPLING = "wire: first fresh row", "wire: whole chunk", "in-process: whole chunk"


@dataclass(frozen=True, kw_only=True)
class BenchStream:
    """Measure when the first fresh row and the last row of a streamed chunk arrive, and the sampling time."""

    policy: str = "track"
    """Name of a shipped policy, or a checkpoint folder; of recipe mixed-schedule."""
    task: str = "track"
    """Task whose observations the policy sees."""
    num_steps: Rows = 10
    """Network calls of a chunk."""
    inference_delay: AnyRows = 8
    """Rows that are committed already."""
    n: Count = 300
    """Number of chunks of each kind."""
    json: Maybe[OutputFile] = None
    """Write the figures to this file, as JSON."""

    def main(self) -> int:
        """Measure, print a table, and write the figures if asked; returns the exit code."""
        from scripts.tables import speed

        figures = self._measure()
        return finish(figures, self.json, speed.stream(figures))

    def _measure(self) -> dict:
        from sim.scene.world import World
        from sim.tasks import make_task

        policy = self._policy()
        request = self._request(policy, World(make_task(self.task)).observe())
        times: dict[str, list[float]] = {WIRE_FIRST: [], WIRE_WHOLE: [], SAMPLING: []}
        with (
            torch_threads(1),
            ServerProcess(self.policy) as server,
            PolicyClient(server.address, schema=policy.info.schema) as client,
        ):
            client.wait_until_ready()
            client.events()
            for k in track(range(NUM_WARM_UP + self.n), description="chunks"):
                first, whole = round_trip(client, replace(request, request_id=k))
                sampling = _timed(lambda: sample_in_process(policy, request))
                if k >= NUM_WARM_UP:
                    for name, value in ((WIRE_FIRST, first), (WIRE_WHOLE, whole), (SAMPLING, sampling)):
                        times[name].append(value)
        return {
            "num_steps": self.num_steps,
            "inference_delay": self.inference_delay,
            "horizon": policy.info.action_spec.horizon,
            "times_ms": {name: asdict(Times.of(values)) for name, values in times.items()},
            "first_over_sampling": float(np.median(times[WIRE_FIRST]) / np.median(times[SAMPLING])),
            "first_over_whole": float(np.median(times[WIRE_FIRST]) / np.median(times[WIRE_WHOLE])),
        }

    def _policy(self) -> "FlowPolicy":
        """Return the policy that the options select; InvalidValueError and others name what is wrong."""
        from policies.flow.policy import FlowPolicy
        from policies.load import load_policy
        from robot_runtime.evaluation.loop import check_fit
        from sim.episodes.task_env import TaskEnv

        policy = load_policy(self.policy)
        if not isinstance(policy, FlowPolicy):
            raise InvalidValueError(f"policy {self.policy!r} has no network of ours, which streams its rows")
        check_fit(policy, TaskEnv(self.task).info)
        resolve_method(METHODS["faster"], policy.info.capabilities, policy=policy.info.name)
        if self.inference_delay >= policy.info.action_spec.horizon:
            raise InvalidValueError(
                f"--inference-delay is below {policy.info.action_spec.horizon}, the rows of a chunk, got "
                f"{self.inference_delay}"
            )
        return policy

    def _request(self, policy: "FlowPolicy", observation: "Observation") -> ChunkRequest:
        stay = [*observation.state.q, observation.state.gripper_width or 0.0]
        return ChunkRequest(
            request_id=0,
            epoch=0,
            observation=observation,
            prev_action_chunk=np.tile(stay, (policy.info.action_spec.horizon, 1)),
            inference_delay=self.inference_delay,
            sampler=HorizonAwareSchedule(num_steps=self.num_steps),
            seed=0,
            deadline_ns=DEADLINE_NS,
        )


@dataclass(frozen=True, kw_only=True)
class Times:
    """Of one kind of chunk [ms]."""

    n: int
    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, times_ms: list[float]) -> "Times":
        return cls(n=len(times_ms), **percentiles(times_ms))


def round_trip(client: PolicyClient, request: ChunkRequest) -> tuple[float, float]:
    """Time from submission until the first row that is not committed, and the last, can be used [ms].

    ServerUnavailableError: they do not come.
    """
    started_ns = time.monotonic_ns()
    first_ms = last_ms = None
    for event in client.parts(request):
        last_ms = (time.monotonic_ns() - started_ns) / 1e6
        if first_ms is None and event.part.first_row + len(event.part.rows) > request.inference_delay:
            first_ms = last_ms
    assert first_ms is not None
    assert last_ms is not None
    return first_ms, last_ms


def sample_in_process(policy: "FlowPolicy", request: ChunkRequest) -> None:
    """The whole chunk, without server and wire."""
    for _ in policy.infer(request):
        pass


def _timed(do: Callable[[], None]) -> float:
    started_ns = time.monotonic_ns()
    do()
    return (time.monotonic_ns() - started_ns) / 1e6
