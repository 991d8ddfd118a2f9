"""Several requests of one robot under way: who waits, who gives way, and what the policy is shown."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_pair import (
    BLOCK,
    DIM,
    SPEC,
    arrived,
    make_request,
    make_schema,
    make_welcome,
    ready_pair,
    rows_of,
    start_next,
)

from robot_runtime.core.plan.overlap import OpenAnswers
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import ActionSpec, EndEffectorPose
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.wire.events import PartReceived, RequestFailed
from robot_runtime.wire.fields import INT64_MAX
from robot_runtime.wire.messages import Cancel, Dropped, DropReason, ErrorCode, ErrorReply, Hello, Packet
from robot_runtime.wire.request_queue import QueuedRequest
from robot_runtime.wire.server_session import ServerSession
from tests.examples import examples

DT = SPEC.dt_ns


class Server:
    """A server session that has greeted some robots."""

    def __init__(self, *peers: bytes, **welcome) -> None:
        said = make_welcome(**welcome)
        self.session = ServerSession(said)
        self.sessions = {peer: i for i, peer in enumerate(peers)}
        for peer in peers:
            self.say(peer, Hello(robot="r", schema=said.info.schema))
        self.said()

    def say(self, peer: bytes, message) -> None:
        self.session.receive(peer, arrived(Packet(peer.decode(), self.sessions[peer], message)), 0)

    def ask(self, peer: bytes, request_id: int, *in_flight: int, **request) -> None:
        self.say(peer, make_request(request_id, in_flight=in_flight, **request))

    def start(self) -> QueuedRequest | None:
        return start_next(self.session)

    def answer(self, job: QueuedRequest, first: int = 0, end: int = SPEC.horizon) -> None:
        is_last = end == SPEC.horizon
        rows = rows_of(job.request)[first:end]
        self.session.rows_ready(job, job.request.part(rows, first_row=first, is_last=is_last))

    def said(self) -> list:
        return [packet.message for _, packet in self.session.packets_to_send()]


def asking(t_ns: int, num_planned: int, **changes) -> dict:
    """A request with a plan, in the shape of `make_request`'s changes."""
    state = RobotState(t_ns=t_ns, q=np.zeros(DIM), dq=np.zeros(DIM))
    images = {"wrist": Image(t_ns=7, pixels=np.zeros((4, 6, 3), np.uint8))}
    observation = Observation(state=state, images=images)
    plan = np.full((num_planned, DIM), -1.0) if num_planned else None
    return {"observation": observation, "prev_action_chunk": plan, "inference_delay": 1} | changes


def test_requests_that_follow_each_other_wait_in_their_order():
    server = Server(b"a")
    for request_id in range(4):
        server.ask(b"a", request_id, *range(request_id))
    served = []
    while (job := server.start()) is not None:
        served.append(job.request.request_id)
        server.answer(job)
    assert served == [0, 1, 2, 3]
    assert not any(isinstance(message, Dropped) for message in server.said())


def test_a_request_drops_those_waiting_that_it_does_not_name():
    server = Server(b"a")
    server.ask(b"a", 1)
    server.ask(b"a", 2, 1)
    server.ask(b"a", 3, 2)
    assert server.said() == [Dropped(request_id=1, epoch=0, reason=DropReason.SUPERSEDED)]
    assert server.start().request.request_id == 2


def test_a_request_after_a_reset_drops_all_that_waited():
    server = Server(b"a")
    server.ask(b"a", 1)
    server.ask(b"a", 2, 1)
    server.ask(b"a", 3, 2, epoch=1)
    assert [message.request_id for message in server.said()] == [1, 2]


def test_a_robot_with_many_requests_does_not_keep_another_waiting():
    server = Server(b"a", b"b", b"c")
    for peer, request_ids in ((b"a", (1, 2, 3)), (b"b", (1,)), (b"c", (1, 2))):
        for request_id in request_ids:
            server.ask(peer, request_id, *range(1, request_id))
    turns = []
    while (job := server.start()) is not None:
        turns.append((job.peer, job.request.request_id))
        server.answer(job)
    assert turns == [(b"a", 1), (b"b", 1), (b"c", 1), (b"a", 2), (b"c", 2), (b"a", 3)]


def test_a_request_does_not_start_while_one_that_it_follows_runs():
    server = Server(b"a", b"b")
    server.ask(b"a", 1)
    running = server.start()
    server.ask(b"a", 2, 1)
    server.ask(b"b", 1)
    assert server.start().peer == b"b"
    assert server.start() is None
    assert server.session.is_wanted(running)
    server.answer(running)
    assert server.start().request.request_id == 2


def test_a_request_that_does_not_name_the_running_one_takes_its_place():
    server = Server(b"a")
    server.ask(b"a", 1)
    running = server.start()
    server.ask(b"a", 2)
    assert server.start().request.request_id == 2
    assert not server.session.is_wanted(running)
    assert server.said() == [Dropped(request_id=1, epoch=0, reason=DropReason.SUPERSEDED)]


def test_requests_that_follow_a_cancelled_one_are_served():
    server = Server(b"a")
    server.ask(b"a", 1)
    server.ask(b"a", 2, 1)
    server.ask(b"a", 3, 1, 2)
    server.start()
    server.say(b"a", Cancel(request_id=1, epoch=0))
    server.say(b"a", Cancel(request_id=2, epoch=0))
    assert server.start().request.request_id == 3


# ---- what the policy is shown ------------------------------------------------------------------------


def shown_plan(server: Server, peer: bytes = b"a") -> np.ndarray:
    job = server.start()
    assert job is not None
    assert job.request.prev_action_chunk is not None
    return job.request.prev_action_chunk


def test_the_policy_is_shown_the_rows_of_the_answer_under_way():
    server = Server(b"a")
    server.ask(b"a", 5, **asking(0, 0, inference_delay=0))
    server.ask(b"a", 6, 5, **asking(2 * DT, 3))
    first = server.start()
    for row in range(0, SPEC.horizon, BLOCK):
        server.answer(first, row, row + BLOCK)
    plan = shown_plan(server)
    np.testing.assert_allclose(plan, rows_of(first.request)[2:])


def test_what_is_shown_is_what_open_answers_say_of_the_whole_answers():
    server, answers = Server(b"a"), OpenAnswers(SPEC)
    requests = [
        make_request(i, in_flight=tuple(range(i)), **asking(i * DT, 0 if i == 0 else 3)) for i in range(5)
    ]
    requests[0] = make_request(0, **asking(0, 0, inference_delay=0))
    for request in requests:
        server.say(b"a", request)
    for request in requests:
        job, expected = server.start(), answers.shown(request)
        if expected.prev_action_chunk is not None:
            np.testing.assert_array_equal(job.request.prev_action_chunk, expected.prev_action_chunk)
        answers.add(request, rows_of(request))
        server.answer(job, 0, BLOCK)
        server.answer(job, BLOCK, SPEC.horizon)


def test_rows_that_were_sent_before_an_answer_failed_are_shown():
    server = Server(b"a")
    server.ask(b"a", 5, **asking(0, 0, inference_delay=0))
    server.ask(b"a", 6, 5, **asking(0, 3))
    first = server.start()
    server.answer(first, 0, BLOCK)
    server.session.job_failed(first, ErrorReply.to(first.request, ErrorCode.INTERNAL, "no"))
    np.testing.assert_allclose(shown_plan(server), rows_of(first.request)[:BLOCK])


@pytest.mark.parametrize("between", ["another epoch", "greets again", "follows nothing"])
def test_answers_are_forgotten_when_they_cannot_be_wanted(between):
    server = Server(b"a")
    server.ask(b"a", 5, **asking(0, 0, inference_delay=0))
    server.answer(server.start())
    epoch = 0
    match between:
        case "another epoch":
            epoch = 1
        case "greets again":
            server.sessions[b"a"] += 10
            server.say(b"a", Hello(robot="r", schema=make_schema()))
        case "follows nothing":
            server.ask(b"a", 6)
            server.answer(server.start())
    server.ask(b"a", 7, 5, epoch=epoch, **asking(0, 3))
    np.testing.assert_allclose(shown_plan(server), -1.0)


def test_one_robot_is_not_shown_the_answers_of_another():
    server = Server(b"a", b"b")
    server.ask(b"a", 5, **asking(0, 0, inference_delay=0))
    server.answer(server.start())
    server.ask(b"b", 6, 5, **asking(0, 3))
    np.testing.assert_allclose(shown_plan(server), -1.0)


def test_a_plan_that_cannot_be_read_fails_its_request_and_not_the_server():
    hand = ActionSpec(fields=(EndEffectorPose(),), horizon=SPEC.horizon, dt_ns=DT)
    server = Server(b"a", action_spec=hand)
    plan = np.zeros((2, hand.dim))
    server.ask(b"a", 1, **asking(0, 0, prev_action_chunk=plan))
    job = server.start()
    server.session.rows_ready(job, job.request.part(np.zeros((SPEC.horizon, hand.dim))))
    server.said()
    server.ask(b"a", 2, 1, **asking(0, 0, prev_action_chunk=plan))
    assert server.start() is None
    (error,) = server.said()
    assert isinstance(error, ErrorReply)
    assert (error.code, error.request_id) == (ErrorCode.BAD_REQUEST, 2)


TIMES = st.integers(0, 20 * DT) | st.integers(0, INT64_MAX)


@given(st.lists(st.tuples(TIMES, st.integers(0, SPEC.horizon)), min_size=2, max_size=6))
@examples(100)
def test_whatever_times_and_plans_a_robot_sends_it_is_shown_no_more_rows_than_a_chunk_has(asked):
    server = Server(b"a")
    for request_id, (t_ns, num_planned) in enumerate(asked):
        d = num_planned // 2
        server.ask(b"a", request_id, *range(request_id), **asking(t_ns, num_planned, inference_delay=d))
    for _ in asked:
        job = server.start()
        plan = job.request.prev_action_chunk
        assert plan is None or job.request.inference_delay <= len(plan) <= SPEC.horizon
        server.answer(job)


@given(seed=st.integers(0, 2**32), delay=st.integers(0, 8))
@examples(60)
def test_over_a_network_in_order_no_request_that_is_named_gives_way(seed, delay):
    rng = random.Random(seed)
    pair = ready_pair()
    pair.fate = lambda to: [delay]
    ended: dict[int, str] = {}
    requests: dict[int, ChunkRequest] = {}

    def look() -> None:
        for event in pair.take_events():
            match event:
                case PartReceived(part=part) if part.is_last:
                    request_id, end = part.request_id, "answered"
                case Dropped(request_id=request_id, reason=reason):
                    end = reason.value
                case RequestFailed():
                    raise AssertionError(event)
                case _:
                    continue
            assert request_id not in ended
            ended[request_id] = end

    for i in range(60):
        if rng.random() < 0.3:
            pending = [j for j in requests if j not in ended]
            everything = rng.random() < 0.7
            in_flight = tuple(j for j in pending if everything or rng.random() < 0.7)
            requests[i] = make_request(i, in_flight=in_flight, deadline_ns=rng.randint(40, 4000) * 5_000_000)
            pair.submit(requests[i])
        if requests and rng.random() < 0.05:
            pair.client.cancel(request_id=rng.choice(list(requests)), epoch=0, now_ns=pair.now_ns)
        pair.tick()
        look()
    pair.tick(4 * len(requests) + 2 * delay + 10)
    while len(ended) < len(requests):
        pair.tick(50)
        look()
    for request_id, end in ended.items():
        later = [request for request in requests.values() if request.request_id > request_id]
        if end == "superseded":
            assert any(request_id not in request.in_flight for request in later)
