"""What one connection of a ZeroMQ socket has brought and how much of it has been taken: `Connection`.

libzmq bounds frames but not messages: what belongs to a message that is never finished, and commands, which
it answers by itself, go unseen. The kernel counts the bytes of every TCP connection, so the difference shows.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Sequence

from robot_runtime.wire.frames import Buffer

_BYTES_RECEIVED = struct.Struct("=Q"), 128
"""tcpi_bytes_received of Linux's tcp_info, and where it lies."""
_FRAME_OVERHEAD = 64
"""More bytes than ZMTP, or CURVE, spend on a frame."""


class Connection:
    """A handle of its own on libzmq's connection, so that its number cannot come to mean another one."""

    def __init__(self, descriptor: int) -> None:
        """OSError: it is closed already."""
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._taken = 0

    @property
    def address(self) -> str:
        """Of the other end, for people."""
        try:
            name = self._socket.getpeername()
        except OSError:
            return "it has gone"
        return f"from {name[0]}" if isinstance(name, tuple) else "from this machine"

    def take(self, frames: Sequence[Buffer]) -> None:
        """A message of this connection has been handed out."""
        self._taken += sum(map(len, frames)) + _FRAME_OVERHEAD * len(frames)

    def pending(self) -> int:
        """Bytes that have come and are in no message that was handed out; 0 where nobody counts them."""
        layout, offset = _BYTES_RECEIVED
        try:
            known = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, offset + layout.size)
        except (OSError, AttributeError):
            return 0  # no TCP, or no Linux
        if len(known) < offset + layout.size:
            return 0
        (received,) = layout.unpack_from(known, offset)
        self._taken = min(self._taken, received)  # the overhead is estimated, and must not be saved up
        return int(received - self._taken)

    def cut(self) -> None:
        """End it, whatever libzmq is doing with it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give up the handle; the connection itself is libzmq's."""
        self._socket.close()
