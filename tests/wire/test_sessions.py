import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from session_pair import (
    DIM,
    MS,
    SPEC,
    TICK,
    SessionPair,
    ToyServer,
    make_request,
    make_schema,
    make_welcome,
    ready_pair,
    rows_of,
)

from robot_runtime.core.action import ChunkPart
from robot_runtime.core.capabilities import Capabilities
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.request_parts import TrackingLag
from robot_runtime.core.sampler_parts import ClampedPrefix, ConstantSchedule
from robot_runtime.wire.client_session import ClientState
from robot_runtime.wire.events import (
    PartReceived,
    RequestDropped,
    RequestExpired,
    RequestFailed,
    ServerLost,
    ServerReady,
    ServerRefused,
)
from robot_runtime.wire.frames import ProtocolError, VersionMismatchError
from robot_runtime.wire.messages import (
    ChunkReply,
    Dropped,
    DropReason,
    ErrorCode,
    ErrorReply,
    Goodbye,
    Heartbeat,
    Hello,
    Packet,
    RefusalCode,
    Refused,
    Welcome,
)
from robot_runtime.wire.server_session import PACKETS_PER_S, SILENCE_NS, ServerSession


def reply(request: ChunkRequest, first: int, end: int, **changes) -> ChunkReply:
    values = {"t_obs_ns": request.observation.t_obs_ns, "rows": rows_of(request)[first:end]}
    values |= {"request_id": request.request_id, "epoch": request.epoch, "first_row": first}
    part = ChunkPart(**(values | {"is_last": end == SPEC.horizon} | changes))
    return ChunkReply(part=part, queue_ns=1, infer_ns=2)


def received_rows(events: list) -> list[int]:
    return [int(row[1]) for e in events if isinstance(e, PartReceived) for row in e.part.rows]


def say(pair: SessionPair, message, *, session: int | None = None, client_id: str = "me") -> None:
    """The server's words, straight into the client's ear."""
    session_id = pair.client.session_id if session is None else session
    pair.client.receive(Packet(client_id, session_id, message), pair.now_ns)
    while (event := pair.client.next_event()) is not None:
        pair.events.append(event)


def test_a_request_is_answered_row_by_row_in_order():
    pair = ready_pair()
    pair.submit(make_request(1))
    pair.tick(6)
    events = pair.take_events()
    assert received_rows(events) == list(range(SPEC.horizon))
    assert [e.part.is_last for e in events] == [False, False, True]
    assert all(e.sent_ns <= e.arrived_ns for e in events)


def test_a_schema_mismatch_refuses_and_names_both_sides():
    pair = SessionPair(schema=make_schema(num_joints=3, cameras={"front": (4, 6)}))
    pair.flush()
    (refused,) = pair.take_events(ServerRefused)
    assert refused.code is RefusalCode.SCHEMA
    for part in ("toy robot", "toy", "the robot has 3, the policy needs 2", "camera 'wrist'"):
        assert part in refused.reason
    pair.tick(300)
    assert pair.client.state is ClientState.REFUSED
    assert pair.take_events() == []


def test_a_server_of_another_version_is_refused_by_both_sides():
    pair = SessionPair()
    pair.client.receive(VersionMismatchError(ours=1, theirs=2), pair.now_ns)
    event = pair.client.next_event()
    assert isinstance(event, ServerRefused)
    assert event.code is RefusalCode.VERSION
    assert "version 1" in event.reason
    assert "speaks 2" in event.reason
    server = ServerSession(make_welcome())
    server.receive(b"old", VersionMismatchError(ours=1, theirs=0), 0)
    ((peer, packet),) = server.packets_to_send()
    assert peer == b"old"
    assert isinstance(packet.message, Refused)
    assert "speaks 0" in packet.message.reason


def test_a_refused_client_may_try_again():
    pair = SessionPair(schema=make_schema(num_joints=3))
    pair.flush()
    pair.client.connect(pair.now_ns)
    assert pair.client.state is ClientState.GREETING


def test_the_newest_of_the_waiting_requests_wins():
    pair = ready_pair()
    for request_id in (1, 2, 3):
        pair.submit(make_request(request_id))
    (dropped,) = pair.take_events(RequestDropped)
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
    assert events[0] == RequestDropped(request_id=1, epoch=0, reason=DropReason.CANCELLED)
    assert {e.part.request_id for e in events if isinstance(e, PartReceived)} == {2}


def test_cancelling_a_waiting_request_sends_nothing():
    pair = ready_pair()
    pair.submit(make_request(1))
    pair.submit(make_request(2))
    pair.client.cancel(request_id=2, epoch=0, now_ns=pair.now_ns)
    assert pair.client.packets_to_send() == []
    pair.flush()
    assert [e.request_id for e in pair.take_events(RequestDropped)] == [2]


def test_a_deadline_expires_the_request_and_returns_credit():
    pair = ready_pair(fate=lambda: [0])
    pair.fate = lambda: [] if pair.client.state is ClientState.READY and pair.now_ns == 0 else [0]
    pair.submit(make_request(1, deadline_ns=20 * MS))
    pair.tick(5)
    assert [e.request_id for e in pair.take_events(RequestExpired)] == [1]
    pair.submit(make_request(2))
    pair.tick(6)
    assert received_rows(pair.take_events()) == list(range(SPEC.horizon))


def test_a_deadline_that_the_server_noticed_first_is_an_expiry_too():
    pair = ready_pair()
    pair.submit(make_request(1))
    say(pair, Dropped(request_id=1, epoch=0, reason=DropReason.DEADLINE))
    assert pair.take_events() == [RequestExpired(request_id=1, epoch=0)]


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


def test_a_dead_server_is_noticed_within_200_ms_and_everything_open_fails():
    pair = ready_pair()
    pair.tick(20)
    pair.submit(make_request(1))
    pair.submit(make_request(2))
    pair.server, died_ns = None, pair.now_ns
    while not (events := pair.take_events()):
        pair.tick()
    assert pair.now_ns - died_ns <= 200 * MS
    assert [type(e) for e in events] == [RequestFailed, RequestFailed, ServerLost]
    assert {e.reason for e in events[:2]} == {"server lost"}


def test_the_client_is_ready_again_within_a_second_of_the_servers_return():
    pair = ready_pair()
    pair.server = None
    pair.tick(1000)
    pair.take_events()
    pair.server, back_ns = ToyServer(), pair.now_ns
    while not pair.take_events(ServerReady):
        pair.tick()
    assert pair.now_ns - back_ns <= 1000 * MS
    pair.submit(make_request(9))
    pair.tick(6)
    assert received_rows(pair.take_events()) == list(range(SPEC.horizon))


def test_a_restarted_server_is_greeted_at_the_next_heartbeat():
    pair = ready_pair()
    pair.submit(make_request(1))
    pair.server, restarted_ns = ToyServer(), pair.now_ns
    while not (ready := pair.take_events()) or not isinstance(ready[-1], ServerReady):
        pair.tick()
    assert pair.now_ns - restarted_ns <= 40 * MS + 2 * TICK


def test_late_replies_of_an_old_session_are_ignored():
    pair = ready_pair()
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
@settings(max_examples=60, deadline=None, derandomize=True)
def test_whatever_the_network_does_no_row_is_wrong_or_twice_and_it_recovers(seed, loss, copies, delay):
    rng = random.Random(seed)
    ids = itertools.count(1)

    def fate() -> list[int]:
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
                case RequestDropped() | RequestExpired() | RequestFailed():
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
    pair.fate = lambda: [0]
    pair.tick(250)
    look()
    assert ended == dict.fromkeys(range(1, submitted + 1), 1)
    last = next(ids)
    pair.submit(make_request(last))
    pair.tick(10)
    look()
    assert seen.get(last) == list(range(SPEC.horizon))


# ---- the server's side alone -------------------------------------------------------------------------


def greeted(*peers: bytes) -> ServerSession:
    server = ServerSession(make_welcome())
    for i, peer in enumerate(peers):
        server.receive(peer, Packet(peer.decode(), i, Hello(robot="r", schema=make_schema())), 0)
    assert all(isinstance(p.message, Welcome) for _, p in server.packets_to_send())
    return server


def ask(server: ServerSession, peer: bytes, session: int, request: ChunkRequest, now_ns: int = 0) -> None:
    server.receive(peer, Packet(peer.decode(), session, request), now_ns)


def said(server: ServerSession) -> list:
    return [packet.message for _, packet in server.packets_to_send()]


def test_a_stranger_is_told_to_greet():
    server = greeted()
    server.receive(b"x", Packet("x", 3, Heartbeat(t_ns=1)), 0)
    ((peer, packet),) = server.packets_to_send()
    assert (peer, packet.client_id, packet.session) == (b"x", "x", 3)
    assert packet.message.code is ErrorCode.HELLO_FIRST


def test_clients_are_served_in_turn_and_a_newer_request_keeps_the_place():
    server = greeted(b"a", b"b")
    ask(server, b"a", 0, make_request(1))
    ask(server, b"b", 1, make_request(1))
    ask(server, b"a", 0, make_request(2))
    assert said(server) == [Dropped(request_id=1, epoch=0, reason=DropReason.SUPERSEDED)]
    jobs = [server.next_job(0), server.next_job(0), server.next_job(0)]
    assert [(j.peer, j.request.request_id) if j else None for j in jobs] == [(b"a", 2), (b"b", 1), None]


def test_expired_requests_are_not_run():
    server = greeted(b"a")
    ask(server, b"a", 0, make_request(1, deadline_ns=10))
    assert server.next_timer_ns() == 10
    server.handle_timer(10)
    assert said(server) == [Dropped(request_id=1, epoch=0, reason=DropReason.DEADLINE)]
    assert server.next_job(10) is None


def test_a_running_job_is_unwanted_after_its_deadline():
    server = greeted(b"a")
    ask(server, b"a", 0, make_request(1, deadline_ns=10))
    job = server.next_job(5)
    assert server.is_wanted(job)
    server.handle_timer(10)
    assert not server.is_wanted(job)
    said(server)
    server.rows_ready(job, first_row=0, rows=np.zeros((6, 2)), is_last=True, infer_ns=1)
    assert said(server) == []


def test_a_client_that_greets_again_from_elsewhere_replaces_itself():
    server = greeted(b"a")
    ask(server, b"a", 0, make_request(1))
    server.receive(b"new", Packet("a", 9, Hello(robot="r", schema=make_schema())), 0)
    assert server.num_clients == 1
    assert server.next_job(0) is None


def test_silent_clients_are_forgotten():
    server = greeted(b"a", b"b")
    server.receive(b"b", Packet("b", 1, Heartbeat(t_ns=5)), SILENCE_NS // 2)
    server.handle_timer(SILENCE_NS)
    assert server.num_clients == 1


def test_a_request_that_does_not_fit_the_policy_is_refused_in_words():
    server = greeted(b"a")
    ask(server, b"a", 0, make_request(1, prev_action_chunk=np.zeros((7, 2))))
    (error,) = said(server)
    assert (error.code, error.request_id) == (ErrorCode.BAD_REQUEST, 1)
    assert "(7, 2)" in error.message


def test_a_flood_is_cut_off_for_its_sender_only():
    server = greeted(b"a", b"b")
    for _ in range(PACKETS_PER_S):
        server.receive(b"a", Packet("a", 0, Heartbeat(t_ns=1)), 0)
    messages = said(server)
    errors = [m for m in messages if isinstance(m, ErrorReply)]
    assert [e.code for e in errors] == [ErrorCode.TOO_FAST]
    assert len(messages) < PACKETS_PER_S
    server.receive(b"b", Packet("b", 1, Heartbeat(t_ns=1)), 0)
    assert len(said(server)) == 1
    server.receive(b"a", Packet("a", 0, Heartbeat(t_ns=1)), 10**9)
    assert len(said(server)) == 1


def test_garbage_is_answered_and_changes_nothing():
    server = greeted(b"a")
    server.receive(b"a", ProtocolError("the header is not msgpack"), 0)
    (error,) = said(server)
    assert error.code is ErrorCode.PROTOCOL
    assert server.num_clients == 1


def test_the_robot_hears_what_the_policy_may_be_asked_for():
    declared = Capabilities(
        samplers=(ConstantSchedule, ClampedPrefix),
        max_inference_delay=3,
        recipe="prefix",
        roll_forward=TrackingLag(time_constant_s=0.03),
    )
    pair = SessionPair(capabilities=declared)
    pair.tick(10)
    ready = next(event for event in pair.take_events() if isinstance(event, ServerReady))
    assert ready.welcome.capabilities == declared
