"""Attacks on a server and its gateways, each until its process is killed.

By unauthenticated peers and bad robots in our messages, and in ZeroMQ's own protocol byte by byte; by clients
of the gateways for other projects, with the address of a gateway.
"""

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from threading import Thread
from urllib.parse import urlparse

import cv2
import grpc
import msgspec
import numpy as np
import zmq
from msgspec import structs
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ClampedPrefix,
    ConstantSchedule,
    SamplerPart,
)
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Image
from robot_runtime.jpeg import jpeg_encoder
from robot_runtime.server.warming import zero_observation
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.frames import WireLimits
from robot_runtime.wire.messages import (
    VERSION,
    Cancel,
    Dropped,
    ErrorCode,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Packet,
    Welcome,
)


class Bad:
    """Robot side of the protocol without a robot, which sends any message."""

    def __init__(self, address: str, name: str = "bad") -> None:
        self._socket: zmq.Socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.SNDTIMEO, 1000)
        self._socket.connect(address)
        self.client_id = name

    def packed(self, message: Message, jpeg: Callable[[np.ndarray], bytes] | None = None) -> list[bytes]:
        loose = WireLimits(total=2**30, frame=2**30)
        packet = Packet(self.client_id, 1, message)
        return [bytes(frame) for frame in encode(packet, encode_jpeg=jpeg, limits=loose)]

    def say(self, message: Message) -> None:
        self.send(self.packed(message))

    def send(self, frames: list[bytes]) -> None:
        with contextlib.suppress(zmq.Again):
            self._socket.send_multipart(frames)

    def close(self) -> None:
        self._socket.close()

    def heard(self, timeout_s: float = 0.0) -> list[Message]:
        out = []
        while self._socket.poll(round(timeout_s * 1e3)):
            out.append(decode(self._socket.recv_multipart()).message)
            timeout_s = 0.0
        return out

    def greet(self, welcome: Welcome) -> None:
        """Greet until welcomed."""
        while True:
            self.say(_hello(welcome))
            if any(isinstance(message, Welcome) for message in self.heard(0.5)):
                return


def _hello(welcome: Welcome) -> Hello:
    return Hello(robot="bad", schema=welcome.info.schema, policy=welcome.info.name)


def _requests(
    welcome: Welcome, sampler: SamplerPart | None = None, **changes: object
) -> Iterator[ChunkRequest]:
    observation = zero_observation(welcome.info.schema, next(iter(welcome.info.tasks), ""))
    for request_id in itertools.count(1):
        request = ChunkRequest(
            request_id=request_id, epoch=0, observation=observation, prev_action_chunk=None, seed=0,
            inference_delay=0, sampler=sampler or ConstantSchedule(), deadline_ns=NS_PER_S,
        )  # fmt: skip
        yield structs.replace(request, **changes)


def _ask(address: str, welcome: Welcome, requests: Iterator[ChunkRequest], pause_s: float = 0.0) -> None:
    """Send requests again and again, whatever the answers; greet again when unknown."""
    bad = Bad(address)
    bad.greet(welcome)
    for request in requests:
        bad.say(request)
        if any(
            getattr(getattr(m, "code", None), "value", "") in ("hello_first", "too_fast") for m in bad.heard()
        ):
            bad.say(_hello(welcome))
        time.sleep(pause_s)


# ---- packets ---------------------------------------------------------------------------------------


def quoted_greetings(address: str, welcome: Welcome) -> None:
    """Send greetings whose refusal would quote 60,000 characters, which take four times their size."""
    bad = Bad(address)
    action = {"kind": "\0" * 60_000}
    schemas = [welcome.info.schema.to_dict() | {"action_fields": [action]}, {"\0" * 60_000: 1}]
    for schema in itertools.cycle(schemas):
        form = {"type": "Hello", "robot": "r", "policy": welcome.info.name, "schema": schema}
        bad.send([msgspec.msgpack.encode([VERSION, "bad", 1, form])])
        time.sleep(0.05)


def busy_neighbour(address: str, welcome: Welcome) -> None:
    """Only compute on the same machine, as a baseline without an attack."""
    while True:
        pass


def greetings(address: str, welcome: Welcome) -> None:
    """Send greetings as fast as possible, from ever new connections of ever new robots."""
    for i in itertools.count():
        bad = Bad(address, f"bad {i}")
        for _ in range(100):
            bad.say(_hello(welcome))


def greeting_and_leaving(address: str, welcome: Welcome) -> None:
    bad = Bad(address)
    while True:
        for message in (_hello(welcome), Heartbeat(t_ns=0), Goodbye()):
            bad.say(message)
        bad.heard()


def crowds(address: str, welcome: Welcome) -> None:
    """Open 120 connections that greet at once, again and again."""
    while True:
        bads = [Bad(address, f"bad {i}") for i in range(120)]
        for bad in bads:
            bad.say(_hello(welcome))
        time.sleep(0.5)
        for bad in bads:
            bad.close()


def beats_of_64(address: str, welcome: Welcome) -> None:
    """Occupy all places with clients that only send heartbeats, and greet again when they are removed."""
    bads = [Bad(address, f"bad {i}") for i in range(64)]
    while True:
        for bad in bads:
            heard = bad.heard()
            is_known = bool(heard) and all(isinstance(m, Welcome | Heartbeat) for m in heard)
            bad.say(Heartbeat(t_ns=0) if is_known else _hello(welcome))
        time.sleep(0.5)


def cancels(address: str, welcome: Welcome) -> None:
    bad = Bad(address)
    bad.greet(welcome)
    for i in itertools.count():
        bad.say(Cancel(request_id=i, epoch=0))
        if i % 1000 == 0:
            bad.say(_hello(welcome))
            bad.heard()


def requests(address: str, welcome: Welcome) -> None:
    """Send valid requests as fast as possible."""
    _ask(address, welcome, _requests(welcome))


# ---- pictures --------------------------------------------------------------------------------------


def progressive_jpeg(shape: tuple[int, int], num_scans: int) -> bytes:
    """Return a progressive JPEG with its last scan repeated `num_scans` times."""
    encoded = cv2.imencode(".jpg", np.zeros((*shape, 3), np.uint8), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[
        1
    ].tobytes()
    last = encoded.rindex(b"\xff\xda")
    return encoded[:last] + encoded[last:-2] * num_scans + b"\xff\xd9"


def scans_of_a_stranger(address: str, welcome: Welcome) -> None:
    _show(Bad(address), welcome, {"any": (3200, 3300)}, num_scans=2000)


def scans_of_a_robot(address: str, welcome: Welcome) -> None:
    """Send images with many scans, of the size that the policy needs."""
    bad = Bad(address)
    bad.greet(welcome)
    _show(bad, welcome, welcome.info.schema.cameras, num_scans=20_000)


def large_pictures_of_a_stranger(address: str, welcome: Welcome) -> None:
    _show(Bad(address), welcome, {f"camera {i}": (3300, 3300) for i in range(16)})


def large_pictures_of_a_robot(address: str, welcome: Welcome) -> None:
    bad = Bad(address)
    bad.greet(welcome)
    _show(bad, welcome, dict.fromkeys(welcome.info.schema.cameras, (3300, 3300)))


def _show(bad: Bad, welcome: Welcome, cameras: Mapping[str, tuple[int, int]], num_scans: int = 0) -> None:
    """Send images again and again; greet again when unknown."""
    plain = jpeg_encoder(90)
    images = {name: Image(t_ns=0, pixels=np.zeros((*size, 3), np.uint8)) for name, size in cameras.items()}
    made = {size: progressive_jpeg(size, num_scans) for size in cameras.values()} if num_scans else {}
    made = made or {size: plain(np.zeros((*size, 3), np.uint8)) for size in cameras.values()}
    frames: list[bytes] = []
    for request in _requests(welcome):
        observation = structs.replace(request.observation, images=images)
        asked = structs.replace(request, observation=observation)
        if not frames:
            frames = bad.packed(asked, lambda pixels: made[pixels.shape[:2]])
        bad.send([*bad.packed(asked, lambda pixels: b"")[:1], *frames[1:]])
        bad.heard(0.02)


# ---- work ------------------------------------------------------------------------------------------


def samples(address: str, welcome: Welcome) -> None:
    """Send requests that take minutes, with deadlines of a second and of days."""
    parts = (AveragedSamples(num_samples=256, num_steps=256), BestOfSamples(num_samples=256, num_steps=256))
    asked = (
        _requests(welcome, part, deadline_ns=deadline_ns)
        for part in parts for deadline_ns in (NS_PER_S, 10**15)
    )  # fmt: skip
    _ask(address, welcome, (request for four in zip(*asked, strict=True) for request in four), 0.1)


def long_work(address: str, welcome: Welcome) -> None:
    """Send twenty seconds of work five times a second, with an endless deadline."""
    part = AveragedSamples(num_samples=256, num_steps=64)
    _ask(address, welcome, _requests(welcome, part, deadline_ns=2**62), 0.2)


def much_work(address: str, welcome: Welcome) -> None:
    """Send as much work as the server accepts: half as many samples after each refusal."""
    bad, num_samples = Bad(address), 256
    bad.greet(welcome)
    for request in _requests(welcome, deadline_ns=2**62):
        bad.say(structs.replace(request, sampler=AveragedSamples(num_samples=num_samples, num_steps=6)))
        if any(getattr(message, "code", None) is ErrorCode.BAD_REQUEST for message in bad.heard(0.2)):
            num_samples = max(17, num_samples // 2)


def hurried_requests(address: str, welcome: Welcome) -> None:
    """Send ordinary requests with a short deadline, each as soon as the last one is answered."""
    bad = Bad(address)
    bad.greet(welcome)
    for request in _requests(welcome, ClampedPrefix(), deadline_ns=200_000_000):
        bad.say(request)
        while not any(isinstance(m, Dropped) or getattr(m, "is_last", False) for m in bad.heard(0.3)):
            bad.say(Heartbeat(t_ns=0))


def absurd_plans(address: str, welcome: Welcome) -> None:
    """Send plans with finite but absurd numbers."""
    spec = welcome.info.action_spec
    plans = itertools.cycle([np.full((spec.horizon, spec.dim), size) for size in (1e308, -1e200, 1e30, 1e8)])
    requests = (structs.replace(r, prev_action_chunk=next(plans)) for r in _requests(welcome))
    _ask(address, welcome, requests, 0.02)


# ---- bytes ----

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"


def connected(address: str) -> socket.socket:
    """Open a connection that sends nothing."""
    at = urlparse(address)
    return socket.create_connection((at.hostname or "", at.port or 0), timeout=10.0)


def greeted(address: str, welcome: Welcome | None) -> socket.socket:
    """Open a connection that has done ZeroMQ's handshake and, as a robot, ours."""
    connection = connected(address)
    connection.sendall(GREETING + READY)
    answered = b""
    while b"READY" not in answered:  # what comes before that is refused
        received = connection.recv(1000)
        if not received:
            raise ConnectionError
        answered += received
    if welcome is not None:
        (hello,) = encode(Packet("attacker", 1, Hello(robot="attacker", schema=welcome.info.schema)))
        connection.sendall(b"\x02" + len(hello).to_bytes(8, "big") + hello)
        time.sleep(0.05)
    return connection


def endlessly(data: bytes, address: str, welcome: Welcome, *, as_robot: bool) -> None:
    """Send the same bytes for ever, on a new connection whenever the last one ends."""
    while True:
        with contextlib.suppress(OSError), greeted(address, welcome if as_robot else None) as connection:
            Thread(target=drained, args=(connection,), daemon=True).start()
            while True:
                connection.sendall(data)


def drained(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while connection.recv(65536):
            pass


def hold_unfinished(address: str, welcome: Welcome, *, as_robot: bool) -> None:
    """Send 40 messages of 62 MB without their last byte."""
    held = []
    frame = b"\x03" + (31 * 2**20).to_bytes(8, "big")
    while True:
        with contextlib.suppress(OSError):
            connection = greeted(address, welcome if as_robot else None)
            held.append(connection)
            connection.sendall(frame + bytes(31 * 2**20))
            connection.sendall(frame + bytes(31 * 2**20 - 1))
        held = held[-40:]


def silent_connections(address: str, welcome: Welcome) -> None:
    """Open as many silent connections as possible."""
    held = []
    while True:
        with contextlib.suppress(OSError):
            held.append(connected(address))
        held = held[-700:]
        time.sleep(0.001)


def garbage_and_back(address: str, welcome: Welcome) -> None:
    """Connect again and again, and send garbage once each time."""
    while True:
        with contextlib.suppress(OSError), greeted(address, None) as connection:
            connection.sendall(b"\x00\x05hello" * 5)
            connection.recv(100)


_ALL = (
    busy_neighbour, quoted_greetings, greetings, greeting_and_leaving, crowds, beats_of_64, cancels, requests,
    scans_of_a_stranger, scans_of_a_robot, large_pictures_of_a_stranger, large_pictures_of_a_robot, samples,
    long_work, much_work, hurried_requests, absurd_plans, silent_connections, garbage_and_back,
)  # fmt: skip
_ENDLESS = {
    "commands": b"\x04\x01\x00",  # of two bytes, which libzmq answers by itself or drops
    "tiny_messages": b"\x00\x00",  # empty ones
    "endless_message": b"\x01\x00",  # of empty frames that never ends
}
ATTACKS: Mapping[str, Callable[[str, Welcome], None]] = (
    {attack.__name__: attack for attack in _ALL}
    | {name: partial(endlessly, data * 20_000, as_robot=False) for name, data in _ENDLESS.items()}
    | {f"robot_{name}": partial(endlessly, data * 20_000, as_robot=True) for name, data in _ENDLESS.items()}
    | {"unfinished_messages": partial(hold_unfinished, as_robot=False)}
    | {"robot_unfinished_messages": partial(hold_unfinished, as_robot=True)}
)
"""Name -> attack, by unauthenticated peers and, as robots, by welcomed ones."""

# ---- gateways ----

_MB = 2**20


def openpi_keys(address: str) -> None:
    """Send messages with a million keys."""
    _ask_openpi(address, msgspec.msgpack.encode({f"k{i}": 1 for i in range(1_000_000)}))


def openpi_numbers(address: str) -> None:
    """Send messages with a million numbers, each a separate value."""
    _ask_openpi(address, msgspec.msgpack.encode({"observation/joint_position": [0.5] * 1_000_000}))


def openpi_connections(address: str) -> None:
    """Open two hundred connections at once that greet and then stay silent."""
    open_ones = []
    while True:
        with contextlib.suppress(OSError, WebSocketException):
            open_ones += [connect(f"ws://{address}", open_timeout=1.0) for _ in range(200)]
        time.sleep(0.5)
        for connection in open_ones[:-100]:
            connection.close()


def openpi_silence(address: str) -> None:
    """Open connections that never greet."""
    while True:
        with contextlib.ExitStack() as open_ones:
            for _ in range(300):
                with contextlib.suppress(OSError):
                    open_ones.enter_context(socket.create_connection(_host_and_port(address), timeout=1.0))
            time.sleep(0.2)


def groot_large(address: str) -> None:
    """Send requests of 4 MB from a DEALER that never waits, and from others that come and go."""
    request = {"endpoint": "get_action", "data": {"observation": {"x": bytes(4 * _MB)}}}
    data = msgspec.msgpack.encode(request)
    while True:
        peer: zmq.Socket = zmq.Context.instance().socket(zmq.DEALER)
        peer.set(zmq.LINGER, 0)
        peer.set(zmq.SNDTIMEO, 200)
        peer.connect(f"tcp://{address}")
        for _ in range(100):
            with contextlib.suppress(zmq.Again):
                peer.send_multipart([b"", data], copy=False)
        peer.close()


def groot_parts(address: str) -> None:
    """Send a message with endless parts."""
    peer: zmq.Socket = zmq.Context.instance().socket(zmq.DEALER)
    peer.set(zmq.LINGER, 0)
    peer.connect(f"tcp://{address}")
    while True:
        peer.send(b"x" * 1000, zmq.SNDMORE)


def lerobot_instructions(address: str) -> None:
    """Send pickles that take as long as possible to read: many values, keys and levels."""
    pairs = (b"\x8a\x08" + i.to_bytes(8, "little") + b"N" for i in range(9_000))
    _observe(address, b"\x80\x04}(" + b"".join(pairs) + b"u.")


def lerobot_large(address: str) -> None:
    """Send observations of 30 MB."""
    _observe(address, b"\x80\x04B" + (30 * _MB).to_bytes(4, "little") + bytes(30 * _MB) + b".")


def lerobot_unfinished(address: str) -> None:
    """Send many observations at once that never end."""
    pieces = []
    with grpc.insecure_channel(address) as channel:
        send = channel.stream_unary("/transport.AsyncInference/SendObservations")
        for i in itertools.count():
            pieces.append(send.future(itertools.chain([_piece(bytes(_MB), 1)], _never())))
            time.sleep(0.01 if i < 100 else 0.5)


def _never() -> itertools.repeat:
    time.sleep(3600.0)
    return itertools.repeat(b"", 0)


def _observe(address: str, pickled: bytes) -> None:
    with grpc.insecure_channel(address) as channel:
        send = channel.stream_unary("/transport.AsyncInference/SendObservations")
        while True:
            parts = [pickled[i : i + 2 * _MB] for i in range(0, len(pickled), 2 * _MB)]
            with contextlib.suppress(grpc.RpcError):
                send(iter([_piece(part, 3 if part is parts[-1] else 2) for part in parts]), timeout=10.0)


def _piece(data: bytes, state: int) -> bytes:
    """Return a protobuf `Observation`."""
    size, length = len(data), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([0x08, state, 0x12, *length, size]) + data


def _ask_openpi(address: str, message: bytes) -> None:
    while True:
        with (
            contextlib.suppress(OSError, WebSocketException),
            connect(f"ws://{address}", compression=None, max_size=None) as connection,
        ):
            connection.recv()
            while True:
                connection.send(message)
                connection.recv()


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


_OF_GATEWAYS = (
    openpi_keys, openpi_numbers, openpi_connections, openpi_silence, groot_large, groot_parts,
    lerobot_instructions, lerobot_large, lerobot_unfinished,
)  # fmt: skip
GATEWAY_ATTACKS: Mapping[str, tuple[str, Callable[[str], None]]] = {
    attack.__name__: (attack.__name__.partition("_")[0], attack) for attack in _OF_GATEWAYS
}
"""Name -> gateway and attack."""
