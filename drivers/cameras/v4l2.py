"""Lists this machine's cameras and their image sizes by the kernel (Video4Linux2)."""

import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

_ENUM_FORMATS, _ENUM_SIZES = 0xC0405602, 0xC02C564A
"""VIDIOC_ENUM_FMT, VIDIOC_ENUM_FRAMESIZES (linux/videodev2.h)."""
_FORMAT = struct.Struct("=III32sI4I")
"""struct v4l2_fmtdesc: index, type, flags, description, pixelformat, mbus_code and reserved."""
_SIZE = struct.Struct("=III6I2I")
"""struct v4l2_frmsizeenum: index, pixel_format, type, a size or a range of them, reserved."""
_CAPTURE, _DISCRETE = 1, 1
_MAJOR = 81
"""The device number of all Video4Linux devices."""
_MANY = 64
"""More formats or sizes than any camera has."""

Ioctl = Callable[[int, bytes], bytes]
"""Request and argument -> the argument as the kernel has filled it in; OSError: there is no such entry."""


def cameras() -> list[str]:
    """Return paths and names of the cameras, for messages."""
    out = []
    for path in sorted(Path("/dev").glob("video*"), key=lambda path: (len(path.name), path.name)):
        try:
            name = (Path("/sys/class/video4linux") / path.name / "name").read_text().strip()
        except OSError:
            name = ""
        out.append(f"{path} ({name})" if name else str(path))
    return out


def is_device(path: str) -> bool:
    """Whether it is a device file, of any kind."""
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False


def is_camera(path: str) -> bool:
    """Whether it is a device file of a camera."""
    return is_device(path) and os.major(os.stat(path).st_rdev) == _MAJOR


def users(path: str) -> list[str]:
    """Return the processes that have it open, with their names, as far as they are visible."""
    wanted, out = os.path.realpath(path), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.path.realpath(fd) == wanted for fd in (process / "fd").iterdir()):
                out.append(f"{(process / 'comm').read_text().strip()} (process {process.name})")
        except OSError:
            continue
    return out


def sizes(path: str) -> list[tuple[int, int]]:
    """Return (height, width) of all image sizes, small ones first; none where it does not report them."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        return listed(lambda request, argument: fcntl.ioctl(descriptor, request, argument))
    finally:
        os.close(descriptor)


def listed(ioctl: Ioctl) -> list[tuple[int, int]]:
    """Return the sizes that these calls report; of a range its ends."""
    found: set[tuple[int, int]] = set()
    for i in range(_MANY):
        try:
            pixel_format = _FORMAT.unpack(ioctl(_ENUM_FORMATS, _FORMAT.pack(i, _CAPTURE, *_no_format())))[4]
        except OSError:
            break
        for k in range(_MANY):
            try:
                answer = _SIZE.unpack(ioctl(_ENUM_SIZES, _SIZE.pack(k, pixel_format, *[0] * 9)))
            except OSError:
                break
            kind, numbers = answer[2], answer[3:9]
            if kind == _DISCRETE:
                found.add((numbers[1], numbers[0]))
            else:  # least and greatest width and their step, then the height's
                found |= {(numbers[3], numbers[0]), (numbers[4], numbers[1])}
                break
    return sorted(found, key=lambda size: (size[0] * size[1], size))


def _no_format() -> list[int | bytes]:
    return [0, b"", 0, 0, 0, 0, 0]
