"""Where a server listens: `tcp://HOST:PORT`, and what can be wrong with that."""

import ipaddress
import socket

from robot_runtime.errors import RobotRuntimeError

DEFAULT_ADDRESS = "tcp://127.0.0.1:5757"


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


def is_local(address: str) -> bool:
    """Whether only this machine can reach the address."""
    scheme, _, rest = address.partition("://")
    host = rest.rpartition(":")[0].strip("[]")
    if scheme in ("ipc", "inproc") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name: whose, other machines say


def check_port(address: str) -> None:
    """AddressError for a port that there is not, which libzmq would try to connect to for ever."""
    port = address.rpartition(":")[2]
    if address.startswith("tcp://") and port.isdecimal() and not 0 < int(port) < 2**16:
        raise AddressError(address, f"there is no port {port}")


def name_trouble(address: str) -> str | None:
    """Why the host's name in a tcp address stands for nothing; it asks the network, which may take long."""
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if not address.startswith("tcp://"):
        return None
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        return f"the name {host!r} stands for no address: {getattr(error, 'strerror', None) or error}"
    return None
