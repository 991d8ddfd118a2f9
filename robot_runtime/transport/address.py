"""Where a server listens: `tcp://HOST:PORT`, and what can be wrong with that."""

import re
import socket
from typing import NamedTuple

from robot_runtime.errors import RobotRuntimeError

DEFAULT_ADDRESS = "tcp://127.0.0.1:5757"
ALL = "*"


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
    return scheme in ("ipc", "inproc") or host in ("localhost", "::1") or host.startswith("127.")


class Endpoint(NamedTuple):
    """A host, ALL for every address of this machine, and a port, 0 for any that is free."""

    host: str
    port: int

    @classmethod
    def of(cls, address: str) -> "Endpoint | None":
        """None for other schemes than tcp, and for what only libzmq understands or refuses. AddressError."""
        match = re.fullmatch(r"tcp://(\*|\[[0-9a-fA-F:.]+\]|[\w.-]+):(\*|\d{1,5})", address)
        if match is None:
            return None
        port = 0 if match[2] == "*" else int(match[2])
        if port >= 2**16:
            raise AddressError(address, f"there is no port {port}")
        return cls(match[1].strip("[]"), port)

    @property
    def is_one(self) -> bool:
        """Whether it names one host and one port, as whoever connects has to."""
        return self.host != ALL and self.port != 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port or '*'}"

    def resolve(self) -> list[tuple[int, tuple[str, int]]]:
        """Address family, and host and port in it, IPv4 first; OSError if the host has no address."""
        host = "0.0.0.0" if self.host == ALL else self.host
        found = socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)
        addresses = [(int(family), (str(address[0]), int(address[1]))) for family, _, _, _, address in found]
        return sorted(addresses, key=lambda it: it[0] != socket.AF_INET)
