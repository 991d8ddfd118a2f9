"""ARKit data: a line of JSON for each ARFrame, as an app writes or streams them beside its video.

    {"timestamp": 1234.567, "transform": [16 numbers], "trackingState": "normal", "intrinsics": [9 numbers]}

timestamp [s] counts from boot; transform is ARCamera.transform and intrinsics ARCamera.intrinsics,
both column by column as in simd; trackingState is normal, limited or notAvailable. Lines of motion may be
interleaved: {"timestamp": ..., "rotationRate": [3], "acceleration": [3]}, in rad/s, and in g with gravity.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from calibration.camera import Pinhole
from calibration.capture.sources.axes import LATEST_NS, OPENGL, text_of, trajectory
from calibration.capture.sources.recording import Recording, read_video
from calibration.capture.values import DeviceInfo, Imu
from calibration.trajectory import LIMITED, LOST, OK
from robot_runtime.errors import InvalidValueError

TRACKING = {"normal": OK, "limited": LIMITED, "notAvailable": LOST}
G = 9.80665


def read_arkit(path: Path, video: Path | None = None) -> Recording:
    """Read ARFrames and, if given, their video.

    path: the lines; video: one image for each ARFrame, None: poses alone.
    InvalidValueError names file and line.
    """
    frames: list[tuple[int, dict[str, Any]]] = []
    motions: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(text_of(path).splitlines(), start=1):
        if not line.strip():
            continue
        fields = _line(path, number, line)
        (frames if "transform" in fields else motions).append((number, fields))
    if not frames:
        raise InvalidValueError(f"{path} has no line with a transform in it")
    t_ns = np.array([_ns(path, *each) for each in frames], dtype=np.int64)
    X = np.array([_transform(path, *each) for each in frames])
    tracking = np.array([_tracking(path, *each) for each in frames], dtype=np.uint8)
    q = Rotation.from_matrix(X[:, :3, :3]).as_quat(scalar_first=True)
    poses = trajectory(path, t_ns, X[:, :3, 3], q, axes=OPENGL, up="y", tracking=tracking)
    info = DeviceInfo(kind="arkit", source=f"{path.name}, ARKit")
    frames_ns = None
    if video is not None:
        seen = read_video(video)
        assert seen.frames_ns is not None
        if len(seen.frames_ns) != len(t_ns):
            raise InvalidValueError(
                f"{video} has {len(seen.frames_ns)} images, {path} has {len(t_ns)} ARFrames: expected "
                "one image for each"
            )
        frames_ns = t_ns
        camera = _camera(frames[0][1], seen.info.size)
        info = DeviceInfo(
            kind="arkit", size=seen.info.size, fps=seen.info.fps, camera=camera, source=f"{path.name}, ARKit"
        )
    return Recording(
        info=info,
        poses=poses,
        frames_ns=frames_ns,
        video=video,
        imu=_imu(path, motions),
        sources=(path,),
    )


def pose_of(fields: dict[str, Any], where: object, number: int) -> tuple[int, np.ndarray, int]:
    """Parse one line of a stream: (t_ns, X (4, 4) in ARKit's axes, tracking)."""
    path = Path(str(where))
    return _ns(path, number, fields), _transform(path, number, fields), _tracking(path, number, fields)


def _line(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"{path}, line {number}: expected JSON: {error}") from error
    if not isinstance(fields, dict) or "timestamp" not in fields:
        raise InvalidValueError(
            f"{path}, line {number}: expected an object with a timestamp, got {line[:60]}"
        )
    return fields


def _ns(path: Path, number: int, fields: dict[str, Any]) -> int:
    value = fields.get("timestamp")
    if not isinstance(value, int | float) or not abs(value) <= LATEST_NS / 1_000_000_000:
        raise InvalidValueError(f"{path}, line {number}: expected a timestamp in seconds, got {value!r:.40}")
    return round(value * 1_000_000_000)


def _transform(path: Path, number: int, fields: dict[str, Any]) -> np.ndarray:
    try:
        X = np.asarray(fields["transform"], dtype=float).reshape(4, 4).T  # columns one after the other
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidValueError(
            f"{path}, line {number}: expected 16 numbers of a transform: {error}"
        ) from error
    if np.abs(X[3] - [0.0, 0.0, 0.0, 1.0]).max() > 1e-3:
        raise InvalidValueError(
            f"{path}, line {number}: the last row of its transform is {X[3]}, expected 0 0 0 1: it is "
            "written row by row; write it column by column, as simd does"
        )
    if not np.isfinite(X).all() or np.abs(X[:3, :3] @ X[:3, :3].T - np.eye(3)).max() > 1e-2:
        raise InvalidValueError(f"{path}, line {number}: its transform is not a rotation and a translation")
    return X


def _tracking(path: Path, number: int, fields: dict[str, Any]) -> int:
    state = fields.get("trackingState", "normal")
    if not isinstance(state, str) or state not in TRACKING:
        raise InvalidValueError(
            f"{path}, line {number}: expected a trackingState of {', '.join(TRACKING)}, got {state!r:.40}"
        )
    return TRACKING[state]


def _camera(fields: dict[str, Any], size: tuple[int, int] | None) -> dict[str, Any] | None:
    if "intrinsics" not in fields or size is None:
        return None
    try:
        K = np.asarray(fields["intrinsics"], dtype=float).reshape(3, 3).T
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidValueError(
            f"expected intrinsics of 9 numbers, got {fields['intrinsics']!r:.60}"
        ) from error
    return Pinhole(
        size=size, fx=float(K[0, 0]), fy=float(K[1, 1]), cx=float(K[0, 2]) - 0.5, cy=float(K[1, 2]) - 0.5
    ).to_dict()


def _imu(path: Path, motions: list[tuple[int, dict[str, Any]]]) -> Imu | None:
    if not motions:
        return None
    try:
        w = np.array([fields["rotationRate"] for _, fields in motions], dtype=float)
        a = np.array([fields["acceleration"] for _, fields in motions], dtype=float)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidValueError(
            f"{path}, line {motions[0][0]} and similar lines: expected rotationRate and acceleration of 3 "
            f"numbers: {error}"
        ) from error
    t_ns = np.array([_ns(path, *each) for each in motions], dtype=np.int64)
    return Imu(t_ns=t_ns, w=w, a=-G * a)  # stationary, Core Motion's gravity points down; ours up
