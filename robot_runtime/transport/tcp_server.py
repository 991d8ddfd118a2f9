"""The server's end of tcp connections: a ROUTER that reads its peers in turn and waits for none of them."""

import errno
import select
import socket
import time
from collections.abc import Sequence

from robot_runtime.mailbox import Doorbell
from robot_runtime.transport.address import AddressError, Endpoint, PortInUseError
from robot_runtime.transport.stream import (
    FAREWELL_MS,
    HANDSHAKE_MS,
    HIGH_WATER_MARK,
    NS_PER_MS,
    Stream,
    milliseconds_until,
)
from robot_runtime.wire.frames import Buffer
from robot_runtime.wire.zmtp import SocketType, ZmtpError

_READABLE, _WRITABLE = select.EPOLLIN, select.EPOLLOUT
_BACKLOG = 1024
_ACCEPT_AGAIN_MS = 100  # after no descriptor was left
_MAX_ACCEPTED = 64  # in one turn


class _Peer(Stream):
    def __init__(self, connected: socket.socket, name: bytes) -> None:
        super().__init__(connected, SocketType.ROUTER)
        self.name = name
        self.greets_by_ns = time.monotonic_ns() + HANDSHAKE_MS * NS_PER_MS


class TcpServerTransport:
    """See `ServerTransport`. What nobody has asked for yet stays in its socket, so its sender has to wait."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._listener = _listener(endpoint)
        host, port, *_ = self._listener.getsockname()
        self.address = str(Endpoint(host, port))
        self._epoll = select.epoll()
        self._epoll.register(self._listener, _READABLE)
        self._accept_ns: int | None = None  # when to accept again, after it had to stop
        self._num_accepted = 0
        self._peers: dict[bytes, _Peer] = {}
        self._by_descriptor: dict[int, _Peer] = {}
        # In order: the one that has been there longest first.
        self._strangers: dict[_Peer, None] = {}  # have not greeted
        self._heard: dict[_Peer, None] = {}  # have a message that has been read
        self._bell: int | None = None

    def wait(self, timeout_ns: int | None, doorbell: Doorbell) -> None:
        if self._bell is None:
            self._bell = doorbell.fileno()
            self._epoll.register(self._bell, _READABLE)
        until_ns = None if timeout_ns is None else time.monotonic_ns() + timeout_ns
        is_over = False
        while not is_over:
            for descriptor, events in self._epoll.poll(self._timeout_s(until_ns)):
                if descriptor == self._bell:
                    doorbell.clear()
                    is_over = True
                elif descriptor == self._listener.fileno():
                    self._accept()
                else:
                    self._go_on(self._by_descriptor[descriptor], events)
            self._tidy()
            is_over |= bool(self._heard) or (until_ns is not None and time.monotonic_ns() >= until_ns)

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> None:
        known = self._peers.get(peer)
        if known is None or known.num_waiting >= HIGH_WATER_MARK:
            return
        try:
            known.send(frames)
        except OSError:
            self._let_go(known)
            return
        if known.has_unsent:
            self._epoll.modify(known.socket, _READABLE | _WRITABLE)

    def receive(self) -> tuple[bytes, list[Buffer]] | None:
        peer = next(iter(self._heard), None)
        if peer is None or (message := peer.next_message()) is None:
            return None
        del self._heard[peer]
        if peer.has_message:
            self._heard[peer] = None  # behind the others
        return peer.name, message

    def close(self) -> None:
        self._listener.close()
        poll, end_ns = select.poll(), time.monotonic_ns() + FAREWELL_MS * NS_PER_MS
        while (unsent := [p for p in self._peers.values() if p.has_unsent]) and time.monotonic_ns() < end_ns:
            for peer in unsent:
                poll.register(peer.socket, _WRITABLE)
            poll.poll(milliseconds_until(end_ns))
            for peer in unsent:
                poll.unregister(peer.socket)
                self._go_on(peer, _WRITABLE)
        for peer in [*self._peers.values()]:
            self._let_go(peer)
        self._epoll.close()

    def _timeout_s(self, until_ns: int | None) -> float | None:
        if self._heard:
            return 0.0
        timeout_ms = milliseconds_until(
            until_ns,
            self._accept_ns,
            *(peer.greets_by_ns for peer in [*self._strangers][:1]),
        )
        return None if timeout_ms is None else timeout_ms / 1000

    def _accept(self) -> None:
        for _ in range(_MAX_ACCEPTED):
            try:
                connected, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor is left, or the peer has gone already
                self._epoll.modify(self._listener, 0)
                self._accept_ns = time.monotonic_ns() + _ACCEPT_AGAIN_MS * NS_PER_MS
                return
            self._num_accepted += 1
            try:
                peer = _Peer(connected, self._num_accepted.to_bytes(8, "big"))
            except OSError:
                connected.close()
                continue
            self._peers[peer.name] = self._by_descriptor[connected.fileno()] = peer
            self._strangers[peer] = None
            self._epoll.register(connected, _READABLE)

    def _go_on(self, peer: _Peer, events: int) -> None:
        try:
            if events & _WRITABLE:
                peer.flush()
                self._epoll.modify(peer.socket, _READABLE | _WRITABLE if peer.has_unsent else _READABLE)
            if events & ~_WRITABLE and peer not in self._heard:
                peer.read()
        except (OSError, ZmtpError):
            self._let_go(peer)
            return
        if peer.is_ready:
            self._strangers.pop(peer, None)
        if peer.has_message:
            self._heard[peer] = None

    def _tidy(self) -> None:
        """Let go of those who have not greeted in time, and accept again."""
        now_ns = time.monotonic_ns()
        for peer in [*self._strangers]:
            if peer.greets_by_ns > now_ns:
                break
            self._let_go(peer)
        if self._accept_ns is not None and now_ns >= self._accept_ns:
            self._accept_ns = None
            self._epoll.modify(self._listener, _READABLE)

    def _let_go(self, peer: _Peer) -> None:
        del self._peers[peer.name], self._by_descriptor[peer.socket.fileno()]
        self._strangers.pop(peer, None)
        self._heard.pop(peer, None)
        self._epoll.unregister(peer.socket)
        peer.socket.close()


def _listener(endpoint: Endpoint) -> socket.socket:
    try:
        family, address = endpoint.resolve()[0]
        listener = socket.create_server(address, family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(str(endpoint)) from error
        raise AddressError(str(endpoint), error.strerror or str(error)) from error
    listener.setblocking(False)
    return listener
