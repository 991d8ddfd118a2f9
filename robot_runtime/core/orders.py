"""What anybody but the policy asks of a run: `Order`, frozen values, and `TakenOrder`, what became of one.

    page, keys, pedal, line on stdin, teleoperator ─► Session.post(order, by) ─► the next control tick does it

There is no other way in: whoever posts never waits, the control thread does what was posted in its order, and
the run's log has each with who asked, when, when it was done, or why it was refused.
"""

from enum import Enum
from typing import get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from robot_runtime.core.authority import HandoverPhase
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError

MAX_TASK = 2000
"""Characters of a task text."""


class Outcome(Enum):
    """How an episode ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    TIMEOUT = "timeout"
    OPERATOR_ABORT = "operator_abort"
    FAULT = "fault"
    UNKNOWN = "unknown"


class _Order(Struct, frozen=True, tag_field="order"):
    """Told apart by the field `order` where it is written: {"order": "SetTask", "task": "fold the towel"}."""


class Stop(_Order, frozen=True, tag=True):
    """Brake to rest within the limits, and stand until `Reset`."""

    press: str = ""
    """Which press of a page's button this is: a page sends it until it is confirmed, and it is done once."""


class Arm(_Order, frozen=True, tag=True):
    """Let rows run; refused while something is missing."""


class Reset(_Order, frozen=True, tag=True):
    """Leave STOP: stand where the robot is; to be armed anew, if it has to be."""


class TakeOver(_Order, frozen=True, tag=True):
    """From now on a person moves these parts, () all: they follow her, and stand while she says nothing."""

    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _own_parts(self)


class HandBack(_Order, frozen=True, tag=True):
    """The policy moves these parts again, () all that a person has: with a chunk that is asked for now."""

    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _own_parts(self)


class SayPhase(_Order, frozen=True, tag=True):
    """What she is doing with the parts that she has, () all: RECOVER or CORRECT; nobody else can tell."""

    phase: HandoverPhase
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.phase, HandoverPhase):
            raise InvalidValueError(f"phase is a HandoverPhase, got {self.phase!r:.100}")
        _own_parts(self)


class SetTask(_Order, frozen=True, tag=True):
    """The next request carries this text; rows for the task before run until rows for this one come."""

    task: str

    def __post_init__(self) -> None:
        if not isinstance(self.task, str):
            raise InvalidValueError(f"a task is a text, got {self.task!r:.100}")
        if not self.task.strip() or len(self.task) > MAX_TASK:
            raise InvalidValueError(
                f"a task is a text of 1 to {MAX_TASK} characters, got {len(self.task.strip())} of them"
            )
        if any("\ud800" <= c <= "\udfff" or c < " " for c in self.task):
            raise InvalidValueError(f"a task is one line of text, got {self.task!r:.100}")


class Keep(_Order, frozen=True, tag=True):
    """Keep the log of the last seconds, None: of as many as the ring holds, and of what comes after."""

    seconds: float | None = None

    def __post_init__(self) -> None:
        is_number = isinstance(self.seconds, int | float)
        if self.seconds is not None and not (is_number and 0.0 < self.seconds < 1e6):
            raise InvalidValueError(
                f"the seconds to keep are above 0 and below 1e6, got {self.seconds!r:.100}"
            )


class BeginEpisode(_Order, frozen=True, tag=True):
    """A trial begins here; one that is open ends, UNKNOWN."""


class EndEpisode(_Order, frozen=True, tag=True):
    """The trial that is open, or the run so far, ends here."""

    outcome: Outcome
    keep: bool = True
    """Whether it is worth a place in a dataset."""

    def __post_init__(self) -> None:
        if not isinstance(self.outcome, Outcome):
            raise InvalidValueError(f"outcome is an Outcome, as Outcome.SUCCESS, got {self.outcome!r:.100}")
        if not isinstance(self.keep, bool):
            raise InvalidValueError(f"keep is True or False, got {self.keep!r:.100}")


Order = Stop | Arm | Reset | TakeOver | HandBack | SayPhase | SetTask | Keep | BeginEpisode | EndEpisode


class TakenOrder(Struct, frozen=True, kw_only=True):
    """An order that the control thread has done, or refused."""

    order: Order
    by: str
    """Who asked: "page", "key t", "line on stdin", ..."""
    posted_ns: int
    done_ns: int
    """At the tick that did it; times of the robot's clock."""
    refused: str = ""
    """Why nothing was done; empty: it was done."""

    def __str__(self) -> str:
        waited = f" after {(self.done_ns - self.posted_ns) / NS_PER_S:.3f} s"
        told = f"{said(self.order)} by {self.by}{waited}"
        return told + (f": refused: {self.refused}" if self.refused else "")


def said(order: Order) -> str:
    """An order in words: "end the episode as success"."""
    match order:
        case TakeOver(parts=parts):
            return f"take over {', '.join(parts) or 'all'}"
        case HandBack(parts=parts):
            return f"hand back {', '.join(parts) or 'all'}"
        case SayPhase(phase=phase, parts=parts):
            return f"{phase.value} {', '.join(parts) or 'all'}"
        case SetTask(task=task):
            return f"set the task {task!r}"
        case Keep(seconds=seconds):
            return "keep the log" if seconds is None else f"keep the log of {seconds:g} s"
        case BeginEpisode():
            return "begin an episode"
        case EndEpisode(outcome=outcome, keep=keep):
            how = outcome.value.replace("_", " ")
            return f"end the episode as {how}" + ("" if keep else " and discard it")
        case _:
            return type(order).__name__.lower()


class EpisodeMark(Struct, frozen=True, kw_only=True):
    """One trial of a run: ticks with start_ns <= t < end_ns."""

    start_ns: int
    end_ns: int
    outcome: Outcome
    keep: bool = True
    source: str = "operator"
    """Who says so: "operator", or "sim", the judge of a simulated task."""


def _own_parts(order: TakeOver | HandBack | SayPhase) -> None:
    """InvalidValueError: they are no names of parts."""
    parts = order.parts
    if not isinstance(parts, tuple | list) or not all(isinstance(part, str) for part in parts):
        raise InvalidValueError(f'parts are names, as ("left_arm",), or () for all; got {parts!r:.100}')
    force_setattr(order, "parts", tuple(parts))


def check_order(order: object, by: object) -> None:
    """InvalidValueError for what is no order of anybody."""
    if not isinstance(order, get_args(Order)):
        kinds = ", ".join(f"{kind.__name__}(...)" for kind in get_args(Order))
        raise InvalidValueError(f"an order is one of {kinds}; got {type(order).__name__} {order!r:.100}")
    if not isinstance(by, str) or not by:
        raise InvalidValueError(f"an order says by whom it is, in words, got {by!r:.100}")
