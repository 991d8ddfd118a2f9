"""Operator commands: `Order`, frozen values, and `TakenOrder`, the result of one.

    page, keys, pedal, line on stdin, teleoperator ─► Session.post(order, by) ─► the next control tick does it

There is no other way in: a post never waits, the control thread executes commands in the order in which they
were posted, and the run's log has each with its sender, when it was posted and done, or why it was refused.
"""

from enum import Enum
from typing import get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from robot_runtime.core.authority import HandoverPhase
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError

MAX_TASK = 2000
"""Most characters of a task text."""


class Outcome(Enum):
    """How an episode ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    TIMEOUT = "timeout"
    OPERATOR_ABORT = "operator_abort"
    FAULT = "fault"
    UNKNOWN = "unknown"


class _Order(Struct, frozen=True, tag_field="order"):
    """Base of all commands; in JSON the field `order` names the kind: {"order": "SetTask", "task":
    "tidy"}."""


class Stop(_Order, frozen=True, tag=True):
    """Brake to rest within the limits, and hold until `Reset`."""

    press: str = ""
    """Id of a press of a page's button: a page sends it until it is confirmed, and it is executed once."""


class Arm(_Order, frozen=True, tag=True):
    """Let rows run; refused while something is missing."""


class Reset(_Order, frozen=True, tag=True):
    """Leave STOP and hold where the robot is; it has to be armed again if it has arming rules."""


class TakeOver(_Order, frozen=True, tag=True):
    """Give these parts to the operator, () all: they follow the operator, and hold while there is no
    input."""

    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _own_parts(self)


class HandBack(_Order, frozen=True, tag=True):
    """Give these parts back to the policy, () all taken over; it moves them by a chunk requested now."""

    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _own_parts(self)


class SayPhase(_Order, frozen=True, tag=True):
    """Declare what the operator does with the parts taken over, () all: RECOVER or CORRECT."""

    phase: HandoverPhase
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.phase, HandoverPhase):
            raise InvalidValueError(f"phase is a HandoverPhase, got {self.phase!r:.100}")
        _own_parts(self)


class SetTask(_Order, frozen=True, tag=True):
    """Set the text of the next request; rows for the earlier task run until rows for this one come."""

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
    """Keep the log of the last seconds, None: all that the ring buffer holds, and of what follows."""

    seconds: float | None = None

    def __post_init__(self) -> None:
        is_number = isinstance(self.seconds, int | float)
        if self.seconds is not None and not (is_number and 0.0 < self.seconds < 1e6):
            raise InvalidValueError(
                f"the seconds to keep are above 0 and below 1e6, got {self.seconds!r:.100}"
            )


class BeginEpisode(_Order, frozen=True, tag=True):
    """Begin an episode; one that is open ends as UNKNOWN."""


class EndEpisode(_Order, frozen=True, tag=True):
    """End the open episode, or the run so far as one."""

    outcome: Outcome
    keep: bool = True
    """Whether it belongs in a dataset."""

    def __post_init__(self) -> None:
        if not isinstance(self.outcome, Outcome):
            raise InvalidValueError(f"outcome is an Outcome, as Outcome.SUCCESS, got {self.outcome!r:.100}")
        if not isinstance(self.keep, bool):
            raise InvalidValueError(f"keep is True or False, got {self.keep!r:.100}")


Order = Stop | Arm | Reset | TakeOver | HandBack | SayPhase | SetTask | Keep | BeginEpisode | EndEpisode


class TakenOrder(Struct, frozen=True, kw_only=True):
    """A command that the control thread has executed or refused."""

    order: Order
    by: str
    """The sender: "page", "key t", "line on stdin", ..."""
    posted_ns: int
    done_ns: int
    """When the tick executed it, on the robot's clock, as `posted_ns`."""
    refused: str = ""
    """Why it was refused; empty: it was executed."""

    def __str__(self) -> str:
        waited = f" after {(self.done_ns - self.posted_ns) / NS_PER_S:.3f} s"
        text = f"{_in_words(self.order)} by {self.by}{waited}"
        return text + (f": refused: {self.refused}" if self.refused else "")


def _in_words(order: Order) -> str:
    """A command in words: "end the episode as success"."""
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
    """One episode of a run: ticks with start_ns <= t < end_ns."""

    start_ns: int
    end_ns: int
    outcome: Outcome
    keep: bool = True
    source: str = "operator"
    """What set the outcome: "operator", or "sim", the success check of a simulated task."""


def _own_parts(order: TakeOver | HandBack | SayPhase) -> None:
    """Make the parts a tuple. InvalidValueError: they are not names."""
    parts = order.parts
    if not isinstance(parts, tuple | list) or not all(isinstance(part, str) for part in parts):
        raise InvalidValueError(f'parts are names, as ("left_arm",), or () for all; got {parts!r:.100}')
    force_setattr(order, "parts", tuple(parts))


def check_order(order: object, by: object) -> None:
    """Raise InvalidValueError unless both are a command and its sender."""
    if not isinstance(order, get_args(Order)):
        kinds = ", ".join(f"{kind.__name__}(...)" for kind in get_args(Order))
        raise InvalidValueError(f"an order is one of {kinds}; got {type(order).__name__} {order!r:.100}")
    if not isinstance(by, str) or not by:
        raise InvalidValueError(f"expected the sender of an order, in words, got {by!r:.100}")
