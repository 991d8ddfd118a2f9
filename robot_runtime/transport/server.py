"""The server's end: a ROUTER whose messages name the peer that they came from or go to."""

import os
from collections.abc import Callable, Sequence

import zmq

from robot_runtime.keys import ServerKeys
from robot_runtime.mailbox import Doorbell
from robot_runtime.transport.address import (
    DEFAULT_ADDRESS,
    address_to_listen,
    check_file,
    is_local,
    no_address,
    open_to_all,
    port_in_use,
)
from robot_runtime.transport.connection_limiter import ConnectionLimiter
from robot_runtime.transport.sockets import FAREWELL_MS, new_socket, wait
from robot_runtime.wire.frames import LIMITS, Buffer

_FOR_ITS_USER_ALONE = 0o177  # what a umask takes away


class ServerTransport:
    """Takes messages of all peers in turn; a peer that is gone or does not read loses the messages to it."""

    address: str
    """The address at which it listens, with the chosen port."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        keys: ServerKeys | None = None,
        is_open: bool = False,
        is_known: Callable[[bytes], bool] = lambda peer: True,
        ring: Callable[[], None] = lambda: None,
    ) -> None:
        """InvalidValueError: invalid address, or another program listens there.

        keys: admit only robots whose keys these name, and encrypt.
        is_open: listen beyond this machine without keys; else that is an InvalidValueError.
        is_known: whether a peer has greeted, which gives it higher limits; any thread calls it.
        ring: called by any thread when a peer has left: see `ConnectionLimiter.departed`.
        """
        address = address_to_listen(address)
        if keys is None and not is_open and not is_local(address):
            raise open_to_all(address)
        check_file(address)
        self._context = zmq.Context()
        self._socket = new_socket(self._context, zmq.ROUTER, address)
        self.doorman = ConnectionLimiter(self._socket, keys=keys, is_known=is_known, ring=ring)
        try:
            if keys is not None:
                self._socket.curve_publickey, self._socket.curve_secretkey = keys.public, keys.secret
                self._socket.curve_server = True
            _bind(self._socket, address)
        except zmq.ZMQError as error:
            self._close(0)
            if error.errno == zmq.EADDRINUSE:
                raise port_in_use(address) from error
            raise no_address(address, str(error)) from error
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def wait(self, timeout_ns: int | None, doorbell: Doorbell) -> None:
        """Return when something arrived, the doorbell rings, or the time is over."""
        wait([(self._socket, zmq.POLLIN)], timeout_ns, doorbell)

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> None:
        """Pass a message to the network."""
        self._socket.send_multipart([peer, *frames], copy=False)

    def receive(self) -> tuple[bytes, list[Buffer]] | None:
        """Return the next message and its peer; None if there is none.

        A message with too many frames is returned with one too many, without the rest.
        """
        while True:
            try:
                peer = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return None
            frame = self._socket.recv(copy=False)
            first = frame
            frames: list[Buffer] = [frame.buffer]
            while frame.more:
                frame = self._socket.recv(copy=False)
                if len(frames) <= LIMITS.num_frames:
                    frames.append(frame.buffer)
            if self.doorman.lets_in(peer, first, frames):
                return peer, frames

    def close(self) -> None:
        """Close the address, after a moment for what is still to be sent."""
        self._close(FAREWELL_MS)

    def _close(self, linger_ms: int) -> None:
        self.doorman.stop()
        self._socket.disable_monitor()
        self._socket.close(linger_ms)
        self.doorman.close()
        self._context.destroy()


def _bind(socket: zmq.Socket, address: str) -> None:
    """As `bind`; an address that is a file is accessible to its user only."""
    if not address.startswith("ipc://"):
        socket.bind(address)
        return
    before = os.umask(_FOR_ITS_USER_ALONE)
    try:
        socket.bind(address)
    finally:
        os.umask(before)
