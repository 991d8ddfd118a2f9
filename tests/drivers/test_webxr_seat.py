"""Which page leads and what counts of what it says: pure, times by hand."""

import json

import pytest

from drivers.webxr.control_lock import ControlLock, PageClock

MS = 1_000_000


def message(n, t_ms, **more):
    return json.dumps({"n": n, "t": t_ms, **more})


@pytest.fixture
def seat():
    made = ControlLock(stale_ns=250 * MS)
    made.take("a", "10.0.0.2")
    return made


def test_a_page_that_waited_in_a_queue_is_known_to_be_old_whatever_its_clock_says():
    clock = PageClock()
    assert clock.stamp_ns(5000.0, 100 * MS) == 100 * MS
    assert clock.stamp_ns(5100.0, 500 * MS) == 200 * MS
    assert clock.stamp_ns(5500.0, 590 * MS) == 590 * MS  # it was quicker: that is no delay


def test_a_clock_that_slept_is_believed_again_after_the_window():
    clock = PageClock()
    clock.stamp_ns(0.0, 0)
    assert clock.stamp_ns(10.0, 3_000 * MS) == 10 * MS
    assert clock.stamp_ns(3_010.0, 6_000 * MS) == 6_000 * MS


def test_what_is_late_or_out_of_turn_is_dropped_but_its_orders_count(seat):
    assert seat.say("a", message(1, 0.0, base=[1, 0, 0]), 0) == ""
    assert seat.say("a", message(2, 100.0, base=[0, 0, 0], order="stop"), 400 * MS) == "too late"
    assert seat.report.base == (1, 0, 0)
    assert seat.report.orders == ((1, "stop"),)
    assert seat.say("a", message(2, 390.0), 400 * MS) == "too late"
    assert seat.report.num_dropped == 2


def test_one_page_leads_and_the_next_when_it_has_gone(seat):
    assert seat.take("b", "10.0.0.3") == "10.0.0.2"
    assert seat.say("b", message(1, 0.0), 0) == "another page has control"
    seat.say("b", message(2, 0.0, order="begin"), 0)
    seat.say("b", message(3, 0.0, order="stop"), 0)
    assert seat.report.orders == ((1, "stop"),)
    seat.say("a", message(1, 0.0, base=[1, 0, 0]), 5 * MS)
    seat.leave("a")
    assert seat.report.base is None
    assert seat.report.t_ns == 0
    assert seat.take("b", "10.0.0.3") == ""


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[1]", "\x00", message(0, 1.0), message(1, 1e400), message(1, 1.0, other=2),
        message(1, 1.0, hands={"foot": {"p": [0, 0, 0], "q": [1, 0, 0, 0], "clutch": True}}),
        message(1, 1.0, hands={"left": {"p": [0, 0, 1e9], "q": [1, 0, 0, 0], "clutch": True}}),
        message(1, 1.0, hands={"left": {"p": [0, 0, 0], "q": [0, 0, 0, 0], "clutch": True}}),
        message(1, 1.0, sticks={"left": [2, 0], "right": [0, 0]}), message(1, 1.0, base=[0, 0]),
    ],
)  # fmt: skip
def test_what_is_no_message_changes_nothing(seat, text):
    assert seat.say("a", text, 0)
    assert (seat.report.num_refused, seat.report.t_ns) == (1, 0)
