"""The server's side alone."""

import itertools
import random
import re

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from session_pair import DIM, MS, SPEC, arrived, make_request, make_schema, make_welcome, start_next

from robot_runtime.core.method.sampler_parts import ConstantSchedule, SamplerPart
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.wire import request_queue
from robot_runtime.wire.admission import PACKETS_AT_ONCE, PACKETS_PER_S, STRANGER_PACKETS_PER_S
from robot_runtime.wire.codec import encode, read
from robot_runtime.wire.frames import LIMITS, ProtocolError
from robot_runtime.wire.messages import (
    VERSION,
    Cancel,
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
from robot_runtime.wire.server_session import LINE_NS, MAX_CLIENTS, NEW_NS, SILENCE_NS, ServerSession
from tests.examples import examples

IMAGE = Image(t_ns=7, pixels=np.zeros((4, 6, 3), np.uint8))


def observation(*, q=(0.0, 0.0), pixels: np.ndarray = IMAGE.pixels, environment_state=()) -> Observation:
    state = RobotState(t_ns=1, q=np.array(q), dq=np.zeros(DIM))
    images = {"wrist": Image(t_ns=7, pixels=pixels)}
    return Observation(state=state, images=images, environment_state=np.array(environment_state, float))


def greeted(*peers: bytes, **welcome) -> ServerSession:
    server = ServerSession(make_welcome(**welcome))
    for i, peer in enumerate(peers):
        server.receive(peer, arrived(Packet(peer.decode(), i, Hello(robot="r", schema=make_schema()))), 0)
    assert all(isinstance(p.message, Welcome) for _, p in server.packets_to_send())
    return server


def ask(server: ServerSession, peer: bytes, session: int, request: ChunkRequest, now_ns: int = 0) -> None:
    server.receive(peer, arrived(Packet(peer.decode(), session, request)), now_ns)


def said(server: ServerSession) -> list:
    return [packet.message for _, packet in server.packets_to_send()]


def test_a_stranger_is_told_to_greet():
    server = greeted()
    server.receive(b"x", arrived(Packet("x", 3, Heartbeat(t_ns=1))), 0)
    ((peer, packet),) = server.packets_to_send()
    assert (peer, packet.client_id, packet.session) == (b"x", "x", 3)
    assert packet.message.code is ErrorCode.HELLO_FIRST


def test_clients_are_served_in_turn_and_a_newer_request_keeps_the_place():
    server = greeted(b"a", b"b")
    ask(server, b"a", 0, make_request(1))
    ask(server, b"b", 1, make_request(1))
    ask(server, b"a", 0, make_request(2))
    assert said(server) == [Dropped(request_id=1, epoch=0, reason=DropReason.SUPERSEDED)]
    jobs = [start_next(server), start_next(server), start_next(server)]
    assert [(j.peer, j.request.request_id) if j else None for j in jobs] == [(b"a", 2), (b"b", 1), None]


def test_expired_requests_are_not_run():
    server = greeted(b"a")
    ask(server, b"a", 0, make_request(1, deadline_ns=10))
    assert server.next_timer_ns() == 10
    server.handle_timer(10)
    assert said(server) == [Dropped(request_id=1, epoch=0, reason=DropReason.DEADLINE)]
    assert start_next(server) is None


def test_a_running_job_is_unwanted_after_its_deadline():
    server = greeted(b"a")
    ask(server, b"a", 0, make_request(1, deadline_ns=10))
    job = start_next(server)
    assert server.is_wanted(job)
    server.handle_timer(10)
    assert not server.is_wanted(job)
    said(server)
    server.rows_ready(job, job.request.part(np.zeros((6, 2))))
    assert said(server) == []


def hello(client_id: str, session: int, robot: str = "r", **schema) -> Packet | ProtocolError:
    return arrived(Packet(client_id, session, Hello(robot=robot, schema=make_schema(**schema))))


@pytest.mark.parametrize("fits", [True, False])
def test_who_greets_under_the_id_of_another_puts_nobody_out(fits: bool):
    server = greeted(b"a")
    ask(server, b"a", 0, make_request(1))
    server.receive(b"new", hello("a", 0, **({} if fits else {"num_joints": 9})), 0)
    assert isinstance(said(server)[0], Welcome if fits else Refused)
    assert start_next(server).peer == b"a"
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
        server.receive(b"x", read([header[: LIMITS.header]]), 0)
    packets = [packet for _, packet in server.packets_to_send()]
    assert len(packets) == len(forms)
    for packet in packets:
        encode(packet)


def test_silent_clients_are_forgotten():
    server = greeted(b"a", b"b")
    server.receive(b"b", arrived(Packet("b", 1, Heartbeat(t_ns=5))), SILENCE_NS // 2)
    server.handle_timer(SILENCE_NS)
    assert server.num_clients == 1


def test_a_request_that_does_not_fit_the_policy_is_refused_in_words():
    server = greeted(b"a")
    ask(server, b"a", 0, make_request(1, prev_action_chunk=np.zeros((7, 2))))
    (error,) = said(server)
    assert (error.code, error.request_id) == (ErrorCode.BAD_REQUEST, 1)
    assert "(7, 2)" in error.message


def test_a_client_that_floods_is_told_once_and_is_no_client_any_more():
    server, beat = greeted(b"a", b"b"), arrived(Packet("a", 0, Heartbeat(t_ns=1)))
    for _ in range(2 * PACKETS_AT_ONCE):
        if server.lets_in(b"a", 40, 0):
            server.receive(b"a", beat, 0)
    messages = said(server)
    errors = [m for m in messages if isinstance(m, ErrorReply)]
    assert [e.code for e in errors] == [ErrorCode.TOO_FAST]
    assert len(messages) == PACKETS_AT_ONCE + 1
    assert not server.lets_in(b"a", 40, NS_PER_S - 1)
    server.handle_timer(NS_PER_S)
    assert (server.knows(b"a"), server.knows(b"b")) == (False, True)
    assert server.lets_in(b"b", 40, 0)


@pytest.mark.parametrize("kind", ["beats", "cancels", "requests", "hellos", "greets and leaves"])
def test_whatever_a_peer_floods_with_it_gets_no_more_than_its_rate(kind: str):
    hello = Hello(robot="r", schema=make_schema())
    kinds = {
        "beats": [Heartbeat(t_ns=1)],
        "cancels": [Cancel(request_id=1, epoch=0)],
        "requests": [make_request(1)],
        "hellos": [hello],
        "greets and leaves": [hello, Goodbye()],
    }
    server, seconds = greeted(b"a"), 10
    packets = itertools.cycle([arrived(Packet("a", 0, message)) for message in kinds[kind]])
    num_let_in = 0
    for now_ns in range(0, seconds * NS_PER_S, NS_PER_S // 10_000):
        if server.lets_in(b"a", 100, now_ns):
            num_let_in += 1
            server.receive(b"a", next(packets), now_ns)
    assert num_let_in <= PACKETS_AT_ONCE + PACKETS_PER_S * seconds
    assert server.lets_in(b"b", 100, now_ns)  # and takes nothing from a stranger


@given(sizes=st.lists(st.integers(0, 65_536), min_size=1, max_size=50), seed=st.integers(0, 99))
@examples(10)
def test_all_strangers_together_are_read_no_more_than_their_rate_and_the_larger_the_fewer(
    sizes: list[int], seed: int
):
    server, rng, seconds = greeted(), random.Random(seed), 3
    num_bytes = num_packets = 0
    for now_ns in range(0, seconds * NS_PER_S, NS_PER_S // 1000):
        size = rng.choice(sizes)
        if server.lets_in(b"%d" % rng.randrange(1000), size, now_ns):
            num_packets += 1
            num_bytes += size
    assert num_packets <= STRANGER_PACKETS_PER_S * (seconds + 1)
    assert num_bytes <= 4096 * STRANGER_PACKETS_PER_S * (seconds + 1)


def test_a_newcomer_is_welcomed_while_another_stranger_floods():
    server = greeted()
    for now_ns in range(0, NS_PER_S, NS_PER_S // 5000):
        server.lets_in(b"flood", 100, now_ns)
    assert server.lets_in(b"a", 1000, now_ns)


def test_a_place_that_asks_for_nothing_goes_to_a_newcomer_and_one_that_works_does_not():
    peers = [b"%d" % i for i in range(MAX_CLIENTS)]
    server = greeted(*peers)
    ask(server, peers[0], 0, make_request(1), 0)
    for now_ns in (NEW_NS - 1, NEW_NS):
        for i, peer in enumerate(peers):
            server.receive(peer, arrived(Packet(peer.decode(), i, Heartbeat(t_ns=1))), now_ns)
    said(server)

    def greets(peer: bytes, now_ns: int = NEW_NS) -> list[tuple[bytes, type]]:
        server.receive(peer, hello(peer.decode(), 99), now_ns)
        return [(to, type(packet.message)) for to, packet in server.packets_to_send()]

    assert greets(b"new", NEW_NS - 1) == [(b"new", Refused)]
    assert greets(b"new") == [(peers[1], Goodbye), (b"new", Welcome)]
    assert server.knows(peers[0])
    assert server.num_clients == MAX_CLIENTS
    for i in range(MAX_CLIENTS - 2):
        assert greets(b"newer %d" % i)[-1][1] is Welcome
    assert greets(b"one too many") == [(b"one too many", Refused)]
    assert server.knows(peers[0])


def test_a_newcomer_that_keeps_asking_comes_before_a_crowd_that_came_after_it():
    server = greeted(*(b"%d" % i for i in range(MAX_CLIENTS)))

    def is_welcome(peer: bytes, now_ns: int) -> bool:
        server.receive(peer, hello(peer.decode(), 99), now_ns)
        return any(to == peer and isinstance(p.message, Welcome) for to, p in server.packets_to_send())

    crowd = [b"crowd %d" % i for i in range(120)]
    assert not any(is_welcome(peer, 1) for peer in [b"early", b"new", *crowd])
    num_in = sum(is_welcome(peer, NEW_NS) for peer in crowd)
    assert num_in == MAX_CLIENTS - 2  # two places are kept for those that came first
    assert is_welcome(b"new", NEW_NS + 1)
    server.forget(b"early")  # its connection has ended, and its place in the line with it
    assert not is_welcome(crowd[-1], NEW_NS + 2)
    assert is_welcome(crowd[num_in], NEW_NS + 2)
    assert not is_welcome(b"late", NEW_NS + 3)


def test_who_does_not_ask_again_loses_its_place_in_the_line():
    server = greeted(*(b"%d" % i for i in range(MAX_CLIENTS)))
    for i in range(120):
        server.receive(b"once %d" % i, hello("once", 99), 1)
    server.receive(b"new", hello("new", 99), 2)
    said(server)
    server.receive(b"new", hello("new", 99), 1 + LINE_NS)
    assert any(isinstance(message, Welcome) for message in said(server))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prev_action_chunk": np.full((3, 2), -1e300)}, r"holds 1e\+300; numbers go up to 1e\+09"),
        ({"observation": observation(environment_state=[1.0])}, "numbers of environment state"),
        ({"observation": observation(pixels=np.zeros((6, 6, 3), np.uint8))}, r"\(6, 6, 3\)"),
    ],
)
def test_a_request_is_measured_against_the_policy_by_its_header(changes: dict, words: str):
    server = greeted(b"a")
    ask(server, b"a", 0, make_request(1, **changes))
    (error,) = said(server)
    assert (error.code, error.request_id) == (ErrorCode.BAD_REQUEST, 1)
    assert re.search(words, error.message)
    assert server.num_waiting == 0


@pytest.mark.parametrize("task", ["", "pick ", "\n" * 4000])
def test_a_task_that_a_policy_was_not_trained_on_is_refused_whoever_asks(task: str):
    server = greeted(b"a", tasks=("pick", "place"))
    ask(server, b"a", 0, make_request(1, observation=structs.replace(observation(), task=task)))
    (error,) = said(server)
    assert error.code is ErrorCode.BAD_REQUEST
    assert error.message.endswith("but on 'pick', 'place'")
    ask(server, b"a", 0, make_request(2, observation=structs.replace(observation(), task="pick")))
    assert server.num_waiting == 1


def test_images_are_not_looked_at_before_the_request_runs():
    server = greeted(b"a")
    packet = Packet("a", 0, make_request(1))
    frames = [bytes(frame) for frame in encode(packet, encode_jpeg=lambda pixels: b"no JPEG at all")]
    assert server.receive(b"a", read(frames), 0)
    job = start_next(server)
    (picture,) = job.pictures
    assert bytes(picture.buffer) == b"no JPEG at all"
    assert not job.request.observation.images


def test_work_that_cannot_be_done_while_its_answer_is_of_use_is_refused_with_figures():
    chunk_ns = SPEC.horizon * SPEC.dt_ns

    def expected_ns(peer: bytes, part: SamplerPart) -> int | None:
        return None if part.num_steps is None else part.num_steps * 10 * MS

    server = ServerSession(make_welcome(), expected_ns=expected_ns)
    server.receive(b"a", arrived(Packet("a", 0, Hello(robot="r", schema=make_schema()))), 0)
    said(server)
    for steps, deadline_ms, fits in (
        (10, 100, True),
        (11, 100, False),
        (None, 1, True),
        (1000, 10**6, False),
    ):
        sampler = ConstantSchedule(num_steps=steps)
        ask(server, b"a", 0, make_request(1, sampler=sampler, deadline_ns=deadline_ms * MS))
        errors = [m for m in said(server) if isinstance(m, ErrorReply)]
        assert fits is (not errors)
    assert "takes about 10 s here, and the answer is of use for 0.2 s" in errors[0].message
    assert chunk_ns == 199_999_998


def test_of_more_bytes_than_may_wait_whoever_holds_most_loses_its_oldest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(request_queue, "MAX_QUEUED_BYTES", 3 * IMAGE.pixels.nbytes)
    server = greeted(b"a", b"b")
    for i in (1, 2, 3):
        ask(server, b"a", 0, make_request(i, in_flight=tuple(range(1, i))))
    ask(server, b"b", 1, make_request(1))
    ((peer, packet),) = server.packets_to_send()
    assert (peer, packet.message) == (b"a", Dropped(request_id=1, epoch=0, reason=DropReason.OVERLOADED))
    assert [(job.peer, job.request.request_id) for job in server.startable()] == [(b"b", 1), (b"a", 2)]


def test_what_is_said_of_a_request_that_does_not_fit_fits_into_a_header():
    server, state = greeted(b"a"), make_request(1).observation.state
    images = {"\0" * 4096: IMAGE}
    ask(server, b"a", 0, make_request(1, observation=Observation(state=state, images=images)))
    ((_, packet),) = server.packets_to_send()
    assert sum(map(len, encode(packet))) < 3000


def test_garbage_is_answered_and_changes_nothing():
    server = greeted(b"a")
    server.receive(b"a", ProtocolError("the header is not msgpack"), 0)
    (error,) = said(server)
    assert error.code is ErrorCode.PROTOCOL
    assert server.num_clients == 1
