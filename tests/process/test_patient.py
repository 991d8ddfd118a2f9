"""The clock of tests that run a robot on a busy machine."""

import time
from threading import Thread

from tests.process.patient import LONGEST_NS, WAITS_NS, PatientTime


def test_a_pause_of_the_robots_thread_is_no_time_of_its_own():
    patient = PatientTime()
    before_ns = patient.now_ns()
    time.sleep(5 * LONGEST_NS / 1e9)
    assert patient.now_ns() - before_ns == LONGEST_NS


def test_other_threads_are_never_further_than_the_robots_may_come():
    patient, seen = PatientTime(), []
    before_ns = patient.now_ns()
    beside = Thread(target=lambda: [time.sleep(3 * LONGEST_NS / 1e9), seen.append(patient.now_ns())])
    beside.start()
    beside.join()
    assert seen[0] <= before_ns + LONGEST_NS
    assert patient.now_ns() >= seen[0]


def test_who_sleeps_wakes_when_it_is_time():
    patient = PatientTime()
    due_ns = patient.now_ns() + 3 * LONGEST_NS
    patient.sleep_until_ns(due_ns)
    assert patient.now_ns() >= due_ns


def test_while_the_robots_thread_waits_for_another_time_goes_on_and_never_back():
    patient, seen = PatientTime(), []
    before_ns = patient.now_ns()
    beside = Thread(target=lambda: [time.sleep(1.1 * WAITS_NS / 1e9), seen.append(patient.now_ns())])
    beside.start()
    beside.join()
    assert seen[0] - before_ns > WAITS_NS
    assert patient.now_ns() >= seen[0]
