"""Open answers: `Answers` assembles the parts of each and puts their rows into the plan.

part of an answer ─► no such request │ rows missing │ wrong shape ─► refused
                                     │
                 rows of `Pending` ◄─┘   a later observation answered already ─► refused
                        │
                        └─► rows that may run: blended ─► ChunkTimeline
"""

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from robot_runtime.core.method.splice_parts import SplicePart
from robot_runtime.core.plan.blend import Blender
from robot_runtime.core.plan.counts import Counts
from robot_runtime.core.plan.limits import BaseLimits, GripperLimits, JointLimits, Limits
from robot_runtime.core.plan.splice import Arrival, first_row_due_ns, has_enough_rows
from robot_runtime.core.plan.timeline import ChunkTimeline, Phase, Seam, Source
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import ActionChunk, ActionSpec, ChunkPart
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.waypoints import Waypoints

FAR_SEAM = 0.3
"""A chunk that begins farther than this from the plan is counted: largest joint [rad], or end effector
[m]."""


class PartOutcome(Enum):
    """The outcome of a part of a chunk."""

    RUNS = "its rows are in the plan"
    WAITS = "more of its rows are needed: those that have come are past, or too few to match it to the robot"
    LATE = "all its rows were already past"
    UNKNOWN = "it was not requested, or its answer is complete"
    OUT_OF_ORDER = "rows before it are missing"
    INVALID = "wrong shape, NaN or infinite numbers"
    FAR = "its rows lie far outside the robot's ranges"
    OVERTAKEN = "a later observation has been answered already"
    STOPPED = "the robot is stopped"
    NOT_ARMED = "the robot is not armed"
    DISTRUSTED = "the robot's state cannot be trusted"
    VOID = "an answer before it came late, and the robot started later than this one assumes"


@dataclass(frozen=True, kw_only=True, eq=False)
class Splice:
    """How a chunk entered the plan."""

    t_ns: int
    source: Source
    latency_ns: int
    """From capture of the observation's oldest part to this splice [ns]."""
    t0_ns: int
    """When row 0 is due, or was [ns]."""
    seam: Seam
    first_fresh_row: int
    """Rows before this one were meant for times at which the robot already followed another plan: if they
    run all the same, the robot repeats motion. 0 if it was stationary."""
    picture_age_ns: int = 0
    """How much older than the state the oldest image of the observation was [ns]."""


@dataclass(kw_only=True, eq=False)
class Pending:
    """An open answer, with the rows that have come."""

    request: ChunkRequest
    t_obs_ns: int
    """Capture time; the request's own observation may carry a state rolled forward."""
    t_oldest_ns: int
    """Capture time of the oldest part of the observation."""
    rows: np.ndarray
    num_rows: int = 0
    is_complete: bool = False
    num_placed: int = 0
    """Rows that are in the plan or were dropped."""
    stood_still: bool = False
    """Whether the robot was at rest when its first row that was not committed was due, and has been since."""
    is_void: bool = False
    """Whether its request assumed a motion that did not take place."""
    has_run: bool = False
    """Whether some of its rows were still to come when they arrived."""
    t0_ns: int | None = None


class Answers:
    """The open answers of one robot, oldest first; void ones are kept until they are complete."""

    def __init__(
        self,
        spec: ActionSpec,
        *,
        splice: SplicePart,
        timeline: ChunkTimeline,
        blender: Blender,
        counts: Counts,
        limits: Limits,
        lead_ns: int = 0,
    ) -> None:
        """
        splice: where in time an answer enters the timeline.
        blender: blends its rows with the old plan.
        limits: rows far outside them are refused.
        lead_ns: how far ahead of the clock rows are sent, see `PartLatency` [ns].
        """
        self._lead_ns = lead_ns
        self._spec, self._splice = spec, splice
        self._timeline, self._blender = timeline, blender
        self._counts, self._limits = counts, limits
        self._pending: dict[int, Pending] = {}
        self._newest_id = -1
        self.last_splice: Splice | None = None
        """How the last answer entered the plan."""

    @property
    def open_ids(self) -> tuple[int, ...]:
        """Ids of requests whose answers are neither complete nor void."""
        return tuple(i for i, pending in self._pending.items() if not pending.is_void)

    def expect(self, request: ChunkRequest, *, t_obs_ns: int, t_oldest_ns: int) -> None:
        """Note a request that goes out; arguments as in `Pending`."""
        rows = np.empty((self._spec.horizon, self._spec.dim))
        self._pending[request.request_id] = Pending(
            request=request, t_obs_ns=t_obs_ns, t_oldest_ns=t_oldest_ns, rows=rows
        )

    def drop(self, request_id: int) -> Pending | None:
        """Forget an answer whose rest is not wanted or will not come; returns it if it was open."""
        return self._pending.pop(request_id, None)

    def clear(self) -> None:
        """Forget all open answers."""
        self._pending.clear()

    def take(self, part: ChunkPart, epoch: int) -> Pending | PartOutcome:
        """Add rows to the answer they belong to; returns it, or why they are refused."""
        pending = self._pending.get(part.request_id)
        if pending is None or part.epoch != epoch:
            return PartOutcome.UNKNOWN
        if part.first_row != pending.num_rows:
            return PartOutcome.OUT_OF_ORDER
        end = part.first_row + len(part.rows)
        if part.rows.shape[1:] != (self._spec.dim,) or not part.first_row < end <= len(pending.rows):
            return PartOutcome.INVALID
        pending.rows[part.first_row : end] = part.rows
        pending.num_rows, pending.is_complete = end, part.is_last
        if part.is_last:
            self.drop(part.request_id)
        return pending

    def is_overtaken(self, pending: Pending) -> bool:
        """Whether a later observation has been answered already."""
        return pending.request.request_id < self._newest_id

    def place(
        self,
        pending: Pending,
        *,
        rows_to_run: int,
        now_ns: int,
        state: RobotState | None,
        still_since_ns: int,
    ) -> Seam | PartOutcome:
        """Put the rows of an answer that have come into the plan; returns the seam, or why none entered.

        Requests that assume that its rows run earlier than they do are void from then on.

        rows_to_run: rows of a chunk that may run.
        state: the newest measured; still_since_ns: since when the robot has been stationary, if it is.
        ValueError: its numbers are invalid rows. FarRowsError: they lie far outside the robot's ranges.
        """
        request, dt_ns = pending.request, self._spec.dt_ns
        chunk = self._chunk(pending)
        waypoints = Waypoints.from_chunk(chunk).head(rows_to_run)
        refuse_far(waypoints, self._limits, chunk.anchor)
        is_whole = pending.is_complete or waypoints.num_rows == rows_to_run
        if pending.has_run and waypoints.num_rows == pending.num_placed:
            return PartOutcome.RUNS  # the new rows lie beyond those that may run
        if pending.t0_ns is None:
            start_ns = chunk.t_obs_ns + request.inference_delay * dt_ns
            pending.stood_still = self._stands_since(start_ns, still_since_ns)
            arrival = self._arrival(pending, chunk.anchor if state is None else state, now_ns)
            if not is_whole and not has_enough_rows(self._splice, chunk, waypoints.num_rows, arrival):
                return PartOutcome.WAITS
            pending.t0_ns = first_row_due_ns(self._splice, chunk, waypoints, arrival, self._counts)
            if pending.stood_still and pending.t0_ns > chunk.t_obs_ns:
                self._void_after(request.request_id)
            self._blender.begin(self._timeline, t0_ns=pending.t0_ns, stood_still=pending.stood_still)
        source = Source(request_id=chunk.request_id, t_obs_ns=pending.t_oldest_ns)
        seam = self._timeline.splice(
            self._blender.rows(waypoints),
            t0_ns=pending.t0_ns,
            dt_ns=dt_ns,
            source=source,
            is_complete=is_whole,
        )
        self._counts.skipped_rows += max(0, seam.num_dropped - pending.num_placed)
        pending.num_placed = waypoints.num_rows
        if seam.first_row is None:
            if pending.has_run or not pending.is_complete:
                return PartOutcome.RUNS if pending.has_run else PartOutcome.WAITS
            self._counts.late_answers += 1
            return PartOutcome.LATE
        self._newest_id = max(self._newest_id, request.request_id)
        if not pending.has_run:
            self._began(pending, seam, source, now_ns)
        return seam

    def check(self, pending: Pending) -> None:
        """Check the rows of an answer that will not run. ValueError, FarRowsError: as in `place`."""
        chunk = self._chunk(pending)
        refuse_far(Waypoints.from_chunk(chunk), self._limits, chunk.anchor)

    def _chunk(self, pending: Pending) -> ActionChunk:
        return ActionChunk(
            spec=self._spec,
            rows=pending.rows[: pending.num_rows],
            anchor=pending.request.observation.state,
            request_id=pending.request.request_id,
            epoch=pending.request.epoch,
        )

    def _began(self, pending: Pending, seam: Seam, source: Source, now_ns: int) -> None:
        """Note that the first rows of an answer are in the plan."""
        assert pending.t0_ns is not None
        pending.has_run = True
        if seam.jump > FAR_SEAM:
            self._counts.first_far_seam = self._counts.first_far_seam or seam.jump
            self._counts.far_seams += 1
        self.last_splice = Splice(
            t_ns=now_ns,
            source=source,
            latency_ns=now_ns - pending.t_oldest_ns,
            picture_age_ns=pending.t_obs_ns - pending.t_oldest_ns,
            t0_ns=pending.t0_ns,
            seam=seam,
            first_fresh_row=self._first_fresh_row(pending),
        )

    def _void_after(self, request_id: int) -> None:
        for later, pending in self._pending.items():
            pending.is_void = pending.is_void or later > request_id

    def _stands_since(self, t_ns: int, still_since_ns: int) -> bool:
        """Whether the robot is at rest and was at that time, or will be by then."""
        claimed_ns = self._timeline.claimed_ns
        is_at_rest = self._timeline.phase(max(t_ns, claimed_ns)) is Phase.REST
        return is_at_rest and (t_ns > claimed_ns or still_since_ns <= t_ns)

    def _arrival(self, pending: Pending, state: RobotState, now_ns: int) -> Arrival:
        claimed_ns = self._timeline.claimed_ns
        return Arrival(
            now_ns=now_ns + self._lead_ns,
            state=state,
            claimed_ns=claimed_ns,
            commanded=self._timeline.command_at(claimed_ns),
            stood_still=pending.stood_still,
            inference_delay=pending.request.inference_delay,
        )

    def _first_fresh_row(self, pending: Pending) -> int:
        if pending.stood_still:
            return 0
        past_ns = self._timeline.claimed_ns - pending.request.observation.state.t_ns
        return max(0, past_ns // self._spec.dt_ns + 1)


FAR_JOINT = 2.0 * math.pi
"""Far beyond a joint's range, if by more than the range's width, too [rad]: an angle that is wrapped
differently is nearer."""
FAR_WIDTH = 1.0
"""Far beyond a gripper's range, if by more than ten times its width, too [m]: -1 and 1 for closed and open
are nearer."""
FAR_SPEED = 10.0
"""Multiple of the largest speed."""
FAR_HAND, FAR_BASE, FAR_YAW = 10.0, 100.0, 4.0 * math.pi
"""Distances from the measured poses [m, m, rad]."""


class FarRowsError(ValueError):
    """A policy's rows are far outside the robot's ranges; the message has where, and the suspected unit."""


def refuse_far(waypoints: Waypoints, limits: Limits, state: RobotState) -> None:
    """Raise FarRowsError if a target lies far outside the declared ranges, or far from the observed state.

    beyond the range   0 ────────── a little ──────────┼────────── far ──────────►
                       goes to the end, within limits  │  refused, with the unit that it looks like

    Plain numbers have units of their own, and are not checked.
    """
    for (part, name), rows in waypoints.rows_of.items():
        match name, limits.parts.get(part):
            case "q", JointLimits(q_min=low, q_max=high):
                off = np.maximum(FAR_JOINT, high - low)
                _refuse_beyond(f"joint {{}} of {part}", rows, low, high, off, "rad")
            case "width", GripperLimits(low=low, high=high):
                least = max(FAR_WIDTH, 10.0 * (high - low))
                _refuse_beyond(f"the width of {part}", rows[:, None], low, high, least, "m")
            case "dq", JointLimits(dq_max=dq):
                _refuse_beyond(f"joint {{}} of {part}", rows, -dq, dq, (FAR_SPEED - 1.0) * dq, "rad/s")
            case "V_WB_B", BaseLimits(motion=motion):
                most = np.array([motion.speed[:2].max()] * 2)
                off = (FAR_SPEED - 1.0) * most
                _refuse_beyond(f"the speed of {part}", rows[:, :2], -most, most, off, "m/s")
                turn = motion.speed[2:]
                off = (FAR_SPEED - 1.0) * turn
                _refuse_beyond(f"the yaw rate of {part}", rows[:, 2:], -turn, turn, off, "rad/s")
            case "p_BE", _ if (X_BE := state.hand(part)) is not None:
                here = X_BE.translation
                _refuse_beyond(f"the end effector of {part}", rows, here, here, FAR_HAND, "m")
            case "x_WB", _ if (x_WB := state.base(part).x_WB) is not None:
                _refuse_beyond(part, rows[:, :2], x_WB[:2], x_WB[:2], FAR_BASE, "m")
                _refuse_beyond(f"the yaw of {part}", rows[:, 2:], x_WB[2:], x_WB[2:], FAR_YAW, "rad")


def _refuse_beyond(
    what: str,
    rows: np.ndarray,
    low: np.ndarray | float,
    high: np.ndarray | float,
    off: np.ndarray | float,
    unit: str,
) -> None:
    """what: with {} for the number of the column. off: the distance beyond which a row is far."""
    beyond = np.maximum(low - rows, rows - high) - off
    if not (beyond > 0.0).any():
        return
    row, column = np.unravel_index(int(beyond.argmax()), beyond.shape)
    first, last = (float(np.broadcast_to(end, rows.shape[1:])[column]) for end in (low, high))
    other = unit.replace("rad", "degrees") if "rad" in unit else unit.replace("m", "mm", 1)
    where = f"it is measured at {first:.3g}" if first == last else f"its range is {first:.3g} to {last:.3g}"
    raise FarRowsError(
        f"row {row} has {what.format(column + 1)} at {rows[row, column]:.4g} {unit}, and {where}: are the "
        f"policy's rows in {other}?"
    )
