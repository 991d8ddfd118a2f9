"""Lines written by a thread of their own: `BackgroundConsole`, so that no writer waits for a terminal.

control thread ── say, logging ─► queue ─► thread ─► standard output, standard error

A terminal that was halted with Ctrl-S, or a pipe that nobody empties, would keep a robot from its next
command.
"""

import contextlib
import logging
import logging.handlers
import time
from collections.abc import Callable
from queue import Full, Queue
from threading import Thread
from typing import Self

MOST = 1000
"""Lines that wait; more are lost."""
END_S = 0.5
"""How long the end waits for them [s]."""


class BackgroundConsole:
    """A context manager, inside which `say` and Python's log never wait, and fail for no closed pipe."""

    def __init__(self) -> None:
        self._waiting: Queue[Callable[[], None]] = Queue(MOST)
        self._handlers: list[logging.Handler] = []
        self._has_status = False

    def __enter__(self) -> Self:
        root = logging.getLogger()
        self._handlers = root.handlers
        root.handlers = [_Later(each, self._put, self._clear) for each in self._handlers]
        Thread(target=self._write, name="aside", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        end_s = time.monotonic() + END_S
        while self._waiting.unfinished_tasks and time.monotonic() < end_s:
            time.sleep(0.001)
        logging.getLogger().handlers = self._handlers

    def say(self, line: str) -> None:
        """One line on standard output, soon."""

        def write() -> None:
            self._clear()
            print(line, flush=True)

        self._put(write)

    def status(self, line: str) -> None:
        """A line that the next one replaces, for a terminal."""

        def write() -> None:
            self._has_status = True
            print(f"\r\x1b[K{line}", end="", flush=True)

        self._put(write)

    def write(self, text: str) -> None:
        """As it is: a beep."""
        self._put(lambda: print(text, end="", flush=True))

    def _clear(self) -> None:
        """Take a status line away."""
        if self._has_status:
            self._has_status = False
            print("\r\x1b[K", end="", flush=True)

    def _put(self, write: Callable[[], None]) -> None:
        with contextlib.suppress(Full):
            self._waiting.put_nowait(write)

    def _write(self) -> None:
        while True:
            write = self._waiting.get()
            with contextlib.suppress(OSError, ValueError):  # the pipe or the terminal is gone
                write()
            self._waiting.task_done()


class _Later(logging.handlers.QueueHandler):
    """Formats at once, and has the other write it later."""

    def __init__(
        self,
        handler: logging.Handler,
        put: Callable[[Callable[[], None]], None],
        clear: Callable[[], None],
    ) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self._handler, self._put_later, self._clear = handler, put, clear
        self.setLevel(handler.level)

    def enqueue(self, record: logging.LogRecord) -> None:
        def write() -> None:
            self._clear()
            self._handler.handle(record)

        self._put_later(write)
