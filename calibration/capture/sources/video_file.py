"""A video and a trajectory file, from any camera and any SLAM."""

from pathlib import Path

import numpy as np

from calibration.capture.sources.axes import ns_of, text_of
from calibration.capture.sources.recording import Recording, fps_of
from calibration.capture.values import DeviceInfo
from calibration.capture.video import size_and_fps, stamps
from robot_runtime.errors import InvalidValueError


def read_video(path: Path, *, stamps_file: Path | None = None, kind: str = "video") -> Recording:
    """Read a video.

    stamps_file: times of its images, one per line, ns or s (with a point); None: the video's own.
    InvalidValueError: no video, or another number of times.
    """
    own = stamps(path)
    times = own if stamps_file is None else _read_stamps(stamps_file)
    if len(times) != len(own):
        raise InvalidValueError(f"{path} has {len(own)} images, {stamps_file} has {len(times)} times")
    size, _ = size_and_fps(path)
    info = DeviceInfo(kind=kind, size=size, fps=fps_of(times), source=path.name)
    return Recording(info=info, frames_ns=times, video=path)


def _read_stamps(path: Path) -> np.ndarray:
    out = []
    for i, line in enumerate(text_of(path).splitlines()):
        cell = line.split(",")[0].strip()
        if not cell or cell.startswith("#") or (i == 0 and not cell[0].isdigit()):
            continue
        try:
            out.append(ns_of(cell, unit_ns=1_000_000_000 if "." in cell else 1))
        except InvalidValueError as error:
            raise InvalidValueError(f"{path}, line {i + 1}: {error}") from None
    times = np.array(out, dtype=np.int64)
    if (np.diff(times) <= 0).any():
        i = int(np.flatnonzero(np.diff(times) <= 0)[0]) + 1
        raise InvalidValueError(f"{path}: time {i} is {times[i]} ns, after {times[i - 1]}: they must rise")
    return times
