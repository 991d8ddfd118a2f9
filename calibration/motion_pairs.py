"""AX = XB: the same motions, expressed in two frames fixed to each other: `solve_pairs`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pinocchio as pin

from calibration.chain import nearest_rotation
from robot_runtime.errors import InvalidValueError

SMALLEST_DEG, LARGEST_DEG = 1.0, 150.0
"""Smallest and largest rotations: smaller ones do not determine the axis, larger ones not its sign."""
PARALLEL = 0.05
"""Axes whose second direction has less than this share of the first one's size are parallel."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PairsFit:
    """X of A_i X = X B_i."""

    X: pin.SE3
    rotation_rad: float
    """RMS difference of the two axes of a motion given X."""
    translation_m: float
    """RMS difference of its translations."""
    angle_rad: float
    """RMS difference of the two angles of a motion, which is independent of X."""


def relative(poses: Sequence[pin.SE3], others: Sequence[pin.SE3]) -> list[tuple[pin.SE3, pin.SE3]]:
    """The motions between all pairs of views: A = Y_j^-1 Y_i and B = C_j C_i^-1, where Y_i X C_i is the same
    for all views."""
    return [
        (poses[j].inverse() * poses[i], others[j] * others[i].inverse())
        for i, j in combinations(range(len(poses)), 2)
    ]


def solve_pairs(pairs: Sequence[tuple[pin.SE3, pin.SE3]]) -> PairsFit:
    """The rotation that turns the axes of all B onto those of A (Park and Martin 1994; by SVD), then the
    position by linear least squares.

    InvalidValueError: no rotation, or all axes are parallel.
    """
    turns = [(pin.log3(A.rotation), pin.log3(B.rotation), A, B) for A, B in pairs]
    sizes = np.array([max(np.linalg.norm(a), np.linalg.norm(b)) for a, b, _, _ in turns])
    kept = (sizes > np.deg2rad(SMALLEST_DEG)) & (sizes < np.deg2rad(LARGEST_DEG))
    turns = [turn for turn, is_kept in zip(turns, kept, strict=True) if is_kept]
    if len(turns) < 2:
        raise InvalidValueError(
            f"at least two motions that turn by {SMALLEST_DEG:g} to {LARGEST_DEG:g} degrees are needed, got "
            f"{len(turns)}: turn the hand between the views, about two directions"
        )
    a, b = np.array([turn[0] for turn in turns]), np.array([turn[1] for turn in turns])
    for axes in (a, b):
        size = np.linalg.svd(axes, compute_uv=False)
        if size[1] < PARALLEL * size[0]:
            raise InvalidValueError(
                "all motions turn about the same direction, so the camera's position along it, and its "
                "rotation about it, are undetermined: turn the hand about a second direction as well"
            )
    R = nearest_rotation(a.T @ b)
    M = np.concatenate([A.rotation - np.eye(3) for _, _, A, _ in turns])
    v = np.concatenate([R @ B.translation - A.translation for _, _, A, B in turns])
    p = np.linalg.lstsq(M, v, rcond=None)[0]
    return PairsFit(
        X=pin.SE3(R, p),
        rotation_rad=_rms(a - b @ R.T),
        translation_m=_rms((M @ p - v).reshape(-1, 3)),
        angle_rad=float(np.sqrt(np.mean((np.linalg.norm(a, axis=1) - np.linalg.norm(b, axis=1)) ** 2))),
    )


def _rms(rows: np.ndarray) -> float:
    return float(np.sqrt((rows**2).sum(axis=1).mean()))
