"""Operator commands are values, and refuse invalid ones."""

import logging

import msgspec
import pytest

from robot_runtime.clock import MonotonicClock
from robot_runtime.commands.order_file import _lines, check_source, parse_order, post_lines, read_orders
from robot_runtime.commands.teleop_keys import KEYS, OrderKeys
from robot_runtime.core.authority import HandoverPhase
from robot_runtime.core.orders import (
    Arm,
    EndEpisode,
    HandBack,
    Keep,
    Order,
    Outcome,
    Reset,
    SayPhase,
    SetTask,
    Stop,
    TakenOrder,
    TakeOver,
    check_order,
)
from robot_runtime.errors import InvalidValueError, UnknownNameError
from robot_runtime.robot.counted_log import Logbook
from robot_runtime.robot.operator_queue import MAX_A_TICK, MAX_WAITING, OperatorQueue
from robot_runtime.robot.telemetry import RunRecord


@pytest.mark.parametrize(
    "order", [Stop(), TakeOver(("left_arm",)), SetTask("fold"), Keep(3.0), EndEpisode(Outcome.TIMEOUT)]
)
def test_an_order_survives_being_written_as_json(order):
    assert msgspec.json.decode(msgspec.json.encode(order), type=Order) == order


@pytest.mark.parametrize("text", ["", "   ", "x" * 2001, "two\nlines", "a lone \ud800"])
def test_what_is_no_task_is_refused(text):
    with pytest.raises(InvalidValueError, match="a task is"):
        SetTask(text)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_time_to_keep_is_refused(seconds):
    with pytest.raises(InvalidValueError, match="seconds to keep"):
        Keep(seconds)


def test_an_invalid_order_or_one_without_a_sender_is_refused():
    with pytest.raises(InvalidValueError, match="an order is one of Stop"):
        check_order("stop", "me")
    with pytest.raises(InvalidValueError, match="the sender of an order"):
        check_order(Stop(), "")


@pytest.mark.parametrize(
    ("line", "order"),
    [
        ("stop", Stop()),
        ("  task  fold the towel \n", SetTask("fold the towel")),
        ("take-over left_arm left_gripper", TakeOver(("left_arm", "left_gripper"))),
        ("take-over", TakeOver()),
        ("keep", Keep()),
        ("keep 12.5", Keep(12.5)),
        ("success", EndEpisode(Outcome.SUCCESS)),
        ("discard", EndEpisode(Outcome.UNKNOWN, keep=False)),
    ],
)
def test_a_line_is_parsed_as_an_order(line, order):
    assert parse_order(line) == order


def test_invalid_lines_are_reported_and_the_others_are_posted():
    posted, reported = [], []
    lines = ["stop now\n", "\n", "stpo\n", "keep long\n", "task\n", "stop\n"]
    post_lines(lines, lambda order, by: posted.append((order, by)), by="line on stdin", say=reported.append)
    assert posted == [(Stop(), "line on stdin")]
    assert "takes no arguments" in reported[0]
    assert "did you mean stop?" in reported[1]
    assert "number of seconds" in reported[2]
    assert "a task is" in reported[3]
    assert len(reported) == 4
    with pytest.raises(UnknownNameError):
        parse_order("jump")


@pytest.mark.parametrize(
    "make",
    [
        lambda: TakeOver("left_arm"),
        lambda: TakeOver(5),
        lambda: HandBack((1,)),
        lambda: SayPhase("recover"),
        lambda: SayPhase(HandoverPhase.RECOVER, None),
        lambda: EndEpisode("success"),
        lambda: EndEpisode(Outcome.SUCCESS, keep="no"),
        lambda: SetTask(5),
        lambda: Keep("long"),
    ],
)
def test_an_order_of_the_wrong_types_is_refused_where_it_is_made(make):
    with pytest.raises(InvalidValueError, match=r"got "):
        make()


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (EndEpisode(Outcome.SUCCESS), "end the episode as success"),
        (EndEpisode(Outcome.OPERATOR_ABORT, keep=False), "end the episode as operator abort and discard it"),
        (TakeOver(()), "take over all"),
        (Keep(30.0), "keep the log of 30 s"),
        (Stop(), "stop"),
    ],
)
def test_an_order_in_words(order, words):
    taken = TakenOrder(order=order, by="page", posted_ns=0, done_ns=2_000_000, refused="no")
    assert str(taken) == f"{words} by page after 0.002 s: refused: no"


def test_parts_may_be_a_list():
    assert TakeOver(["left_arm"]) == TakeOver(("left_arm",))


def desk(done):
    record = RunRecord()
    log = Logbook(record, MonotonicClock(), logging.getLogger("nobody"))
    return OperatorQueue(
        MonotonicClock(), record, log, do=lambda order, by, now_ns: done.append(order)
    ), record


def test_a_flood_of_orders_is_done_a_few_in_a_tick_and_refused_beyond_a_measure():
    done = []
    orders, _ = desk(done)
    for k in range(MAX_WAITING):
        orders.post(SetTask(f"task {k}"), "page")
    with pytest.raises(InvalidValueError, match="SetTask is not taken: 200 orders wait already"):
        orders.post(SetTask("one more"), "page")
    orders.take(1)
    assert done == [SetTask(f"task {k}") for k in range(MAX_A_TICK)]
    orders.take(2)
    assert len(done) == 2 * MAX_A_TICK


def test_a_stop_waits_for_no_flood_and_nothing_that_was_asked_before_it_sets_the_robot_in_motion():
    done = []
    orders, record = desk(done)
    for order in [Reset(), Arm(), *[SetTask("x")] * (MAX_WAITING - 2)]:
        orders.post(order, "page")
    orders.post(Stop(), "page")
    orders.take(1)
    assert done[0] == Stop()
    for k in range(20):
        orders.take(2 + k)
    assert not any(isinstance(order, Reset | Arm) for order in done)
    assert [taken.refused for taken in record.orders if taken.refused] == ["a stop was ordered after it"] * 2


def test_what_is_asked_after_a_stop_is_done_and_a_thousand_stops_are_one():
    done = []
    orders, record = desk(done)
    orders.post(TakeOver(), "a leader arm")
    for _ in range(1000):
        orders.post(Stop(), "a page gone wild")
    orders.post(Reset(), "page")
    orders.take(1)
    assert done == [Stop(), Reset()]
    assert [type(taken.order) for taken in record.orders if taken.refused] == [TakeOver]


def test_a_key_that_is_refused_leaves_the_key_that_stops():
    posted = []

    def post(order, by):
        if not isinstance(order, Stop):
            raise InvalidValueError("200 orders wait already")
        posted.append(order)

    with OrderKeys(post, reads_terminal=False, pedal=None) as keys:
        for key in (b"n", b"0"):
            keys._give(KEYS[key], "a key")
    assert posted == [Stop()]


def test_orders_come_from_a_file_until_it_ends_and_from_none_that_is_not_there(tmp_path):
    lines = tmp_path / "orders.txt"
    lines.write_text("stop\ntask fold\n")
    posted, reported = [], []
    read_orders(str(lines), lambda order, by: posted.append(order), say=reported.append).join(10.0)
    assert posted == [Stop(), SetTask("fold")]
    for source in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(InvalidValueError, match="names a file or a named pipe"):
            check_source(str(source))


def test_bytes_that_are_no_text_and_lines_without_an_end_are_no_orders_and_stop_no_others(tmp_path):
    path, posted, reported = tmp_path / "orders", [], []
    path.write_bytes(b"\xff\xfe\n" + b"x" * 25_000 + b"\nstop\n")
    post_lines(_lines(str(path)), lambda order, by: posted.append(order), by="a file", say=reported.append)
    assert posted == [Stop()]
    assert len(reported) == 4
