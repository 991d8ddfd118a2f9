"""Project Aria: the trajectory by Machine Perception Services (MPS), and the RGB camera's video.

`closed_loop_trajectory.csv` has a row a millisecond: tracking_timestamp_us, gravity_{x,y,z}_world,
{tx,ty,tz,qx,qy,qz,qw}_world_device, quality_score in [0, 1]; `open_loop_trajectory.csv` has the same in a
world called odometry. Both may be compressed (`.gz`). Their world has z up. The device is not the RGB camera.

A recording itself, `NAME.vrs`, is opened by `aria_vrs.py`. Here, its images are a video that Aria's own
tools extracted (`vrs_to_mp4`), with times in ns, a line each (`stamps=FILE`), and the camera's pose in the
device is given (`extrinsic=FILE`).
"""

import csv
import gzip
import zlib
from io import StringIO
from pathlib import Path

import numpy as np
import pinocchio as pin

from calibration.capture.sources.axes import ns_of, text_of, trajectory
from calibration.capture.sources.recording import Recording
from calibration.capture.sources.video_file import read_video
from calibration.capture.values import DeviceInfo
from calibration.trajectory import LIMITED, LOST, OK, Trajectory
from robot_runtime.errors import InvalidValueError

CLOSED, OPEN = "world", "odometry"
"""Names of a trajectory's world in its columns: after and before loop closure."""
LEAST_QUALITY = 0.5
"""quality_score below which tracking counts as limited; at 0 it is lost."""


def read_mps(path: Path) -> Trajectory:
    """Read X_WD of the device from either trajectory. InvalidValueError names file and line."""
    reader = csv.DictReader(StringIO(_text(path), newline=""))
    rows, columns = list(reader), reader.fieldnames or ()
    world = OPEN if f"tx_{OPEN}_device" in columns else CLOSED
    names = tuple(f"{name}_{world}_device" for name in ("tx", "ty", "tz", "qw", "qx", "qy", "qz"))
    missing = [name for name in ("tracking_timestamp_us", *names) if name not in columns]
    if not rows or missing:
        lacks = ", ".join(missing) if missing else "every row"
        raise InvalidValueError(
            f"{path} is no closed_loop_trajectory.csv or open_loop_trajectory.csv of Aria's: it lacks {lacks}"
        )
    t_ns, poses, tracking = [], [], []
    for number, row in enumerate(rows, start=2):
        try:
            t_ns.append(ns_of(row["tracking_timestamp_us"], unit_ns=1000))
            poses.append([float(row[name]) for name in names])
            tracking.append(_tracking(float(row.get("quality_score") or 1.0)))
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"{path}, line {number}: {error}") from error
    _check_gravity(path, rows[0], [f"gravity_{axis}_{world}" for axis in "xyz"])
    which = "graph_uid" if world == CLOSED else "session_uid"
    if len({row.get(which) for row in rows}) > 1:
        raise InvalidValueError(
            f"{path} has poses of several worlds ({which}): keep one of them; each is a separate capture"
        )
    numbers = np.array(poses)
    return trajectory(
        path, np.array(t_ns, dtype=np.int64), numbers[:, :3], numbers[:, 3:], tracking=np.array(tracking)
    )


def _text(path: Path) -> str:
    if path.suffix != ".gz":
        return text_of(path)
    try:
        return gzip.decompress(path.read_bytes()).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InvalidValueError(f"{path} cannot be unpacked: {error}") from error


def _tracking(quality: float) -> int:
    if quality <= 0.0:
        return LOST
    return OK if quality >= LEAST_QUALITY else LIMITED


def read_aria(
    path: Path, X_device_camera: pin.SE3 | None, video: Path | None = None, stamps_file: Path | None = None
) -> Recording:
    """Read a trajectory and, if given, its video.

    path: the trajectory. X_device_camera: of the RGB camera; None is refused where there is a video.
    InvalidValueError names file and line.
    """
    of_device = read_mps(path)
    info = DeviceInfo(kind="aria", source=f"{path.name}, Aria MPS", X_device_camera=X_device_camera)
    if video is None:
        return Recording(
            info=info, poses=of_device.then(X_device_camera or pin.SE3.Identity()), sources=(path,)
        )
    if X_device_camera is None:
        raise InvalidValueError(
            f"{path} has poses of the device, and {video} is of its RGB camera: give that camera's pose in "
            "the device with extrinsic=FILE, or give the VRS file itself, whose calibration has it"
        )
    seen = read_video(video, stamps_file=stamps_file, kind="aria")
    info = DeviceInfo(
        kind="aria",
        size=seen.info.size,
        fps=seen.info.fps,
        source=f"{path.name}, Aria MPS",
        X_device_camera=X_device_camera,
    )
    return Recording(
        info=info,
        poses=of_device.then(X_device_camera),
        frames_ns=seen.frames_ns,
        video=video,
        sources=(path,),
    )


def _check_gravity(path: Path, row: dict[str, str], names: list[str]) -> None:
    if any(not row.get(name) for name in names):
        return
    down = np.array([float(row[name]) for name in names])
    if down[2] > -0.9 * float(np.linalg.norm(down)):
        raise InvalidValueError(f"{path}, line 2: gravity is {down}, expected a world with z up")
