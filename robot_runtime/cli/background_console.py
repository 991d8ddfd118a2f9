"""`BackgroundConsole` writes lines in its own thread, so that no caller waits for a terminal.

control thread ── say, logging ─► queue ─► thread ─► standard output, standard error

Without it, a terminal halted with Ctrl-S or a pipe that no one reads would delay a robot's next command.
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
"""Lines that can be queued; further ones are dropped."""
END_S = 0.5
"""How long leaving the context waits for queued lines [s]."""


class BackgroundConsole:
    """Context manager in which `say` and Python's logging never block and never fail on a closed pipe."""

    def __init__(self) -> None:
        self._waiting: Queue[Callable[[], None]] = Queue(MOST)
        self._handlers: list[logging.Handler] = []
        self._has_status = False

    def __enter__(self) -> Self:
        root = logging.getLogger()
        self._handlers = root.handlers
        root.handlers = [_Later(each, self._put, self._clear) for each in self._handlers]
        Thread(target=self._write, name="console", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        end_s = time.monotonic() + END_S
        while self._waiting.unfinished_tasks and time.monotonic() < end_s:
            time.sleep(0.001)
        logging.getLogger().handlers = self._handlers

    def say(self, line: str) -> None:
        """Queue a line for standard output."""

        def write() -> None:
            self._clear()
            print(line, flush=True)

        self._put(write)

    def status(self, line: str) -> None:
        """Queue a status line, which the next line replaces on a terminal."""

        def write() -> None:
            self._has_status = True
            print(f"\r\x1b[K{line}", end="", flush=True)

        self._put(write)

    def write(self, text: str) -> None:
        """Queue text without a newline, such as a beep."""
        self._put(lambda: print(text, end="", flush=True))

    def _clear(self) -> None:
        """Erase the status line."""
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
    """Formats a record at once and queues it for the wrapped handler."""

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
