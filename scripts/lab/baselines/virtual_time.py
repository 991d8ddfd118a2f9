"""Virtual time for a thread that believes in the real one: `LockstepTime`.

The peer's thread calls `perf_counter` and `sleep` of its module's `time`; put a `LockstepTime` in that place
and both become robot time. The thread runs only while the owner waits in `run_until`, so there is never more
than one of them awake and a run is the same from time to time, however the operating system schedules.

    owner     tick 0 ── run_until ┐             ┌─ tick 1 ── run_until ┐
    thread                        └ wake, sleep ┘                      └ wake, wake, sleep
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from types import ModuleType

from robot_runtime.core.values.action import NS_PER_S

_STUCK_S = 120.0
"""Real time after which a thread that has not gone to sleep again counts as stuck."""
_CLOSED_SLEEP_S = 0.001


class LockstepTime:
    """Stands in for the `time` module of one foreign thread."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        """Exceptions that the thread slept on: what it caught, and would have tried again after a while."""
        self._now_ns = 0
        self._wake_ns = 0
        self._is_closed = False
        self._may_run, self._has_parked = threading.Semaphore(0), threading.Semaphore(0)

    # ---- the thread's side ---------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Robot time [ns]."""
        return self._now_ns

    def perf_counter(self) -> Fraction:
        """Robot time [s], exact: a latency of 400 ms is 8 rows of 50 ms and never 8.000000001."""
        return Fraction(self._now_ns, NS_PER_S)

    def sleep(self, seconds: float) -> None:
        """Wait for robot time; after `close`, only a moment."""
        self.sleep_ns(round(seconds * NS_PER_S))

    def sleep_ns(self, duration_ns: int) -> None:
        """`sleep`, in nanoseconds."""
        if self._is_closed:
            time.sleep(_CLOSED_SLEEP_S)
            return
        caught = sys.exception()
        if caught is not None:
            self.errors.append(caught)
        self._wake_ns = self._now_ns + duration_ns
        self._has_parked.release()
        self._may_run.acquire()

    # ---- the owner's side ----------------------------------------------------------------------

    def await_start(self) -> None:
        """Wait until the thread, just started, sleeps for the first time."""
        self._await_parked()

    def run_until(self, t_ns: int) -> None:
        """Let the thread do all that is due up to and with `t_ns`; RuntimeError if it gets stuck."""
        while self._wake_ns <= t_ns:
            self._now_ns = self._wake_ns
            self._may_run.release()
            self._await_parked()
        self._now_ns = t_ns

    def close(self) -> None:
        """Let the thread go: what it still sleeps takes a moment of real time, so that it can be joined."""
        self._is_closed = True
        self._may_run.release()

    def _await_parked(self) -> None:
        if not self._has_parked.acquire(timeout=_STUCK_S):
            raise RuntimeError(f"the peer's thread has not slept for {_STUCK_S:g} s: it ended or hangs")


@contextmanager
def replaced_time(module: ModuleType) -> Iterator[LockstepTime]:
    """Within the block, `module.time` is a fresh `LockstepTime`."""
    names, lockstep = vars(module), LockstepTime()
    original = names["time"]
    names["time"] = lockstep
    try:
        yield lockstep
    finally:
        names["time"] = original
