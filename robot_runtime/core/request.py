"""RequestPlanner parts: when to ask for a chunk, and what to say with it."""

from dataclasses import dataclass

import numpy as np

from robot_runtime.core.action import ActionSpec
from robot_runtime.core.latency import LatencyEstimator
from robot_runtime.core.method import PlainObservation, PreviousChunk, RequestPart, SamplerPart, StopAndAsk
from robot_runtime.core.shapes import Float
from robot_runtime.core.state import Observation, RobotState
from robot_runtime.core.timeline import ChunkTimeline, Phase
from robot_runtime.core.waypoints import Waypoints
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class ChunkRequest:
    """One question to the policy."""

    request_id: int
    epoch: int
    """Counts resets of the robot; an answer from before the last one is worthless."""
    observation: Observation
    prev_action_chunk: Float[np.ndarray, "n D"] | None
    """What the plan says from the observation on, row 0 due then, in the policy's own columns."""
    inference_delay: int
    """How many of those rows will have run before the answer can, d <= n: they are committed."""
    sampler: SamplerPart
    seed: int
    """Of the sampler's noise, >= 0."""
    deadline_ns: int
    """How long an answer is of use, counted from submission or, on the server, from receipt [ns]."""


class RequestPlanner:
    """Decides when to ask; pure but for the time of the last request."""

    def __init__(self, *, part: RequestPart, action_spec: ActionSpec) -> None:
        horizon = part.execution_horizon
        if horizon is not None and not 1 <= horizon <= action_spec.horizon:
            raise InvalidValueError(
                f"execution horizon must lie in 1..{action_spec.horizon}, the rows of a chunk; got {horizon}"
            )
        self._part = part
        self._spec = action_spec
        self._asked_ns: int | None = None

    def rows_to_run(self) -> int:
        """Rows of a chunk that may enter the plan."""
        if isinstance(self._part, StopAndAsk) and self._part.execution_horizon is not None:
            return self._part.execution_horizon
        return self._spec.horizon

    def is_due(self, timeline: ChunkTimeline, now_ns: int) -> bool:
        """Whether to ask now, given that no request is under way."""
        match self._part:
            case StopAndAsk():
                return timeline.phase(now_ns) is Phase.REST
            case PlainObservation(execution_horizon=rows) | PreviousChunk(execution_horizon=rows):
                return self._asked_ns is None or now_ns >= self._asked_ns + rows * self._spec.dt_ns

    def asked(self, t_obs_ns: int) -> None:
        """Note that a request with this observation went out."""
        self._asked_ns = t_obs_ns

    def reset(self) -> None:
        """Ask at the next opportunity."""
        self._asked_ns = None

    def previous_chunk(
        self, timeline: ChunkTimeline, latency: LatencyEstimator, anchor: RobotState
    ) -> tuple[Float[np.ndarray, "n D"] | None, int]:
        """(rows of the plan from `anchor` on, how many of them are committed).

        (None, 0) if the part does not send them, or the robot stands still: it is committed to nothing.
        """
        if not isinstance(self._part, PreviousChunk) or timeline.phase(anchor.t_ns) is not Phase.PLAN:
            return None, 0
        fixed, horizon = self._part.inference_delay, self._spec.horizon
        d = min(latency.num_rows(self._spec.dt_ns) if fixed is None else fixed, horizon - 1)
        times = [anchor.t_ns + i * self._spec.dt_ns for i in range(horizon)]
        times = [t for t in times if t <= timeline.end_ns]
        planned = Waypoints.from_commands([timeline.command_at(t) for t in times])
        return planned.encode(self._spec, anchor), min(d, len(times))
