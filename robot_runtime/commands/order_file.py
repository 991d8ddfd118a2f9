"""`--orders`: lines of standard input, of a file or of a named pipe, as orders to a run."""

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
"""Characters of a line."""


def read_orders(source: str, post: Callable[[Order, str], None], *, say: Callable[[str], None]) -> Thread:
    """Post them from a thread of their own, which ends with the lines, or with the process.

    source: "-" or a path. InvalidValueError: there is no such file.
    """
    check_source(source)
    by = "line on stdin" if source == "-" else f"line of {source}"
    thread = Thread(target=_post, args=(source, post, by, say), name="orders", daemon=True)
    thread.start()
    return thread


def check_source(source: str | None) -> None:
    """InvalidValueError: there is no such file."""
    if source not in (None, "-") and (not Path(source).exists() or Path(source).is_dir()):
        raise InvalidValueError(f"--orders names a file or a named pipe (mkfifo), and {source} is none")


def _post(source: str, post: Callable[[Order, str], None], by: str, say: Callable[[str], None]) -> None:
    try:
        post_lines(_lines(source), post, by=by, say=say)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        say(f"no more orders from {source}: {reason(error) if isinstance(error, OSError) else error}")


def lines_of(file: TextIO) -> Iterator[str]:
    """Its lines; one that never ends comes in pieces, each of which is no order."""
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
        # of a pipe: waits until somebody writes
        with Path(source).open(encoding="utf-8", errors="replace") as file:
            yield from lines_of(file)
        if not is_pipe:
            return
