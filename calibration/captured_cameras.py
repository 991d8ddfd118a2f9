"""The cameras that a dataset's or a capture's images were taken with: `captured_cameras`.

DATASET/meta/capture/HASH.json    lenses, the TCP in the hand's camera (calibration/labels/export_lerobot.py)
DATASET's columns                 the chest camera and the robot's base, both in the room; images' sizes
CAPTURE/capture.json              lenses, the TCP; the chest's pitch and roll by gravity
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from scipy.spatial.transform import Rotation

from calibration.camera import CameraModel
from calibration.camera_match import CHEST, WRIST, MountedCamera, lens_apart_px
from calibration.capture.raw import RawCapture
from calibration.chain import angle_between, nearest_rotation
from calibration.chest import Mount
from calibration.labels.columns import CAMERA_OF
from calibration.labels.export_lerobot import META
from calibration.labels.joined import upright
from calibration.store import pose_from_json
from calibration.verdict import Reason
from robot_runtime.dataset.recording import BASE_POSES, PICTURES
from robot_runtime.dataset.stored import StoredDataset, array_of
from robot_runtime.errors import InvalidValueError

CHEST_DISTANCE_M = 0.6
"""Working distance of a chest camera whose hands are not labelled yet."""
_EPISODES = 20
_SAME_PX, _SAME_M, _SAME_DEG = 1.0, 0.003, 0.5
"""Differences between sessions of one rig that was calibrated again."""

Size = tuple[int, int]
"""(height, width) [pixels]"""


@dataclass(frozen=True, kw_only=True, eq=False)
class CapturedCamera:
    """One camera of the rig, at the size of its images in the dataset."""

    lens: CameraModel
    mount: str
    """`WRIST` or `CHEST`."""
    X_MC: pin.SE3 | None
    """In the end effector, or in the robot's base; None: a chest whose pose in the base is not labelled."""
    stance: Mount | None = None
    """In place of X_MC: pitch, roll and height; a height of NaN is unknown."""
    distance_m: float = CHEST_DISTANCE_M
    sway: tuple[float, float] | None = None
    """Standard deviation of a chest camera about X_MC, as the person leans and sways [m, rad]."""

    def mounted(self, X_MC_robot: pin.SE3) -> tuple[MountedCamera, tuple[Reason, ...]]:
        """With its pose; what of it is unknown is taken from the robot's camera, with a warning."""
        if self.X_MC is not None:
            return MountedCamera(lens=self.lens, X_MC=self.X_MC), ()
        assert self.stance is not None, "a camera has either"
        is_high = np.isfinite(self.stance.height_m)
        unknown = (
            "position and heading in the base" if is_high else "height, position and heading in the base"
        )
        reason = Reason(
            name="pose-unknown",
            what=f"of the captured chest camera only pitch and roll{' and height' if is_high else ''} are "
            f"known: its {unknown} are taken to be the robot's.",
            do="Label the capture, and match the dataset.",
            is_fatal=False,
        )
        return MountedCamera(lens=self.lens, X_MC=_standing(self.stance, X_MC_robot)), (reason,)


def captured_cameras(path: Path, size: Size | None = None) -> dict[str, CapturedCamera]:
    """Cameras of a dataset or a capture, by their names in datasets.

    size: of a capture's images once they are labelled, (height, width); None: as recorded.
    InvalidValueError: it is neither, was not made from a capture, has no images, or is of several rigs.
    """
    if (path / "capture.json").is_file():
        return _of_capture(RawCapture.open(path), size)
    data = StoredDataset(path)
    if size is not None:
        raise InvalidValueError(f"a size is for a capture; the images of {path} have theirs already")
    sizes = {
        name.removeprefix(f"{PICTURES}."): (
            int(data.features[name]["shape"][0]),
            int(data.features[name]["shape"][1]),
        )
        for name in data.cameras
    }
    files = sorted((path / META).glob("*.json"))
    if not files:
        raise InvalidValueError(
            f"{path} has no {META}: it was not made by capture label, so its cameras are unknown; match a "
            "dataset or capture of your rig"
        )
    if not sizes:
        raise InvalidValueError(
            f"{path} has no images: its policies look at no camera, so there is none to match"
        )
    rigs = {file.name: _rig(file, sizes) for file in files}
    _refuse_others(path, rigs)
    first = next(iter(rigs.values()))
    return {name: _of_dataset(data, name, first) for name in sizes}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Eye:
    lens: CameraModel
    X_HE: pin.SE3 | None


def _rig(file: Path, sizes: Mapping[str, Size]) -> dict[str, _Eye]:
    """Cameras by the provenance of one capture's labels."""
    try:
        devices = json.loads(file.read_text())["devices"]
        return {
            CAMERA_OF[role]: _eye(f"{file}: {role}", device, sizes[CAMERA_OF[role]])
            for role, device in devices.items()
            if CAMERA_OF.get(role) in sizes
        }
    except (OSError, KeyError, TypeError, AttributeError) as error:
        raise InvalidValueError(f"{file}: expected the provenance of labels, got {error!r}") from error
    except ValueError as error:
        if isinstance(error, InvalidValueError):
            raise
        raise InvalidValueError(f"{file}: expected JSON, {error}") from error


def _eye(where: str, device: Mapping[str, Any], size: Size) -> _Eye:
    if device["camera"] is None:
        raise InvalidValueError(
            f"{where} has no intrinsics: calibrate intrinsics, record or import the capture with them, and "
            "label it"
        )
    X_HE = device["pose_camera_tcp"]
    lens = CameraModel.from_dict(device["camera"]).stretched(size)
    return _Eye(lens=lens, X_HE=None if X_HE is None else pose_from_json(X_HE))


def _refuse_others(path: Path, rigs: Mapping[str, Mapping[str, _Eye]]) -> None:
    """InvalidValueError: captures of two rigs are in one dataset."""
    (first_file, first), *others = rigs.items()
    for file, rig in others:
        for name, eye in first.items():
            if (apart := "missing" if name not in rig else _apart(eye, rig[name])) != "":
                raise InvalidValueError(
                    f"{path} has captures of two rigs: the {name} camera of {file} is {apart} against that "
                    f"of {first_file} in {META}; label each rig's captures into a dataset of its own"
                )


def _apart(one: _Eye, other: _Eye) -> str:
    """How two cameras differ; empty: they are the same."""
    rays_px = lens_apart_px(one.lens, other.lens)
    middle_px = max(
        abs(getattr(one.lens, name) - getattr(other.lens, name)) for name in ("fx", "fy", "cx", "cy")
    )
    if not max(rays_px, middle_px) < _SAME_PX:
        return f"another lens, by {max(rays_px, middle_px):.1f} px,"
    if one.X_HE is None or other.X_HE is None:
        return ""
    shift = float(np.linalg.norm(one.X_HE.translation - other.X_HE.translation))
    turn = float(np.rad2deg(angle_between(one.X_HE.rotation, other.X_HE.rotation)))
    is_same = shift < _SAME_M and turn < _SAME_DEG
    return "" if is_same else f"moved by {1e3 * shift:.0f} mm and {turn:.1f} degrees"


def _of_dataset(data: StoredDataset, name: str, rig: Mapping[str, _Eye]) -> CapturedCamera:
    if name not in rig:
        raise InvalidValueError(f"{data.root} has images of {name}, and {META} has no such camera")
    if name != CAMERA_OF["chest"]:
        return _wrist(f"{data.root}: camera {name}", rig[name].lens, rig[name].X_HE)
    chest, hand_z, base = [], [], []
    step = max(1, len(data.episodes) // _EPISODES)
    for episode in data.episodes[::step][:_EPISODES]:
        table = data.table(episode)
        chest.append(array_of(table, "observation.pose_world_chest"))
        hand_z.append(array_of(table, "observation.pose_chest_hand")[:, 2])
        base.append(array_of(table, BASE_POSES))
    p, R = _in_base(np.concatenate(chest).astype(float), np.concatenate(base).astype(float))
    X_BC = pin.SE3(nearest_rotation(R.sum(axis=0)), np.median(p, axis=0))
    turns = Rotation.from_matrix(X_BC.rotation.T @ R).magnitude()
    sway = float(np.sqrt(((p - X_BC.translation) ** 2).sum(axis=1).mean())), float(np.sqrt((turns**2).mean()))
    distance_m = float(np.median(np.concatenate(hand_z)))
    return CapturedCamera(lens=rig[name].lens, mount=CHEST, X_MC=X_BC, distance_m=distance_m, sway=sway)


def _in_base(X_WC: np.ndarray, x_WB: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions (N, 3) and rotations (N, 3, 3) of the chest camera in the base.

    X_WC: (N, 7). x_WB: (N, 3).
    """
    kept = np.isfinite(X_WC).all(axis=1) & np.isfinite(x_WB).all(axis=1)
    X_WC, x_WB = X_WC[kept], x_WB[kept]
    back = Rotation.from_euler("z", -x_WB[:, 2:])
    p = back.apply(X_WC[:, :3] - np.column_stack([x_WB[:, :2], np.zeros(len(x_WB))]))
    return p, (back * Rotation.from_quat(X_WC[:, 3:], scalar_first=True)).as_matrix()


def _wrist(where: str, lens: CameraModel, X_HE: pin.SE3 | None) -> CapturedCamera:
    if X_HE is None:
        raise InvalidValueError(
            f"{where} has no TCP in its frame, so its pose on the gripper is unknown: calibrate tcp, and "
            "label with --tcp, or record with it"
        )
    return CapturedCamera(lens=lens, mount=WRIST, X_MC=X_HE.inverse(), distance_m=float(X_HE.translation[2]))


def _of_capture(capture: RawCapture, size: Size | None) -> dict[str, CapturedCamera]:
    out = {}
    for role, device in capture.devices.items():
        if device.video is None or device.info.size is None:
            continue
        where, name = f"{capture.path}: {role}", CAMERA_OF[role]
        declared = {"camera": device.info.camera, "pose_camera_tcp": None}
        eye = _eye(where, declared, size or device.info.size)
        if role != "chest":
            out[name] = _wrist(where, eye.lens, device.info.X_HE)
            continue
        level = upright(capture, device.poses)
        tall = capture.setup.more.get("chest_height_m")
        height = float(np.quantile(level.p[:, 2], 0.8))
        floor_z = float("nan") if tall is None else height - float(tall)
        stance = Mount.of_wearer(
            [level[i] for i in range(0, len(level), max(1, len(level) // 500))], floor_z=floor_z
        )
        out[name] = CapturedCamera(lens=eye.lens, mount=CHEST, X_MC=None, stance=stance)
    if not out:
        raise InvalidValueError(
            f"{capture.path} has no videos: its policies look at no camera, so there is none to match"
        )
    return out


def _standing(stance: Mount, X_GC: pin.SE3) -> pin.SE3:
    """A pose of this pitch, roll and height; heading, x and y (and an unknown height) are those of X_GC."""
    forward = X_GC.rotation[:, 2]
    heading = float(np.arctan2(forward[1], forward[0]))
    cos, sin = np.cos(stance.pitch), np.sin(stance.pitch)
    lower = np.clip(-np.sin(stance.roll) / max(cos, 1e-6), -1.0, 1.0)
    z = np.array([cos, 0.0, -sin])
    x = np.array([lower * sin, -np.sqrt(1.0 - lower * lower), lower * cos])
    R = pin.utils.rotate("z", heading) @ np.column_stack([x, np.cross(z, x), z])
    p = X_GC.translation.copy()
    if np.isfinite(stance.height_m):
        p[2] = stance.height_m
    return pin.SE3(R, p)
