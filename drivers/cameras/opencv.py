"""Cameras by OpenCV: `OpenCvCamera("/dev/video0")`, a video file, the URL of a stream (extra `cameras`).

    OpenCvCamera("/dev/video0", size=(480, 640), fps=30, fourcc="MJPG")        a camera, as it is
    OpenCvCamera(0, size=(224, 224), fit="pad", latency_s=0.02)                /dev/video0, fitted
    OpenCvCamera("http://robot:8080/stream", latency_s=0.08)                   MJPEG, RTSP, ...
    OpenCvCamera("kitchen.mp4", loop=True)                                     at its own rate

Capture times are the kernel's stamps for cameras (its monotonic clock; V4L2 by CAP_PROP_POS_MSEC), less
`latency_s`; the arrival less `latency_s` for streams; for files the time at which the image was due. A
stream or a file that ends is a failure. MJPEG streams are decoded here and strictly: partial images are
rejected. Nothing here moves, so there is nothing to stop; docs/safety.md describes a run without images.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from drivers.cameras import v4l2
from drivers.cameras.feed import DeviceTime, Feed, Source
from drivers.cameras.fit import Fit, Size, a_size
from drivers.cameras.fitted import FittedCamera
from drivers.cameras.sources import FileSource, Settings, StreamSource, V4l2Source
from robot_runtime.errors import DriverError, InvalidValueError

OPEN_S = 2.0
"""How long a camera may take to its first image [s]."""


class OpenCvCamera(FittedCamera):
    """A camera (V4L2), a video file or a stream; only the newest image."""

    def __init__(
        self,
        device: str | int,
        *,
        size: Size | None = None,
        fit: str | None = None,
        rotate: int = 0,
        crop: tuple[int, int, int, int] | None = None,
        capture_size: Size | None = None,
        fps: float | None = None,
        fourcc: str | None = None,
        latency_s: float = 0.0,
        loop: bool = False,
        has_noise: bool | None = None,
        open_s: float = OPEN_S,
    ) -> None:
        """
        device: a path as /dev/video0 (or /dev/v4l/by-id/..., which stays the same), its number, a video
            file, or a URL.
        size, fit, rotate, crop: the fit of the images, see `drivers.cameras.fit`.
        capture_size: the size requested from a camera, (height, width); None: `size`, if nothing is fitted.
        fps: the rate requested from a camera [Hz]; of a file, the rate at which it is played.
        fourcc: the format requested from a camera, as "MJPG": many give large images only in that format.
        latency_s: from the middle of exposure to the kernel's stamp; of a stream to the arrival [s].
        loop: restart a file at its end.
        has_noise: whether two images of a still scene differ; None: not those of files.
        open_s: how long the first image may take [s].

        InvalidValueError: an invalid number, or the camera has no such size.
        DriverError: there is no such camera, or it gives no image.
        """
        self._device, kind = kind_of(device)
        fitting = Fit(size=size, fit=fit, rotate=rotate, crop=crop)
        if not (isinstance(open_s, int | float) and 0 < open_s <= 600):
            raise InvalidValueError(f"open_s is above 0 and up to 600 s, got {open_s!r}")
        if capture_size is not None:
            capture_size = a_size("capture_size", capture_size)
        requested = Settings(size=capture_size, fps=fps, fourcc=fourcc)
        self.has_noise = kind != "file" if has_noise is None else bool(has_noise)
        stamps = DeviceTime(latency_s)
        opens: Callable[[], Source]
        match kind:
            case "camera":
                requested = replace(requested, size=requested.size or fitting.wanted)
                refuse_missing(self._device)
                opens = partial(V4l2Source, self._device, requested, stamps)
            case "stream":
                requested.refuse(self._device, ("size", "fps", "fourcc"))
                opens = partial(StreamSource, self._device, stamps, open_s)
            case _:
                requested.refuse(self._device, ("size", "fourcc"))
                refuse_no_file(self._device)
                opens = partial(FileSource, self._device, requested.fps, loop)
        feed = Feed(f"the {kind} {self._device}", opens, within_s=open_s)
        height, width = feed.first.pixels.shape[:2]
        super().__init__(feed, fitting, (height, width))


def kind_of(device: object) -> tuple[str, str]:
    """Return its path or URL, and whether it is a camera, a stream or a file."""
    if isinstance(device, int) and not isinstance(device, bool) and device >= 0:
        return f"/dev/video{device}", "camera"
    if not isinstance(device, str | os.PathLike) or not str(device) or "\0" in str(device):
        raise InvalidValueError(
            f"device is a path as /dev/video0, its number, a video file or a URL, got {device!r}"
        )
    name = os.fspath(device)
    if name.isdecimal():
        return f"/dev/video{name}", "camera"
    name = name.removeprefix("file://")
    if "://" in name:
        return name, "stream"
    is_camera = name.startswith(("/dev/video", "/dev/v4l")) or v4l2.is_device(name)
    return name, "camera" if is_camera else "file"


def refuse_missing(path: str) -> None:
    """DriverError: there is no such camera; the message names those that there are."""
    if not v4l2.is_camera(path):
        there = v4l2.cameras()
        have = f"there are {', '.join(there)}" if there else "this machine has none (no /dev/video*)"
        raise DriverError(f"there is no camera {path}: {have}")
    if not os.access(path, os.R_OK | os.W_OK):
        raise DriverError(
            f"{path} may not be opened: add yourself to its group (sudo usermod -aG video $USER)"
        )


def refuse_no_file(path: str) -> None:
    """DriverError: it is no file, or empty."""
    if os.path.isdir(path):
        raise DriverError(f"{path} is a folder; a camera, a video file or a URL was expected")
    if not os.path.isfile(path):
        raise DriverError(f"there is no file {path}")
    if os.path.getsize(path) == 0:
        raise DriverError(f"the file {path} is empty")
