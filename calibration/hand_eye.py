"""A camera on the arm's end effector that looks at a stationary board: `solve_hand_eye`, AX = XB."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import pinocchio as pin

from calibration.arm_camera import ArmCamera
from calibration.camera import CameraModel
from calibration.chain import ArmView, mean_pose
from calibration.motion_pairs import relative, solve_pairs


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HandEye(ArmCamera):
    """Mounting pose of a camera on an arm's end effector."""

    KIND: ClassVar[str] = "hand_eye"
    VERSION: ClassVar[int] = 1
    UNITS: ClassVar[Mapping[str, str]] = {
        "covariance": "of position [m] and a rotation vector [rad] in E, about the camera's own place"
    }
    FRAMES: ClassVar[Mapping[str, str]] = {
        "X_EC": "camera C (optical: x right, y down, z forward) in the hand E, as the arm's driver has it",
        "X_AB": "board B in the frame A from which the arm's driver counts",
    }

    X_EC: pin.SE3
    X_AB: pin.SE3


def solve_hand_eye(views: Sequence[ArmView], camera: CameraModel) -> HandEye:
    """Solve the camera's pose on the end effector.

    views: 3 at least; ten or more, turned about two directions by 20 degrees and more, give a good verdict.
    InvalidValueError: too few, all axes parallel, or no image in which the board's tilt is unambiguous.
    """
    return HandEye.of_views(views, camera, closed_form, is_on_arm=True)


def closed_form(Y: Sequence[pin.SE3], X_CB: Sequence[pin.SE3]) -> tuple[pin.SE3, pin.SE3]:
    """X from the motions between views, Z as the mean over the views given X."""
    X = solve_pairs(relative(Y, X_CB)).X
    return X, mean_pose([Y_i * X * C_i for Y_i, C_i in zip(Y, X_CB, strict=True)])
