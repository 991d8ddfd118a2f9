"""Requests whose answers are under way: `OpenRequests` puts the parts of each together.

part of an answer ─► nobody asked for it │ rows missing │ wrong shape ─► refused
                                         │
                     rows of `Pending` ◄─┘   a later observation answered already ─► refused
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import ActionSpec, ChunkPart


class PartOutcome(Enum):
    """What became of a part of a chunk."""

    RUNS = "its rows are in the plan"
    WAITS = "more of its rows are needed: those that have come are past, or too few to match it to the robot"
    LATE = "all its rows were already past"
    UNKNOWN = "nobody asked for it, or its answer is complete"
    OUT_OF_ORDER = "rows before it are missing"
    INVALID = "wrong shape, NaN or infinite numbers"
    OVERTAKEN = "a later observation has been answered already"
    STOPPED = "the robot is stopped"
    DISTRUSTED = "the robot's state cannot be trusted"
    VOID = "an answer before it came late, and the robot started later than this one was told"


@dataclass(kw_only=True, eq=False)
class Pending:
    """An answer that is under way, with the rows that have come."""

    request: ChunkRequest
    t_obs_ns: int
    """Capture time; the request's own observation may carry a state rolled forward."""
    t_oldest_ns: int
    """The same of the oldest part of the observation."""
    rows: np.ndarray
    num_rows: int = 0
    is_complete: bool = False
    num_placed: int = 0
    """Rows that are in the plan or were dropped."""
    stood_still: bool = False
    """The robot stood at rest when its first row that was not committed was due, and has since."""
    is_void: bool = False
    """Its request was told of a motion that did not come about so."""
    has_run: bool = False
    """Some of its rows were still to come when they arrived."""
    t0_ns: int | None = None


class OpenRequests:
    """One robot's, oldest first; void ones are kept until their answers are complete."""

    def __init__(self, spec: ActionSpec) -> None:
        self._spec = spec
        self._pending: dict[int, Pending] = {}
        self._newest_id = -1

    @property
    def ids(self) -> tuple[int, ...]:
        """Of those whose answers are not complete, but for void ones."""
        return tuple(i for i, pending in self._pending.items() if not pending.is_void)

    def add(self, request: ChunkRequest, *, t_obs_ns: int, t_oldest_ns: int) -> None:
        """A request goes out; fields as in `Pending`."""
        rows = np.empty((self._spec.horizon, self._spec.dim))
        self._pending[request.request_id] = Pending(
            request=request, t_obs_ns=t_obs_ns, t_oldest_ns=t_oldest_ns, rows=rows
        )

    def drop(self, request_id: int) -> Pending | None:
        """The rest of its answer is not wanted or will not come; what was open of it."""
        return self._pending.pop(request_id, None)

    def void_after(self, request_id: int) -> bool:
        """What was asked after it counts on its rows running earlier than they do; whether anything was."""
        later = [pending for i, pending in self._pending.items() if i > request_id]
        for pending in later:
            pending.is_void = True
        return bool(later)

    def clear(self) -> None:
        """None is open any more."""
        self._pending.clear()

    def take(self, part: ChunkPart, epoch: int) -> "Pending | PartOutcome":
        """Add rows to the answer they belong to; why not, if they are refused."""
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

    def answered(self, pending: Pending) -> None:
        """Rows of it are in the plan: older answers have nothing to say any more."""
        self._newest_id = max(self._newest_id, pending.request.request_id)
