"""Videos of a capture, written in fragments: after a crash, all complete fragments can be read.

    file        | header | fragment 0      | fragment 1      | fragm     <- cut here
    images             0 1 2 ... 14       15 ... 29          lost: at most the last half second

True times of images are in frames.csv; the video's own are index / fps.
"""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from robot_runtime.errors import InvalidValueError

_KEY_EVERY = 15


class FragmentedVideo:
    """Writes H.264 in a fragmented mp4 for the raw zone, with little loss."""

    def __init__(self, path: Path, fps: float, size: tuple[int, int]) -> None:
        """size: (height, width), even."""
        import av
        import av.logging

        av.logging.set_libav_level(av.logging.ERROR)
        options = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "flush_packets": "1"}
        self._file = av.open(str(path), "w", options=options)
        coding = {"crf": "15", "preset": "superfast", "g": str(_KEY_EVERY), "bf": "0", "tune": "zerolatency"}
        rate = Fraction(fps).limit_denominator(1001)
        self._stream: Any = self._file.add_stream("libx264", rate=rate, options=coding)
        self._stream.height, self._stream.width = size
        self._stream.pix_fmt = "yuv420p"
        self._stream.thread_count = 1
        self._av, self._size, self._base, self.num_pictures = av, size, 1 / rate, 0

    def add(self, rgb: np.ndarray) -> None:
        """Append an image, (height, width, 3) uint8."""
        if rgb.shape != (*self._size, 3) or rgb.dtype != np.uint8:
            raise InvalidValueError(
                f"expected an image {(*self._size, 3)} uint8, got {rgb.shape} {rgb.dtype}"
            )
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(rgb), format="rgb24").reformat(
            format="yuv420p"
        )
        frame.pts, frame.time_base = self.num_pictures, self._base
        for packet in self._stream.encode(frame):
            self._file.mux(packet)
        self.num_pictures += 1

    def close(self) -> None:
        """Flush the encoder and close the file."""
        for packet in self._stream.encode():
            self._file.mux(packet)
        self._file.close()


def stamps(path: Path) -> np.ndarray:
    """Presentation times (N,) int64 [ns] of a video's images in display order, without decoding them, up to
    where the file is cut. InvalidValueError: it is not a video."""
    with opened(path) as file:
        stream = file.streams.video[0]
        base = Fraction(stream.time_base) * 1_000_000_000
        return np.array([int(pts * base) for pts in _shown(file, stream)], dtype=np.int64)


def count_pictures(path: Path) -> int:
    """Number of images in a video, up to where it is cut; InvalidValueError: it is not a video."""
    return len(stamps(path))


def size_and_fps(path: Path) -> tuple[tuple[int, int], float]:
    """((height, width), images a second) of a video."""
    with opened(path) as file:
        stream = file.streams.video[0]
        return (stream.height, stream.width), float(stream.average_rate or stream.guessed_rate or 0)


def pictures(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, np.ndarray]]:
    """(index, (height, width, 3) uint8 RGB) of the images in [start, stop), as far as the video goes."""
    import av

    with opened(path) as file:
        stream = file.streams.video[0]
        stream.thread_type = "AUTO"
        shown = _shown(file, stream)
        index_of = {pts: i for i, pts in enumerate(shown)}
        if not shown[start:stop]:
            return
        # Rates vary and beginnings are edited: an image is found by its own time, never by start / fps.
        file.seek(shown[start], stream=stream)
        frames = iter(file.decode(stream))
        while True:
            try:
                frame = next(frames)
            except (StopIteration, av.FFmpegError):
                return
            index = index_of.get(frame.pts, -1)
            if stop is not None and index >= stop:
                return
            if index >= start:
                yield index, frame.to_ndarray(format="rgb24")


def _shown(file: Any, stream: Any) -> list[int]:
    """Times of all images in order, in the stream's own units."""
    import av

    found = []
    try:
        for packet in file.demux(stream):
            if packet.size and packet.pts is not None:
                found.append(packet.pts)
    except av.FFmpegError:
        pass  # cut in the middle of a fragment: what came before it counts
    return sorted(set(found))


def opened(path: Path) -> Any:
    import av
    import av.logging

    av.logging.set_libav_level(av.logging.FATAL)
    try:
        file = av.open(str(path))
    except (av.FFmpegError, OSError) as error:
        raise InvalidValueError(f"{path} is no video that can be read: {error}") from error
    if not file.streams.video:
        file.close()
        raise InvalidValueError(f"{path} has no images in it")
    return file
