"""Bad robots and strangers at a live server, beside a robot that behaves.

`scripts/attack/server.py` has more, and counts.
"""

import contextlib
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import cv2
import numpy as np
import pytest
import zmq
from toy import ANY_PORT, SPEC, ToyPolicy, serving, toy_request, toy_schema

from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.sampler_parts import AveragedSamples, ConstantSchedule, num_samples
from robot_runtime.core.policy import NewRows
from robot_runtime.core.values.state import Image, Observation
from robot_runtime.errors import PolicyError, ServerUnavailableError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.server.server import PolicyServer
from robot_runtime.server.server_metrics import ServerMetrics
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.events import PartReceived, RequestFailed
from robot_runtime.wire.messages import (
    Dropped,
    DropReason,
    ErrorCode,
    ErrorReply,
    Heartbeat,
    Hello,
    Packet,
    Refused,
    Welcome,
)
from robot_runtime.wire.server_session import MAX_CLIENTS

TIMEOUT_S = 20.0


class Stranger:
    """A socket that says what it likes."""

    def __init__(self, address: str) -> None:
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.SNDTIMEO, 1000)
        self._socket.connect(address)

    def say(self, message, **options) -> None:
        with contextlib.suppress(zmq.Again):
            self._socket.send_multipart(encode(Packet("bad", 1, message), **options))

    def say_bytes(self, frame: bytes) -> None:
        self._socket.send(frame)

    def heard(self) -> object:
        assert self._socket.poll(TIMEOUT_S * 1e3)
        return decode(self._socket.recv_multipart()).message

    def greet(self) -> None:
        self.say(Hello(robot="bad", schema=toy_schema()))
        assert isinstance(self.heard(), Welcome)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def stranger_at(address: str) -> Iterator[Stranger]:
    bad = Stranger(address)
    try:
        yield bad
    finally:
        bad.close()


@contextmanager
def robot_at(address: str) -> Iterator[PolicyClient]:
    with PolicyClient(address, schema=toy_schema()) as client:
        client.wait_until_ready(TIMEOUT_S)
        client.events()
        yield client


def outcome(client: PolicyClient, request_id: int, **request) -> object:
    """The event that ends a request."""
    client.submit(toy_request(request_id, **request))
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        client.wait_for_events(0.05)
        for event in client.events():
            if not isinstance(event, PartReceived) or event.part.is_last:
                return event
    raise AssertionError("no answer")


def jpeg_of(*options: int) -> bytes:
    return cv2.imencode(".jpg", np.zeros((48, 64, 3), np.uint8), list(options))[1].tobytes()


def many_scans(num: int) -> bytes:
    encoded = jpeg_of(cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    last = encoded.rindex(b"\xff\xda")
    return encoded[:last] + encoded[last:-2] * num + b"\xff\xd9"


@pytest.mark.parametrize(
    ("jpeg", "words"),
    [
        (many_scans(1000), "it is progressive; expected a baseline JPEG"),
        (jpeg_of() + bytes(10**6), "bytes, far more than its pixels"),
        (
            jpeg_of().replace(b"\xff\xda\x00\x0c\x03", b"\xff\xda\x00\x0c\x01"),
            "one by one; expected all in one",
        ),
        (jpeg_of().replace((48).to_bytes(2) + (64).to_bytes(2), b"\xff\xff\xff\xff"), "65535, 65535"),
        (b"\xff\xd8" + b"\xff\xe0\x00\x03\x00" * 100, "more than 64 segments"),
        (b"\xff\xd8\xff\xe0\xff\xff", "ends before its first scan"),
        (b"", "does not begin as a JPEG"),
    ],
)
def test_a_picture_that_is_not_what_its_header_says_fails_by_itself(jpeg: bytes, words: str):
    with serving(ToyPolicy()) as server, robot_at(server.address) as good, stranger_at(server.address) as bad:
        bad.greet()
        bad.say(toy_request(1), encode_jpeg=lambda pixels: jpeg)
        error = bad.heard()
        assert isinstance(error, ErrorReply)
        assert (error.code, error.request_id) == (ErrorCode.BAD_REQUEST, 1)
        assert words in error.message
        assert isinstance(outcome(good, 1), PartReceived)


def test_who_floods_is_told_and_put_out_and_the_robot_beside_it_is_answered():
    metrics: dict[str, ServerMetrics] = {}
    with (
        serving(ToyPolicy(), metrics=metrics) as server,
        stranger_at(server.address) as bad,
        robot_at(server.address) as good,
    ):
        bad.greet()
        message: object = Heartbeat(t_ns=1)
        while isinstance(message, Heartbeat):
            for _ in range(20):
                bad.say(Heartbeat(t_ns=1))
            for _ in range(20):
                if isinstance(message := bad.heard(), ErrorReply):
                    break
        assert isinstance(message, ErrorReply)
        assert message.code is ErrorCode.TOO_FAST
        assert metrics["toy"].ignored["too fast"]
        good.wait_until_ready(TIMEOUT_S)
        good.events()
        assert isinstance(outcome(good, 1), PartReceived)


def test_a_newcomer_waits_for_a_place_in_a_full_server_and_gets_the_first_that_is_free():
    with serving(ToyPolicy()) as server, ExitStack() as crowd:
        for _ in range(2):
            bads = [crowd.enter_context(stranger_at(server.address)) for _ in range(MAX_CLIENTS + 20)]
            for bad in bads:
                bad.say(Hello(robot="bad", schema=toy_schema()))
            for bad in bads:
                bad.heard()
        with PolicyClient(server.address, schema=toy_schema()) as client:
            client.wait_until_ready(TIMEOUT_S)
            assert any(isinstance(event, Refused) for event in client.events())  # at first


def test_a_server_that_stays_full_refuses_with_a_sentence_in_the_end():
    with serving(ToyPolicy()) as server, ExitStack() as robots:
        for _ in range(MAX_CLIENTS):
            robot = robots.enter_context(stranger_at(server.address))
            robot.greet()
            robot.say(toy_request(1))
            robot.heard()
        with (
            PolicyClient(server.address, schema=toy_schema()) as client,
            pytest.raises(ServerUnavailableError, match=f"the server has {MAX_CLIENTS} clients already"),
        ):
            client.wait_until_ready(1.0)


def test_a_packet_of_a_stranger_that_is_too_large_gets_a_line_in_the_log(caplog: pytest.LogCaptureFixture):
    with serving(ToyPolicy()) as server, stranger_at(server.address) as bad:
        for _ in range(3):
            bad.say_bytes(bytes(50_000))
        bad.greet()
    (line,) = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert "a packet of 50000 bytes was dropped: its peer has not greeted, and may send 40959 bytes" in line


MUCH = AveragedSamples(num_samples=256, num_steps=256)


class Stepwise(ToyPolicy):
    """A millisecond for each step of each sample, and rows with the last."""

    info = replace(ToyPolicy.info, capabilities=Capabilities(samplers=(ConstantSchedule, AveragedSamples)))
    num_evaluations = 0

    def infer_batch(self, requests):
        sampler, rows = requests[0].sampler, np.zeros((SPEC.horizon, SPEC.dim))
        num_steps = sampler.num_steps or 2
        for step in range(1, num_steps + 1):
            time.sleep(0.001 * num_samples(sampler))
            self.num_evaluations += num_samples(sampler) * len(requests)
            new = rows if step == num_steps else rows[:0]
            yield NewRows(num_calls=step, rows=[new] * len(requests))


def test_what_cannot_be_computed_in_time_is_refused_and_what_was_begun_ends_at_its_deadline():
    with serving(Stepwise()) as server, robot_at(server.address) as bad, robot_at(server.address) as good:
        assert isinstance(outcome(good, 1, sampler=AveragedSamples()), PartReceived)
        for i, deadline_ns in enumerate((10**9, 10**18), 2):
            failed = outcome(
                bad, i, sampler=AveragedSamples(num_samples=256, num_steps=256), deadline_ns=deadline_ns
            )
            assert isinstance(failed, RequestFailed)
            assert "s here, and the answer is of use for 0.2 s: ask for fewer" in failed.reason
        began_s = time.monotonic()
        bad.submit(toy_request(9, sampler=ConstantSchedule(num_steps=100), deadline_ns=150_000_000))
        bad.submit(toy_request(10, sampler=AveragedSamples(num_samples=8), deadline_ns=1))
        assert isinstance(outcome(good, 2), PartReceived | Dropped)
        assert isinstance(outcome(good, 3), PartReceived)
        assert time.monotonic() - began_s < TIMEOUT_S / 2


def test_much_work_of_a_part_that_was_never_measured_is_refused():
    with serving(Stepwise(), open_ns=0) as server, robot_at(server.address) as bad:
        failed = outcome(bad, 1, sampler=AveragedSamples(num_samples=256, num_steps=64), deadline_ns=2**62)
        assert isinstance(failed, RequestFailed)
        assert "ask for fewer samples or steps" in failed.reason


def test_work_that_nobody_could_foresee_ends_when_its_rows_are_of_no_use_and_another_robot_waits():
    class Uncounted(Stepwise):
        num_evaluations = property(lambda self: 0, lambda self, count: None)

    with serving(Uncounted()) as server, robot_at(server.address) as bad, robot_at(server.address) as good:
        bad.submit(toy_request(1, sampler=ConstantSchedule(num_steps=10_000), deadline_ns=2**62))
        time.sleep(0.1)
        began_s = time.monotonic()
        assert isinstance(outcome(good, 1), PartReceived)
        assert time.monotonic() - began_s < 2.0  # 10 s of work; its rows are of use for 0.2 s
        bad.wait_for_events(TIMEOUT_S)
        (dropped,) = bad.events()
        assert isinstance(dropped, Dropped)
        assert dropped.reason is DropReason.OVERLOADED


@pytest.mark.parametrize("size", [1e308, -1e200, 1e10])
def test_numbers_that_are_beyond_anything_are_refused_in_words(size: float):
    state = toy_request(1).observation.state
    with serving(ToyPolicy()) as server, robot_at(server.address) as bad:
        failed = outcome(bad, 1, prev_action_chunk=np.full((2, SPEC.dim), size))
        assert "prev_action_chunk holds" in failed.reason
        failed = outcome(bad, 2, q=size)
        assert re.search(r"Expected `float` [<>]= -?1000000000.0 - at .*observation", failed.reason)
        assert state.is_finite
        assert isinstance(outcome(bad, 3), PartReceived)


def test_a_policy_that_gives_no_numbers_opens_no_address():
    class Nan(ToyPolicy):
        def infer(self, request):
            yield np.full((SPEC.horizon, SPEC.dim), np.nan)

    with pytest.raises(PolicyError, match="it gave nan at row 0, "):
        PolicyServer(Nan(), ANY_PORT)


def test_what_is_refused_is_counted_by_its_kind():
    metrics: dict[str, ServerMetrics] = {}
    with (
        serving(ToyPolicy(), metrics=metrics) as server,
        robot_at(server.address) as good,
        stranger_at(server.address) as bad,
    ):
        bad.say(Heartbeat(t_ns=1))
        bad.heard()
        bad.say(Hello(robot="bad", schema=toy_schema((1, 1))))
        bad.heard()
        bad.greet()
        images = {"wrist": Image(t_ns=1, pixels=np.zeros((1, 1, 3), np.uint8))}
        bad.say(toy_request(1))
        bad.heard()
        seen = Observation(state=toy_request(1).observation.state, images=images)
        assert isinstance(outcome(good, 1, pixels=seen.images["wrist"].pixels), RequestFailed)
    assert metrics["toy"].ignored == {"of a stranger": 1, "refused: schema": 1}
    assert metrics["toy"].requests[ErrorCode.BAD_REQUEST.value] == 1
