"""`ZeroOrderHold`: a robot that gets one target per period and holds it until the next.

    target   ──┐     ┌──────          row k popped at period k, held
               └─────┘
    sent     ──╲_____╱──────          the limiter's ramp, at 500 Hz

Keeps the record our executor keeps, so that both are judged by the same figures.
"""

from dataclasses import dataclass

import numpy as np

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.plan.answers import Splice
from robot_runtime.core.plan.counts import Counts
from robot_runtime.core.plan.limiter import Limiter
from robot_runtime.core.plan.timeline import Phase, Seam, Source
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import Command, GripperCommand, JointCommand


@dataclass(frozen=True, kw_only=True, eq=False)
class PoppedRow:
    """A row that came out of the peer's queue."""

    request_id: int
    row: int
    t_obs_ns: int
    """Capture time of the observation its chunk answers [ns]."""
    jump: float
    """From the row the older chunk had for this moment, largest joint [rad]; 0 within a chunk."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cycle:
    """What one period of the peer's control loop came to."""

    target: np.ndarray | None
    """(D,) joints and gripper width to send; None sends nothing."""
    popped: PoppedRow | None
    """The row taken from the queue in this period; None if it was empty or an older row is interpolated."""


class ZeroOrderHold:
    """Sends the newest target through the limiter, tick by tick."""

    def __init__(self, start: Command, row_period_ns: int, *, control_period_ns: int = 2_000_000) -> None:
        self.last_splice: Splice | None = None
        """As `Executor.last_splice`; made when the first row of a chunk is sent, not when the chunk came."""
        self.counts = Counts()
        """As `Executor.counts`: starved ticks and skipped rows."""
        self._target = start
        self._row_period_ns = row_period_ns
        self._limiter = Limiter(FR3_LIMITS, period_ns=control_period_ns)
        self._limiter.reset(start, 0)
        self._source: Source | None = None
        self._row: int | None = None
        self._mode = Mode.HOLD

    def on_cycle(self, cycle: Cycle, now_ns: int) -> None:
        """Take what the peer sends now; without a target the arm holds, and that counts as starved."""
        popped = cycle.popped
        self._mode = Mode.HOLD if cycle.target is None else Mode.RUN
        if cycle.target is not None:
            arm, width = JointCommand(q=cycle.target[:-1]), float(cycle.target[-1])
            self._target = Command(arm=arm, gripper=GripperCommand(width=width))
        if popped is None:
            return
        source = Source(request_id=popped.request_id, t_obs_ns=popped.t_obs_ns)
        if source != self._source:
            self.counts.skipped_rows += popped.row
            self.last_splice = Splice(
                t_ns=now_ns,
                source=source,
                latency_ns=now_ns - popped.t_obs_ns,
                t0_ns=now_ns - popped.row * self._row_period_ns,
                seam=Seam(first_row=popped.row, num_dropped=popped.row, jump=popped.jump),
                first_fresh_row=0 if self._source is None else self._rows_until(now_ns, popped.t_obs_ns),
            )
        self._source, self._row = source, popped.row

    def _rows_until(self, now_ns: int, t_obs_ns: int) -> int:
        """Rows of a chunk that were meant for before now."""
        return -(-(now_ns - t_obs_ns) // self._row_period_ns)

    def tick(self, now_ns: int) -> Tick:
        """The command for `now_ns`."""
        command, clip = self._limiter.limit(self._target, now_ns)
        is_running = self._mode is Mode.RUN
        self.counts.starved_ticks += not is_running and self._source is not None
        return Tick(
            now_ns=now_ns,
            command=command,
            mode=self._mode,
            cause=Cause.FRESH_CHUNK if is_running else Cause.PLAN_ENDED,
            phase=Phase.PLAN if is_running else Phase.REST,
            source=self._source,
            row=self._row,
            clip=clip,
        )
