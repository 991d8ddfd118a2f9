"""Frames: SE(2)/SE(3) helpers on top of `pinocchio.SE3`.

`X_AB` is the pose of B in A, and `X_AC = X_AB * X_BC`: adjacent letters match. Quaternions are wxyz, unit,
w >= 0 outside pinocchio (which keeps xyzw). Planar poses are `(x, y, yaw)` in m, m, rad.
"""

import math
from typing import Any

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.shapes import Float

TWO_PI = 2.0 * math.pi
PoseNumbers = tuple[float, float, float, float, float, float, float]
"""A pose as plain numbers: position (3) [m], unit quaternion wxyz (4)."""


def pose_from_quaternion(p_AB: np.ndarray, quat_AB: np.ndarray) -> pin.SE3:
    """`X_AB` from a position (3,) [m] and a quaternion (4,) wxyz (normalised here)."""
    quaternion = pin.Quaternion(*np.asarray(quat_AB, dtype=float).tolist())  # w first
    quaternion.normalize()
    return pin.SE3(quaternion, np.asarray(p_AB, dtype=float))


def pose_to_numbers(X_AB: pin.SE3) -> PoseNumbers:
    """Position (3) [m] and unit quaternion wxyz (4), w >= 0."""
    px, py, pz, x, y, z, w = pin.SE3ToXYZQUAT(X_AB).tolist()
    return (px, py, pz, -w, -x, -y, -z) if w < 0 else (px, py, pz, w, x, y, z)


def pose_from_numbers(numbers: PoseNumbers) -> pin.SE3:
    """`X_AB` from position (3) [m] and quaternion wxyz (4), normalised here."""
    px, py, pz, w, x, y, z = numbers
    norm = math.hypot(w, x, y, z)
    return pin.XYZQUATToSE3([px, py, pz, x / norm, y / norm, z / norm, w / norm])


def quaternion_from_rotation(R_AB: np.ndarray) -> Float[np.ndarray, "4"]:
    """Unit quaternion wxyz with w >= 0 of a rotation matrix (3, 3)."""
    x, y, z, w = pin.Quaternion(np.asarray(R_AB, dtype=float)).coeffs()
    quat = np.array([w, x, y, z])
    return -quat if w < 0 else quat


def rotation_from_6d(columns: Float[np.ndarray, "*n 6"]) -> Float[np.ndarray, "*n 3 3"]:
    """Rotations from their first two columns, made orthonormal by Gram-Schmidt (Zhou et al. 2019, eq. 15)."""
    a, b = columns[..., :3], columns[..., 3:]
    norm_a = np.sqrt((a * a).sum(axis=-1, keepdims=True))
    if not (norm_a >= 1e-9).all():
        raise ValueError(f"6D rotation needs a first column that is not zero, got {columns}")
    x = a / norm_a
    b = b - (x * b).sum(axis=-1, keepdims=True) * x
    norm_b = np.sqrt((b * b).sum(axis=-1, keepdims=True))
    if not (norm_b >= 1e-9).all():
        raise ValueError(f"6D rotation needs two independent columns, got {columns}")
    y = b / norm_b
    z = x[..., [1, 2, 0]] * y[..., [2, 0, 1]] - x[..., [2, 0, 1]] * y[..., [1, 2, 0]]
    return np.stack([x, y, z], axis=-1)


def rotation_to_6d(R_AB: Float[np.ndarray, "*n 3 3"]) -> Float[np.ndarray, "*n 6"]:
    """The first two columns of rotations, one after the other."""
    return R_AB[..., :2].swapaxes(-1, -2).reshape(*R_AB.shape[:-2], 6)


def wrap_angle[Angle: (float, np.ndarray)](angle: Angle) -> Angle:
    """The same angle, or each of many, in [-pi, pi) [rad]."""
    return (angle + math.pi) % TWO_PI - math.pi


def compose_planar(
    x_AB: Float[np.ndarray, "3"], x_BC: Float[np.ndarray, "*n 3"]
) -> Float[np.ndarray, "*n 3"]:
    """`x_AC = x_AB * x_BC` in SE(2), for one C or many; each (x, y, yaw)."""
    (x, y, yaw), (dx, dy, dyaw) = x_AB.tolist(), _numbers_or_columns(x_BC)
    c, s = math.cos(yaw), math.sin(yaw)
    return np.array([x + c * dx - s * dy, y + s * dx + c * dy, wrap_angle(yaw + dyaw)]).T


def turn_planar(v: np.ndarray, angle: float) -> np.ndarray:
    """A vector rotated about the vertical: its first two numbers are x and y, the others are unchanged."""
    c, s = math.cos(angle), math.sin(angle)
    x, y, *others = v.tolist()
    return np.array([c * x - s * y, s * x + c * y, *others])


def pose_from_planar(x_AB: np.ndarray) -> pin.SE3:
    """`X_AB` of a planar pose (x, y, yaw): on the floor, rotated about the vertical."""
    x, y, yaw = x_AB.tolist()
    c, s = math.cos(yaw), math.sin(yaw)
    return pin.SE3(np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]), np.array([x, y, 0.0]))


def inverse_planar(x_AB: np.ndarray) -> Float[np.ndarray, "3"]:
    """`x_BA` of `x_AB` in SE(2)."""
    x, y, yaw = x_AB.tolist()
    c, s = math.cos(yaw), math.sin(yaw)
    return np.array([-c * x - s * y, s * x - c * y, wrap_angle(-yaw)])


def interpolate_planar(
    x_0: Float[np.ndarray, "*n 3"], x_1: Float[np.ndarray, "*n 3"], alpha: float | Float[np.ndarray, "*n"]
) -> Float[np.ndarray, "*n 3"]:
    """Linear for x and y, the shorter way round for yaw; between two poses or many pairs."""
    (x, y, yaw), (x_to, y_to, yaw_to) = _numbers_or_columns(x_0), _numbers_or_columns(x_1)
    turned = wrap_angle(yaw + alpha * wrap_angle(yaw_to - yaw))
    return np.array([x + alpha * (x_to - x), y + alpha * (y_to - y), turned]).T


def _numbers_or_columns(x: np.ndarray) -> Any:
    """The plain floats of one pose, which are faster; the columns of many."""
    return x.tolist() if x.ndim == 1 else x.T


def integrate_twist(x_WB: np.ndarray, twist_B: np.ndarray, duration_s: float) -> Float[np.ndarray, "3"]:
    """Pose of the base after holding a body twist (vx, vy, wz) for a time: the SE(2) exponential."""
    vx, vy, wz = twist_B.tolist()
    angle = wz * duration_s
    if abs(angle) < 1e-9:
        a, b = duration_s, 0.5 * angle * duration_s
    else:
        a, b = math.sin(angle) / wz, (1.0 - math.cos(angle)) / wz
    return compose_planar(x_WB, np.array([a * vx - b * vy, b * vx + a * vy, angle]))
