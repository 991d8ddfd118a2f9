"""Keys for CURVE (CurveZMQ, ZeroMQ RFC 26): access to a server, as folders to copy to one machine each.

    keys/server/   server.key_secret   allowed/left.key   allowed/right.key      for the inference server
    keys/left/     robot.key_secret    server.key                                for the robot "left"
    keys/right/    robot.key_secret    server.key                                for the robot "right"

Everything between them is then encrypted, and a server answers only robots whose key is in `allowed`, each
only under the name of its file. Removing a key from there locks that robot out when the server starts the
next time.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zmq.utils import z85

from robot_runtime.errors import InvalidValueError

SERVER, ALLOWED, SECRET = "server", "allowed", ".key_secret"


@dataclass(frozen=True, kw_only=True)
class ServerKeys:
    """A server's key pair, and the public keys that it accepts."""

    public: bytes
    secret: bytes
    allowed: Mapping[bytes, str]
    """Public key, 32 bytes -> the robot's name."""

    @classmethod
    def load(cls, folder: Path) -> "ServerKeys":
        """Load the server's folder of `make_keys`; InvalidValueError: the folder is invalid."""
        public, secret = _pair(folder / f"{SERVER}{SECRET}")
        allowed = folder / ALLOWED
        names = {z85.decode(_certificate(path)[0]): path.stem for path in allowed.glob("*.key")}
        if not names:
            raise InvalidValueError(f"{allowed} holds no robot's key: no robot could connect; {_HINT}")
        return cls(public=public, secret=secret, allowed=names)


@dataclass(frozen=True, kw_only=True)
class RobotKeys:
    """A robot's key pair, and the server's public key."""

    name: str
    """The name of the key on the server: no other robot can use it."""
    public: bytes
    secret: bytes
    server: bytes

    @classmethod
    def load(cls, folder: Path) -> "RobotKeys":
        """Load the robot's folder of `make_keys`; InvalidValueError: the folder is invalid."""
        path = folder / f"robot{SECRET}"
        public, secret = _pair(path)
        server, _ = _certificate(folder / f"{SERVER}.key")
        return cls(name=_name(path), public=public, secret=secret, server=server)


def make_keys(folder: Path, robots: Sequence[str]) -> list[Path]:
    """Make folders for robots, and one for the server unless it exists; return the new ones.

    InvalidValueError: one of the robots is named twice, has keys already, or is called "server"; nothing is
        made.
    """
    server = folder / SERVER
    for robot in robots:
        if robots.count(robot) > 1:
            raise InvalidValueError(
                f"robot {robot!r} is named {robots.count(robot)} times: each has one folder"
            )
        if robot == SERVER or (folder / robot).exists() or not robot.isidentifier():
            raise InvalidValueError(
                f"cannot make keys for robot {robot!r}: a name of letters, digits and underscores is "
                f"expected, other than {SERVER!r} and those that have a folder in {folder}"
            )
    made = []
    if not (server / f"{SERVER}{SECRET}").exists():
        (server / ALLOWED).mkdir(parents=True, exist_ok=True)
        _make_pair(server, SERVER)
        made.append(server)
    for robot in robots:
        (folder / robot).mkdir()
        _make_pair(folder / robot, "robot", name=robot)
        (folder / robot / "robot.key").rename(server / ALLOWED / f"{robot}.key")
        shutil.copy(server / f"{SERVER}.key", folder / robot)
        made.append(folder / robot)
    return made


def check_secret(path: Path) -> None:
    """InvalidValueError: others than its owner may use a secret file; OSError: there is no file."""
    mode = path.stat().st_mode & 0o777
    if mode & _FOR_OTHERS:
        raise InvalidValueError(
            f"{path} is a secret that others on this machine can use (mode {mode:03o}): "
            f"`chmod 600 {path}`, and make a new one if others may have read it"
        )


_HINT = "`robot-runtime keys` makes keys"
_FOR_OTHERS = 0o077  # permissions of group and others in a mode


def _make_pair(folder: Path, file: str, **metadata: str) -> None:
    from zmq.auth import certs  # needed only with keys

    before = os.umask(_FOR_OTHERS)
    try:
        certs.create_certificates(folder, file, metadata)
    finally:
        os.umask(before)


def _pair(path: Path) -> tuple[bytes, bytes]:
    public, secret = _certificate(path)
    if secret is None:
        raise InvalidValueError(f"{path} holds no secret key; {_HINT}")
    check_secret(path)
    return public, secret


def _name(path: Path) -> str:
    """Return the robot's name, which `make_keys` wrote beside its secret."""
    found = re.search(r"^\s*name = (\w+)\s*$", path.read_text(), re.MULTILINE)
    if found is None:
        raise InvalidValueError(f"{path} does not say which robot's it is; {_HINT}")
    return found[1]


def _certificate(path: Path) -> tuple[bytes, bytes | None]:
    from zmq.auth import certs

    try:
        return certs.load_certificate(path)
    except (OSError, ValueError) as error:
        raise InvalidValueError(f"{path} is not a key: {error}; {_HINT}") from error
