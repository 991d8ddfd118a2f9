"""Images and poses of a hand-held device, from a folder of images, a video, a capture or a table of poses."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.transforms import pose_from_quaternion
from robot_runtime.error_text import reason
from robot_runtime.errors import InvalidValueError, UnknownNameError, placed

if TYPE_CHECKING:
    from calibration.capture.raw import Device
    from calibration.trajectory import Trajectory

_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
_POSE = ("px", "py", "pz", "qw", "qx", "qy", "qz")


def is_capture(path: Path) -> bool:
    return (path / "capture.json").is_file()


def device_of(path: Path, role: str) -> "Device":
    """Return a device of a capture. InvalidValueError, UnknownNameError: there is none."""
    from calibration.capture.raw import RawCapture

    capture = RawCapture.open(path)
    if role not in capture.devices:
        raise UnknownNameError(f"device of {path}", role, capture.devices)
    return capture.devices[role]


def pictures_of(path: Path, role: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (name, (h, w, 3) RGB) for each image. InvalidValueError: there are none."""
    import cv2

    if is_capture(path):
        for index, _, picture in device_of(path, role).pictures():
            yield f"picture {index}", picture
        return
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.suffix.lower() in _PICTURES)
        if not files:
            raise InvalidValueError(f"{path} has no pictures ({', '.join(_PICTURES)}), and is no capture")
        for file in files:
            if (found := cv2.imread(str(file))) is None:
                raise InvalidValueError(f"{file} is no picture that can be read")
            yield file.name, np.ascontiguousarray(found[..., ::-1])
        return
    if not path.exists():
        raise InvalidValueError(f"there is no {path}")
    video = cv2.VideoCapture(str(path))
    count = 0
    while True:
        is_there, picture = video.read()
        if not is_there:
            break
        yield f"picture {count}", np.ascontiguousarray(picture[..., ::-1])
        count += 1
    if not count:
        raise InvalidValueError(
            f"{path}: expected a capture, a folder of pictures or a video; no picture came (an mp4 "
            f"that was cut off lacks its index: take it again, or one that its recorder repaired)"
        )


def _of_device_files(source: str) -> "Trajectory | None":
    """Return the trajectory of a KIND:FILE,option=value source; None: it has another form."""
    from calibration.capture.sources.spec import OWN, parse, read

    if source.partition(":")[0] not in OWN:
        return None
    try:
        found = read(parse(source)).poses
    except InvalidValueError as error:
        raise placed(error, "SOURCE") from error
    if found is None:
        raise InvalidValueError(f"SOURCE {source} has no poses: give a trajectory with trajectory=FILE")
    return found


def poses_of(source: str, role: str, *, from_s: float, to_s: float | None) -> list[pin.SE3]:
    """Return X_WH of a capture's device while it was tracked, of a device's own files (KIND:FILE,...), or
    from the rows of a table with columns px ... qz.

    from_s, to_s: counted from the first pose [s]; all rows of a table without t_ns are used.
    InvalidValueError: the source is none of these, or cannot be read.
    """
    path = Path(source)
    poses = device_of(path, role).poses if is_capture(path) else _of_device_files(source)
    if poses is not None:
        end_ns = poses.t_ns[-1] if to_s is None else poses.t_ns[0] + round(to_s * 1e9)
        inside = (poses.t_ns >= poses.t_ns[0] + round(from_s * 1e9)) & (poses.t_ns <= end_ns)
        kept = np.flatnonzero(inside & (poses.tracking == 2))
        return [poses[int(i)] for i in kept]
    if path.is_dir() or not path.exists():
        why = "is no capture, as there is no capture.json in it" if path.is_dir() else "is not there"
        raise InvalidValueError(
            f"SOURCE {path} {why}: expected the folder of a capture in which the tip stood in one point and "
            "the gripper was leant to all sides (docs/calibration_robot.md says how to record it), a "
            f"device's file as KIND:FILE, or a table of poses (CSV with columns {','.join(_POSE)})"
        )
    try:
        rows = list(csv.DictReader(path.read_text().splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(
            f"{path}: expected a capture, or a table of poses; it cannot be read: {reason(error)}"
        ) from None
    if not rows or (missing := set(_POSE) - set(rows[0])):
        raise InvalidValueError(f"{path} lacks columns {', '.join(sorted(missing if rows else set(_POSE)))}")
    out = []
    for number, row in enumerate(rows, start=2):
        try:
            t_s = (float(row["t_ns"]) - float(rows[0]["t_ns"])) / 1e9 if "t_ns" in row else from_s
            numbers = np.array([float(row[each]) for each in _POSE])
        except (TypeError, ValueError):
            raise InvalidValueError(f"{path}, line {number}: expected numbers, got {row}") from None
        if not np.isfinite([t_s, *numbers]).all():
            raise InvalidValueError(f"{path}, line {number}: expected finite numbers, got {row}")
        if not abs(float(np.linalg.norm(numbers[3:])) - 1.0) < 0.01:
            raise InvalidValueError(f"{path}, line {number}: {numbers[3:]} is no unit quaternion")
        if t_s >= from_s and (to_s is None or t_s <= to_s) and row.get("tracking", "ok") == "ok":
            out.append(pose_from_quaternion(numbers[:3], numbers[3:]))
    return out
