"""Ctrl-C and SIGTERM: whatever a command is doing, it ends within two seconds, with one line.

    signal ─┬► handler in the main thread: raises `Ended`, and every `with` closes what it holds
            └► pipe ─► watching thread: GRACE_S later it ends what is still there, child processes too

The second way asks nothing of the main thread, which may be in C code for long, or in clean-up that hangs.
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
"""For clean-up."""
SAY_S = 0.1
"""For a line to a terminal or a pipe."""
START_S = 1.0
"""For the thread that writes it to begin, on a machine that is busy."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_OTHERS = (signal.SIGHUP, signal.SIGTSTP)
"""Which a command may take for orders to end, too."""


def exit_code(number: int) -> int:
    """As a shell says of what a signal has ended: 130 after SIGINT, 143 after SIGTERM."""
    return 128 + number


class ShutdownHandler:
    """How the process ends if it is told to."""

    def __init__(self) -> None:
        """Takes over both signals."""
        self._number: int | None = None
        self._has_spoken = False
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        Thread(target=self._watch, args=(reader,), name="ending", daemon=True).start()
        for number in _SIGNALS:
            signal.signal(number, self._take)

    def behind(self, error: BaseException) -> int | None:
        """The signal to which a command's end is due; an import that is interrupted fails in any words."""
        return error.number if isinstance(error, Ended) else self._number

    def end(self, number: int) -> NoReturn:
        """End the process, once what it had open is closed; says the one line.

        What is left of other processes goes with it. To take down an interpreter with torch in it would take
        as long as all the rest.
        """
        for pid in _descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not self._has_spoken:
            self._has_spoken = True
            _say(2, b"interrupted\n" if number == signal.SIGINT else b"terminated\n")
        os._exit(exit_code(number))

    def leave_at_once(self) -> None:
        """From here on nothing is left to be closed."""
        if self._number is None:
            for number in _SIGNALS:
                signal.signal(number, self._exit)

    def leave(self, code: int) -> NoReturn:
        """End the process, in which nothing is left to be closed, and take nothing down: where torch is
        loaded that takes a second, and several where the processors are busy."""
        self.leave_at_once()
        if code:
            gc.collect()  # an error has kept locks of worker processes, which would be said to be leaked
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # clean-up is not to be interrupted
        sys.unraisablehook = lambda unraisable: None  # where nobody can catch it, the thread ends the process
        raise Ended(number)

    def _exit(self, number: int, frame: FrameType | None) -> None:
        self.end(number)

    def _watch(self, reader: int) -> None:
        while (number := os.read(reader, 1)[0]) not in (*_SIGNALS, *_OTHERS):
            pass
        time.sleep(GRACE_S)
        if os.isatty(1):
            _say(1, b"\x1b[?25h\n")  # a progress bar has hidden the cursor
        self.end(number)


@contextmanager
def own_handler(handle: Callable[[int], None], *, also: Sequence[int] = ()) -> Iterator[None]:
    """Both signals call `handle`, for a command that has an order to end in; no time is set meanwhile.

    also: others that do, unless they are ignored, as under `nohup`.
    What is left to do after the block has GRACE_S if a signal has come in it.
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
    """Unless nobody takes them: a terminal that is halted, or a pipe that is full, would keep the process.

    By a thread, as nothing tells before whether a terminal takes all of it.
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
    """Child processes, theirs too; none where the system does not list them."""
    out = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, listing.read_text().split()):
                out += [child, *_descendants(child)]
    return out
