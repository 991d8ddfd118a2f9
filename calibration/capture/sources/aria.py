"""Project Aria: the trajectory that Machine Perception Services give, and the RGB camera's video.

`closed_loop_trajectory.csv` has a row a millisecond: tracking_timestamp_us, gravity_{x,y,z}_world,
{tx,ty,tz,qx,qy,qz,qw}_world_device, quality_score in [0, 1]. Its world has z up. The device's frame is not
the RGB camera's, whose pose in it stands in the VRS file's calibration (`extrinsic=FILE`). A VRS file's
pictures are taken out by Aria's own tools (`vrs_to_mp4`), with times in ns, a line each (`stamps=FILE`).
"""

import csv
from pathlib import Path

import numpy as np
import pinocchio as pin

from calibration.capture.sources.axes import ns_of, trajectory
from calibration.capture.sources.recording import Recording
from calibration.capture.sources.video_file import read_video
from calibration.capture.values import DeviceInfo
from calibration.trajectory import LIMITED, OK
from robot_runtime.errors import InvalidValueError

_POSE = tuple(f"{name}_world_device" for name in ("tx", "ty", "tz", "qw", "qx", "qy", "qz"))
_GRAVITY = tuple(f"gravity_{axis}_world" for axis in "xyz")
LEAST_QUALITY = 0.5
"""quality_score below which tracking is called limited."""


def read_aria(
    path: Path, X_device_camera: pin.SE3 | None, video: Path | None = None, stamps_file: Path | None = None
) -> Recording:
    """
    path: the trajectory. X_device_camera: of the RGB camera; None is refused where there is a video.
    InvalidValueError names file and line.
    """
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    needed = ("tracking_timestamp_us", *_POSE)
    if not rows or (missing := [name for name in needed if name not in rows[0]]):
        lacks = ", ".join(missing) if rows else "every row"
        raise InvalidValueError(f"{path} is no closed_loop_trajectory.csv of Aria's: it lacks {lacks}")
    t_ns, poses, tracking = [], [], []
    for number, row in enumerate(rows, start=2):
        try:
            t_ns.append(ns_of(row["tracking_timestamp_us"], unit_ns=1000))
            poses.append([float(row[name]) for name in _POSE])
            tracking.append(OK if float(row.get("quality_score") or 1.0) >= LEAST_QUALITY else LIMITED)
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"{path}, line {number}: {error}") from error
    _check_gravity(path, rows[0])
    if len({row.get("graph_uid") for row in rows}) > 1:
        raise InvalidValueError(
            f"{path} has poses of several worlds (graph_uid): take one of them, each is a capture of its own"
        )
    numbers = np.array(poses)
    of_device = trajectory(
        path, np.array(t_ns, dtype=np.int64), numbers[:, :3], numbers[:, 3:], tracking=np.array(tracking)
    )
    info = DeviceInfo(kind="aria", source=f"{path.name}, Aria MPS", X_device_camera=X_device_camera)
    if video is None:
        return Recording(
            info=info, poses=of_device.then(X_device_camera or pin.SE3.Identity()), sources=(path,)
        )
    if X_device_camera is None:
        raise InvalidValueError(
            f"{path} has poses of the device, and {video} is of its RGB camera: give that camera's pose in "
            "the "
            "device with extrinsic=FILE (the VRS file's calibration has it)"
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


def _check_gravity(path: Path, row: dict[str, str]) -> None:
    if any(name not in row for name in _GRAVITY):
        return
    down = np.array([float(row[name]) for name in _GRAVITY])
    if down[2] > -0.9 * float(np.linalg.norm(down)):
        raise InvalidValueError(f"{path}, line 2: gravity is {down}, a world with z up was expected")
