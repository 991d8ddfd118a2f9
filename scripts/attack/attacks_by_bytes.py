"""What strangers and bad robots do to a server in ZeroMQ's own protocol, spoken by hand.

Each function of ATTACKS goes on until its process is ended.
"""

import socket
import time
from contextlib import suppress
from threading import Thread
from urllib.parse import urlparse

from robot_runtime.wire.codec import encode
from robot_runtime.wire.messages import Hello, Packet, Welcome

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"


def connected(address: str) -> socket.socket:
    """A connection that says nothing."""
    at = urlparse(address)
    return socket.create_connection((at.hostname or "", at.port or 0), timeout=10.0)


def greeted(address: str, welcome: Welcome | None) -> socket.socket:
    """A connection that has said what ZeroMQ wants to hear and, as a robot, what we do."""
    connection = connected(address)
    connection.sendall(GREETING + READY)
    answered = b""
    while b"READY" not in answered:  # what comes before that is refused
        said = connection.recv(1000)
        if not said:
            raise ConnectionError
        answered += said
    if welcome is not None:
        (hello,) = encode(Packet("attacker", 1, Hello(robot="attacker", schema=welcome.info.schema)))
        connection.sendall(b"\x02" + len(hello).to_bytes(8, "big") + hello)
        time.sleep(0.05)
    return connection


def endlessly(address: str, data: bytes, welcome: Welcome | None = None) -> None:
    """The same bytes for ever, on a new connection whenever the last one ends."""
    while True:
        with suppress(OSError), greeted(address, welcome) as connection:
            Thread(target=drained, args=(connection,), daemon=True).start()
            while True:
                connection.sendall(data)


def drained(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(65536):
            pass


def commands(address: str, welcome: Welcome) -> None:
    """ZMTP commands of two bytes, which libzmq answers by itself or drops."""
    endlessly(address, b"\x04\x01\x00" * 20_000)


def tiny_messages(address: str, welcome: Welcome) -> None:
    """Messages without a byte."""
    endlessly(address, b"\x00\x00" * 20_000)


def endless_message(address: str, welcome: Welcome) -> None:
    """One message of frames without a byte, never finished."""
    endlessly(address, b"\x01\x00" * 20_000)


def robot_commands(address: str, welcome: Welcome) -> None:
    endlessly(address, b"\x04\x01\x00" * 20_000, welcome)


def robot_tiny_messages(address: str, welcome: Welcome) -> None:
    endlessly(address, b"\x00\x00" * 20_000, welcome)


def robot_endless_message(address: str, welcome: Welcome) -> None:
    endlessly(address, b"\x01\x00" * 20_000, welcome)


def robot_unfinished_messages(address: str, welcome: Welcome) -> None:
    hold_unfinished(address, welcome)


def unfinished_messages(address: str, welcome: Welcome) -> None:
    hold_unfinished(address, None)


def hold_unfinished(address: str, welcome: Welcome | None) -> None:
    """40 messages of 62 MB that lack their last byte."""
    held = []
    frame = b"\x03" + (31 * 2**20).to_bytes(8, "big")
    while True:
        with suppress(OSError):
            connection = greeted(address, welcome)
            held.append(connection)
            connection.sendall(frame + bytes(31 * 2**20))
            connection.sendall(frame + bytes(31 * 2**20 - 1))
        held = held[-40:]


def silent_connections(address: str, welcome: Welcome) -> None:
    """As many connections as go, which say nothing."""
    held = []
    while True:
        with suppress(OSError):
            held.append(connected(address))
        held = held[-700:]
        time.sleep(0.001)


def garbage_and_back(address: str, welcome: Welcome) -> None:
    """Strangers that say garbage once and come again."""
    while True:
        with suppress(OSError), greeted(address, None) as connection:
            connection.sendall(b"\x00\x05hello" * 5)
            connection.recv(100)


ATTACKS = {
    attack.__name__: attack
    for attack in (
        commands, tiny_messages, endless_message, unfinished_messages, silent_connections, garbage_and_back,
        robot_commands, robot_tiny_messages, robot_endless_message, robot_unfinished_messages,
    )
}  # fmt: skip
