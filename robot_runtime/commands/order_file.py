"""The option --orders: reads operator commands from standard input, a file or a named pipe."""

import io
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Thread
from typing import TextIO

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
from robot_runtime.error_text import reason
from robot_runtime.errors import InvalidValueError, UnknownNameError

_LONGEST = 10_000
"""Maximum length of a line [characters]."""


def read_orders(source: str, post: Callable[[Order, str], None], *, say: Callable[[str], None]) -> Thread:
    """Post operator commands from a thread, which ends with the lines, or with the process.

    source: "-" or a path. InvalidValueError: there is no such file.
    """
    check_source(source)
    by = "line on stdin" if source == "-" else f"line of {source}"
    thread = Thread(target=_post, args=(source, post, by, say), name="orders", daemon=True)
    thread.start()
    return thread


def check_source(source: str | None) -> None:
    """Raise InvalidValueError if the file does not exist."""
    if source not in (None, "-") and (not Path(source).exists() or Path(source).is_dir()):
        raise InvalidValueError(f"--orders names a file or a named pipe (mkfifo), and {source} is none")


def _post(source: str, post: Callable[[Order, str], None], by: str, say: Callable[[str], None]) -> None:
    try:
        post_lines(_lines(source), post, by=by, say=say)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        say(f"no more orders from {source}: {reason(error) if isinstance(error, OSError) else error}")


def lines_of(file: TextIO) -> Iterator[str]:
    """Yield the lines of a file; a line that never ends comes in pieces, none of which is a command."""
    while line := file.readline(_LONGEST):
        yield line


def _lines(source: str) -> Iterator[str]:
    if source == "-":
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        yield from lines_of(sys.stdin)
        return
    is_pipe = stat.S_ISFIFO(Path(source).stat().st_mode)
    while True:
        # a pipe waits here for a writer
        with Path(source).open(encoding="utf-8", errors="replace") as file:
            yield from lines_of(file)
        if not is_pipe:
            return


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
    """Parse a line into an order, as in "stop" or "task fold the towel".

    UnknownNameError, InvalidValueError: it is none.
    """
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
            raise InvalidValueError(f"the order {word!r} takes no arguments, got {line.strip()!r:.100}")
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
