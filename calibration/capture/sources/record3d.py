"""Record3D export, `NAME.r3d`: a zip of images with ARKit's data for each.

    metadata          JSON: w, h, fps, K (9 numbers, column by column), poses [[qx qy qz qw x y z] ...],
                      frameTimestamps [s], perFrameIntrinsicCoeffs [[fx fy cx cy] ...],
                      initPose [qx qy qz qw x y z]: pose of the first image in ARKit's world, where
                      poses are relative to that image
    rgbd/0.jpg ...    images (depth and confidence beside them are not read)

ARKit's camera has x right, y up, z back, its world y up. Pixels are counted from the corner of the first one.
"""

import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from simplejpeg import decode_jpeg

from calibration.camera import Pinhole
from calibration.capture.sources.axes import LATEST_NS, OPENGL, in_our_axes, trajectory
from calibration.capture.sources.recording import Recording, fps_of
from calibration.capture.values import DeviceInfo
from calibration.trajectory import Trajectory
from robot_runtime.errors import InvalidValueError

_NS = 1_000_000_000
MOST_METADATA, MOST_PICTURE = 256 << 20, 32 << 20
"""Largest unpacked files of the zip [bytes]: an hour of poses, an image of 48 million pixels."""
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, KeyError, OSError, EOFError, NotImplementedError, RuntimeError)
FOCAL_SPREAD = 0.01
"""Largest relative change of the focal length in one recording; beyond it, autofocus moved the lens."""


def read_record3d(path: Path) -> Recording:
    """Read an export. InvalidValueError: no such export, or it lacks poses, times or images."""
    try:
        with zipfile.ZipFile(path) as archive:
            metadata = json.loads(_member(path, archive, "metadata", MOST_METADATA))
            names = {
                name for name in archive.namelist() if name.startswith("rgbd/") and name.endswith(".jpg")
            }
            first = _picture(path, archive, 0) if "rgbd/0.jpg" in names else None
        if not isinstance(metadata, dict):
            raise ValueError("its metadata is no JSON object")
    except InvalidValueError:
        raise
    except (*_ZIP_ERRORS, ValueError, RecursionError) as error:
        raise InvalidValueError(
            f"{path} is no export of Record3D (a zip with 'metadata'): {error}"
        ) from error
    poses, times = _rows(path, metadata, "poses", 7), _rows(path, metadata, "frameTimestamps", None)
    count = min(len(poses), len(names))
    if first is None or count == 0 or len(times) != len(poses) or len(names) != len(poses):
        raise InvalidValueError(
            f"{path}: expected as many images as poses and times, got {len(names)}, {len(poses)} and "
            f"{len(times)}"
        )
    if np.abs(times).max() * _NS > LATEST_NS:
        raise InvalidValueError(f"{path}: expected frameTimestamps in seconds, got {times[0]:g}")
    t_ns = np.rint((times - times[0]) * _NS).astype(np.int64) + round(float(times[0]) * _NS)
    size = (first.shape[0] - first.shape[0] % 2, first.shape[1] - first.shape[1] % 2)
    info = DeviceInfo(
        kind="record3d",
        size=size,
        fps=float(metadata.get("fps") or fps_of(t_ns)),
        camera=_camera(path, metadata, first.shape[:2], size).to_dict(),
        source=f"{path.name}, Record3D",
    )
    return Recording(
        info=info,
        poses=_in_world(path, metadata, trajectory(path, t_ns, poses[:, 4:], poses[:, [3, 0, 1, 2]])),
        frames_ns=t_ns,
        pictures=lambda: _pictures(path, len(poses), size),
    )


def _in_world(path: Path, metadata: dict[str, Any], poses: Trajectory) -> Trajectory:
    """Convert poses to ARKit's world, whose y points up, and from there to our convention.

    Record3D has written poses in that world, and poses relative to the first image: the latter begin nearer
    to the identity than to `initPose`.
    """
    if metadata.get("initPose") is not None:
        start = _rows(path, metadata | {"initPose": [metadata["initPose"]]}, "initPose", 7)
        X_W0 = trajectory(f"{path}, initPose", poses.t_ns[:1], start[:, 4:], start[:, [3, 0, 1, 2]])[0]
        first = poses[0].rotation
        if np.linalg.norm(pin.log3(first)) < np.linalg.norm(pin.log3(X_W0.rotation.T @ first)):
            poses = poses.before(X_W0)
    return in_our_axes(poses, axes=OPENGL, up="y")


def _pictures(path: Path, count: int, size: tuple[int, int]) -> Iterator[np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        for i in range(count):
            yield _picture(path, archive, i)[: size[0], : size[1]]


def _picture(path: Path, archive: zipfile.ZipFile, i: int) -> np.ndarray:
    name = f"rgbd/{i}.jpg"
    try:
        return np.asarray(decode_jpeg(_member(path, archive, name, MOST_PICTURE)))
    except (*_ZIP_ERRORS, ValueError) as error:
        if isinstance(error, InvalidValueError):
            raise
        raise InvalidValueError(
            f"{path}, {name} cannot be read: {error}; export it again, or copy it from the device again"
        ) from error


def _member(path: Path, archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Unpack a file; InvalidValueError: it would be larger than anything that Record3D writes."""
    with archive.open(name) as file:
        out = file.read(most + 1)
    if len(out) > most:
        raise InvalidValueError(
            f"{path}: {name} unpacks to more than {most >> 20} MB, which no export of Record3D does"
        )
    return out


def _camera(path: Path, metadata: dict[str, Any], shown: tuple[int, ...], size: tuple[int, int]) -> Pinhole:
    """Intrinsics of the images, which may be larger than those that K is for."""
    each = np.asarray(metadata.get("perFrameIntrinsicCoeffs") or [], dtype=float)
    if each.ndim == 2 and each.shape[1] >= 4:
        fx, fy, cx, cy = np.median(each[:, :4], axis=0)
        if np.ptp(each[:, 0]) > FOCAL_SPREAD * fx:
            raise InvalidValueError(
                f"{path}: its focal length changed by {100 * np.ptp(each[:, 0]) / fx:.1f} % while it "
                "recorded: lock the focus, and record again"
            )
    else:
        K = _rows(path, metadata, "K", None)
        if len(K) != 9:
            raise InvalidValueError(f"{path}: expected K of 9 numbers in its metadata, got {len(K)}")
        fx, fy, cx, cy = K[0], K[4], K[6], K[7]
    sy, sx = shown[0] / float(metadata.get("h") or shown[0]), shown[1] / float(metadata.get("w") or shown[1])
    return Pinhole(
        size=size, fx=float(fx * sx), fy=float(fy * sy), cx=float(cx * sx) - 0.5, cy=float(cy * sy) - 0.5
    )


def _rows(path: Path, metadata: dict[str, Any], name: str, wide: int | None) -> np.ndarray:
    try:
        out = np.asarray(metadata[name], dtype=float)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidValueError(f"{path}: its metadata has no readable {name}: {error!r}") from error
    if out.ndim != (1 if wide is None else 2) or (wide is not None and out.shape[1] != wide):
        raise InvalidValueError(f"{path}: its metadata's {name} has shape {out.shape}, expected (N, {wide})")
    if not np.isfinite(out).all():
        raise InvalidValueError(f"{path}: its metadata's {name} has numbers that are not finite")
    return out
