"""Server addresses, `tcp://HOST:PORT`, and their errors."""

import ipaddress
import re
import socket
import stat
from pathlib import Path

from robot_runtime.errors import InvalidValueError

DEFAULT_ADDRESS = "tcp://127.0.0.1:5757"
_KNOCK_S = 1.0
_FILE = "ipc://"


def port_in_use(address: str) -> InvalidValueError:
    """Make the error for an address at which another program listens."""
    return InvalidValueError(
        f"{address} is in use, probably by another policy server: stop that one, or choose another "
        "address (port * picks a free one)"
    )


def no_address(address: str, reason: str, *, example: str = DEFAULT_ADDRESS) -> InvalidValueError:
    """Make the error for an address that cannot be bound or connected to."""
    return InvalidValueError(f"cannot use address {address!r}: {reason}; expected e.g. {example}")


def open_to_all(address: str) -> InvalidValueError:
    """Make the error for an address that other machines can reach without keys."""
    return InvalidValueError(
        f"{address} can be reached from other machines, and any client there could use the policy: "
        "give the server keys (`robot-runtime keys`), or declare it open (--open)"
    )


def is_local(address: str) -> bool:
    """Whether only this machine can reach the address."""
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if address.startswith(_FILE) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a host name, which may belong to any machine


def address_to_listen(address: str) -> str:
    """Return it in libzmq's form: tcp by default, port * for any free one. InvalidValueError: invalid."""
    if _with_scheme(address).startswith(_FILE):
        if not address.isprintable():
            raise no_address(address, "expected a file name of printable characters")
        return address
    bare = _with_scheme(address).removeprefix("tcp://")
    if (problem := _problem(bare)) is not None:
        raise no_address(address, problem)
    host, port = host_and_port(bare)
    return f"tcp://{host}:{'*' if port == '0' else port}"


def check_file(address: str) -> None:
    """Check a file to listen on: libzmq would replace any file of that name with its socket.

    InvalidValueError: another server listens there, or it is another file, which would be lost.
    """
    path = Path(address.removeprefix(_FILE))
    if not address.startswith(_FILE) or str(path).startswith(("*", "@")):
        return
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return  # there is none; libzmq reports other errors
    if not is_socket:
        raise no_address(
            address, "there is a file of that name, and it is no socket", example="ipc:///tmp/policy"
        )
    with socket.socket(socket.AF_UNIX) as knock:
        knock.settimeout(_KNOCK_S)
        try:
            knock.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return  # a server that was killed has left it
        except OSError:
            pass  # another program has it
    raise port_in_use(address)


def address_to_connect(address: str) -> str:
    """As `address_to_listen`, but with one host and one port. InvalidValueError."""
    out = address_to_listen(address)
    if out.startswith("tcp://") and "*" in out:
        raise no_address(address, "to connect takes one host and one port, and * is any")
    return out


def server_and_name(address: str) -> tuple[str, str]:
    """Split into the server's address and the policy name behind a slash, empty without one.

    tcp://HOST:PORT/NAME and HOST:PORT/NAME; a file's address (ipc) has no names. InvalidValueError.
    """
    if _with_scheme(address).startswith(_FILE):
        return address_to_connect(address), ""
    server, _, name = _with_scheme(address).removeprefix("tcp://").partition("/")
    return address_to_connect(server), name


def host_and_port(text: str) -> tuple[str, str]:
    """Split HOST:PORT; host and port may be *, an IPv6 host is in brackets. InvalidValueError."""
    if (problem := _problem(text)) is not None:
        raise no_address(text, problem, example=DEFAULT_ADDRESS.removeprefix("tcp://"))
    host, _, port = text.rpartition(":")
    return host, port


def _problem(text: str) -> str | None:
    """Return why that is not HOST:PORT; None if it is."""
    host, colon, port = text.rpartition(":")
    if not colon or not port or port.endswith("]"):
        return "it names no port"
    if port != "*" and not (port.isascii() and port.isdecimal()):
        return f"{port!r} is no port number"
    if port != "*" and int(port) >= 2**16:
        return f"there is no port {port}, the last one is 65535"
    if re.fullmatch(r"[0-9a-fA-F:.]*:[0-9a-fA-F:.]*", host):
        return f"an IPv6 host needs brackets: [{host}]:{port}"
    if not re.fullmatch(r"\*|\[[0-9a-fA-F:.]+\]|[\w-]+(\.[\w-]+)*\.?", host, re.ASCII):
        return f"{host!r} is no host's name or number" if host else "it names no host"
    return None


def _with_scheme(address: str) -> str:
    scheme, separator, _ = address.partition("://")
    if separator and f"{scheme}://" not in ("tcp://", _FILE):
        raise no_address(address, f"the scheme {scheme!r} is not known, tcp and ipc are")
    return address if separator else f"tcp://{address}"


def name_trouble(address: str) -> str | None:
    """Return why the host name in a tcp address does not resolve; it asks the network, which may take
    long."""
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if not address.startswith("tcp://"):
        return None
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        return f"the name {host!r} has no address: {getattr(error, 'strerror', None) or error}"
    return None
