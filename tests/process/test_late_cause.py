"""Why ticks come late, measured: real threads, the real interpreter lock, the kernel's accounts."""

import sys
import threading
import time

import pytest

from robot_runtime.clock import MonotonicClock
from robot_runtime.robot.scheduling import LateCause, Pacer

PERIOD_NS = 2_000_000


def why_late(num_ticks: int = 400) -> tuple[str, int]:
    """The cause, and how many ticks were late."""
    pacer, cause, num_late = Pacer(MonotonicClock(), period_ns=PERIOD_NS), LateCause(), 0
    for _ in range(num_ticks):
        beat = pacer.wait()
        num_late += beat.lateness_ns >= PERIOD_NS // 2
        cause.note(beat.lateness_ns, period_ns=PERIOD_NS)
    return cause.why, num_late


@pytest.mark.long
def test_a_thread_that_holds_the_interpreter_lock_is_named():
    is_over = threading.Event()

    def crunch() -> None:
        while not is_over.is_set():
            sum(range(10_000))

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    thread = threading.Thread(target=crunch, name="my planner")
    thread.start()
    try:
        deadline_s = time.monotonic() + 60.0
        while "'my planner'" not in (why := why_late()[0]) and time.monotonic() < deadline_s:
            pass  # a machine that is busy with other work gets that cause
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(before)
    assert "'my planner' of this program runs" in why
    assert "interpreter lock (GIL)" in why
    assert "process of its own" in why


def test_ticks_in_time_name_no_cause():
    cause = LateCause()
    for _ in range(10):
        cause.note(PERIOD_NS // 2 - 1, period_ns=PERIOD_NS)
    assert cause.why == ""
