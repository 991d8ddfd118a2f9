"""The libraries that cameras need, loaded when a camera is made."""

import ctypes
import importlib
from types import ModuleType

from robot_runtime.errors import DriverError


def opencv() -> ModuleType:
    """Load OpenCV. DriverError: it is not installed."""
    return _loaded("cv2", extra="cameras")


def realsense() -> ModuleType:
    """Load pyrealsense2. DriverError: it is not installed, or lacks a system library."""
    try:
        return _loaded("pyrealsense2", extra="realsense")
    except ImportError as error:
        if "libusb" not in str(error):
            raise DriverError(f"pyrealsense2 cannot be loaded: {error}") from error
    # Its wheel expects the system's libusb; the extra provides one where the system has none.
    path = _loaded("libusb_package", extra="realsense").get_library_path()
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    return _loaded("pyrealsense2", extra="realsense")


def _loaded(name: str, *, extra: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise DriverError(
            f"this camera needs {name}, which is not installed: pip install 'robot-runtime[{extra}]'"
        ) from error
