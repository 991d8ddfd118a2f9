"""Attacks on a server by unauthenticated peers and bad robots in ZeroMQ's own protocol, byte by byte.

Each function of ATTACKS runs until its process is killed.
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


def endlessly(address: str, data: bytes, welcome: Welcome | None = None) -> None:
    """Send the same bytes for ever, on a new connection whenever the last one ends."""
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
    """Send ZMTP commands of two bytes, which libzmq answers by itself or drops."""
    endlessly(address, b"\x04\x01\x00" * 20_000)


def tiny_messages(address: str, welcome: Welcome) -> None:
    """Send empty messages."""
    endlessly(address, b"\x00\x00" * 20_000)


def endless_message(address: str, welcome: Welcome) -> None:
    """Send one message of empty frames that never ends."""
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
    """Send 40 messages of 62 MB without their last byte."""
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
    """Open as many silent connections as possible."""
    held = []
    while True:
        with suppress(OSError):
            held.append(connected(address))
        held = held[-700:]
        time.sleep(0.001)


def garbage_and_back(address: str, welcome: Welcome) -> None:
    """Connect again and again, and send garbage once each time."""
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
