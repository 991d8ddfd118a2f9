"""Frames over libzmq, for servers with keys (CURVE) and addresses other than tcp.

Frames received are views of ZeroMQ's own memory.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import zmq

from robot_runtime.keys import RobotKeys, ServerKeys
from robot_runtime.mailbox import Doorbell
from robot_runtime.transport.address import AddressError, PortInUseError
from robot_runtime.transport.stream import (
    FAREWELL_MS,
    HANDSHAKE_MS,
    HIGH_WATER_MARK,
    NEEDS_KEYS,
    RECONNECT_MS,
)
from robot_runtime.wire.frames import LIMITS, Buffer

if TYPE_CHECKING:
    from zmq.auth.thread import ThreadAuthenticator

_HANDSHAKE_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
_SHARED_BYTES = 256 * 1024  # below, copying costs less than keeping a shared buffer until it is sent


def _wait(socket: zmq.Socket, flags: int, timeout_ns: int | None, doorbell: Doorbell) -> None:
    timeout_ms = -1 if timeout_ns is None else max(0, -(-timeout_ns // 1_000_000))
    bell = doorbell.fileno()
    for ready, _ in zmq.zmq_poll([(socket, flags), (bell, zmq.POLLIN)], timeout_ms):
        if ready == bell:
            doorbell.clear()


def _receive(socket: zmq.Socket) -> list[zmq.Frame] | None:
    try:
        return socket.recv_multipart(zmq.NOBLOCK, copy=False)
    except zmq.Again:
        return None


def _new_socket(context: zmq.Context, kind: int) -> zmq.Socket:
    socket: zmq.Socket = context.socket(kind)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.set(zmq.RCVHWM, HIGH_WATER_MARK)
    socket.set(zmq.MAXMSGSIZE, LIMITS.frame)
    socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.copy_threshold = _SHARED_BYTES
    return socket


class ZmqClientTransport:
    """A DEALER socket. ZeroMQ reconnects it by itself; `reopen` makes sure that nothing old survives."""

    def __init__(self, address: str, *, keys: RobotKeys | None = None) -> None:
        self.address = address
        self._keys = keys
        self._trouble: str | None = None
        self._context = zmq.Context()
        self._socket = self._connected_socket()

    def trouble(self) -> str | None:
        while self._monitor.poll(0):
            self._monitor.recv_multipart()  # of the only kind that it is asked for
            self._trouble = (
                "the server there does not take this robot's keys, or has other keys than they say"
                if self._keys
                else NEEDS_KEYS
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
        socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
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
        _wait(self._socket, zmq.POLLIN | zmq.POLLOUT if to_send else zmq.POLLIN, timeout_ns, doorbell)

    def send(self, frames: Sequence[Buffer]) -> bool:
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        return True

    def receive(self) -> list[Buffer] | None:
        frames = _receive(self._socket)
        return None if frames is None else [frame.buffer for frame in frames]

    def close(self) -> None:
        self._close_socket(FAREWELL_MS)
        self._context.term()


class ZmqServerTransport:
    """A ROUTER socket: each message names the peer it came from or goes to."""

    def __init__(self, address: str, *, keys: ServerKeys | None = None) -> None:
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
        _wait(self._socket, zmq.POLLIN, timeout_ns, doorbell)

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> None:
        self._socket.send_multipart([peer, *frames], copy=False)

    def receive(self) -> tuple[bytes, list[Buffer]] | None:
        arrived = _receive(self._socket)
        if arrived is None:
            return None
        peer, *frames = arrived
        return peer.bytes, [frame.buffer for frame in frames]

    def close(self) -> None:
        self._close(FAREWELL_MS)

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
