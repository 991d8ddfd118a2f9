"""Ctrl-C and SIGTERM: they end any command within two seconds, with one line.

    signal ─┬► handler in the main thread: raises `Ended`, and every `with` closes what it holds
            └► pipe ─► watching thread: GRACE_S later it ends the process and its children

The second path does not need the main thread, which may be in long C code, or in clean-up that hangs.
"""

import gc
import os
import signal
import sys
import time
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import NoReturn

from robot_runtime.signals import Ended, handled

GRACE_S = 1.5
"""Time for clean-up."""
SAY_S = 0.1
"""Time to write a line to a terminal or a pipe."""
START_S = 1.0
"""Time for the thread that writes it to start, on a busy machine."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_OTHERS = (signal.SIGHUP, signal.SIGTSTP)
"""Signals that a command may also handle as requests to end."""


def exit_code(number: int) -> int:
    """Return the exit code of a shell for a process that a signal ended: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + number


class ShutdownHandler:
    """Ends the process on SIGINT and SIGTERM."""

    def __init__(self) -> None:
        """Install handlers for both signals."""
        self._number: int | None = None
        self._has_spoken = False
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        Thread(target=self._watch, args=(reader,), name="ending", daemon=True).start()
        for number in _SIGNALS:
            signal.signal(number, self._take)

    def behind(self, error: BaseException) -> int | None:
        """Return the signal behind a command's error: an interrupted import can raise any error."""
        return error.number if isinstance(error, Ended) else self._number

    def end(self, number: int) -> NoReturn:
        """End the process and its children once its resources are closed, and print the one line.

        It skips the interpreter's own shutdown, which would take as long as all the rest with torch loaded.
        """
        for pid in _descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not self._has_spoken:
            self._has_spoken = True
            _say(2, b"interrupted\n" if number == signal.SIGINT else b"terminated\n")
        os._exit(exit_code(number))

    def leave_at_once(self) -> None:
        """From now on a signal ends the process at once: nothing is left to close."""
        if self._number is None:
            for number in _SIGNALS:
                signal.signal(number, self._exit)

    def leave(self, code: int) -> NoReturn:
        """End the process once nothing is left to close, without the interpreter's shutdown, which takes a
        second with torch loaded, and several on a busy machine."""
        self.leave_at_once()
        if code:
            gc.collect()  # an error may hold locks of worker processes, which would be reported as leaked
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # clean-up must not be interrupted
        sys.unraisablehook = lambda unraisable: None  # if nothing catches it, the thread ends the process
        raise Ended(number)

    def _exit(self, number: int, frame: FrameType | None) -> None:
        self.end(number)

    def _watch(self, reader: int) -> None:
        while (number := os.read(reader, 1)[0]) not in (*_SIGNALS, *_OTHERS):
            pass
        time.sleep(GRACE_S)
        if os.isatty(1):
            _say(1, b"\x1b[?25h\n")  # show the cursor that a progress bar hid
        self.end(number)


@contextmanager
def own_handler(handle: Callable[[int], None], *, also: Sequence[int] = ()) -> Iterator[None]:
    """Both signals call `handle`, for a command that ends in its own order, without a time limit.

    also: further signals that call it, unless they are ignored, as under `nohup`.
    If a signal came inside the block, the work after it has GRACE_S.
    """
    taken: list[int] = []

    def take(number: int, frame: FrameType | None) -> None:
        taken.append(number)
        handle(number)

    with handled((*_SIGNALS, *also), take):
        watched = signal.set_wakeup_fd(-1)
        try:
            yield
        finally:
            signal.set_wakeup_fd(watched, warn_on_full_buffer=False)
    if taken and watched >= 0:
        os.write(watched, bytes(taken[:1]))


def _say(descriptor: int, words: bytes) -> None:
    """Write words, but do not block on a halted terminal or a full pipe.

    A thread writes them, as nothing shows beforehand whether a terminal accepts all of it.
    """
    begun, done = allocate_lock(), allocate_lock()
    begun.acquire()
    done.acquire()

    def write() -> None:
        begun.release()
        with suppress(OSError):  # it is gone
            os.write(descriptor, words)
        done.release()

    start_new_thread(write, ())
    begun.acquire(timeout=START_S)
    done.acquire(timeout=SAY_S)


def _descendants(pid: int) -> list[int]:
    """Return all descendant processes; none where the system does not list them."""
    out = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, listing.read_text().split()):
                out += [child, *_descendants(child)]
    return out
