"""One connected socket, whole messages in and out; and what all transports agree on.

libzmq has a thread of its own between a socket and whoever uses it, so a round trip sleeps and wakes four
times more. Here the thread that wants a message reads it off the socket, into the memory where it stays.
"""

import socket
import time
from collections import deque
from collections.abc import Sequence

from robot_runtime.core.request import MAX_IN_FLIGHT
from robot_runtime.wire.frames import Buffer
from robot_runtime.wire.zmtp import SocketType, ZmtpConnection, pieces

RECONNECT_MS = 20
HANDSHAKE_MS = 3000
"""A connection that has not greeted by then is closed: silent ones must not use up a server's descriptors."""
HIGH_WATER_MARK = MAX_IN_FLIGHT + 16
"""Messages that wait for a peer to read: requests, and a few heartbeats."""
FAREWELL_MS = 200
"""How long a transport that is closed stays for what it has not sent."""
NEEDS_KEYS = "the server there asks for keys, and this robot was given none (--keys)"
NS_PER_MS = 1_000_000


class Stream:
    """A connection and its protocol. OSError or ZmtpError once it is of no use any more."""

    def __init__(self, connected: socket.socket, socket_type: SocketType) -> None:
        """Says what begins the handshake."""
        self.socket = connected
        self.num_waiting = 0
        """Messages that could not be sent whole, and those behind them."""
        self._zmtp = ZmtpConnection(socket_type)
        self._unsent: deque[memoryview] = deque()
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._write([self._zmtp.bytes_to_send()])

    @property
    def is_ready(self) -> bool:
        """Whether the peer has greeted."""
        return self._zmtp.is_ready

    @property
    def has_unsent(self) -> bool:
        """Whether `flush` has something to do once the socket can be written to."""
        return bool(self._unsent)

    @property
    def has_message(self) -> bool:
        """Whether a message has been read whole."""
        return self._zmtp.has_message

    def next_message(self) -> list[Buffer] | None:
        """The oldest that has been read whole."""
        return self._zmtp.next_message()

    def read(self) -> None:
        """Take in what has arrived, at most the rest of a message and a little more."""
        while not self._zmtp.has_message:
            buffers = self._zmtp.buffers()
            try:
                num_bytes = self.socket.recvmsg_into(buffers)[0]
            except BlockingIOError:
                return
            if not num_bytes:
                raise ConnectionResetError("the peer has hung up")
            self._zmtp.received(num_bytes)
            if said := self._zmtp.bytes_to_send():
                self._write([said])
            if num_bytes < sum(map(len, buffers)):
                return  # that was all

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send a message, or as much of it as the socket takes."""
        self.num_waiting += 1
        self._write(pieces(frames))

    def flush(self) -> None:
        """Send what the socket takes now."""
        unsent, self._unsent = self._unsent, deque()
        self._write([*unsent])

    def _write(self, data: Sequence[Buffer]) -> None:
        while data and not self._unsent:
            try:
                num_sent = self.socket.sendmsg(data, (), socket.MSG_NOSIGNAL)
            except BlockingIOError:
                break
            data = _after(data, num_sent)
        self._unsent.extend(map(memoryview, data))
        if not self._unsent:
            self.num_waiting = 0


def _after(data: Sequence[Buffer], num_bytes: int) -> list[Buffer]:
    for i, piece in enumerate(data):
        if num_bytes < len(piece):
            return [memoryview(piece)[num_bytes:], *data[i + 1 :]]
        num_bytes -= len(piece)
    return []


def milliseconds_until(*times_ns: int | None) -> int | None:
    """From now to the earliest of them, rounded up, for poll; None if there is none."""
    earliest_ns = min((t for t in times_ns if t is not None), default=None)
    if earliest_ns is None:
        return None
    return max(0, -((time.monotonic_ns() - earliest_ns) // NS_PER_MS))
