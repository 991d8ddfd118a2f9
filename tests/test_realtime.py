"""What the control thread does to the process it runs in."""

import gc

from robot_runtime.robot.scheduling import Pacer, real_time_thread
from sim.scene.clock import SimClock


def test_becoming_the_control_thread_leaves_the_process_running_and_its_collector_as_it_was():
    """A full collection, with large libraries loaded, holds all threads for 0.3 s: a server seems lost."""
    collections: list[int] = []

    def watch(phase, info):
        if phase == "start":
            collections.append(info["generation"])

    gc.callbacks.append(watch)
    try:
        with real_time_thread(use_fifo=False):
            assert not gc.isenabled()
            assert gc.get_freeze_count() > 0
            assert collections == []
    finally:
        gc.callbacks.remove(watch)
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


class SetClock(SimClock):
    """A clock that can be set."""

    def set(self, now_ns: int) -> None:
        self._now_ns = now_ns


def test_by_a_clock_that_went_back_the_next_tick_comes_a_period_later():
    clock = SetClock(1_000)
    pacer = Pacer(clock, period_ns=10)
    assert pacer.wait().now_ns == 1_010
    clock.set(200)
    assert [pacer.wait().now_ns for _ in range(2)] == [210, 220]
