"""Requests and what becomes of them, as the robot sees it."""

import numpy as np
import pytest
from msgspec import structs
from session_pair import (
    DIM,
    MS,
    SPEC,
    SessionPair,
    make_request,
    make_schema,
    ready_pair,
    received_rows,
    reply,
    say,
)

from robot_runtime.core.policy import ChunkRequest
from robot_runtime.wire.client_session import ClientState
from robot_runtime.wire.events import PartReceived, RequestFailed
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.messages import Dropped, DropReason


def test_a_request_is_answered_row_by_row_in_order():
    pair = ready_pair()
    pair.submit(make_request(1))
    pair.tick(6)
    events = pair.take_events()
    assert received_rows(events) == list(range(SPEC.horizon))
    assert [e.part.is_last for e in events] == [False, False, True]
    assert all(e.sent_ns <= e.arrived_ns for e in events)


def test_the_newest_of_the_waiting_requests_wins():
    pair = ready_pair()
    for request_id in (1, 2, 3):
        pair.submit(make_request(request_id))
    (dropped,) = pair.take_events(Dropped)
    assert (dropped.request_id, dropped.reason) == (2, DropReason.SUPERSEDED)
    pair.tick(12)
    parts = pair.take_events(PartReceived)
    assert [p.part.request_id for p in parts if p.part.is_last] == [1, 3]


def test_nothing_is_sent_without_credit():
    pair = ready_pair()
    pair.client.submit(make_request(1), pair.now_ns)
    pair.client.submit(make_request(2), pair.now_ns)
    sent = [p.message for p in pair.client.packets_to_send() if isinstance(p.message, ChunkRequest)]
    assert [r.request_id for r in sent] == [1]


def test_only_cameras_that_the_policy_looks_at_are_sent():
    pair = SessionPair(schema=make_schema(cameras={"wrist": (4, 6), "back": (4, 6)}))
    pair.flush()
    request = make_request(1)
    image = request.observation.images["wrist"]
    images = {"wrist": image, "back": image}
    observation = type(request.observation)(state=request.observation.state, images=images)
    pair.client.submit(make_request(1, observation=observation), pair.now_ns)
    (sent,) = [p.message for p in pair.client.packets_to_send() if isinstance(p.message, ChunkRequest)]
    assert list(sent.observation.images) == ["wrist"]


def test_scene_quantities_that_the_policy_does_without_are_not_sent():
    pair = ready_pair()
    observation = structs.replace(make_request(1).observation, environment_state=np.ones(5))
    pair.client.submit(make_request(1, observation=observation), pair.now_ns)
    (sent,) = [p.message for p in pair.client.packets_to_send() if isinstance(p.message, ChunkRequest)]
    assert sent.observation.environment_state.size == 0
    assert list(sent.observation.images) == ["wrist"]


def test_a_request_without_a_server_fails_at_once():
    pair = SessionPair()
    pair.client.submit(make_request(1), pair.now_ns)
    event = pair.client.next_event()
    assert isinstance(event, RequestFailed)
    assert "no server" in event.reason


def test_cancelling_frees_credit_and_stops_the_server():
    pair = ready_pair()
    pair.submit(make_request(1))
    pair.submit(make_request(2))
    pair.tick(2)
    pair.take_events()
    pair.client.cancel(request_id=1, epoch=0, now_ns=pair.now_ns)
    pair.tick(8)
    events = pair.take_events()
    assert events[0] == Dropped(request_id=1, epoch=0, reason=DropReason.CANCELLED)
    assert {e.part.request_id for e in events if isinstance(e, PartReceived)} == {2}


def test_cancelling_a_waiting_request_sends_nothing():
    pair = ready_pair()
    pair.submit(make_request(1))
    pair.submit(make_request(2))
    pair.client.cancel(request_id=2, epoch=0, now_ns=pair.now_ns)
    assert pair.client.packets_to_send() == []
    pair.flush()
    assert [e.request_id for e in pair.take_events(Dropped)] == [2]


def test_a_deadline_expires_the_request_and_returns_credit():
    pair = ready_pair(fate=lambda to: [0])
    pair.fate = lambda to: [] if pair.client.state is ClientState.READY and pair.now_ns == 0 else [0]
    pair.submit(make_request(1, deadline_ns=20 * MS))
    pair.tick(5)
    assert pair.take_events(Dropped) == [Dropped(request_id=1, epoch=0, reason=DropReason.DEADLINE)]
    pair.submit(make_request(2))
    pair.tick(6)
    assert received_rows(pair.take_events()) == list(range(SPEC.horizon))


def test_a_deadline_that_the_server_noticed_first_is_an_expiry_too():
    pair = ready_pair()
    pair.submit(make_request(1))
    say(pair, Dropped(request_id=1, epoch=0, reason=DropReason.DEADLINE))
    assert pair.take_events() == [Dropped(request_id=1, epoch=0, reason=DropReason.DEADLINE)]


def test_duplicates_are_dropped_and_reordered_parts_wait():
    pair = ready_pair()
    request = make_request(1)
    pair.submit(request)
    for first, end in ((4, 6), (0, 2), (0, 2), (2, 4)):
        say(pair, reply(request, first, end))
    assert received_rows(pair.take_events()) == list(range(SPEC.horizon))
    say(pair, reply(request, 4, 6))
    assert pair.take_events() == []


BAD_REPLIES = {
    "overlap": {"first": 1, "end": 3},
    "beyond the horizon": {"first": 2, "end": 6, "rows": np.zeros((9, DIM))},
    "columns": {"first": 2, "end": 4, "rows": np.zeros((2, DIM + 1))},
    "no rows": {"first": 2, "end": 4, "rows": np.zeros((0, DIM))},
    "other observation": {"first": 2, "end": 4, "t_obs_ns": 5},
    "last too early": {"first": 0, "end": 1, "is_last": True},
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_reply_that_makes_no_sense_fails_its_request(name):
    pair = ready_pair()
    request = make_request(1)
    pair.submit(request)
    say(pair, reply(request, 0, 2))
    pair.take_events()
    say(pair, reply(request, **BAD_REPLIES[name]))
    (event,) = pair.take_events()
    assert isinstance(event, RequestFailed)
    say(pair, reply(request, 2, 4))
    assert pair.take_events() == []


def test_an_undecodable_reply_fails_the_request_it_names():
    pair = ready_pair()
    pair.submit(make_request(1))
    error = ProtocolError("rows holds NaN")
    error.client_id, error.session, error.request_id, error.epoch = "me", pair.client.session_id, 1, 0
    pair.client.receive(error, pair.now_ns)
    pair.flush()
    (event,) = pair.take_events()
    assert isinstance(event, RequestFailed)
    assert "NaN" in event.reason


@pytest.mark.parametrize(
    ("request_id", "epoch", "client_id"), [(1, 1, "me"), (2, 0, "me"), (1, 0, "somebody else")]
)
def test_an_answer_to_another_request_epoch_or_robot_is_ignored(request_id, epoch, client_id):
    pair = ready_pair()
    request = make_request(1)
    pair.submit(request)
    say(pair, reply(request, 0, 6, request_id=request_id, epoch=epoch), client_id=client_id)
    assert pair.take_events() == []
    assert pair.client.ignored.total() == 1
    say(pair, reply(request, 0, 6))
    assert len(pair.take_events(PartReceived)) == 1
