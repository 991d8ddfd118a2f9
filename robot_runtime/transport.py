"""Frames over ZeroMQ: DEALER on the robot, ROUTER on the server. The only module that knows zmq.

A socket belongs to one thread. Frames received are views of ZeroMQ's own memory; frames sent are not copied
when they are large, so their memory must stay unchanged until they are out.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import zmq

from robot_runtime.core.request import MAX_IN_FLIGHT
from robot_runtime.errors import RobotRuntimeError
from robot_runtime.keys import RobotKeys, ServerKeys
from robot_runtime.mailbox import Doorbell
from robot_runtime.wire.frames import LIMITS, Buffer

if TYPE_CHECKING:
    from zmq.auth.thread import ThreadAuthenticator

DEFAULT_ADDRESS = "tcp://127.0.0.1:5757"
_RECONNECT_MS = 20
HANDSHAKE_MS = 3000
"""A connection that has not greeted by then is closed: silent ones must not use up a server's descriptors."""
_HIGH_WATER_MARK = MAX_IN_FLIGHT + 16  # messages per peer and direction: requests, and a few heartbeats
_FAREWELL_MS = 200
# Plain integers: an operation on zmq's enums costs as much as a system call.
_READABLE, _WRITABLE = int(zmq.POLLIN), int(zmq.POLLOUT)
_EVENTS, _NOBLOCK, _SEND_MORE = int(zmq.EVENTS), int(zmq.NOBLOCK), int(zmq.SNDMORE)
_HANDSHAKE_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
_SHARED_BYTES = 256 * 1024  # below, copying costs less than keeping a shared buffer until it is sent


class PortInUseError(RobotRuntimeError):
    """Another program listens on the address already."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"{address} is in use, probably by another policy server: stop that one, or choose another "
            "address (port * picks a free one)"
        )


class AddressError(RobotRuntimeError):
    """Something that is not an address one can bind or connect to."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot use address {address!r}: {reason}; expected e.g. {DEFAULT_ADDRESS}")


class OpenAddressError(RobotRuntimeError):
    """An address beyond this machine, and nobody to be kept out."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"{address} can be reached from other machines, and whoever reaches it could use the policy: "
            "give the server keys (`robot-runtime keys`), or say that it is to be open (--open)"
        )


class Transport(Protocol):
    """The robot's end of a connection that loses, but never alters, messages."""

    def trouble(self) -> str | None:
        """Why the last attempt to connect came to nothing, if the network says so."""
        ...

    def reopen(self) -> None:
        """Forget the connection and what is queued in it, and start afresh under a new identity."""
        ...

    def wait(self, timeout_ns: int | None, doorbell: Doorbell, *, to_send: bool) -> None:
        """Return when something arrived, the bell rings, it can send (if asked), or the time is over."""
        ...

    def send(self, frames: Sequence[Buffer]) -> bool:
        """Hand a message to the network; False if there is no connection that takes it now."""
        ...

    def receive(self) -> list[Buffer] | None:
        """The next message that has arrived; None if there is none."""
        ...

    def close(self) -> None:
        """Give up the socket."""
        ...


def _wait(socket: zmq.Socket, flags: int, timeout_ns: int | None, doorbell: Doorbell) -> None:
    timeout_ms = -1 if timeout_ns is None else max(0, -(-timeout_ns // 1_000_000))
    bell = doorbell.fileno()
    for ready, _ in zmq.zmq_poll([(socket, flags), (bell, _READABLE)], timeout_ms):
        if ready == bell:
            doorbell.clear()


def _send(socket: zmq.Socket, frames: Sequence[Buffer], flags: int) -> None:
    # As `send_multipart` and `recv_multipart` do, without their arithmetic on enums and question per frame.
    *others, last = frames
    for frame in others:
        socket.send(frame, flags | _SEND_MORE, False)
    socket.send(last, flags, False)


def _receive(socket: zmq.Socket) -> list[zmq.Frame] | None:
    # Asking is an order of magnitude cheaper than the exception of a vain recv.
    if not socket.getsockopt(_EVENTS) & _READABLE:  # type: ignore[operator]
        return None
    frames = [socket.recv(_NOBLOCK, False)]
    while frames[-1].more:
        frames.append(socket.recv(_NOBLOCK, False))
    return frames


def _new_socket(context: zmq.Context, kind: int) -> zmq.Socket:
    socket: zmq.Socket = context.socket(kind)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.SNDHWM, _HIGH_WATER_MARK)
    socket.set(zmq.RCVHWM, _HIGH_WATER_MARK)
    socket.set(zmq.MAXMSGSIZE, LIMITS.frame)
    socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.copy_threshold = _SHARED_BYTES
    return socket


class ZmqClientTransport:
    """A DEALER socket. ZeroMQ reconnects it by itself; `reopen` makes sure that nothing old survives."""

    def __init__(self, address: str = DEFAULT_ADDRESS, *, keys: RobotKeys | None = None) -> None:
        """keys: for a server that asks for them; to any other there is no connection with keys."""
        self.address = address
        self._keys = keys
        self._trouble: str | None = None
        self._context = zmq.Context()
        self._socket = self._connected_socket()

    def trouble(self) -> str | None:
        while self._monitor.getsockopt(_EVENTS) & _READABLE:  # type: ignore[operator]
            self._monitor.recv_multipart()  # of the only kind that it is asked for
            self._trouble = (
                "the server there does not take this robot's keys, or has other keys than they say"
                if self._keys
                else "the server there asks for keys, and this robot was given none (--keys)"
            )
        return self._trouble

    def reopen(self) -> None:
        self._close_socket(0)
        self._socket = self._connected_socket()

    def _close_socket(self, linger_ms: int) -> None:
        self.trouble()  # what the monitor knows goes with it
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(linger_ms)

    def _connected_socket(self) -> zmq.Socket:
        socket = _new_socket(self._context, zmq.DEALER)
        socket.set(zmq.IMMEDIATE, 1)
        socket.set(zmq.RECONNECT_IVL, _RECONNECT_MS)
        if self._keys is not None:
            socket.curve_publickey, socket.curve_secretkey = self._keys.public, self._keys.secret
            socket.curve_serverkey = self._keys.server
        self._monitor = socket.get_monitor_socket(_HANDSHAKE_FAILED)
        try:
            socket.connect(self.address)
        except zmq.ZMQError as error:
            self._socket = socket
            self.close()
            raise AddressError(self.address, str(error)) from error
        return socket

    def wait(self, timeout_ns: int | None, doorbell: Doorbell, *, to_send: bool) -> None:
        _wait(self._socket, _READABLE | _WRITABLE if to_send else _READABLE, timeout_ns, doorbell)

    def send(self, frames: Sequence[Buffer]) -> bool:
        try:
            _send(self._socket, frames, _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> list[Buffer] | None:
        frames = _receive(self._socket)
        return None if frames is None else [frame.buffer for frame in frames]

    def close(self) -> None:
        self._close_socket(_FAREWELL_MS)
        self._context.term()


class ZmqServerTransport:
    """A ROUTER socket: each message names the peer it came from or goes to."""

    def __init__(
        self, address: str = DEFAULT_ADDRESS, *, keys: ServerKeys | None = None, is_open: bool = False
    ) -> None:
        """
        keys: let in only robots whose keys these name, and encrypt.
        is_open: listen beyond this machine without keys; else that is an OpenAddressError.
        """
        if keys is None and not is_open and not is_local(address):
            raise OpenAddressError(address)
        self._context = zmq.Context()
        self._socket = _new_socket(self._context, zmq.ROUTER)
        self._authenticator: ThreadAuthenticator | None = None
        try:
            if keys is not None:
                self._ask_for(keys)
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._close(0)
            if error.errno == zmq.EADDRINUSE:
                raise PortInUseError(address) from error
            raise AddressError(address, str(error)) from error
        self.address: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def wait(self, timeout_ns: int | None, doorbell: Doorbell) -> None:
        """Return when something arrived, the bell rings, or the time is over."""
        _wait(self._socket, _READABLE, timeout_ns, doorbell)

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> None:
        """Hand a message to the network; a peer that is gone or does not read loses it."""
        _send(self._socket, [peer, *frames], 0)

    def receive(self) -> tuple[bytes, list[Buffer]] | None:
        """The next message and the peer it came from; None if there is none."""
        arrived = _receive(self._socket)
        if arrived is None:
            return None
        peer, *frames = arrived
        return peer.bytes, [frame.buffer for frame in frames]

    def close(self) -> None:
        """Give up the address, after a moment for what is still to be sent."""
        self._close(_FAREWELL_MS)

    def _ask_for(self, keys: ServerKeys) -> None:
        from zmq.auth.thread import ThreadAuthenticator  # brings asyncio, which no robot needs

        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve(location=keys.allowed)
        self._socket.curve_publickey, self._socket.curve_secretkey = keys.public, keys.secret
        self._socket.curve_server = True

    def _close(self, linger_ms: int) -> None:
        self._socket.close(linger_ms)
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()


def is_local(address: str) -> bool:
    """Whether only this machine can reach the address."""
    scheme, _, rest = address.partition("://")
    host = rest.rpartition(":")[0].strip("[]")
    return scheme in ("ipc", "inproc") or host in ("localhost", "::1") or host.startswith("127.")
