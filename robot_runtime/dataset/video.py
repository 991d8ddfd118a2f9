"""A video of one episode's images: `VideoWriter`."""

from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

KEY_EVERY = 2
"""Images from one keyframe to the next: training reads single images in any order."""


class VideoWriter:
    """Writes H.264 in an mp4, which every viewer plays."""

    def __init__(self, path: Path, fps: int, size: tuple[int, int], *, preset: str = "superfast") -> None:
        """size: (height, width) [pixels], even numbers."""
        import av
        import av.logging

        av.logging.set_libav_level(av.logging.ERROR)  # silences the encoder
        self._file = av.open(str(path), "w")
        options = {"crf": "18", "preset": preset, "g": str(KEY_EVERY), "bf": "0"}
        self._stream: Any = self._file.add_stream("libx264", rate=fps, options=options)
        self._stream.height, self._stream.width = size
        self._stream.pix_fmt = "yuv420p"
        self._stream.thread_count = 1
        self._base, self.num_pictures = Fraction(1, fps), 0

    def add(self, frame: Any) -> None:
        """Add the next image, an `av.VideoFrame` of any format and of the size."""
        wanted = (self._stream.width, self._stream.height)
        if frame.format.name != "yuv420p" or (frame.width, frame.height) != wanted:
            frame = frame.reformat(*wanted, "yuv420p")
        frame.pts, frame.time_base, frame.pict_type = self.num_pictures, self._base, 0
        for packet in self._stream.encode(frame):
            self._file.mux(packet)
        self.num_pictures += 1

    def close(self) -> None:
        """Write what the encoder still holds."""
        for packet in self._stream.encode():
            self._file.mux(packet)
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
