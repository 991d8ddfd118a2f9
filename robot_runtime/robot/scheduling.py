"""Keeping time on an ordinary Linux: absolute deadlines, and the scheduling class if we may have it."""

import contextlib
import ctypes
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from robot_runtime.clock import Clock

_PR_SET_TIMERSLACK = 29
_SWITCH_INTERVAL_S = 1e-4
"""How long another Python thread may keep the interpreter while the control thread waits for it [s]."""


@contextlib.contextmanager
def real_time_thread(
    *, use_fifo: bool = True, priority: int = 50, helpers: Sequence[int] = ()
) -> Iterator[str]:
    """Run the calling thread under SCHED_FIFO if allowed, else with the finest timers; yields what it got.

    Also freezes what the garbage collector knows, without looking through it (with large libraries loaded
    that takes 0.3 s, in which a server seems lost), and makes the interpreter lock change hands quickly.
    Undone on exit.

    helpers: native ids of threads that run Python beside this one. They get a lower priority of the same
        class: an ordinary thread that is pushed aside while it holds the interpreter lock would keep this one
        waiting for as long (500 Hz, both cores busy: p99 0.7 ms late instead of 0.1).
    """
    old_policy, old_param = os.sched_getscheduler(0), os.sched_getparam(0)
    old_interval = sys.getswitchinterval()
    was_collecting = gc.isenabled()
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield _schedule(use_fifo, priority, helpers)
    finally:
        for thread in (0, *helpers):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setscheduler(thread, old_policy, old_param)
        sys.setswitchinterval(old_interval)
        gc.unfreeze()
        if was_collecting:
            gc.enable()


def _schedule(use_fifo: bool, priority: int, helpers: Sequence[int]) -> str:
    if use_fifo:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
            for thread in helpers:
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(priority - 10))
            return f"control thread runs under SCHED_FIFO, priority {priority}"
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    return (
        "control thread runs under the ordinary scheduler: ticks can be milliseconds late under load. "
        f"To allow SCHED_FIFO, add '{os.environ.get('USER', 'you')} - rtprio 60' to "
        "/etc/security/limits.conf and log in again"
    )


@dataclass(frozen=True)
class TickTiming:
    """One tick of a `Pacer`."""

    now_ns: int
    lateness_ns: int
    """How long after its deadline the tick began [ns]."""
    num_skipped: int
    """Deadlines that passed unserved just before this one."""


class Pacer:
    """Ticks at absolute deadlines `start + k*period`.

    A tick that overruns loses the deadlines it slept through; they are counted, never caught up in a burst.
    By a clock that has gone back they begin anew, a period from its time.
    """

    def __init__(self, clock: Clock, *, period_ns: int) -> None:
        if period_ns <= 0:
            raise ValueError(f"a control period must be positive, got {period_ns} ns")
        self._clock = clock
        self._period_ns = period_ns
        self._deadline_ns = clock.now_ns()

    def wait(self) -> TickTiming:
        """Sleep until the next deadline."""
        self._deadline_ns += self._period_ns
        now_ns = self._clock.now_ns()
        self._deadline_ns = min(self._deadline_ns, now_ns + self._period_ns)
        behind_ns = now_ns - self._deadline_ns
        num_skipped = max(0, behind_ns // self._period_ns)
        self._deadline_ns += num_skipped * self._period_ns
        self._clock.sleep_until_ns(self._deadline_ns)
        now_ns = self._clock.now_ns()
        return TickTiming(now_ns, now_ns - self._deadline_ns, num_skipped)
