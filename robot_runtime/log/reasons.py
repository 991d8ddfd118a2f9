"""Reasons to keep the last seconds of a run: `Reasons`."""

from robot_runtime.core.journal import Entry, Ticked
from robot_runtime.core.orders import EpisodeMark, Keep, Outcome, TakenOrder
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.log.entries import Fault, LogEntry

FAULTS = (
    Cause.STATE_STALE, Cause.STATE_INVALID, Cause.CLOCKS_DISAGREE, Cause.CLOCK_WENT_BACK,
    Cause.ODOMETRY_JUMPED, Cause.ODOMETRY_FROZEN, Cause.TRACKING_LOST, Cause.BASE_LOST, Cause.SWITCH_LOST,
)  # fmt: skip
"""Causes that no operator has asked for; the end of a plan does not count."""
FAILED = (Outcome.FAILURE, Outcome.TIMEOUT, Outcome.OPERATOR_ABORT, Outcome.FAULT)


class Reasons:
    """Examines the entries of a log one after the other."""

    def __init__(self) -> None:
        self._cause: Cause | None = None
        self._mode: Mode | None = None

    def to_keep(self, entry: Entry | LogEntry) -> tuple[str, float | None] | None:
        """Why to keep the last seconds, and how many if an operator chose that; None: no reason."""
        match entry:
            case TakenOrder(order=Keep(seconds=seconds), refused=""):
                return f"kept by {entry.by}", seconds
            case EpisodeMark(outcome=outcome) if outcome in FAILED:
                return f"episode: {outcome.value}", None
            case Fault(text=text):
                return text, None
            case Ticked(tick=tick):
                is_new = (tick.mode, tick.cause) != (self._mode, self._cause)
                self._mode, self._cause = tick.mode, tick.cause
                if is_new and tick.cause in FAULTS:
                    return tick.cause.value, None
        return None
