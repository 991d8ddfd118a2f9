"""A thread that sleeps in robot time."""

import threading
import time as real_time
from types import ModuleType

import pytest

from scripts.lab.baselines.virtual_time import LockstepTime, replaced_time

MS = 1_000_000


def started(body, lockstep: LockstepTime) -> threading.Thread:
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    lockstep.await_start()
    return thread


def test_a_thread_does_exactly_what_is_due_and_sleeps_again():
    lockstep, seen = LockstepTime(), []

    def body():
        while True:
            lockstep.sleep(0.010)
            seen.append(lockstep.now_ns // MS)

    started(body, lockstep)
    lockstep.run_until(9 * MS)
    assert seen == []
    lockstep.run_until(35 * MS)
    assert seen == [10, 20, 30]
    assert lockstep.now_ns == 35 * MS
    lockstep.close()


def test_a_latency_of_whole_rows_is_whole_rows():
    lockstep, measured = LockstepTime(), []

    def body():
        lockstep.sleep(0.013)
        start = lockstep.perf_counter()
        lockstep.sleep_ns(400 * MS)
        measured.append((lockstep.perf_counter() - start) / 0.05)
        lockstep.sleep(1.0)

    started(body, lockstep)
    lockstep.run_until(500 * MS)
    assert measured == [8.0]
    lockstep.close()


def test_closing_lets_the_thread_run_to_its_end():
    lockstep, after = LockstepTime(), []

    def body():
        for _ in range(3):
            lockstep.sleep(1000.0)
        after.append("ended")

    thread = started(body, lockstep)
    lockstep.close()
    thread.join(timeout=5.0)
    assert after == ["ended"]


def test_what_a_thread_sleeps_on_after_catching_it_is_kept():
    lockstep = LockstepTime()

    def body():
        lockstep.sleep(0.0)
        try:
            raise KeyError("broken")
        except KeyError:
            lockstep.sleep(0.5)

    started(body, lockstep)
    lockstep.run_until(0)
    assert [repr(error) for error in lockstep.errors] == ["KeyError('broken')"]
    lockstep.close()


def test_a_module_gets_its_own_time_back_whatever_happens():
    module = ModuleType("foreign")
    vars(module)["time"] = real_time

    def fail_inside() -> None:
        with replaced_time(module) as lockstep:
            assert vars(module)["time"] is lockstep
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail_inside()
    assert vars(module)["time"] is real_time
