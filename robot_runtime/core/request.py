"""RequestPlanner parts: when to ask for a chunk, and what to say with it."""

from dataclasses import dataclass

import numpy as np

from robot_runtime.core.action import ActionSpec
from robot_runtime.core.latency import LatencyEstimator
from robot_runtime.core.method import CommittedPrefix, PlainObservation, RequestPart, SamplerPart, StopAndAsk
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
    prefix: Float[np.ndarray, "d D"] | None
    """Committed rows in the policy's own columns; row 0 is due at the observation."""
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
            case PlainObservation(execution_horizon=rows) | CommittedPrefix(execution_horizon=rows):
                return self._asked_ns is None or now_ns >= self._asked_ns + rows * self._spec.dt_ns

    def asked(self, t_obs_ns: int) -> None:
        """Note that a request with this observation went out."""
        self._asked_ns = t_obs_ns

    def reset(self) -> None:
        """Ask at the next opportunity."""
        self._asked_ns = None

    def prefix(
        self, timeline: ChunkTimeline, latency: LatencyEstimator, anchor: RobotState
    ) -> Float[np.ndarray, "d D"] | None:
        """The rows that will have run before an answer can, or None if the part does not send them.

        A robot that stands still is committed to nothing.
        """
        if not isinstance(self._part, CommittedPrefix) or timeline.phase(anchor.t_ns) is not Phase.PLAN:
            return None
        fixed = self._part.inference_delay
        d = latency.num_rows(self._spec.dt_ns) if fixed is None else fixed
        times = [anchor.t_ns + i * self._spec.dt_ns for i in range(min(d, self._spec.horizon - 1))]
        times = [t for t in times if t <= timeline.end_ns]
        if not times:
            return None
        committed = Waypoints.from_commands([timeline.command_at(t) for t in times])
        return committed.encode(self._spec, anchor)
