"""A camera beside the arm that looks at a board on the end effector: `solve_robot_world`, AX = ZB."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pinocchio as pin

from calibration.arm_camera import ArmCamera
from calibration.camera import CameraModel
from calibration.chain import ArmView, nearest_rotation
from calibration.motion_pairs import relative, solve_pairs
from robot_runtime.errors import InvalidValueError


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class RobotWorld(ArmCamera):
    """Pose of a camera beside an arm, and of the board on its end effector."""

    KIND: ClassVar[str] = "robot_world"
    VERSION: ClassVar[int] = 1
    UNITS: ClassVar[Mapping[str, str]] = {
        "covariance": "of position [m] and a rotation vector [rad] in A, about the camera's own place"
    }
    FRAMES: ClassVar[Mapping[str, str]] = {
        "X_AC": "camera C (optical: x right, y down, z forward) in the frame A from which the arm's driver "
        "counts",
        "X_EB": "board B in the hand E, as the arm's driver has it",
    }

    X_AC: pin.SE3
    X_EB: pin.SE3


def solve_robot_world(views: Sequence[ArmView], camera: CameraModel) -> RobotWorld:
    """Solve for a camera beside the arm, with the board on the end effector.

    InvalidValueError: as `solve_hand_eye`.
    """
    return RobotWorld.of_views(views, camera, closed_form, is_on_arm=False)


def closed_form(Y: Sequence[pin.SE3], X_CB: Sequence[pin.SE3]) -> tuple[pin.SE3, pin.SE3]:
    """X and Z of Y X = Z X_CB^-1 at once: the rotations are the first pair of singular vectors of the sum of
    Kronecker products (Shah 2013), the translations follow by linear least squares.

    InvalidValueError: the motions between the views do not determine them.
    """
    solve_pairs(relative(Y, X_CB))  # refuses rotations about one direction only
    B = [C.inverse() for C in X_CB]
    K = sum(np.kron(b.rotation, a.rotation) for a, b in zip(Y, B, strict=True))
    U, _, Vt = np.linalg.svd(K)
    R_X, R_Z = _rotation(Vt[0]), _rotation(U[:, 0])
    M = np.concatenate([np.hstack([a.rotation, -np.eye(3)]) for a in Y])
    v = np.concatenate([R_Z @ b.translation - a.translation for a, b in zip(Y, B, strict=True)])
    translations, _, rank, _ = np.linalg.lstsq(M, v, rcond=None)
    if rank < 6:
        raise InvalidValueError(
            "the views do not determine the poses of camera and board: turn the hand more"
        )
    return pin.SE3(R_X, translations[:3]), pin.SE3(R_Z, translations[3:])


def _rotation(columns: np.ndarray) -> np.ndarray:
    """Rotation from nine numbers of any scale and sign, column by column."""
    M = columns.reshape(3, 3).T
    return nearest_rotation(M if np.linalg.det(M) > 0.0 else -M)
