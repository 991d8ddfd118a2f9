import contextlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robot_runtime.wire.frames import WireLimits
from robot_runtime.wire.zmtp import MechanismError, SocketType, ZmtpConnection, ZmtpError, pieces

LIMITS = WireLimits(header=100, frame=100_000, total=150_000, num_frames=3)
SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
SIZES = st.sampled_from([0, 1, 255, 256, 16 * 1024 - 1, 16 * 1024 + 1, 40_000]) | st.integers(0, 600)
MESSAGES = st.lists(st.lists(SIZES, min_size=1, max_size=3), max_size=6)


def greeting(*, version: int = 3, mechanism: bytes = b"NULL") -> bytes:
    return SIGNATURE + bytes([version, 0]) + mechanism.ljust(20, b"\0") + bytes(32)


def feed(connection: ZmtpConnection, data: bytes) -> None:
    """As a socket would: as much as fits into the buffers, until all of it is in."""
    while data:
        taken = 0
        for buffer in connection.buffers():
            part = data[taken : taken + len(buffer)]
            buffer[: len(part)] = part
            taken += len(part)
        connection.received(taken)
        data = data[taken:]


def greeted_pair() -> tuple[ZmtpConnection, ZmtpConnection]:
    dealer = ZmtpConnection(SocketType.DEALER, limits=LIMITS)
    router = ZmtpConnection(SocketType.ROUTER, limits=LIMITS)
    while said := (dealer.bytes_to_send(), router.bytes_to_send()):
        if not any(said):
            break
        feed(router, said[0])
        feed(dealer, said[1])
    assert dealer.is_ready
    assert router.is_ready
    return dealer, router


def frames_of(sizes: list[int], seed: int) -> list[bytes]:
    return [bytes([(seed + i) % 256]) * size for i, size in enumerate(sizes)]


@given(messages=MESSAGES, cuts=st.lists(st.integers(0, 300_000), max_size=8))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_messages_come_out_as_they_went_in_however_their_bytes_are_cut(messages, cuts):
    _, router = greeted_pair()
    sent = [frames_of(sizes, i) for i, sizes in enumerate(messages)]
    stream = b"".join(b"".join(pieces(frames)) for frames in sent)
    ends = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    received = []
    for start, end in pairwise(ends):
        feed(router, stream[start:end])
        while (message := router.next_message()) is not None:
            received.append([bytes(frame) for frame in message])
    assert received == sent


@given(st.binary(max_size=300), st.booleans())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_random_bytes_raise_only_zmtp_errors(data, has_greeted):
    connection = greeted_pair()[1] if has_greeted else ZmtpConnection(SocketType.ROUTER)
    with contextlib.suppress(ZmtpError):
        feed(connection, data)


def test_a_large_frame_is_received_where_it_stays():
    _, router = greeted_pair()
    feed(router, b"\x02" + (50_000).to_bytes(8, "big"))
    body, _ = router.buffers()
    assert len(body) == 50_000
    body[:] = b"x" * 50_000
    router.received(50_000)
    assert router.has_message
    [frame] = router.next_message()
    assert frame.obj is body.obj
    assert frame.readonly


def test_what_is_too_large_is_refused_by_its_size_alone():
    for stream in (
        b"\x02" + (100_001).to_bytes(8, "big"),
        b"".join(pieces([b"x"] * 4)),
        b"".join(pieces([b"x" * 80_000, b"x" * 80_000])),
    ):
        _, router = greeted_pair()
        with pytest.raises(ZmtpError, match=r"allowed are 3 of 100000, 150000 in all"):
            feed(router, stream)


def test_limits_hold_with_commands_in_between():
    _, router = greeted_pair()
    feed(router, b"\x03" + (80_000).to_bytes(8, "big") + b"x" * 80_000 + b"\x04\x05\x04PING")
    with pytest.raises(ZmtpError, match="160000 in all"):
        feed(router, b"\x02" + (80_000).to_bytes(8, "big"))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "does not begin as ZeroMQ does"),
        (b"\xff" + bytes(9), "does not begin as ZeroMQ does"),
        (greeting(version=2), "version 2"),
        (greeting() + b"\x00\x01x", "a message before READY"),
        (greeting() + b"\x04\x06\x05ERROR", "expected READY"),
        (greeting() + b"\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x04PULL", "is no DEALER"),
        (greeting() + b"\xf0\x00", "flags 0xf0"),
    ],
)
def test_a_peer_that_says_something_else_is_refused(said: bytes, reason: str):
    with pytest.raises(ZmtpError, match=reason):
        feed(ZmtpConnection(SocketType.ROUTER), said)


def test_who_connects_shows_no_more_than_its_version_before_it_knows_what_is_asked_for():
    dealer = ZmtpConnection(SocketType.DEALER)
    assert dealer.bytes_to_send() == SIGNATURE + bytes([3, 0])
    with pytest.raises(MechanismError, match="asks for CURVE"):
        feed(dealer, greeting(mechanism=b"CURVE"))
    assert not dealer.is_ready
