"""Common misreadings of poses: `READINGS`, tried where images do not fit the poses.

A reading counts only if it explains the images within a few pixels; `explains` has the rule.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.transforms import pose_from_quaternion, pose_to_numbers

MOST_PX = 5.0
"""Largest error of corners in images up to 640 pixels wide; proportionally more in wider ones [pixels]."""
EXPLAINED = 0.3
"""Share of the error that a reading may leave."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A convention of poses that is easily mistaken for another."""

    poses: tuple[Callable[[pin.SE3], pin.SE3], ...]
    """Maps from a pose as read to the intended one; several where the mistake has variants."""
    what: str
    """The file's convention, as a clause."""


def explains(px: float, unread_px: float, width: int) -> bool:
    """Whether a reading that leaves px of unread_px was intended. width: of the images."""
    return px < EXPLAINED * unread_px and px <= MOST_PX * max(1.0, width / 640)


def _reordered(*order: int) -> Callable[[pin.SE3], pin.SE3]:
    def read(X: pin.SE3) -> pin.SE3:
        wxyz = pose_to_numbers(X)[3:]
        return pose_from_quaternion(X.translation, np.array([wxyz[i] for i in order]))

    return read


def _scaled(scale: float) -> Callable[[pin.SE3], pin.SE3]:
    return lambda X: pin.SE3(X.rotation, scale * X.translation)


def _turned(R: np.ndarray) -> Callable[[pin.SE3], pin.SE3]:
    return lambda X: pin.SE3(X.rotation @ R, X.translation)


def _mirrored(world: int, camera: int) -> Callable[[pin.SE3], pin.SE3]:
    """Mirror an axis of the world and one of the camera."""
    W, C = (np.diag(np.where(np.arange(3) == axis, -1.0, 1.0)) for axis in (world, camera))
    return lambda X: pin.SE3(W @ X.rotation @ C, W @ X.translation)


READINGS: Mapping[str, Reading] = {
    "quaternion-order": Reading(
        poses=(_reordered(3, 0, 1, 2),),
        what="the quaternions are x y z w and were read as w x y z",
    ),
    "quaternion-order-back": Reading(
        poses=(_reordered(1, 2, 3, 0),),
        what="the quaternions are w x y z and were read as x y z w",
    ),
    "inverse-poses": Reading(
        poses=(lambda X: X.inverse(),),
        what="the poses are those of the base or world in the device, not of the device in it",
    ),
    "millimetres": Reading(poses=(_scaled(1e-3),), what="the positions are in millimetres, not in metres"),
    "centimetres": Reading(poses=(_scaled(1e-2),), what="the positions are in centimetres, not in metres"),
    "camera-axes": Reading(
        poses=(
            _turned(np.diag([1.0, -1.0, -1.0])),
            _turned(np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])),
        ),
        what="the camera looks along -z with y up (ARKit, OpenGL) or along x with z up (ROS), not along z "
        "with y down",
    ),
    "left-handed": Reading(
        poses=tuple(_mirrored(world, camera) for world in range(3) for camera in range(3)),
        what="the poses are left-handed (Unity, Unreal)",
    ),
}
"""Name of the mistake in a verdict -> reading, the likeliest first."""
