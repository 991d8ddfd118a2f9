"""Ends a session in order, whatever ends the process: `OrderlyEnd`.

    signal ─┬► handler in main thread   the first: the next tick brakes; the second: `Ended`, drivers stop now
            └► pipe ─► guard thread     no tick for a while: it stops the drivers, and sends a second one
    main thread ends                    the next tick brakes
    interpreter exits                   brakes, or stops the drivers if the control thread is gone

Once the robot is at rest and the session closed, the signal goes to the program's previous handler: SIGTERM
ends the process, SIGINT is KeyboardInterrupt, SIGTSTP suspends it. What a program cannot handle (SIGKILL, a
segmentation fault, `os._exit`) is left to the driver's own timeout, `silence_s`.
"""

import atexit
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache
from types import FrameType

from robot_runtime.signals import Ended, handled

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
"""SIGTSTP too: a process that Ctrl-Z suspends sends no commands."""
_PATIENCE_S = 0.1
"""How long a tick may be overdue before the guard stops the drivers [s]."""
_GRACE_S = 1.5
"""How long the program may take to end after that [s]."""
_LOOK_S = 0.01


class OrderlyEnd:
    """Handles signals from `open` to `close`, in one thread, the control thread."""

    def __init__(self, *, stop_drivers: Callable[[], None], end: Callable[[], None], period_s: float) -> None:
        """
        stop_drivers: stops the drivers at once, from any thread.
        end: leaves the session, in the control thread.
        period_s: of the control ticks [s].
        """
        self._stop_drivers, self._end, self._patience_s = stop_drivers, end, _PATIENCE_S + period_s
        self._number: int | None = None
        self._is_exiting = False
        self._is_at_rest = threading.Event()
        self._beat_s = time.monotonic()
        self._opened = ExitStack()
        self._taken: tuple[int, ...] = ()

    def open(self) -> None:
        """Start handling; the robot may move from here on."""
        self._thread = threading.current_thread()
        _watch_forks()
        _open.append(self)
        self._before: dict[int, object] = {number: signal.getsignal(number) for number in SIGNALS}
        atexit.register(self._at_exit)
        self.beat()
        if self._thread is not threading.main_thread():
            logger.warning(
                "this session runs outside the main thread: SIGTERM and SIGHUP end the process before the "
                "robot is at rest, unless the program handles them; parts driven at a speed stop by their "
                "own timeout"
            )
            return
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        threading.Thread(target=self._guard, args=(reader,), name="orderly end", daemon=True).start()
        self._opened.callback(os.close, writer)  # the guard reads the end, and ends
        self._taken = self._opened.enter_context(handled(SIGNALS, self._take))
        self._woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._opened.callback(signal.set_wakeup_fd, self._woken, warn_on_full_buffer=False)

    def beat(self) -> None:
        """Note that a control tick begins."""
        self._beat_s = time.monotonic()

    def is_due(self) -> bool:
        """Whether the robot has to come to rest now."""
        return self._number is not None or self._is_exiting or not threading.main_thread().is_alive()

    def at_rest(self) -> None:
        """Note that the robot is at rest: from here on signals have their previous effect."""
        self._opened.close()
        self._is_at_rest.set()

    def close(self) -> None:
        """Pass a signal that has come on to the program: nothing is left to end."""
        self.at_rest()
        self.forget()
        if (number := self._number) is not None:
            self._number = None
            signal.raise_signal(number)

    def forget(self) -> None:
        """Stop handling signals; also in a fork of the program, which drives no robot."""
        self._opened.close()
        atexit.unregister(self._at_exit)
        with suppress(ValueError):
            _open.remove(self)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._number is not None:
            raise Ended(number)
        self._number = number

    def _guard(self, reader: int) -> None:
        has_stopped = False
        while byte := os.read(reader, 1):
            number = byte[0]
            if number not in self._taken:
                if self._woken >= 0:
                    with suppress(OSError):
                        os.write(self._woken, byte)
            elif not has_stopped and not self._rests_in_time():
                has_stopped, self._number = True, number
                os.kill(os.getpid(), number)
                if not self._is_at_rest.wait(_GRACE_S) and self._before[number] is signal.SIG_DFL:
                    os._exit(128 + number)  # the main thread is in code that no signal interrupts
        os.close(reader)

    def _rests_in_time(self) -> bool:
        """Wait until the robot is at rest; False: the ticks ended first, and the drivers are stopped."""
        while not self._is_at_rest.wait(_LOOK_S):
            if time.monotonic() - self._beat_s > self._patience_s:
                logger.warning("no control tick for %.2f s: the drivers are stopped", self._patience_s)
                try:
                    self._stop_drivers()
                except Exception as error:
                    logger.warning("a driver did not stop: %s: %s", type(error).__name__, error)
                return False
        return True

    def _at_exit(self) -> None:
        if threading.current_thread() is self._thread:
            self._end()
        else:
            self._is_exiting = True
            self._rests_in_time()


_open: list[OrderlyEnd] = []


def _forget_all() -> None:
    for each in tuple(_open):
        each.forget()


@cache
def _watch_forks() -> None:
    """Block signals for a newly forked child until the child has dropped the session.

    The child would write it to the pipe that it shares with this process, which would then end.
    """
    masks = threading.local()

    def block() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def restore() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore_in_child() -> None:
        _forget_all()
        restore()

    os.register_at_fork(before=block, after_in_parent=restore, after_in_child=restore_in_child)
