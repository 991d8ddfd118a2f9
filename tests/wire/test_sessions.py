"""Both sides over time: greeting, losing each other, finding each other again."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_pair import (
    MS,
    SPEC,
    TICK,
    SessionPair,
    ToyServer,
    make_request,
    make_schema,
    make_welcome,
    ready_pair,
    received_rows,
    reply,
    say,
)

from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.request_parts import TrackingLag
from robot_runtime.core.method.sampler_parts import ClampedPrefix, ConstantSchedule
from robot_runtime.core.values.action import NS_PER_S, BaseTwist
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.wire.client_session import ClientState
from robot_runtime.wire.events import PartReceived, RequestFailed, ServerLost
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.heartbeats import MIN_PATIENCE_NS
from robot_runtime.wire.messages import Dropped, Goodbye, Readiness, RefusalCode, Refused, Welcome
from robot_runtime.wire.server_session import ServerSession
from tests.examples import examples


def test_a_schema_mismatch_refuses_and_names_both_sides():
    pair = SessionPair(schema=make_schema(num_joints=3, cameras={"front": (4, 6)}))
    pair.flush()
    (refused,) = pair.take_events(Refused)
    assert refused.code is RefusalCode.SCHEMA
    for part in ("toy robot", "toy", "the robot has 3, the policy needs 2", "camera 'wrist'"):
        assert part in refused.reason
    pair.tick(300)
    assert pair.client.state is ClientState.REFUSED
    assert pair.take_events() == []


def test_whoever_is_welcomed_by_a_server_that_still_warms_up_knows_what_is_warm():
    pair = SessionPair()
    assert pair.server is not None
    cold = Readiness(samplers=("ConstantSchedule",), max_batch=1, pieces_left=3)
    pair.server.session.is_ready_for(cold)
    pair.flush()
    readiness, welcome = pair.take_events()
    assert readiness == cold
    assert isinstance(welcome, Welcome)


def test_a_server_of_another_version_is_refused_by_both_sides():
    pair = SessionPair()
    pair.client.receive(
        ProtocolError("this side speaks version 1, the peer speaks 2", their_version=2), pair.now_ns
    )
    event = pair.client.next_event()
    assert isinstance(event, Refused)
    assert event.code is RefusalCode.VERSION
    assert "version 1" in event.reason
    assert "speaks 2" in event.reason
    server = ServerSession(make_welcome())
    server.receive(b"old", ProtocolError("this side speaks version 1, the peer speaks 0", their_version=0), 0)
    ((peer, packet),) = server.packets_to_send()
    assert peer == b"old"
    assert isinstance(packet.message, Refused)
    assert "speaks 0" in packet.message.reason


def test_a_refused_client_may_try_again():
    pair = SessionPair(schema=make_schema(num_joints=3))
    pair.flush()
    pair.client.connect(pair.now_ns)
    assert pair.client.state is ClientState.GREETING


def test_the_robot_hears_what_the_policy_may_be_asked_for():
    declared = Capabilities(
        samplers=(ConstantSchedule, ClampedPrefix),
        max_inference_delay=3,
        recipe="prefix",
        roll_forward=TrackingLag(time_constant_s=0.03),
        execution_horizon=4,
    )
    pair = SessionPair(capabilities=declared)
    pair.tick(10)
    ready = next(event for event in pair.take_events() if isinstance(event, Welcome))
    assert ready.info.capabilities == declared


@pytest.mark.parametrize("num_rows", [1, SPEC.horizon])
def test_the_robot_hears_what_rows_the_policy_knows(num_rows):
    mean, std = np.full((num_rows, SPEC.dim), 0.25), np.full((num_rows, SPEC.dim), 0.5)
    knows = RowStatistics(mean=mean, std=std, from_measured=True)
    pair = SessionPair(capabilities=Capabilities(samplers=(ConstantSchedule,), row_statistics=knows))
    pair.tick(10)
    ready = next(event for event in pair.take_events() if isinstance(event, Welcome))
    heard = ready.info.capabilities.row_statistics
    assert heard is not None
    np.testing.assert_array_equal(heard.mean, mean)
    np.testing.assert_array_equal(heard.std, std)
    assert heard.from_measured


def asked_twice(**kwargs) -> SessionPair:
    """A pair that knows its round trip, with a request under way and one that waits."""
    pair = ready_pair(**kwargs)
    pair.tick(20)
    for request_id in (1, 2):
        pair.submit(make_request(request_id, deadline_ns=100 * NS_PER_S))
    return pair


def test_a_server_whose_connection_breaks_is_lost_at_once_and_everything_open_fails():
    pair = asked_twice()
    pair.client.broken("it broke", pair.now_ns)
    pair.flush()
    events = pair.take_events()
    assert [type(e) for e in events] == [RequestFailed, RequestFailed, ServerLost, Welcome]
    assert {e.reason for e in events[:2]} == {"server lost"}


def test_a_server_that_hangs_is_noticed_after_two_seconds_on_a_quick_link():
    pair = asked_twice()
    pair.server, died_ns = None, pair.now_ns
    while not (events := pair.take_events()):
        pair.tick()
    assert MIN_PATIENCE_NS <= pair.now_ns - died_ns <= MIN_PATIENCE_NS + 500 * MS
    assert [type(e) for e in events] == [RequestFailed, RequestFailed, ServerLost]


@given(
    one_way=st.integers(0, 400),
    jitter=st.integers(0, 10),
    loss=st.floats(0, 0.05),
    seed=st.integers(0, 2**32),
)
@examples(30)
def test_links_of_up_to_two_seconds_each_way_that_lose_packets_lose_no_server(one_way, jitter, loss, seed):
    """What is lost comes a round trip and 0.2 s later, the next time twice as late, and all behind it too."""
    rng = random.Random(seed)
    free_ns = {"server": 0, "client": 0}

    def line(to: str) -> list[int]:
        late = one_way + rng.randint(0, jitter)
        again = 2 * one_way + 40
        while rng.random() < loss:
            late, again = late + again, 2 * again
        free_ns[to] = max(free_ns[to], pair.now_ns + late * TICK)
        return [(free_ns[to] - pair.now_ns) // TICK]

    pair = SessionPair(fate=line)
    pair.tick(6000)
    kinds = {type(event) for event in pair.take_events()}
    assert kinds == {Welcome}
    pair.submit(make_request(1, deadline_ns=60 * NS_PER_S))
    pair.tick(6000)
    events = pair.take_events()
    assert received_rows(events) == list(range(SPEC.horizon))
    assert not any(isinstance(event, ServerLost) for event in events)


def test_a_client_without_a_processor_does_not_take_its_server_for_lost():
    pair = ready_pair()
    pair.tick(20)
    for _ in range(20):
        pair.now_ns += NS_PER_S  # nobody ran
        pair.client.handle_timer(pair.now_ns)
    assert pair.client.state is ClientState.READY


def test_a_server_that_welcomes_and_leaves_for_ever_is_greeted_ten_times_a_second():
    pair = ready_pair()
    num_greetings = 0
    for _ in range(200):
        pair.tick()
        pair.client.broken("again", pair.now_ns)
        num_greetings += sum(isinstance(event, Welcome) for event in pair.take_events())
    assert 5 <= num_greetings <= 11


def test_what_a_server_says_cannot_forge_a_line_of_a_log():
    pair = SessionPair()
    say(pair, Refused(code=RefusalCode.FULL, reason="no\n2026 INFO all is well\x1b[2J"))
    (refused,) = pair.take_events(Refused)
    assert refused.reason == r"no\n2026 INFO all is well\x1b[2J"


def test_a_full_server_is_asked_again_until_there_is_room():
    pair = SessionPair()
    pair.client.packets_to_send()
    for _ in range(3):
        say(pair, Refused(code=RefusalCode.FULL, reason="full"))
    assert [event.reason for event in pair.take_events(Refused)] == ["full"]
    pair.tick(500)
    assert [type(event) for event in pair.take_events()] == [Welcome]


def test_a_robot_that_was_welcomed_once_goes_on_asking_a_server_that_refuses_it():
    pair = ready_pair()
    pair.server = ToyServer(schema=make_schema(num_joints=3))
    pair.tick(1500)
    assert [type(event) for event in pair.take_events()] == [ServerLost, Refused]
    pair.server = ToyServer()
    pair.tick(500)
    assert [type(event) for event in pair.take_events()] == [Welcome]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": make_schema(num_joints=3)}, "the robot has 2, the policy needs 3"),
        ({"schema": make_schema(cameras={"nope": (4, 6)})}, "camera 'nope'"),
        ({"action_spec": replace(SPEC, fields=(BaseTwist(),))}, "base twist"),
    ],
)
def test_a_welcome_to_something_else_than_this_robot_is_refused_by_the_robot(changes: dict, words: str):
    pair = SessionPair()
    say(pair, make_welcome(**changes))
    (refused,) = pair.take_events(Refused)
    assert words in refused.reason


def test_the_client_is_ready_again_within_a_second_of_the_servers_return():
    pair = ready_pair()
    pair.server = None
    pair.tick(1000)
    pair.take_events()
    pair.server, back_ns = ToyServer(), pair.now_ns
    while not pair.take_events(Welcome):
        pair.tick()
    assert pair.now_ns - back_ns <= 1000 * MS
    pair.submit(make_request(9))
    pair.tick(6)
    assert received_rows(pair.take_events()) == list(range(SPEC.horizon))


def test_a_restarted_server_is_greeted_at_the_next_heartbeat():
    pair = ready_pair()
    pair.tick(30)
    pair.submit(make_request(1))
    pair.server, restarted_ns = ToyServer(), pair.now_ns
    while not (ready := pair.take_events()) or not isinstance(ready[-1], Welcome):
        pair.tick()
    assert pair.now_ns - restarted_ns <= 40 * MS + 2 * TICK


def test_late_replies_of_an_old_session_are_ignored():
    pair = ready_pair()
    pair.tick(30)
    request = make_request(1)
    pair.submit(request)
    old = pair.client.session_id
    say(pair, Goodbye())
    assert [type(e) for e in pair.take_events()] == [RequestFailed, ServerLost]
    pair.flush()
    pair.take_events()
    pair.submit(request)
    say(pair, reply(request, 0, 6), session=old)
    say(pair, make_welcome(), session=old)
    assert pair.take_events() == []
    assert pair.client.ignored["another session"] == 2


def test_a_client_that_slept_asks_before_it_judges():
    pair = ready_pair()
    pair.tick(4)
    pair.now_ns += 10_000 * MS
    pair.flush()
    pair.client.handle_timer(pair.now_ns)
    assert pair.client.state is ClientState.READY


def test_timers_are_always_ahead_or_due_and_never_spin():
    pair = ready_pair()
    pair.submit(make_request(1))
    pair.server = None
    for _ in range(50):
        timer_ns = pair.client.next_timer_ns()
        pair.now_ns = max(pair.now_ns, timer_ns)
        pair.client.handle_timer(pair.now_ns)
        assert pair.client.next_timer_ns() > pair.now_ns


def test_goodbye_is_said_and_forgets_the_client():
    pair = ready_pair()
    assert pair.server.session.num_clients == 1
    pair.client.close()
    pair.flush()
    assert pair.server.session.num_clients == 0
    assert pair.client.state is ClientState.DISCONNECTED
    assert pair.client.next_timer_ns() is None


@given(seed=st.integers(0, 2**32), loss=st.floats(0, 0.5), copies=st.floats(0, 0.5), delay=st.integers(0, 30))
@examples(60)
def test_whatever_the_network_does_no_row_is_wrong_or_twice_and_it_recovers(seed, loss, copies, delay):
    rng = random.Random(seed)
    ids = itertools.count(1)

    def fate(to: str) -> list[int]:
        count = 0 if rng.random() < loss else 1 + (rng.random() < copies)
        return [rng.randint(0, delay) for _ in range(count)]

    pair = SessionPair(fate=fate)
    seen: dict[int, list[int]] = {}
    ended: dict[int, int] = {}
    submitted = 0

    def look() -> None:
        for event in pair.take_events():
            match event:
                case PartReceived(part=part):
                    rows = seen.setdefault(part.request_id, [])
                    assert part.first_row == len(rows)
                    np.testing.assert_array_equal(part.rows[:, 0], part.request_id)
                    rows += [int(row) for row in part.rows[:, 1]]
                    assert rows == list(range(len(rows)))
                    if part.is_last:
                        ended[part.request_id] = ended.get(part.request_id, 0) + 1
                case Dropped() | RequestFailed():
                    ended[event.request_id] = ended.get(event.request_id, 0) + 1

    for _ in range(150):
        if rng.random() < 0.15:
            still_open = [i for i in range(1, submitted + 1) if i not in ended]
            in_flight = tuple(i for i in still_open if rng.random() < 0.8)
            request = make_request(next(ids), in_flight=in_flight, deadline_ns=rng.randint(1, 60) * TICK)
            pair.submit(request)
            submitted += 1
        if rng.random() < 0.01:
            pair.server = ToyServer()
        pair.tick()
        look()
    pair.fate = lambda to: [0]
    pair.tick(250)
    look()
    assert ended == dict.fromkeys(range(1, submitted + 1), 1)
    last = next(ids)
    pair.submit(make_request(last))
    pair.tick(10)
    look()
    assert seen.get(last) == list(range(SPEC.horizon))
