"""Frames over ZeroMQ: DEALER on the robot, ROUTER on the server.

    tcp without keys      tcp_client.py, tcp_server.py   plain sockets that speak ZMTP (wire/zmtp.py)
    keys, other schemes   libzmq.py                      libzmq, whose own threads pass each message on

Both say the same on the wire, so either end may be either. A transport belongs to one thread. Frames that are
sent are not copied, so their memory must stay unchanged until they are out.
"""

from collections.abc import Sequence
from typing import Protocol

from robot_runtime.keys import RobotKeys, ServerKeys
from robot_runtime.mailbox import Doorbell
from robot_runtime.transport.address import DEFAULT_ADDRESS, Endpoint, OpenAddressError, is_local
from robot_runtime.wire.frames import Buffer


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


class ServerTransport(Protocol):
    """The server's end: each message names the peer it came from or goes to."""

    address: str
    """Where it listens, with the port that was chosen."""

    def wait(self, timeout_ns: int | None, doorbell: Doorbell) -> None:
        """Return when something arrived, the bell rings, or the time is over."""
        ...

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> None:
        """Hand a message to the network; a peer that is gone or does not read loses it."""
        ...

    def receive(self) -> tuple[bytes, list[Buffer]] | None:
        """The next message and the peer it came from; None if there is none."""
        ...

    def close(self) -> None:
        """Give up the address, after a moment for what is still to be sent."""
        ...


def connect(address: str = DEFAULT_ADDRESS, *, keys: RobotKeys | None = None) -> Transport:
    """The robot's end, connecting; it connects again by itself. AddressError if that is no address.

    keys: for a server that asks for them; to any other there is no connection with keys.
    """
    endpoint = Endpoint.of(address)
    if keys is None and endpoint is not None and endpoint.is_one:
        from robot_runtime.transport.tcp_client import TcpClientTransport

        return TcpClientTransport(endpoint)
    from robot_runtime.transport.libzmq import ZmqClientTransport

    return ZmqClientTransport(address, keys=keys)


def listen(
    address: str = DEFAULT_ADDRESS, *, keys: ServerKeys | None = None, is_open: bool = False
) -> ServerTransport:
    """The server's end. PortInUseError, AddressError.

    keys: let in only robots whose keys these name, and encrypt.
    is_open: listen beyond this machine without keys; else that is an OpenAddressError.
    """
    if keys is None and not is_open and not is_local(address):
        raise OpenAddressError(address)
    endpoint = Endpoint.of(address)
    if keys is None and endpoint is not None:
        from robot_runtime.transport.tcp_server import TcpServerTransport

        return TcpServerTransport(endpoint)
    from robot_runtime.transport.libzmq import ZmqServerTransport

    return ZmqServerTransport(address, keys=keys)
