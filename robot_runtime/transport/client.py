"""The robot's end: a DEALER that reconnects by itself."""

import contextlib
import time
from collections.abc import Sequence

import zmq

from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.keys import RobotKeys
from robot_runtime.mailbox import Doorbell
from robot_runtime.transport.address import DEFAULT_ADDRESS, address_to_connect, no_address
from robot_runtime.transport.connection import Connection
from robot_runtime.transport.sockets import FAREWELL_MS, events_of, new_monitor, new_socket, wait
from robot_runtime.wire.frames import LIMITS, Buffer

_RECONNECT_MS, _RECONNECT_MAX_MS = 20, 100
_AGAIN_NS, _LOOK_NS = NS_PER_S, 50 * NS_PER_MS
_MAX_PENDING = 2 * LIMITS.total
"""Bytes of an incomplete message of a server."""
_HANDSHAKE_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
_NO_KEYS = "what listens there is no policy server, or it requires keys, and this robot has none (--keys)"
_WRONG_KEYS = (
    "what listens there is no policy server, or it rejects this robot's keys, or its own keys are not those "
    "that this robot expects"
)


class ClientTransport:
    """A connection that may lose, but never alters, messages. `reopen` drops everything old."""

    def __init__(self, address: str = DEFAULT_ADDRESS, *, keys: RobotKeys | None = None) -> None:
        """Start connecting; it reconnects by itself. InvalidValueError: invalid address.

        keys: for a server that requires them; with keys there is no connection to any other server.
        """
        self.address = address_to_connect(address)
        self._keys = keys
        self._trouble: str | None = None
        self._has_broken = self._is_connected = self._is_taking = False
        self._again_ns: int | None = None  # when to retry what libzmq has given up
        self._look_ns = 0  # when to check again how much the connection holds back
        self._connection: Connection | None = None
        self._context = zmq.Context()
        self._open()

    def trouble(self) -> str | None:
        """Return why the last attempt to connect failed, if the network reports it."""
        return self._trouble

    def has_broken(self) -> bool:
        """Return, once, whether the previous connection has ended."""
        broken, self._has_broken = self._has_broken, False
        return broken

    def is_taking(self) -> bool:
        """Return whether the peer has taken more of a long message since the last call."""
        is_taking, self._is_taking = self._is_taking, False
        return is_taking

    def reopen(self) -> None:
        """Drop the connection and its queue, and start again under a new identity."""
        self._close_socket(0)
        self._open()

    def wait(self, timeout_ns: int | None, doorbell: Doorbell, *, to_send: bool) -> None:
        """Return when something arrived, the doorbell rings, it can send (if `to_send`), or the time is over.

        Also when something happened to the connection: see `has_broken`.
        """
        flags = zmq.POLLIN | zmq.POLLOUT if to_send else zmq.POLLIN
        if self._monitor in wait([(self._socket, flags), (self._monitor, zmq.POLLIN)], timeout_ns, doorbell):
            self._look_after()
        now_ns = time.monotonic_ns()
        if self._again_ns is not None and now_ns >= self._again_ns:
            self._again_ns = None
            self._socket.connect(self.address)
        if self._connection is not None and now_ns >= self._look_ns:
            self._look_ns = now_ns + _LOOK_NS
            self._is_taking |= self._connection.is_taking()
            if self._connection.pending() > _MAX_PENDING:
                self._connection.cut()

    def send(self, frames: Sequence[Buffer]) -> bool:
        """Pass a message to the network; return False if no connection takes it now."""
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        return True

    def receive(self) -> list[Buffer] | None:
        """Return the next message that has arrived; None if there is none."""
        try:
            arrived = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        frames: list[Buffer] = [frame.buffer for frame in arrived]
        if self._connection is not None:
            self._connection.take(frames)
        return frames

    def close(self) -> None:
        """Close the socket."""
        self._close_socket(FAREWELL_MS)
        self._context.destroy()

    def _look_after(self) -> None:
        for event, value in events_of(self._monitor):
            match event:
                case zmq.EVENT_CONNECTED:
                    self._forget_connection()
                    with contextlib.suppress(OSError):
                        self._connection = Connection(value)
                case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self._trouble, self._is_connected = None, True
                case zmq.EVENT_DISCONNECTED:
                    self._forget_connection()
                    self._has_broken |= self._is_connected
                    self._is_connected = False
                case _:
                    if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:  # after which libzmq stops trying
                        self._again_ns = time.monotonic_ns() + _AGAIN_NS
                    self._trouble = _NO_KEYS if self._keys is None else _WRONG_KEYS

    def _open(self) -> None:
        socket = self._socket = new_socket(self._context, zmq.DEALER, self.address)
        socket.set(zmq.IMMEDIATE, 1)
        socket.set(zmq.RECONNECT_IVL, _RECONNECT_MS)
        socket.set(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
        if self._keys is not None:
            socket.curve_publickey, socket.curve_secretkey = self._keys.public, self._keys.secret
            socket.curve_serverkey = self._keys.server
        events = zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
        self._monitor = new_monitor(socket, events | _HANDSHAKE_FAILED)
        self._has_broken = self._is_connected = False
        self._again_ns = None
        try:
            socket.connect(self.address)
        except zmq.ZMQError as error:
            self.close()
            raise no_address(self.address, str(error)) from error

    def _close_socket(self, linger_ms: int) -> None:
        self._look_after()  # the monitor's events are lost with it
        self._forget_connection()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(linger_ms)

    def _forget_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
