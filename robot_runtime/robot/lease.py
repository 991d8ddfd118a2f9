"""One controller per robot: `Lease`, a lock of the kernel's on a file for each device of the robot.

The kernel releases it whenever the process ends. It holds on one machine: where two machines could
drive the same robot, the robot itself has to refuse the second (docs/safety.md).
"""

import contextlib
import fcntl
import hashlib
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from robot_runtime.errors import RobotBusyError
from robot_runtime.robot.robot import Robot

_MOST = 500


class Lease:
    """A context manager: inside it no other process on this machine drives that robot."""

    def __init__(self, robot: Robot) -> None:
        """robot: its drivers state in `address` which devices they use; drivers without one are not locked.
        Cameras and sensors are not locked: others may read them too."""
        self.keys = _addresses(robot)
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        """RobotBusyError: another process has it; names the process, and since when."""
        with ExitStack() as opened:
            for key in self.keys:
                opened.callback(os.close, _locked(key))
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()


def check_free(address: str) -> None:
    """RobotBusyError: something else on this machine drives that device. For drivers that would disturb it,
    or wait for it, by connecting; to run a robot, take a `Lease`."""
    os.close(_locked(address, note=False))


def _addresses(robot: Robot) -> list[str]:
    """Return the addresses, sorted, so that two processes cannot each lock half of the same ones."""
    found = {getattr(driver, "address", None) for driver in robot.parts.values()}
    return sorted(address for address in found if isinstance(address, str) and address)


def _locked(key: str, *, note: bool = True) -> int:
    """Return the descriptor of the locked file. note: write the owner into it."""
    path = _folder() / f"robot-runtime-{hashlib.sha256(key.encode()).hexdigest()[:24]}.lock"
    fd = _opened(path, key)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held = "".join(filter(str.isprintable, os.pread(fd, _MOST, 0).decode(errors="replace"))).strip()
        os.close(fd)
        by = f"is driven by {held}" if held else "is driven by another process"
        raise RobotBusyError(f"{key} {by}: a robot has one controller; end that one first") from error
    if not note:
        return fd
    command = " ".join((Path(sys.argv[0] or "python").name, *sys.argv[1:]))[:200]
    line = f"process {os.getpid()} since {time.strftime('%F %T')} ({command})"
    with contextlib.suppress(OSError):  # a full disk: it is locked all the same, without the owner
        os.ftruncate(fd, 0)
        os.pwrite(fd, line.encode(errors="replace")[:_MOST], 0)
    return fd


def _opened(path: Path, key: str) -> int:
    """Open the lock file, for all users: they share the robot.

    RobotBusyError: it cannot be opened, so whether another process has the robot is unknown.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            fd = os.open(path, flags | os.O_CREAT, 0o666)
            if os.fstat(fd).st_uid == os.geteuid():
                os.fchmod(fd, 0o666)  # whatever the umask is
            return fd
    except OSError as error:
        raise RobotBusyError(
            f"whether something else drives {key} cannot be determined: its lock {path} cannot be opened: "
            f"{os.strerror(error.errno or 0)}"
        ) from error


def _folder() -> Path:
    """Return the folder for locks of this machine; a folder of the user where there is none."""
    for folder in ("/run/lock", os.environ.get("XDG_RUNTIME_DIR", "")):
        if folder and os.access(folder, os.W_OK | os.X_OK):
            return Path(folder)
    return Path(tempfile.gettempdir())
