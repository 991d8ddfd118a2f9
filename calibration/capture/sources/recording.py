"""The result of an adapter, one device's data in our conventions: `Recording`; `write` stores it.

`read_video` is the adapter of a video without anything else.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.capture.sources.axes import text_of
from calibration.capture.sources.pose_csv import UNITS_NS, names_in, time_of
from calibration.capture.values import DeviceInfo, Imu, Tags, Widths
from calibration.capture.video import size_and_fps, stamps
from calibration.capture.writer import CaptureWriter
from calibration.trajectory import Trajectory
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """One device's recording: SI, wxyz, worlds with z up, cameras that look along z with y down."""

    info: DeviceInfo
    poses: Trajectory | None = None
    """Poses of the camera in the device's world; None: its files have none, they are supplied otherwise."""
    frames_ns: np.ndarray | None = None
    """(N,) int64 capture time of each image; None: no images."""
    exposure_ns: np.ndarray | None = None
    """(N,) int64 exposure times; None: unknown."""
    video: Path | None = None
    """A finished video, copied byte for byte."""
    pictures: Callable[[], Iterator[np.ndarray]] | None = None
    """In place of a video: yields (h, w, 3) uint8 RGB, one for each of frames_ns."""
    imu: Imu | None = None
    widths: Widths | None = None
    tags: Tags | None = None
    sources: tuple[Path, ...] = ()
    """Source files that are kept unchanged."""
    lacks: tuple[str, ...] = ()
    """Sentences on data that these files lack, and the consequences."""
    damage: str = ""
    """A sentence on data in the files that cannot be read."""

    @property
    def start_ns(self) -> int:
        """Time of its first image, else of its first pose."""
        if self.frames_ns is not None and len(self.frames_ns):
            return int(self.frames_ns[0])
        if self.poses is None:
            raise InvalidValueError("a recording without images and without poses is empty")
        return int(self.poses.t_ns[0])

    @property
    def end_ns(self) -> int:
        """Time of its last image or pose, whichever is later."""
        times = (self.frames_ns, None if self.poses is None else self.poses.t_ns)
        return max(int(t_ns[-1]) for t_ns in times if t_ns is not None and len(t_ns))


def write(
    writer: CaptureWriter, role: str, recording: Recording, *, on_picture: Callable[[], object] = lambda: None
) -> None:
    """Write a whole recording into a capture.

    on_picture: called after each encoded image.
    InvalidValueError: neither poses nor images with intrinsics, of which `capture poses` would compute them;
    times that fall; a video with another number of images than times.
    """
    if recording.poses is None and (recording.frames_ns is None or recording.info.camera is None):
        raise InvalidValueError(
            f"{role}: its files have no poses; give a trajectory with trajectory=FILE, or a video with its "
            "intrinsics (camera=FILE), from which `capture poses` computes them"
        )
    for what, values in (("IMU", recording.imu), ("gripper", recording.widths)):
        if values is not None and (falls := np.flatnonzero(np.diff(values.t_ns) <= 0)).size:
            i = int(falls[0]) + 1
            raise InvalidValueError(
                f"{role}: times of its {what} have to rise, but row {i} is of {values.t_ns[i]} ns, after "
                f"{values.t_ns[i - 1]} ns: its clock jumped back, or two recordings are in one file"
            )
    if recording.poses is not None:
        writer.poses(role, recording.poses)
    if recording.imu is not None:
        writer.imu(role, recording.imu)
    if recording.widths is not None:
        for t_ns, width in zip(
            recording.widths.t_ns.tolist(), recording.widths.width_m.tolist(), strict=True
        ):
            writer.width(role, t_ns, width)
    if recording.tags is not None:
        for t_ns, tag, corners in zip(
            recording.tags.t_ns.tolist(), recording.tags.tag.tolist(), recording.tags.corners, strict=True
        ):
            writer.tag(role, t_ns, tag, corners)
    for path in recording.sources:
        writer.keep(path, f"{role}-{path.name}")
    if recording.frames_ns is None:
        return
    times = recording.frames_ns.tolist()
    if recording.video is not None:
        writer.copy_video(role, recording.video, times)
    elif recording.pictures is not None:
        count = 0
        exposures = [0] * len(times) if recording.exposure_ns is None else recording.exposure_ns.tolist()
        for t_ns, exposure_ns, rgb in zip(times, exposures, recording.pictures(), strict=False):
            writer.picture(role, t_ns, rgb, exposure_ns=exposure_ns)
            on_picture()
            count += 1
        if count != len(times):
            raise InvalidValueError(f"{role}: expected {len(times)} images, got {count}")


MOST_FPS = 2000.0


def fps_of(t_ns: np.ndarray) -> float:
    """Frame rate of images taken at these times."""
    if len(t_ns) < 2:
        return 30.0
    return float(1e9 / np.median(np.diff(t_ns)))


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
    """Read one time per line; a header names its unit, t_ns, t_us, t_ms or t_s."""
    out: list[int] = []
    unit_ns: int | None = None
    for i, line in enumerate(text_of(path).splitlines()):
        cell = line.split(",")[0].strip()
        if i == 0 and (names := names_in(line, least=1)):
            unit_ns = UNITS_NS.get(names[0])
            continue
        if cell and not cell.startswith("#"):
            out.append(time_of(f"{path}, line {i + 1}", cell, unit_ns))
    times = np.array(out, dtype=np.int64)
    if (np.diff(times) <= 0).any():
        i = int(np.flatnonzero(np.diff(times) <= 0)[0]) + 1
        raise InvalidValueError(f"{path}: time {i} is {times[i]} ns, after {times[i - 1]}: they must rise")
    if len(times) > 1 and fps_of(times) > MOST_FPS:
        raise InvalidValueError(
            f"{path}: expected times of images in whole nanoseconds, got {fps_of(times):.3g} images a "
            "second: if they are in another unit, name it in the first line: t_us, t_ms or t_s"
        )
    return times
