"""What one connection of a ZeroMQ socket has brought and how much of it has been taken: `Connection`.

libzmq bounds frames but not messages: what belongs to a message that is never finished, and commands, which
it answers by itself, go unseen. The kernel counts the bytes of every TCP connection, so the difference shows.
"""

import contextlib
import errno
import os
import socket
import struct
import sys
import termios
from collections.abc import Sequence
from fcntl import ioctl

from robot_runtime.wire.frames import Buffer

_COUNTER = struct.Struct("=Q")
_BYTES_ACKED, _BYTES_RECEIVED = 120, 128
"""Where tcpi_bytes_acked and tcpi_bytes_received lie in Linux's tcp_info."""
_UNDER_WAY = 4096
"""Bytes sent and not yet acknowledged that are more than a few heartbeats."""
_FRAME_OVERHEAD = 64
"""More bytes than ZMTP, or CURVE, spend on a frame."""
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class Connection:
    """A handle of its own on libzmq's connection, so that its number cannot come to mean another one.

    Where there is no descriptor for that handle, the connection is not looked at until there is one.
    """

    def __init__(self, descriptor: int) -> None:
        """OSError: it is closed already, or has come to mean something else."""
        self._libzmqs: int | None = descriptor
        self._own: socket.socket | None = None
        self._taken = 0
        self._acked = 0
        self._socket()

    @property
    def address(self) -> str:
        """Of the other end, for people."""
        try:
            if (connection := self._socket()) is None:
                return "no descriptor left to say where from"
            name = connection.getpeername()
        except OSError:
            return "it has gone"
        return f"from {name[0]}" if isinstance(name, tuple) else "from this machine"

    def take(self, frames: Sequence[Buffer]) -> None:
        """A message of this connection has been handed out."""
        self._taken += sum(map(len, frames)) + _FRAME_OVERHEAD * len(frames)

    def pending(self) -> int:
        """Bytes that have come and are in no message that was handed out; 0 where nobody counts them."""
        received = self._counted(_BYTES_RECEIVED)
        self._taken = min(self._taken, received)  # the overhead is estimated, and must not be saved up
        return received - self._taken

    def is_taking(self) -> bool:
        """Whether the other end has taken some of a long message since the last look, and more is under way.

        Its kernel takes heartbeats of a process that hangs as well, but not for long what nobody reads.
        """
        before, self._acked = self._acked, self._counted(_BYTES_ACKED)
        if self._acked <= before or self._own is None:
            return False
        try:
            unacked = ioctl(self._own, termios.TIOCOUTQ, bytes(4))
        except OSError:
            return False
        return int.from_bytes(unacked, sys.byteorder) > _UNDER_WAY

    def cut(self) -> None:
        """End it, whatever libzmq is doing with it; to be called again while it has not ended."""
        with contextlib.suppress(OSError):
            if (connection := self._socket()) is not None:
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give up the handle; the connection itself is libzmq's."""
        self._libzmqs = None
        if self._own is not None:
            self._own.close()

    def _counted(self, offset: int) -> int:
        """A counter of the kernel's; 0 where nobody counts."""
        size = offset + _COUNTER.size
        try:
            if (connection := self._socket()) is None:
                return 0
            known = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
        except (OSError, AttributeError):
            return 0  # no TCP, or no Linux
        return int(_COUNTER.unpack_from(known, offset)[0]) if len(known) >= size else 0

    def _socket(self) -> socket.socket | None:
        """The handle; None while there is no descriptor for it. OSError: as `__init__`."""
        if self._own is None and self._libzmqs is not None:
            try:
                own = os.dup(self._libzmqs)
            except OSError as error:
                if error.errno in _NO_DESCRIPTOR:
                    return None
                raise
            try:
                self._own = socket.socket(fileno=own)
            except OSError:
                os.close(own)
                raise
        return self._own
