"""Messages for a command that fails because of the machine or of what the user typed."""

import contextlib
import ctypes.util
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from robot_runtime.errors import RobotRuntimeError
from robot_runtime.user_code import UserCodeError, of_user

EXTRA_OF = {
    "torch": "policies",
    "safetensors": "policies",
    "mujoco": "sim",
    "franky_sim": "sim",
    "matplotlib": "sim",
    "PIL": "sim",
    "av": "sim",
    "websockets": "gateways",
    "viser": "page",
    "grpc": "gateways",
    "cv2": "gateways",
    "scipy": "calibration",
    "pycolmap": "sfm",
    "rosbags": "realsense",
    "pyrealsense2": "realsense",
    "franky": "franka",
    "pyarrow": "lerobot",
    "lerobot": "lerobot",
    "huggingface_hub": "lerobot",
    "diffusers": "lerobot",
    "transformers": "lerobot",
}
"""Module that may be missing -> the extra that brings it, where no command declares which one it needs."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE)
"""Errors of a full disk or of too many open files, which name no file."""

_MUJOCO_GL = (
    "",
    "glfw",
    "glx",
    "enable",
    "enabled",
    "on",
    "true",
    "1",
    "disable",
    "disabled",
    "off",
    "false",
    "0",
)
"""Values that MuJoCo accepts in MUJOCO_GL, besides egl and osmesa."""


class ExtraMissingError(ModuleNotFoundError):
    """A command cannot begin without modules that are not installed."""

    def __init__(self, missing: Sequence[str], extras: Sequence[str]) -> None:
        """extras: those that provide them."""
        super().__init__(f"No module named {missing[0]!r}", name=missing[0])
        self.missing, self.extras = tuple(missing), tuple(extras)


def sentence(error: BaseException) -> str | None:
    """Return the message; None for a bug of this program; an error of the user's code has its traceback."""
    match error:
        case RobotRuntimeError():
            return str(error)
        case OSError() if error.filename is not None or error.errno in NO_ROOM:
            where = "" if error.filename is None else f"{error.filename}: "
            return f"{where}{reason(error)}"
        case ExtraMissingError(missing=missing, extras=extras):
            return _install(missing, extras)
        case ModuleNotFoundError(name=str(name)) if (module := name.partition(".")[0]) in EXTRA_OF:
            return _install([module], [EXTRA_OF[module]])
        case Exception() if (trace := of_user(error)) is not None:
            return str(UserCodeError("your code", error, trace))
        case _:
            return None


def _install(missing: Sequence[str], extras: Sequence[str]) -> str:
    python = ""
    if "lerobot" in extras and sys.version_info >= (3, 13):
        python = "; LeRobot is for Python 3.12, so that needs an environment of that version"
    are = "is" if len(missing) == 1 else "are"
    return (
        f"this command needs {' and '.join(missing)}, which {are} not installed: "
        f"pip install 'robot-runtime[{','.join(extras)}]', or add "
        f"{' '.join(f'--extra {each}' for each in extras)} to uv run{python}"
    )


def drop_mujoco_gl() -> None:
    """Drop a MUJOCO_GL with which MuJoCo could not be imported; images are then rendered with EGL."""
    value = os.environ.get("MUJOCO_GL", "")
    match value.lower().strip():
        case "osmesa" | "egl" as name:
            library = {"osmesa": "OSMesa", "egl": "EGL"}[name]
            why = "" if ctypes.util.find_library(library) else f"there is no library {library}"
        case name:
            why = "" if name in _MUJOCO_GL else f"expected egl, got {name}"
    if why:
        print(
            f"warning: MUJOCO_GL={value} does not work on this machine ({why}), going on without; unset it",
            file=sys.stderr,
        )
        del os.environ["MUJOCO_GL"]


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make the error of a full disk in this block name the path."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in NO_ROOM:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def reason(error: Exception) -> str:
    """Return the text of an operating system's error, without its number and the path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
