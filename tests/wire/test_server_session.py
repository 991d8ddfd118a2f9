"""The server's side alone."""

import msgspec
import numpy as np
import pytest
from session_pair import make_request, make_schema, make_welcome, start_next

from robot_runtime.core.request import ChunkRequest
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.frames import LIMITS, ProtocolError
from robot_runtime.wire.messages import (
    VERSION,
    Dropped,
    DropReason,
    ErrorCode,
    ErrorReply,
    Heartbeat,
    Hello,
    Packet,
    RefusalCode,
    Refused,
    Welcome,
)
from robot_runtime.wire.server_session import PACKETS_PER_S, SILENCE_NS, ServerSession


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
    jobs = [start_next(server, 0), start_next(server, 0), start_next(server, 0)]
    assert [(j.peer, j.request.request_id) if j else None for j in jobs] == [(b"a", 2), (b"b", 1), None]


def test_expired_requests_are_not_run():
    server = greeted(b"a")
    ask(server, b"a", 0, make_request(1, deadline_ns=10))
    assert server.next_timer_ns() == 10
    server.handle_timer(10)
    assert said(server) == [Dropped(request_id=1, epoch=0, reason=DropReason.DEADLINE)]
    assert start_next(server, 10) is None


def test_a_running_job_is_unwanted_after_its_deadline():
    server = greeted(b"a")
    ask(server, b"a", 0, make_request(1, deadline_ns=10))
    job = start_next(server, 5)
    assert server.is_wanted(job)
    server.handle_timer(10)
    assert not server.is_wanted(job)
    said(server)
    server.rows_ready(job, first_row=0, rows=np.zeros((6, 2)), is_last=True, infer_ns=1)
    assert said(server) == []


def hello(client_id: str, session: int, robot: str = "r", **schema) -> Packet:
    return Packet(client_id, session, Hello(robot=robot, schema=make_schema(**schema)))


@pytest.mark.parametrize("fits", [True, False])
def test_who_greets_under_the_id_of_another_puts_nobody_out(fits: bool):
    server = greeted(b"a")
    ask(server, b"a", 0, make_request(1))
    server.receive(b"new", hello("a", 0, **({} if fits else {"num_joints": 9})), 0)
    assert isinstance(said(server)[0], Welcome if fits else Refused)
    assert start_next(server, 0).peer == b"a"
    server.forget(b"a")  # its connection has ended
    assert server.num_clients == fits


def test_a_peer_that_greets_again_in_its_session_keeps_its_requests_and_in_another_starts_afresh():
    server = greeted(b"a")
    ask(server, b"a", 0, make_request(1))
    server.receive(b"a", hello("a", 0), 0)
    assert [type(message) for message in said(server)] == [Welcome]
    assert server.num_waiting == 1
    server.receive(b"a", hello("a", 1), 0)
    assert server.num_waiting == 0
    assert server.num_clients == 1


def test_a_key_is_good_for_its_own_name_only():
    server = greeted()
    server.receive(b"a", hello("a", 0, robot="right"), 0, key="left")
    (refused,) = said(server)
    assert (refused.code, refused.reason) == (
        RefusalCode.KEY,
        "this is the key of robot 'left', not of 'right'",
    )
    server.receive(b"a", hello("a", 0, robot="left"), 0, key="left")
    assert [type(message) for message in said(server)] == [Welcome]


@pytest.mark.parametrize("kind", ["\0", "é", "'", "\U0001f916"])
def test_what_is_said_of_a_greeting_that_cannot_be_read_fits_into_a_header(kind: str):
    server = greeted()
    forms = [
        {"type": "Hello", "robot": "r", "policy": "", "schema": {"action_fields": [{"kind": kind * 15_000}]}}
    ]
    forms += [
        {"type": "Hello", "robot": kind * 4096, "policy": kind * 4096, "schema": make_schema().to_dict()}
    ]
    for form in forms:
        header = msgspec.msgpack.encode([VERSION, kind * 4096, 1, form])
        try:
            received = decode([header[: LIMITS.header]])
        except ProtocolError as error:
            received = error
        server.receive(b"x", received, 0)
    packets = [packet for _, packet in server.packets_to_send()]
    assert len(packets) == len(forms)
    for packet in packets:
        encode(packet)


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
