"""Writes the raw zone: `CaptureWriter`. It never rewrites what it has written.

Every row goes to the operating system at once, so a process that is killed loses none; `sync` brings them to
the disk, so an empty battery loses only what came after the last sync.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pinocchio as pin

from calibration.capture import tables
from calibration.capture.values import TRACKING, DeviceInfo, Imu, Mark, Setup
from calibration.capture.video import FragmentedVideo
from calibration.trajectory import Trajectory
from robot_runtime.core.values.shapes import Float, UInt8
from robot_runtime.core.values.transforms import quaternion_from_rotation
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.staging import place_beside

VERSION = 1
CAPTURE_FILE, CHECKSUMS_FILE, VIDEO_FILE = "capture.json", "checksums.json", "video.mp4"
DERIVED = "derived"
"""Folder of what is computed from a capture; it can be deleted."""
LEAST_FREE = 100 * 2**20
"""Least free space on the disk [bytes]."""
_SYNC_EVERY_S = 1.0
_WORD_OF = {number: word for word, number in TRACKING.items()}


class CaptureDiskError(RobotRuntimeError):
    """Raised when the disk is full or gone; what was written before is kept."""


class CaptureWriter:
    """Writes one capture, or the next part of one that was begun before; one thread at a time.

    `close` writes checksums; a capture that was never closed is read up to where it was cut.
    """

    def __init__(self, path: Path, setup: Setup, *, when: str | None = None, is_whole: bool = False) -> None:
        """
        path: the capture's folder; where it holds one already, the new part is PATH/part-2 and so on.
        when: date and time, ISO 8601; None: now.
        is_whole: for data that can be made again: the folder appears once complete, or not at all.
        CaptureDiskError: not enough space.
        """
        self.setup = setup
        self._target = next_part(Path(path))
        self.path = place_beside(Path(path)) if is_whole else self._target
        """Folder that is written; after `close`, the final one."""
        self._tables: dict[Path, TextIOWrapper] = {}
        self._videos: dict[str, FragmentedVideo] = {}
        self._num_frames = dict.fromkeys(setup.devices, 0)
        self._synced_s = time.monotonic()
        self._is_closed = False
        try:
            self.path.mkdir(parents=True)
            self._check_room()
            for role in setup.devices:
                (self.path / role).mkdir()
            self._calibration(when or datetime.now(UTC).isoformat(timespec="seconds"))
        except OSError as error:
            raise _full(error, self.path) from error

    # ---- rows ----------------------------------------------------------------------------------------

    def picture(self, role: str, t_ns: int, rgb: UInt8[np.ndarray, "h w 3"], *, exposure_ns: int = 0) -> int:
        """Append an image to a device's video; returns its index.

        t_ns: this device's clock, at mid-exposure of the middle row.
        """
        info = self._device(role)
        if role not in self._videos:
            if info.size is None or info.fps is None:
                raise InvalidValueError(f"device {role} has images: it needs a size and an fps")
            self._guard(self._open_video, role, info)
        self._guard(self._videos[role].add, rgb)
        return self.frame(role, t_ns, exposure_ns=exposure_ns)

    def frame(self, role: str, t_ns: int, *, exposure_ns: int = 0) -> int:
        """Record the capture time of an image whose video is supplied otherwise; returns its index."""
        index = self._num_frames[role]
        self._rows(Path(role, "frames.csv"), tables.FRAMES, [(index, t_ns, exposure_ns)])
        self._num_frames[role] += 1
        return index

    def pose(self, role: str, t_ns: int, X_WC: pin.SE3, tracking: int) -> None:
        """Record a device's camera pose in its world, z up; while tracking is lost, the last known one."""
        q = quaternion_from_rotation(X_WC.rotation)
        self._device(role)
        self._rows(Path(role, "poses.csv"), tables.POSES, [(t_ns, *X_WC.translation, *q, _WORD_OF[tracking])])

    def poses(self, role: str, trajectory: Trajectory) -> None:
        """Record all poses of a trajectory."""
        self._device(role)
        words = [_WORD_OF[int(each)] for each in trajectory.tracking]
        numbers = np.hstack([trajectory.p, trajectory.q]).tolist()
        rows = zip(trajectory.t_ns.tolist(), numbers, words, strict=True)
        self._rows(Path(role, "poses.csv"), tables.POSES, [(t_ns, *row, word) for t_ns, row, word in rows])

    def imu(self, role: str, imu: Imu) -> None:
        """Record IMU samples, in the camera's frame if its pose is known, else in the device's."""
        self._device(role)
        numbers = np.hstack([imu.w, imu.a]).tolist()
        rows = [(t_ns, *row) for t_ns, row in zip(imu.t_ns.tolist(), numbers, strict=True)]
        self._rows(Path(role, "imu.csv"), tables.IMU, rows)

    def width(self, role: str, t_ns: int, width_m: float) -> None:
        """Record the width of a hand's gripper."""
        self._device(role)
        self._rows(Path(role, "gripper.csv"), tables.GRIPPER, [(t_ns, width_m)])

    def tag(self, role: str, t_ns: int, tag: int, corners: Float[np.ndarray, "4 2"]) -> None:
        """Record a tag detected in an image, corners in pixels."""
        self._device(role)
        self._rows(Path(role, "tags.csv"), tables.TAGS, [(t_ns, tag, *np.asarray(corners).ravel().tolist())])

    def corners(
        self, role: str, t_ns: int, index: int, ids: Sequence[int], uv: Float[np.ndarray, "K 2"]
    ) -> None:
        """Record board corners already detected in an image; pixels, centres at whole numbers."""
        self._device(role)
        pairs = zip(ids, np.asarray(uv).tolist(), strict=True)
        rows = [(t_ns, role, index, int(corner), u, v) for corner, (u, v) in pairs]
        self._rows(Path("corners.csv"), tables.CORNERS, rows)

    def glimpse(self, role: str, t_ns: int, name: str, p: Sequence[float], sigma: float) -> None:
        """Record an object detection: its position in that camera's optical frame [m]."""
        self._device(role)
        self._rows(Path("glimpses.csv"), tables.GLIMPSES, [(t_ns, role, name, *map(float, p), sigma)])

    def mark(self, t_ns: int, what: str, by: str) -> None:
        """Record a mark on the chest's clock (the only device's clock, if there is just one)."""
        mark = Mark(t_ns=int(t_ns), what=what, by=by)
        self._rows(Path("marks.csv"), tables.MARKS, [(mark.t_ns, mark.what, mark.by)])

    def copy_video(
        self, role: str, video: Path, t_ns: Sequence[int], *, exposure_ns: int | Sequence[int] = 0
    ) -> None:
        """Copy a device's finished video byte for byte, with the capture time of each image.

        exposure_ns: of all images, or of each.
        """
        self._device(role)
        target = self.path / role / VIDEO_FILE
        if target.exists():
            raise InvalidValueError(f"device {role} has a video already: {target}")
        self._guard(shutil.copyfile, video, target)
        exposures = [exposure_ns] * len(t_ns) if isinstance(exposure_ns, int) else exposure_ns
        rows = [(i, int(t), int(open_ns)) for i, (t, open_ns) in enumerate(zip(t_ns, exposures, strict=True))]
        self._rows(Path(role, "frames.csv"), tables.FRAMES, rows)

    def keep(self, source: Path, name: str) -> None:
        """Copy a device's file unchanged to CAPTURE/source/NAME, prefixed with a number if that exists."""
        target, number = self.path / "source" / name, 2
        self._guard(lambda: target.parent.mkdir(exist_ok=True))
        while target.exists():
            target, number = target.with_name(f"{number}-{name}"), number + 1
        self._guard(shutil.copyfile, source, target)

    # ---- the end -------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Flush to the disk; called automatically once a second. CaptureDiskError: hardly any space."""
        self._synced_s = time.monotonic()
        for file in self._tables.values():
            self._guard(lambda file=file: os.fsync(file.fileno()))
        self._check_room()

    def close(self) -> None:
        """Finish all files and write their checksums."""
        if self._is_closed:
            return
        self._is_closed = True
        for video in self._videos.values():
            self._guard(video.close)
        for file in self._tables.values():
            self._guard(file.close)
        self._guard(self._write_checksums)
        if self.path != self._target:
            self._guard(self.path.rename, self._target)
            self.path = self._target

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self.path != self._target:
            self._give_up()
        else:
            self.close()

    # ---- internals -----------------------------------------------------------------------------------

    def _rows(self, name: Path, layout: tables.Layout, rows: Sequence[Sequence[object]]) -> None:
        if self._is_closed:
            raise InvalidValueError(f"the capture {self.path} is closed; record more into a new part")
        text = "".join(map(layout.line, rows))
        if name not in self._tables:
            self._tables[name] = self._guard(open, self.path / name, "x", encoding="utf-8", newline="\n")
            text = layout.header + "\n" + text
        file = self._tables[name]
        self._guard(file.write, text)
        self._guard(file.flush)
        if time.monotonic() - self._synced_s > _SYNC_EVERY_S:
            self.sync()

    def _give_up(self) -> None:
        """Remove everything that was written."""
        self._is_closed = True
        closings = [each.close for each in self._videos.values()] + [f.close for f in self._tables.values()]
        for close in closings:
            with contextlib.suppress(Exception):  # even of a full disk: it is deleted anyway
                close()
        shutil.rmtree(self.path, ignore_errors=True)

    def _device(self, role: str) -> DeviceInfo:
        try:
            return self.setup.devices[role]
        except KeyError:
            has = ", ".join(self.setup.devices)
            raise InvalidValueError(f"this capture has no device {role!r}; it has {has}") from None

    def _open_video(self, role: str, info: DeviceInfo) -> None:
        assert info.size is not None
        assert info.fps is not None
        self._videos[role] = FragmentedVideo(self.path / role / VIDEO_FILE, info.fps, info.size)

    def _guard(self, act: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return act(*arguments, **named)
        except OSError as error:
            raise _full(error, self.path) from error

    def _check_room(self) -> None:
        free = shutil.disk_usage(self.path).free
        if free < LEAST_FREE:
            raise CaptureDiskError(
                f"the disk of {self.path} has {free / 2**20:.0f} MB left, {LEAST_FREE / 2**20:.0f} are "
                "needed: stop and free space; what was written is kept"
            )

    def _calibration(self, when: str) -> None:
        (self.path / "calibration").mkdir()
        devices = {}
        for role, info in self.setup.devices.items():
            camera = None
            if info.camera is not None:
                camera = f"calibration/camera_{role}.json"
                _write_json(self.path / camera, info.camera)
            devices[role] = {
                "kind": info.kind,
                "size": info.size,
                "fps": info.fps,
                "camera": camera,
                "pose_device_camera": pose_to_json(info.X_device_camera),
                "pose_camera_tcp": pose_to_json(info.X_HE),
                "gripper": info.gripper,
                "source": info.source,
            }
        if self.setup.board is not None:
            _write_json(self.path / "calibration" / "board.json", self.setup.board)
        _write_json(
            self.path / CAPTURE_FILE,
            {
                "version": VERSION,
                "task": self.setup.task,
                "person": self.setup.person,
                "when": when,
                "board": None if self.setup.board is None else "calibration/board.json",
                "devices": devices,
                "more": dict(self.setup.more),
            },
        )

    def _write_checksums(self) -> None:
        files = sorted(path for path in self.path.rglob("*") if path.is_file() and is_raw(path, self.path))
        sums = {path.relative_to(self.path).as_posix(): sha256(path) for path in files}
        _write_json(self.path / CHECKSUMS_FILE, sums)


def is_raw(path: Path, capture: Path) -> bool:
    """Whether a file belongs to the raw zone of this part."""
    first = path.relative_to(capture).parts[0]
    return first != DERIVED and first != CHECKSUMS_FILE and not first.startswith("part-")


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pose_to_json(X: pin.SE3 | None) -> dict[str, list[float]] | None:
    """A pose as files hold it: position [m] and quaternion wxyz."""
    if X is None:
        return None
    q = quaternion_from_rotation(X.rotation)
    return {"place_m": X.translation.tolist(), "quaternion_wxyz": q.tolist()}


def next_part(path: Path) -> Path:
    """Folder of the next part of a capture. InvalidValueError: the folder holds something else."""
    try:
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            if path.is_dir():
                path.rmdir()
            return path
    except OSError as error:
        raise _full(error, path) from error
    if not (path / CAPTURE_FILE).is_file():
        raise InvalidValueError(f"{path} exists and holds no capture: choose another folder")
    number = 2
    while (path / f"part-{number}").exists():
        number += 1
    return path / f"part-{number}"


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    beside = path.with_name(f".{path.name}")
    with beside.open("x", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)


def _full(error: OSError, path: Path) -> CaptureDiskError:
    return CaptureDiskError(
        f"cannot write to {path}: {error.strerror or error}; what was written before is kept"
    )
