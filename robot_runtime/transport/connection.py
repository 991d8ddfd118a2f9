"""How much one connection of a ZeroMQ socket has received and how much was taken: `Connection`.

libzmq bounds frames but not messages: parts of a message that is never finished, and commands, which
it answers by itself, are invisible. The kernel counts the bytes of every TCP connection, which shows them.
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
"""Offsets of tcpi_bytes_acked and tcpi_bytes_received in Linux's tcp_info."""
_UNDER_WAY = 4096
"""Unacknowledged bytes that are more than a few heartbeats."""
_FRAME_OVERHEAD = 64
"""Upper bound of the bytes that ZMTP or CURVE adds to a frame."""
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


class Connection:
    """A duplicated descriptor of libzmq's connection, which cannot be reused for another one.

    While no descriptor is free, the connection is not checked.
    """

    def __init__(self, descriptor: int) -> None:
        """OSError: it is closed already, or the descriptor was reused."""
        self._libzmqs: int | None = descriptor
        self._own: socket.socket | None = None
        self._taken = 0
        self._acked = 0
        self._socket()

    @property
    def address(self) -> str:
        """The address of the other end, for messages."""
        try:
            if (connection := self._socket()) is None:
                return "no descriptor left to find its address"
            name = connection.getpeername()
        except OSError:
            return "it has gone"
        return f"from {name[0]}" if isinstance(name, tuple) else "from this machine"

    def take(self, frames: Sequence[Buffer]) -> None:
        """Count a message of this connection that was returned."""
        self._taken += sum(map(len, frames)) + _FRAME_OVERHEAD * len(frames)

    def pending(self) -> int:
        """Return the received bytes that no returned message has; 0 where the kernel does not count them."""
        received = self._counted(_BYTES_RECEIVED)
        self._taken = min(self._taken, received)  # the overhead is estimated, and must not accumulate
        return received - self._taken

    def is_taking(self) -> bool:
        """Return whether the peer has taken some of a long message since the last call, and more is in
        flight.

        Its kernel also takes heartbeats for a process that hangs, but not for long what the process never
        reads.
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
        """End it, whatever libzmq is doing with it; call again until it has ended."""
        with contextlib.suppress(OSError):
            if (connection := self._socket()) is not None:
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the duplicate; the connection itself belongs to libzmq."""
        self._libzmqs = None
        if self._own is not None:
            self._own.close()

    def _counted(self, offset: int) -> int:
        """Return a counter of the kernel; 0 where there is none."""
        size = offset + _COUNTER.size
        try:
            if (connection := self._socket()) is None:
                return 0
            known = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
        except (OSError, AttributeError):
            return 0  # not TCP, or not Linux
        return int(_COUNTER.unpack_from(known, offset)[0]) if len(known) >= size else 0

    def _socket(self) -> socket.socket | None:
        """Return the duplicate; None while no descriptor is free. OSError: as `__init__`."""
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
