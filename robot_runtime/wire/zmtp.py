"""ZMTP 3.0 (ZeroMQ RFC 23) with its NULL mechanism, without I/O: what ZeroMQ's sockets say on a connection.

    greeting    signature 10 | version 2 | mechanism 20 | is server 1 | filler 31        64 bytes, each side
    command     flags size "\\x05READY" name value ...                                    each side
    message     flags size body   flags size body   ...              flags: 1 another frame, 2 long, 4 command

libzmq at the other end notices no difference. Bytes are received where they stay: the owner reads into
`buffers()`, of which the first is the rest of the frame that is open, however large it is.

    buffers():   [ rest of the open frame ][ what follows: headers and small frames ]
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum

import numpy as np

from robot_runtime.wire.frames import LIMITS, Buffer, WireLimits

_MORE, _LONG, _COMMAND = 1, 2, 4
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_VERSION = bytes([3, 0])
_NULL = b"NULL"
_MECHANISM = slice(12, 32)
_GREETING_BYTES = 64
_SCRATCH_BYTES = 16 * 1024  # more would be copied of every large frame


class ZmtpError(Exception):
    """The peer speaks something else, or more than is allowed; says which."""


class MechanismError(ZmtpError):
    """The peer asks for keys."""


class SocketType(Enum):
    """Which end of a connection this is; the value travels."""

    DEALER = b"DEALER"
    ROUTER = b"ROUTER"


class ZmtpConnection:
    """One connection from its first byte on; owned and called by one thread.

    After a ZmtpError nothing more can be done with it.
    """

    def __init__(self, socket_type: SocketType, *, limits: WireLimits = LIMITS) -> None:
        self.is_ready = False
        """Whether the peer has greeted, so that messages may be sent."""
        self._type, self._limits = socket_type, limits
        is_server = socket_type is SocketType.ROUTER
        greeting = _SIGNATURE + _VERSION + _NULL.ljust(20, b"\0") + bytes([is_server]) + bytes(31)
        # A libzmq that asks for keys hangs up on a greeting without before it has sent its own. So who has
        # connected shows the version alone at first, which is enough for the other to say what it asks for.
        shown = _GREETING_BYTES if is_server else _MECHANISM.start
        self._to_send, self._rest_of_greeting = greeting[:shown], greeting[shown:]
        self._has_greeted = False
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._start = self._end = 0  # of what has been received there and not been looked at
        self._body: memoryview | None = None
        self._num_filled = 0
        self._flags = 0
        self._frames: list[Buffer] = []
        self._num_bytes = 0
        self._messages: deque[list[Buffer]] = deque()

    def bytes_to_send(self) -> bytes:
        """What the handshake has to say now; to be asked at the start and after each `received`."""
        out, self._to_send = self._to_send, b""
        return out

    def buffers(self) -> list[memoryview]:
        """Where the next bytes belong, in this order."""
        if self._body is None:
            return [self._scratch[self._end :]]
        return [self._body[self._num_filled :], self._scratch]

    def received(self, num_bytes: int) -> None:
        """So many bytes have been put into `buffers()`. ZmtpError if they are not what a peer says."""
        if self._body is not None:
            in_body = min(num_bytes, len(self._body) - self._num_filled)
            self._num_filled += in_body
            num_bytes -= in_body
            if self._num_filled == len(self._body):
                body, self._body = self._body, None
                self._take_frame(body.toreadonly())
        self._end += num_bytes
        if not self._has_greeted and not self._take_greeting():
            return
        while self._body is None and self._take_header():
            pass
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start:
            rest = self._scratch[self._start : self._end].tobytes()
            self._scratch[: len(rest)] = rest
            self._start, self._end = 0, len(rest)

    @property
    def has_message(self) -> bool:
        """Whether `next_message` has one."""
        return bool(self._messages)

    def next_message(self) -> list[Buffer] | None:
        """The oldest message that has arrived whole; None if there is none."""
        return self._messages.popleft() if self._messages else None

    def _take_greeting(self) -> bool:
        greeting = self._scratch[: min(self._end, _GREETING_BYTES)].tobytes()
        if greeting[:1] != _SIGNATURE[:1] or (len(greeting) >= 10 and not greeting[9] & 1):
            raise ZmtpError("what came does not begin as ZeroMQ does")
        if len(greeting) > 10 and greeting[10] < _VERSION[0]:
            raise ZmtpError(f"the peer speaks version {greeting[10]} of ZeroMQ's protocol, expected 3")
        if len(greeting) < _GREETING_BYTES:
            return False
        mechanism = greeting[_MECHANISM].rstrip(b"\0")
        if mechanism != _NULL:
            raise MechanismError(f"the peer asks for {mechanism.decode('ascii', 'replace')}, expected NULL")
        self._has_greeted, self._start = True, _GREETING_BYTES
        ready = b"\x05READY" + _property(b"Socket-Type", self._type.value) + _property(b"Identity", b"")
        self._to_send += self._rest_of_greeting + bytes([_COMMAND, len(ready)]) + ready
        return True

    def _take_header(self) -> bool:
        """Open the next frame; False if not even its size has arrived."""
        start, available = self._start, self._end - self._start
        if not available:
            return False
        flags = self._scratch[start]
        if flags & ~(_MORE | _LONG | _COMMAND):
            raise ZmtpError(f"a frame with flags {flags:#x}")
        header = 9 if flags & _LONG else 2
        if available < header:
            return False
        size = int.from_bytes(self._scratch[start + 1 : start + header], "big")
        self._num_bytes += size
        too_many = len(self._frames) == self._limits.num_frames
        if too_many or size > self._limits.frame or self._num_bytes > self._limits.total:
            raise ZmtpError(
                f"frame {len(self._frames) + 1} of a message, of {size} bytes, {self._num_bytes} in all; "
                f"allowed are {self._limits.num_frames} of {self._limits.frame}, {self._limits.total} in all"
            )
        self._flags, self._start = flags, start + header
        here = self._scratch[self._start : min(self._start + size, self._end)]
        self._start += len(here)
        if len(here) == size:
            self._take_frame(here.tobytes())
        else:
            self._body = memoryview(np.empty(size, np.uint8)).cast("B")
            self._body[: len(here)] = here
            self._num_filled = len(here)
        return True

    def _take_frame(self, body: Buffer) -> None:
        if self._flags & _COMMAND:
            self._num_bytes -= len(body)
            if not self.is_ready:
                self._take_ready(bytes(body))
            return  # others are for heartbeats of ZeroMQ's own, which nobody here asks for
        if not self.is_ready:
            raise ZmtpError("a message before READY")
        self._frames.append(body)
        if not self._flags & _MORE:
            self._messages.append(self._frames)
            self._frames, self._num_bytes = [], 0

    def _take_ready(self, command: bytes) -> None:
        if not command.startswith(b"\x05READY"):
            raise ZmtpError(f"the peer says {command[1:64]!r}, expected READY")
        expected = SocketType.ROUTER if self._type is SocketType.DEALER else SocketType.DEALER
        if _property(b"Socket-Type", expected.value).lower() not in command.lower():
            raise ZmtpError(f"the peer is no {expected.value.decode()}: it says {command[1:64]!r}")
        self.is_ready = True


def pieces(frames: Sequence[Buffer]) -> list[Buffer]:
    """What a message is on the wire: for each frame its header and itself, uncopied."""
    out: list[Buffer] = []
    for frame in frames:
        size = len(frame)
        header = bytes((_MORE, size)) if size < 256 else bytes((_MORE | _LONG,)) + size.to_bytes(8, "big")
        out += (header, frame)
    last = out[-2]
    out[-2] = bytes((last[0] & ~_MORE,)) + last[1:]
    return out


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value
