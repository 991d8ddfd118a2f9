"""Rotations of many rows at once: as in `transforms`, without a loop over a chunk.

n rotations are matrices (n, 3, 3) or quaternions (n, 4), unit, wxyz, w >= 0.
"""

import numpy as np

from robot_runtime.core.values.fields import Rotation
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.transforms import rotation_from_6d, rotation_to_6d

STRAIGHT = 0.9999995
"""Cosine of half the angle between two rotations above which the geodesic is treated as a line."""


def rotations_from_quaternions(quats: Float[np.ndarray, "n 4"]) -> Float[np.ndarray, "n 3 3"]:
    """Rotation matrices; the quaternions are normalised here."""
    w, x, y, z = (quats / np.sqrt((quats * quats).sum(axis=1, keepdims=True))).T
    out = np.empty((len(quats), 3, 3))
    out[:, 0, 0], out[:, 1, 1], out[:, 2, 2] = (
        1 - 2 * (y * y + z * z),
        1 - 2 * (x * x + z * z),
        1 - 2 * (x * x + y * y),
    )
    out[:, 0, 1], out[:, 1, 0] = 2 * (x * y - w * z), 2 * (x * y + w * z)
    out[:, 0, 2], out[:, 2, 0] = 2 * (x * z + w * y), 2 * (x * z - w * y)
    out[:, 1, 2], out[:, 2, 1] = 2 * (y * z - w * x), 2 * (y * z + w * x)
    return out


def quaternions_from_rotations(rotations: Float[np.ndarray, "n 3 3"]) -> Float[np.ndarray, "n 4"]:
    """Unit quaternions with w >= 0.

    `4 q q^T` is linear in R; the row of its largest diagonal element is q up to its length (Shepperd 1978).
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = rotations.transpose(1, 2, 0)
    outer = np.empty((len(rotations), 4, 4))
    outer[:, 0, 0], outer[:, 1, 1] = 1 + xx + yy + zz, 1 + xx - yy - zz
    outer[:, 2, 2], outer[:, 3, 3] = 1 - xx + yy - zz, 1 - xx - yy + zz
    for i, j, value in (
        (0, 1, zy - yz),
        (0, 2, xz - zx),
        (0, 3, yx - xy),
        (1, 2, yx + xy),
        (1, 3, xz + zx),
        (2, 3, zy + yz),
    ):
        outer[:, i, j] = outer[:, j, i] = value
    largest = np.einsum("nii->ni", outer).argmax(axis=1)
    quats = outer[np.arange(len(outer)), largest]
    quats = quats / np.sqrt((quats * quats).sum(axis=1, keepdims=True))
    return np.where(quats[:, :1] < 0, -quats, quats)


def rotation_vectors(rotations: Float[np.ndarray, "n 3 3"]) -> Float[np.ndarray, "n 3"]:
    """The logarithm: axis times angle, at most half a turn [rad]."""
    quats = quaternions_from_rotations(rotations)
    sine = np.sqrt((quats[:, 1:] ** 2).sum(axis=1))
    angle = 2.0 * np.arctan2(sine, quats[:, 0])
    return quats[:, 1:] * np.divide(angle, sine, out=np.full(len(sine), 2.0), where=sine > 1e-9)[:, None]


def rotations_from_vectors(vectors: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3 3"]:
    """The exponential, of vectors of any length [rad]."""
    half = 0.5 * np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    return rotations_from_quaternions(np.hstack([np.cos(half), 0.5 * np.sinc(half / np.pi) * vectors]))


def continued(vectors: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """The same rotations, each as the vector that is nearest to the one before, without jumps at half a turn.

    A rotation by `angle` about an axis is one by `angle + 2 k pi`, too. The first vector stays.
    """
    out = vectors.copy()
    for i in range(1, len(out)):
        before, angle = out[i - 1], float(np.sqrt(out[i] @ out[i]))
        last = float(np.sqrt(before @ before))
        axis = out[i] / angle if angle > 1e-9 else before / max(last, 1e-9)
        out[i] = axis * (angle + 2.0 * np.pi * np.round((axis @ before - angle) / (2.0 * np.pi)))
    return out


def rotations_from_columns(columns: Float[np.ndarray, "n C"]) -> Float[np.ndarray, "n 3 3"]:
    """Rotations from an end effector's columns: six numbers, or a rotation vector. ValueError: six numbers
    are not a rotation."""
    return rotations_from_vectors(columns) if columns.shape[1] == 3 else rotation_from_6d(columns)


def rotations_to_columns(rotations: Float[np.ndarray, "n 3 3"], kind: Rotation) -> Float[np.ndarray, "n C"]:
    """Inverse of `rotations_from_columns`; vectors continue from the one before."""
    if kind is Rotation.VECTOR:
        return continued(rotation_vectors(rotations))
    return rotation_to_6d(rotations)


def slerp_rows(
    quats_0: Float[np.ndarray, "n 4"], quats_1: Float[np.ndarray, "n 4"], alpha: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "n 4"]:
    """Geodesics between unit quaternions: `quats_0` at alpha 0, `quats_1` at alpha 1."""
    dot = (quats_0 * quats_1).sum(axis=1)
    quats_1 = np.where(dot[:, None] < 0.0, -quats_1, quats_1)
    theta = np.arccos(np.minimum(np.abs(dot), 1.0))
    is_line = np.abs(dot) > STRAIGHT
    share_0 = np.where(is_line, 1.0 - alpha, np.sin((1.0 - alpha) * theta))
    share_1 = np.where(is_line, alpha, np.sin(alpha * theta))
    mixed = share_0[:, None] * quats_0 + share_1[:, None] * quats_1
    mixed = mixed / np.sqrt((mixed * mixed).sum(axis=1, keepdims=True))
    return np.where(mixed[:, :1] < 0, -mixed, mixed)


def turns_about_vertical(yaw: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 3 3"]:
    """Rotations about z."""
    out = np.zeros((len(yaw), 3, 3))
    out[:, 0, 0] = out[:, 1, 1] = np.cos(yaw)
    out[:, 1, 0] = np.sin(yaw)
    out[:, 0, 1] = -out[:, 1, 0]
    out[:, 2, 2] = 1.0
    return out
