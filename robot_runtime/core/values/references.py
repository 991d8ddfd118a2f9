"""Converts rows to absolute targets and back, by their reference (`Reference`).

absolute    the target itself
relative    counts from the state at the observation
delta       counts from the row before, the first from the state at the observation
"""

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.fields import Reference, Rotation
from robot_runtime.core.values.pose_rows import (
    quaternions_from_rotations,
    rotations_from_columns,
    rotations_to_columns,
    turns_about_vertical,
)
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import (
    compose_planar,
    inverse_planar,
    wrap_angle,
)


def resolve_vectors(rows: np.ndarray, reference: Reference, origin: np.ndarray) -> np.ndarray:
    """Rows (n, N) of numbers as targets; `origin` (N,) is their reference. ValueError: it has another N."""
    if reference is Reference.ABSOLUTE:
        return rows
    if origin.shape != rows.shape[1:]:
        raise ValueError(f"relative rows of {rows.shape[1]} columns on an anchor of shape {origin.shape}")
    return origin + (rows if reference is Reference.RELATIVE else np.cumsum(rows, axis=0))


def encode_vectors(targets: np.ndarray, reference: Reference, origin: np.ndarray) -> np.ndarray:
    """Inverse of `resolve_vectors`."""
    if reference is Reference.ABSOLUTE:
        return targets
    if reference is Reference.RELATIVE:
        return targets - origin
    return np.diff(targets, axis=0, prepend=origin[None])


def _anchor_hand(anchor: RobotState, part: str) -> pin.SE3:
    X_BE = anchor.hand(part)
    if X_BE is None:
        raise ValueError("end-effector rows relative to the observation need X_BE in the robot state")
    return X_BE


def resolve_poses(
    rows: np.ndarray, reference: Reference, anchor: RobotState, part: str
) -> tuple[np.ndarray, np.ndarray]:
    """End-effector rows, position and rotation (6 or 3), as positions (n, 3) and quaternions (n, 4) in B."""
    p, R = rows[:, :3], rotations_from_columns(rows[:, 3:])
    if reference is Reference.RELATIVE:
        origin = _anchor_hand(anchor, part)
        p, R = origin.translation + p @ origin.rotation.T, origin.rotation @ R
    elif reference is Reference.DELTA:
        origin, p = _anchor_hand(anchor, part), p.copy()
        p_BE, R_BE = origin.translation, origin.rotation
        for i in range(len(rows)):
            p[i], R[i] = p_BE, R_BE = p_BE + R_BE @ p[i], R_BE @ R[i]
    return p, quaternions_from_rotations(R)


def encode_poses(
    p: np.ndarray,
    R: np.ndarray,
    reference: Reference,
    anchor: RobotState,
    part: str,
    rotation: Rotation = Rotation.COLUMNS,
) -> list[np.ndarray]:
    """Inverse of `resolve_poses`, from rotation matrices (n, 3, 3): columns of positions and rotations."""
    if reference is not Reference.ABSOLUTE:
        origin = _anchor_hand(anchor, part)
        p_0, R_0 = origin.translation, origin.rotation
        if reference is Reference.DELTA:
            p_0, R_0 = np.vstack([p_0, p[:-1]]), np.concatenate([R_0[None], R[:-1]])
        R_0 = np.broadcast_to(R_0, R.shape).transpose(0, 2, 1)
        p, R = turned(R_0, p - p_0), R_0 @ R
    return [p, rotations_to_columns(R, rotation)]


def turned(rotations: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Every vector (n, 3) rotated by its rotation (n, 3, 3)."""
    return (rotations @ vectors[:, :, None])[:, :, 0]


def bases_when_due(
    x_WB: np.ndarray | None, anchor: RobotState, part: str, num_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Position and rotation of the base when rows are due: from `x_WB`, or else from the observation."""
    if x_WB is None:
        x_WB = np.tile(_anchor_base(anchor, part), (num_rows, 1))
    p_WB = np.column_stack([x_WB[:, :2], np.zeros(len(x_WB))])
    return p_WB, turns_about_vertical(x_WB[:, 2])


def _anchor_base(anchor: RobotState, part: str) -> np.ndarray:
    x_WB = anchor.base(part).x_WB
    if x_WB is None:
        raise ValueError("base rows relative to the observation, and hands in the world, need x_WB")
    return x_WB


def resolve_planar(rows: np.ndarray, reference: Reference, anchor: RobotState, part: str) -> np.ndarray:
    """Rows (n, 3) of a base, x, y and yaw, as targets in W."""
    if reference is Reference.ABSOLUTE:
        return rows
    origin = _anchor_base(anchor, part)
    if reference is Reference.RELATIVE:
        return compose_planar(origin, rows)
    out = []
    for row in rows:
        origin = compose_planar(origin, row)
        out.append(origin)
    return np.array(out)


def encode_planar(targets: np.ndarray, reference: Reference, anchor: RobotState, part: str) -> np.ndarray:
    """Inverse of `resolve_planar`; an absolute yaw is at most half a turn from the anchor's."""
    if reference is Reference.ABSOLUTE:
        x_WB = anchor.base(part).x_WB
        near = 0.0 if x_WB is None else x_WB[2]
        return np.column_stack([targets[:, :2], near + wrap_angle(targets[:, 2] - near)])
    inverse = inverse_planar(_anchor_base(anchor, part))
    if reference is Reference.RELATIVE:
        return compose_planar(inverse, targets)
    out = []
    for target in targets:
        out.append(compose_planar(inverse, target))
        inverse = inverse_planar(target)
    return np.array(out)
