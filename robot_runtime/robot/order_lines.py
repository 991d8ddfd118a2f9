"""Operator commands as lines of text, for standard input, a named pipe and scripts.

task fold the towel        stop        success
"""

from collections.abc import Callable, Iterable

from robot_runtime.core.authority import HandoverPhase
from robot_runtime.core.orders import (
    Arm,
    BeginEpisode,
    EndEpisode,
    HandBack,
    Keep,
    Order,
    Outcome,
    Reset,
    SayPhase,
    SetTask,
    Stop,
    TakeOver,
)
from robot_runtime.errors import InvalidValueError, UnknownNameError

_PLAIN: dict[str, Order] = {
    "stop": Stop(),
    "arm": Arm(),
    "reset": Reset(),
    "begin": BeginEpisode(),
    "recover": SayPhase(HandoverPhase.RECOVER),
    "correct": SayPhase(HandoverPhase.CORRECT),
    "success": EndEpisode(Outcome.SUCCESS),
    "failure": EndEpisode(Outcome.FAILURE),
    "abort": EndEpisode(Outcome.OPERATOR_ABORT),
    "discard": EndEpisode(Outcome.UNKNOWN, keep=False),
}
_WITH_MORE = ("task TEXT", "take-over [PART ...]", "hand-back [PART ...]", "keep [SECONDS]")


def parse_order(line: str) -> Order:
    """Parse a line into an order. UnknownNameError, InvalidValueError: it is none."""
    word, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    match word:
        case "task":
            return SetTask(rest)
        case "take-over":
            return TakeOver(tuple(rest.split()))
        case "hand-back":
            return HandBack(tuple(rest.split()))
        case "keep":
            return Keep(_seconds(rest) if rest else None)
        case _ if word in _PLAIN and rest:
            raise InvalidValueError(f"the order {word!r} stands alone, got {line.strip()!r:.100}")
        case _ if word in _PLAIN:
            return _PLAIN[word]
    raise UnknownNameError("order", word[:50], [*_PLAIN, *_WITH_MORE])


def post_lines(
    lines: Iterable[str],
    post: Callable[[Order, str], None],
    *,
    by: str,
    say: Callable[[str], None],
) -> None:
    """Post each line's order until the lines end; an invalid line is reported and skipped."""
    for line in lines:
        if not line.strip():
            continue
        try:
            post(parse_order(line), by)
        except (UnknownNameError, InvalidValueError) as error:
            say(f"{by}: {error}")


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidValueError(f"keep takes a number of seconds, got {text!r:.50}") from None
