"""What the control thread does to the process it runs in."""

import gc

from robot_runtime.robot.scheduling import real_time_thread


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
