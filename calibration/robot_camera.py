"""Lens and mount of a robot's camera, from its calibration file: `mounted`."""

from collections.abc import Mapping
from typing import Any

from calibration.camera import CameraModel, Intrinsics
from calibration.camera_match import WRIST, MountedCamera
from calibration.chest import ChestCamera
from calibration.hand_eye import HandEye, RobotWorld
from robot_runtime.errors import InvalidValueError

Calibration = Intrinsics | HandEye | RobotWorld | ChestCamera


def mounted(calibration: Calibration, mount: str) -> MountedCamera:
    """The camera in the end effector, or in the base. mount: `WRIST` or `CHEST`.

    InvalidValueError: the calibration is of another mount, of a lens alone, or without the lens.
    """
    match calibration:
        case HandEye(X_EC=X_MC, camera=lens) if mount == WRIST:
            return MountedCamera(lens=_lens(lens, "hand-eye"), X_MC=X_MC)
        case ChestCamera(X_GC=X_MC, camera=lens) if mount != WRIST:
            return MountedCamera(lens=_lens(lens, "chest"), X_MC=X_MC)
        case RobotWorld(X_AC=X_MC, camera=lens) if mount != WRIST:
            return MountedCamera(lens=_lens(lens, "robot-world"), X_MC=X_MC)
    wanted = "hand_eye, by calibrate hand-eye" if mount == WRIST else "chest_camera, by calibrate chest"
    raise InvalidValueError(
        f"expected a calibration with lens and pose in the {mount}, of kind {wanted}, got one of kind "
        f"{calibration.KIND}"
    )


def _lens(declared: Mapping[str, Any] | None, command: str) -> CameraModel:
    if declared is None:
        raise InvalidValueError(
            f"expected a calibration with the lens that it was made with, got one without: run calibrate "
            f"{command} again"
        )
    return CameraModel.from_dict(declared)
