"""The image sources of `OpenCvCamera`: a camera, a stream, a file. See `drivers.cameras.opencv`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from drivers.cameras import v4l2
from drivers.cameras.feed import DeviceTime, Shot
from drivers.cameras.fit import Size
from drivers.cameras.libraries import opencv
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import DriverError, InvalidValueError

STALL_S = 10.0
"""A stream that gives nothing for this long has ended [s]; after a shorter gap it resumes."""
MOST_PIXELS = 50_000_000
"""More pixels than any camera's image has."""
RATE = 30.0
"""Rate of a file that does not declare its own [Hz]."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings requested from a device; None: its default."""

    size: Size | None = None
    fps: float | None = None
    fourcc: str | None = None

    def __post_init__(self) -> None:
        if self.fps is not None and not (isinstance(self.fps, int | float) and 0 < self.fps <= 1000):
            raise InvalidValueError(f"fps is pictures a second, above 0 and up to 1000, got {self.fps!r}")
        is_code = isinstance(self.fourcc, str) and len(self.fourcc) == 4 and self.fourcc.isascii()
        if self.fourcc is not None and not is_code:
            raise InvalidValueError(f"fourcc is four letters, as 'MJPG' or 'YUYV', got {self.fourcc!r}")

    def refuse(self, device: str, names: tuple[str, ...]) -> None:
        """InvalidValueError: one of these is set, and the device does not support it."""
        for name in names:
            if getattr(self, name) is not None:
                key = "capture_size" if name == "size" else name
                raise InvalidValueError(f"{key} is for cameras, and {device} is none")


def rgb_of(frame: Any) -> np.ndarray:
    """Convert OpenCV's image, (h, w[, 1|3|4]) uint8 in order BGR, to RGB; ValueError: it is no image."""
    cv2 = opencv()
    if not isinstance(frame, np.ndarray) or frame.size == 0:
        raise ValueError("an empty image")
    channels = frame.shape[2] if frame.ndim == 3 else 1
    if frame.dtype != np.uint8 or frame.ndim not in (2, 3) or channels not in (1, 3, 4):
        raise ValueError(f"{frame.shape} {frame.dtype}, expected an image of 1, 3 or 4 channels uint8")
    how = {1: cv2.COLOR_GRAY2RGB, 3: cv2.COLOR_BGR2RGB, 4: cv2.COLOR_BGRA2RGB}[channels]
    return np.asarray(cv2.cvtColor(frame, how))


class V4l2Source:
    """A camera of the kernel (V4L2)."""

    def __init__(self, path: str, requested: Settings, stamps: DeviceTime) -> None:
        cv2 = opencv()
        self._cv2, self._path, self._stamps = cv2, path, stamps
        self._capture = cv2.VideoCapture(path, cv2.CAP_V4L2)
        if not self._capture.isOpened():
            held = v4l2.users(path)
            why = f"{', '.join(held)} has it open" if held else "it is no camera, or another program has it"
            raise DriverError(f"{path} cannot be opened: {why}")
        if requested.fourcc is not None:
            self._capture.set(cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*requested.fourcc))
        if requested.size is not None:
            self._capture.set(cv2.CAP_PROP_FRAME_WIDTH, requested.size[1])
            self._capture.set(cv2.CAP_PROP_FRAME_HEIGHT, requested.size[0])
        if requested.fps is not None:
            self._capture.set(cv2.CAP_PROP_FPS, requested.fps)
        self._capture.set(cv2.CAP_PROP_BUFFERSIZE, 2)  # one fills while the other is decoded
        self._refuse_otherwise(requested)

    def take(self, wait: Callable[[float], bool]) -> Shot:
        if not self._capture.grab():
            raise DriverError(f"the camera {self._path} gives no more images; was it unplugged?")
        arrival_ns = time.monotonic_ns()
        stamp_ns = round(self._capture.get(self._cv2.CAP_PROP_POS_MSEC) * 1e6)
        _, frame = self._capture.retrieve()
        return Shot(pixels=rgb_of(frame), t_ns=self._stamps.capture_ns(stamp_ns, arrival_ns))

    def close(self) -> None:
        self._capture.release()

    def _refuse_otherwise(self, requested: Settings) -> None:
        """InvalidValueError: the camera has not taken the requested settings."""
        cv2, capture = self._cv2, self._capture
        has = tuple(round(capture.get(p)) for p in (cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH))
        if requested.size is not None and has != requested.size:
            capture.release()
            have = ", ".join(map(str, v4l2.sizes(self._path))) or f"{has}, and perhaps others"
            raise InvalidValueError(
                f"the camera {self._path} has no images of {requested.size} (height, width); it has {have}; "
                "size with fit = 'pad', 'crop' or 'stretch' makes others of them"
            )
        code = round(capture.get(cv2.CAP_PROP_FOURCC)).to_bytes(4, "little").decode("ascii", "replace")
        if requested.fourcc is not None and code != requested.fourcc:
            capture.release()
            raise InvalidValueError(
                f"the camera {self._path} does not send {requested.fourcc!r}, but {code!r}"
            )
        rate = capture.get(cv2.CAP_PROP_FPS)
        if requested.fps is not None and rate > 0 and abs(rate - requested.fps) > 0.05 * requested.fps:
            capture.release()
            raise InvalidValueError(
                f"the camera {self._path} gives {rate:g} images a second at this size, not {requested.fps:g}"
            )


class StreamSource:
    """A stream, by OpenCV's FFmpeg."""

    def __init__(self, url: str, stamps: DeviceTime, open_s: float) -> None:
        cv2 = opencv()
        self._url, self._stamps = url, stamps
        self._size: Size | None = None
        limits = {
            cv2.CAP_PROP_OPEN_TIMEOUT_MSEC: round(open_s * 1e3),
            cv2.CAP_PROP_READ_TIMEOUT_MSEC: round(STALL_S * 1e3),
            cv2.CAP_PROP_N_THREADS: 1,  # more hold images back
        }
        flat = [number for pair in limits.items() for number in pair]
        self._capture = cv2.VideoCapture(url, cv2.CAP_FFMPEG, flat)
        if not self._capture.isOpened():
            raise DriverError(
                f"no stream at {url}: no answer within {open_s:g} s, or none that FFmpeg can read"
            )
        if self._capture.get(cv2.CAP_PROP_FRAME_COUNT) > 0:
            self._capture.release()
            raise DriverError(f"{url} is a video that ends, and no live stream: fetch it, and give the file")
        code = round(self._capture.get(cv2.CAP_PROP_FOURCC)).to_bytes(4, "little")
        self._is_mjpeg = code == b"MJPG" and self._capture.set(cv2.CAP_PROP_FORMAT, -1)

    def take(self, wait: Callable[[float], bool]) -> Shot:
        if not self._capture.grab():
            raise DriverError(f"the stream {self._url} has ended, or given nothing for {STALL_S:g} s")
        t_ns = self._stamps.capture_ns(None, time.monotonic_ns())
        _, frame = self._capture.retrieve()
        return Shot(pixels=self._decoded(frame), t_ns=t_ns)

    def close(self) -> None:
        self._capture.release()

    def _decoded(self, frame: Any) -> np.ndarray:
        """Decode an image. ValueError: it is incomplete."""
        if not self._is_mjpeg:
            return rgb_of(frame)
        import simplejpeg

        if frame is None:
            raise ValueError("an empty image")
        body = frame.tobytes()
        size = simplejpeg.decode_jpeg_header(body)[:2]
        if size != (self._size or size) or size[0] * size[1] > MOST_PIXELS:  # before memory is allocated
            raise ValueError(f"an image of {size} in a stream of {self._size or 'fewer pixels'}")
        pixels: np.ndarray = simplejpeg.decode_jpeg(body)
        self._size = size
        return pixels


class FileSource:
    """A video, played at its own rate from when it was opened."""

    def __init__(self, path: str, fps: float | None, loop: bool) -> None:
        self._path, self._fps, self._loop = path, fps, loop
        self._capture, self._count = self._opened(), 0
        self._start_ns = self._last_ns = time.monotonic_ns()

    def take(self, wait: Callable[[float], bool]) -> Shot | None:
        if not self._capture.grab():
            self._restart()
        due_ns = max(self._start_ns + self._due_ns(), self._last_ns)
        self._count += 1
        if wait((due_ns - time.monotonic_ns()) / NS_PER_S):
            return None
        late_ns = time.monotonic_ns() - due_ns
        if late_ns > NS_PER_S // 10:  # a machine that cannot keep up plays more slowly
            self._start_ns, due_ns = self._start_ns + late_ns, due_ns + late_ns
        self._last_ns = due_ns
        _, frame = self._capture.retrieve()
        return Shot(pixels=rgb_of(frame), t_ns=due_ns)

    def close(self) -> None:
        self._capture.release()

    def _opened(self) -> Any:
        cv2 = opencv()
        capture = cv2.VideoCapture(self._path, cv2.CAP_FFMPEG)
        if not capture.isOpened():
            raise DriverError(f"the file {self._path} is no video that FFmpeg reads")
        rate = self._fps or capture.get(cv2.CAP_PROP_FPS)
        self._period_ns = round(NS_PER_S / (rate if 0 < rate <= 1000 else RATE))
        self._position = cv2.CAP_PROP_POS_MSEC
        return capture

    def _due_ns(self) -> int:
        """Return when the image is due, from the first one on [ns]."""
        stamp_ns = round(self._capture.get(self._position) * 1e6)
        return stamp_ns if stamp_ns > 0 and self._fps is None else self._count * self._period_ns

    def _restart(self) -> None:
        """Restart at the beginning. DriverError: the file has ended."""
        if not self._loop or self._count == 0:
            had = f"has ended after {self._count} pictures" if self._count else "has no picture"
            raise DriverError(f"the file {self._path} {had}")
        self._capture.release()
        self._capture, self._count = self._opened(), 0
        self._start_ns = self._last_ns + self._period_ns
        if not self._capture.grab():
            raise DriverError(f"the file {self._path} has no picture any more")
