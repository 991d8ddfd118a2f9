"""What a page makes of a run's messages, and what it shows of them."""

import json

import pytest

from robot_runtime.core.safety import Cause, Mode
from robot_runtime.page.state import WINDOW_S, PageState, order_words
from robot_runtime.page.view import view_of
from tests.page import made_run


def fed(*messages: made_run.Message) -> PageState:
    state = PageState()
    state.begin(made_run.info())
    for message in messages:
        state.take(*message)
    return state


def shown(*messages: made_run.Message) -> dict:
    return view_of(fed(*messages), quiet_s=0.1)


def test_a_page_before_any_news_says_that_there_is_none():
    view = view_of(PageState(), quiet_s=None)
    assert (view["mode"], view["is_live"]) == ("", False)
    assert "no news" in view["cause"]


def test_mode_and_cause_are_the_newest():
    view = shown(made_run.mode(0.0), made_run.mode(0.1, Mode.STOP, Cause.RELEASED))
    assert (view["mode"], view["cause"]) == ("STOP", "hold-to-run was let go")
    assert [mode for _, mode in view["modes"]] == ["RUN", "STOP"]


def test_a_robot_that_holds_unarmed_can_be_armed_and_one_that_runs_cannot():
    assert shown(made_run.mode(0.0, Mode.HOLD, Cause.NOT_ARMED))["is_armed"] is False
    assert shown(made_run.mode(0.0))["is_armed"] is True
    assert shown(made_run.mode(0.0, Mode.STOP, Cause.RELEASED))["is_armed"] is None


def test_news_that_stop_coming_are_said_to_be_old():
    state = fed(made_run.mode(0.0))
    assert view_of(state, quiet_s=0.2)["banner"] == ""
    late = view_of(state, quiet_s=3.0)
    assert "No news from the robot for 3 s" in late["banner"]
    assert not late["is_live"]


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ({"success": "True", "files": ["runs/a.mcap"]}, "The run is over: success, log runs/a.mcap"),
        ({"success": "False", "files": []}, "The run is over: no success"),
        ({"fault": "the server is gone", "files": []}, "The run is over: the server is gone"),
        ({"files": []}, "The run is over: hold-to-run was let go"),
    ],
)
def test_a_run_that_ended_says_so_and_what_it_came_to(end: dict, words: str):
    view = shown(made_run.mode(0.1, Mode.STOP, Cause.RELEASED), made_run.say("/end", 0.2, **end))
    assert view["banner"] == words
    assert (view["is_over"], view["is_live"]) == (True, False)


def test_a_chunk_is_asked_for_comes_runs_and_is_done():
    first, second = list(made_run.request(0, 0.0)), list(made_run.request(1, 0.4))

    def chunk(n: int, *messages: made_run.Message) -> dict:
        return next(c for c in shown(*messages)["chunks"] if c["n"] == n)

    assert chunk(0, *first[:1])["state"] == "asked"
    assert chunk(0, *first[:2])["state"] == "waiting"
    running = chunk(0, *first)
    assert running["state"] == "running"
    assert running["first_s"] == pytest.approx(0.2, abs=0.002)
    assert running["planned_s"] == pytest.approx(23 / 20)
    done = chunk(0, *first, *second)
    assert (done["state"], done["end_s"]) == ("done", pytest.approx(0.6, abs=0.002))


def test_a_chunk_that_is_dropped_says_why():
    chunk = shown(*made_run.request(0, 0.0, drops="all its rows were already past"))["chunks"][0]
    assert (chunk["state"], chunk["why"]) == ("dropped", "all its rows were already past")


def test_a_lost_server_drops_what_was_asked_of_it():
    lost = made_run.chunk(0.1, "server lost", -1, why="the server is gone")
    chunk = shown(made_run.chunk(0.0, "asked", 7, captured_ns=0), lost)["chunks"][0]
    assert (chunk["state"], chunk["why"]) == ("dropped", "the server is gone")


def test_latency_is_that_of_first_rows():
    figures = dict(shown(*made_run.request(0, 0.0, 0.18), *made_run.request(1, 0.4, 0.22))["figures"])
    assert figures["latency p50 / p95"] == "220 / 220 ms"


def test_parts_say_who_moves_them_and_what_holds_them_back():
    who = made_run.say(
        "/authority", 0.0, authority={"arm": "human", "gripper": "policy"}, phase={"arm": "correct"}
    )
    view = shown(made_run.mode(0.0, clipped={"arm": {"velocity": True}}), who)
    arm, gripper = view["parts"]
    assert (arm["name"], arm["authority"], arm["phase"], arm["clipped"]) == (
        "arm",
        "HUMAN",
        "CORRECT",
        "velocity limit",
    )
    assert (gripper["authority"], gripper["clipped"]) == ("POLICY", "")


def test_an_order_that_was_refused_says_why():
    refused = made_run.order(1.0, {"order": "Arm"}, refused="1 of 3 chunks", waited_ms=2.0)
    (order,) = shown(refused)["orders"]
    assert (order["text"], order["refused"], order["after_ms"]) == ("Arm", "1 of 3 chunks", 2)


def test_the_task_is_the_one_that_was_told_last_and_not_refused():
    told = made_run.order(1.0, {"order": "SetTask", "task": "wipe it"})
    refused = made_run.order(
        2.0, {"order": "SetTask", "task": "dance"}, refused="the policy does not know it"
    )
    assert shown(told, refused)["task"] == "wipe it"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"order": "TakeOver", "parts": ["left_arm", "base"]}, "TakeOver left_arm base"),
        ({"order": "HandBack", "parts": []}, "HandBack"),
        ({"order": "SetTask", "task": "fold it"}, "SetTask fold it"),
        ({"order": "EndEpisode", "outcome": "success", "keep": True}, "EndEpisode success"),
        ({"order": "Keep", "seconds": None}, "Keep"),
    ],
)
def test_orders_are_said_in_words(told, words):
    assert order_words(told) == words


def test_what_is_no_message_of_ours_changes_nothing():
    state = fed(made_run.mode(0.0))
    before = json.dumps(view_of(state, quiet_s=0.1))
    for topic in (
        "/mode",
        "/chunk",
        "/state",
        "/order",
        "/log",
        "/camera/x",
        "/plan",
        "/authority",
        "/timing",
        "/nothing",
    ):
        for data in (b"", b"[]", b"{", b"{}", b'{"event": 3}', b'"text"', b"\xff\xfe"):
            state.take(topic, made_run.WALL_NS, data)
    state.pictures.clear()
    assert json.dumps(view_of(state, quiet_s=0.1)) == before


def test_an_hour_of_news_takes_no_more_room_than_a_minute():
    def sizes(state: PageState) -> list[int]:
        kept = (
            state.modes.pairs,
            state.trail,
            state.clips,
            state.late_ms,
            state.chunks.by_request,
            state.lines,
        )
        return [len(each) for each in kept]

    state = fed(*made_run.run(4 * WINDOW_S))
    assert max(sizes(state)) <= 50 * WINDOW_S + 1


def test_the_newest_picture_of_each_camera_is_kept():
    state = fed(
        made_run.picture(0.0, "chest"), made_run.picture(0.1, "wrist"), made_run.picture(0.2, "chest")
    )
    assert {name: t_s for name, (t_s, _) in state.pictures.items()} == pytest.approx(
        {"chest": 0.2, "wrist": 0.1}
    )
    assert state.pictures["chest"][1].startswith(b"\xff\xd8")
