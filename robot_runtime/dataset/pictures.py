"""Images of a run on the time grid of a dataset: `Camera`, which reads a log once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from robot_runtime.dataset.video import VideoWriter
from robot_runtime.errors import InvalidValueError


class Picture(Protocol):
    """An image of a camera."""

    @property
    def t_ns(self) -> int:
        """Capture time [ns]."""

    @property
    def jpeg(self) -> bytes: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Filmed:
    """The images of one camera in one episode."""

    video: Path
    times_ns: list[int]
    """Capture time of the image in each frame [ns]."""
    samples: np.ndarray
    """Some of them (n, 3, h, w), downsampled: for statistics."""
    num_repeated: int
    """Frames that repeat the image of the previous frame."""


class Camera:
    """Frame k shows the newest image captured at or before it, and never a later one."""

    def __init__(self, name: str, pictures: Iterator[Picture]) -> None:
        """pictures: in the order in which they were captured; those that go back in time are skipped."""
        self.name, self._pictures = name, pictures
        self._now: Picture | None = None
        self._next: Picture | None = next(pictures, None)
        if self._next is None:
            raise InvalidValueError(f"the log has no images of camera {name!r}")
        self.size = _size_of(self._next.jpeg)

    def first_ns(self, start_ns: int) -> int | None:
        """Time of the first image, not before `start_ns`; None: there are no more."""
        self._go_to(start_ns)
        if self._now is not None:
            return start_ns
        return None if self._next is None else self._next.t_ns

    def film(self, video: Path, times_ns: Sequence[int], fps: int, sampled: Sequence[int]) -> Filmed:
        """Write a video with one image for each time; times of episodes follow each other.

        sampled: numbers of the frames for statistics.
        InvalidValueError: an image is invalid, or of another size than the first.
        """
        decoder, shown, captured, samples = _Decoder(self.name, self.size), None, [], []
        wanted, repeated, frame = set(sampled), 0, None
        with VideoWriter(video, fps, self.size) as writer:
            for k, t_ns in enumerate(times_ns):
                self._go_to(t_ns)
                assert self._now is not None, "the episode begins where there is an image"
                if self._now is shown:
                    repeated += 1
                else:
                    shown, frame = self._now, decoder.decode(self._now.jpeg)
                captured.append(shown.t_ns)
                writer.add(frame)
                if k in wanted:
                    samples.append(_small(frame))
        return Filmed(video=video, times_ns=captured, samples=np.array(samples), num_repeated=repeated)

    def _go_to(self, t_ns: int) -> None:
        while self._next is not None and self._next.t_ns <= t_ns:
            if self._now is None or self._next.t_ns >= self._now.t_ns:
                self._now = self._next
            self._next = next(self._pictures, None)


class _Decoder:
    """Decodes JPEG to the planes that a video is encoded from, without conversion to RGB."""

    def __init__(self, camera: str, size: tuple[int, int]) -> None:
        import av

        self._camera, self._size = camera, size
        self._codec: Any = av.CodecContext.create("mjpeg", "r")
        self._codec.thread_count = 1

    def decode(self, jpeg: bytes) -> Any:
        import av

        try:
            [frame] = self._codec.decode(av.Packet(jpeg))
        except (av.error.FFmpegError, ValueError) as error:
            raise InvalidValueError(
                f"an image of camera {self._camera!r} in the log is not a JPEG: {error}"
            ) from error
        if (frame.height, frame.width) != self._size:
            raise InvalidValueError(
                f"camera {self._camera!r} changed from {self._size} to {(frame.height, frame.width)} pixels "
                "in mid-run: a dataset has one size"
            )
        # Converted from JPEG's full range of brightness to video's, which players and LeRobot expect.
        return frame.reformat(format="yuv420p", src_color_range=2, dst_color_range=1)


def _size_of(jpeg: bytes) -> tuple[int, int]:
    """(height, width), rounded down to even numbers, which videos need."""
    import simplejpeg

    try:
        height, width, *_ = simplejpeg.decode_jpeg_header(jpeg)
    except ValueError as error:
        raise InvalidValueError(f"an image in the log is not a JPEG: {error}") from error
    if height % 2 or width % 2:
        raise InvalidValueError(f"expected an even height and width for video, got {height} x {width}")
    return int(height), int(width)


def _small(frame: Any) -> np.ndarray:
    """(3, h, w) RGB, every n-th pixel, as for LeRobot's statistics."""
    pixels = frame.to_ndarray(format="rgb24").transpose(2, 0, 1)
    _, height, width = pixels.shape
    if max(height, width) < 300:
        out: np.ndarray = pixels
        return out
    step = max(height, width) // 150
    return pixels[:, ::step, ::step]
