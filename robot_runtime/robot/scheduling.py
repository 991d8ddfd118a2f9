"""Keeping time on an ordinary Linux: absolute deadlines, and the scheduling class if we may have it."""

import contextlib
import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_runtime.clock import Clock

_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30
_SWITCH_INTERVAL_S = 1e-4
"""How long another Python thread may keep the interpreter while the control thread waits for it [s]."""


@contextlib.contextmanager
def real_time_thread(
    *, use_fifo: bool = True, priority: int = 50, helpers: Sequence[int] = ()
) -> Iterator[str]:
    """Run the calling thread under SCHED_FIFO if allowed, else with the finest timers; yields a line on what
    was set.

    Also freezes the garbage collector's objects without a collection (with large libraries loaded
    one takes 0.3 s, in which a server seems lost), and shortens the interpreter's switch interval.
    Undone on exit.

    helpers: native ids of threads that run Python beside this one. They get a lower priority of the same
        class: an ordinary thread that is preempted while it holds the interpreter lock would keep this one
        waiting for as long (500 Hz, both cores busy: p99 0.7 ms late instead of 0.1).
    """
    old_policy, old_param = os.sched_getscheduler(0), os.sched_getparam(0)
    old_interval, old_slack_ns = sys.getswitchinterval(), _prctl(_PR_GET_TIMERSLACK)
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
        _prctl(_PR_SET_TIMERSLACK, old_slack_ns)
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
    _prctl(_PR_SET_TIMERSLACK, 1)
    return (
        "control thread runs under the ordinary scheduler: ticks can be milliseconds late under load. "
        f"To allow SCHED_FIFO, add '{os.environ.get('USER', 'you')} - rtprio 60' to "
        "/etc/security/limits.conf and log in again"
    )


def _prctl(option: int, value: int = 0) -> int:
    """Set or read an option of the calling thread."""
    found: int = ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    return found


@dataclass(frozen=True)
class TickTiming:
    """The timing of one tick of a `Pacer`."""

    now_ns: int
    lateness_ns: int
    """How long after its deadline the tick began [ns]."""
    num_skipped: int
    """Deadlines that passed unserved just before this one."""


class Pacer:
    """Ticks at absolute deadlines `start + k*period`.

    A tick that overruns skips the deadlines that it missed; they are counted, never caught up in a burst.
    If the clock has gone back, the deadlines restart one period from its time.
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


class LateCause:
    """Why the control thread's ticks come late, as far as this process causes it: another Python thread holds
    the interpreter lock, which only one thread has at a time.

    It uses the kernel's CPU time of each thread, on Linux only. Ticks in time cost nothing.
    """

    def __init__(self) -> None:
        self.why = ""
        """The cause in words; empty: no tick was late, or the cause is unknown."""
        self._began_ns = 0
        self._before: dict[int, int] = {}

    def note(self, lateness_ns: int, *, period_ns: int) -> None:
        """Note the lateness of a tick; in the control thread."""
        now_ns = time.monotonic_ns()
        if lateness_ns < period_ns // 2 or now_ns - self._began_ns < _SHORTEST_NS:
            return
        used = _thread_times()
        if now_ns - self._began_ns <= _LONGEST_NS:
            self.why = self._found(used, now_ns - self._began_ns)
        self._before, self._began_ns = used, now_ns

    def _found(self, used: dict[int, int], elapsed_ns: int) -> str:
        ran = {thread: now - self._before[thread] for thread, now in used.items() if thread in self._before}
        others = {
            thread.name: ran.get(thread.native_id or 0, 0)
            for thread in threading.enumerate()
            if thread.native_id != threading.get_native_id()
        }
        busiest = max(others, key=lambda name: others[name], default="")
        least_ns = max(_HOLDS_SHARE * sum(ran.values()), _LEAST_SHARE * elapsed_ns)
        if not busiest or others[busiest] < least_ns:
            return ""
        share = others[busiest] / elapsed_ns
        return (
            f"the Python thread {busiest!r} of this program runs {share:.0%} of the time and holds the "
            "interpreter lock (GIL), which the control thread waits for; run it in a process of its own"
        )


_SHORTEST_NS, _LONGEST_NS = 200_000_000, 2_000_000_000
"""Time between two late ticks over which CPU times are compared [ns]."""
_HOLDS_SHARE, _LEAST_SHARE = 0.5, 0.05
"""Shares of the CPU time of all threads, and of the elapsed time, from which a thread is named."""
_JIFFY_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def _thread_times() -> dict[int, int]:
    """Return native id -> CPU time so far [ns], to a hundredth of a second."""
    out = {}
    for path in Path("/proc/self/task").glob("*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = path.read_text().rpartition(")")[2].split()  # a name may have spaces in it
            out[int(path.parent.name)] = (int(fields[11]) + int(fields[12])) * _JIFFY_NS
    return out
