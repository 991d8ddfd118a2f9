"""The option --orders: reads operator commands from standard input, a file or a named pipe."""

import io
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import TextIO

from robot_runtime.core.orders import Order
from robot_runtime.error_text import reason
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.order_lines import post_lines

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
