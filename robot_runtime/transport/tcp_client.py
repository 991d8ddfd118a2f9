"""The robot's end of a tcp connection: a DEALER that connects again by itself."""

import select
import socket
import time
from collections.abc import Sequence

from robot_runtime.mailbox import Doorbell
from robot_runtime.transport.address import Endpoint
from robot_runtime.transport.stream import (
    FAREWELL_MS,
    NEEDS_KEYS,
    NS_PER_MS,
    RECONNECT_MS,
    Stream,
    milliseconds_until,
)
from robot_runtime.wire.frames import Buffer
from robot_runtime.wire.zmtp import MechanismError, SocketType, ZmtpError

_READABLE, _WRITABLE = select.POLLIN, select.POLLOUT
_TROUBLE_MS = 200  # before the next attempt, where waiting alone will not help
_RESOLVED_MS = 5000  # how long what a name stood for is believed


class TcpClientTransport:
    """See `Transport`. Begins to connect when it is first waited for."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._poll = select.poll()
        self._socket: socket.socket | None = None
        self._stream: Stream | None = None  # once it is connected
        self._trouble: str | None = None
        self._connect_ns = 0
        self._addresses: list[tuple[int, tuple[str, int]]] = []  # the next to be tried is the first
        self._resolve_ns = 0

    def trouble(self) -> str | None:
        return self._trouble

    def reopen(self) -> None:
        self._hang_up(0)

    def wait(self, timeout_ns: int | None, doorbell: Doorbell, *, to_send: bool) -> None:
        if self._stream is not None and self._stream.has_message:
            timeout_ns = 0  # only send what can be sent
        until_ns = None if timeout_ns is None else time.monotonic_ns() + timeout_ns
        bell = doorbell.fileno()
        self._poll.register(bell, _READABLE)
        is_over = False
        while not is_over:
            if self._socket is None and time.monotonic_ns() >= self._connect_ns:
                self._connect()
            if self._stream is not None:
                is_to_write = self._stream.has_unsent or (to_send and self._stream.is_ready)
                self._poll.modify(self._stream.socket, _READABLE | _WRITABLE if is_to_write else _READABLE)
            connect_ns = self._connect_ns if self._socket is None else None
            for descriptor, _ in self._poll.poll(milliseconds_until(until_ns, connect_ns)):
                if descriptor == bell:
                    doorbell.clear()
                    is_over = True
                else:
                    is_over |= self._is_for_owner(to_send)
            is_over |= until_ns is not None and time.monotonic_ns() >= until_ns

    def send(self, frames: Sequence[Buffer]) -> bool:
        if self._stream is None or not self._stream.is_ready or self._stream.has_unsent:
            return False
        try:
            self._stream.send(frames)
        except OSError:
            self._hang_up(RECONNECT_MS)
            return False
        return True

    def receive(self) -> list[Buffer] | None:
        return None if self._stream is None else self._stream.next_message()

    def close(self) -> None:
        end_ns = time.monotonic_ns() + FAREWELL_MS * NS_PER_MS
        while self._stream is not None and self._stream.has_unsent and time.monotonic_ns() < end_ns:
            self._poll.modify(self._stream.socket, _WRITABLE)
            self._poll.poll(milliseconds_until(end_ns))
            try:
                self._stream.flush()
            except OSError:
                break
        self._hang_up(0)

    def _is_for_owner(self, to_send: bool) -> bool:
        """Go on with a socket that can; whether what its owner waits for may have happened."""
        stream = self._stream
        if stream is None:
            self._finish_connecting()
            return False
        try:
            stream.flush()
            if not stream.has_message:
                stream.read()
        except (OSError, ZmtpError) as error:
            self._fail(error)
            return False
        if stream.is_ready:
            self._trouble = None
        return stream.has_message or (to_send and stream.is_ready and not stream.has_unsent)

    def _connect(self) -> None:
        now_ns = time.monotonic_ns()
        try:
            if not self._addresses or now_ns >= self._resolve_ns:
                self._addresses = self._endpoint.resolve()
                self._resolve_ns = now_ns + _RESOLVED_MS * NS_PER_MS
        except OSError as error:
            self._trouble = f"the name {self._endpoint.host!r} stands for no address: {error.strerror}"
            self._hang_up(_TROUBLE_MS)
            return
        (family, address), *others = self._addresses
        self._addresses = [*others, (family, address)]
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._poll.register(self._socket, _WRITABLE)  # which it is when it is connected, or has failed to
        try:
            self._socket.connect(address)
        except BlockingIOError:
            return
        except OSError:
            self._hang_up(RECONNECT_MS)

    def _finish_connecting(self) -> None:
        assert self._socket is not None
        try:
            if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise ConnectionError
            self._stream = Stream(self._socket, SocketType.DEALER)
        except OSError:
            self._hang_up(RECONNECT_MS)

    def _fail(self, error: Exception) -> None:
        if isinstance(error, OSError):
            self._hang_up(RECONNECT_MS)
            return
        is_locked = isinstance(error, MechanismError)
        self._trouble = NEEDS_KEYS if is_locked else f"what listens there is no policy server: {error}"
        self._hang_up(_TROUBLE_MS)

    def _hang_up(self, pause_ms: int) -> None:
        if self._socket is not None:
            self._poll.unregister(self._socket)
            self._socket.close()
        self._socket = self._stream = None
        self._connect_ns = time.monotonic_ns() + pause_ms * NS_PER_MS
