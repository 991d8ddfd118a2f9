"""Pose of a board from its corners in one image: `pose_of`.

A flat board seen almost from the front, or from afar, has two poses that explain an image almost equally,
tilted to either side. Both are kept; callers with more data (gravity, other views) may choose.
"""

from dataclasses import dataclass
from typing import final

import cv2
import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.camera import CameraModel
from calibration.detection import LEAST_CORNERS, Corners
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

AMBIGUOUS_BELOW = 3.0
"""Ratio of the two poses' errors below which they are ambiguous."""
_NOISE_PX = 0.05
"""Error below which it does not determine which pose is right."""
_STEPS = 20


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class BoardPose:
    """The pose that explains an image best, and the second one."""

    X_CB: pin.SE3
    rms_px: float
    """RMS error of its corners [pixels]."""
    other_X_CB: pin.SE3 | None
    """The second pose; None: every start converges to the first."""
    other_rms_px: float
    """RMS error of the second pose [pixels]; infinite without one."""
    distance_m: float
    """Distance from the camera to the middle of the corners [m]."""
    tilt: float
    """Angle between the board's normal and the line of sight to there; 0 is frontal [rad]."""
    covariance: Float[np.ndarray, "6 6"]
    """Covariance of [translation, rotation vector], each in C, about the middle of the corners, for corners
    with independent errors of 1 pixel [m, rad]."""

    @property
    def ratio(self) -> float:
        """Error of the second pose over that of the first."""
        return float(self.other_rms_px / max(self.rms_px, _NOISE_PX))

    @property
    def is_ambiguous(self) -> bool:
        """Whether this image alone does not determine which of the two is right."""
        return self.ratio < AMBIGUOUS_BELOW


def pose_of(board: Board, corners: Corners, camera: CameraModel) -> BoardPose:
    """The board's pose in the camera's frame.

    InvalidValueError: the image has another size than the camera, fewer than 6 corners, all corners in one
    line, or no point that the lens could see.
    """
    if corners.size != camera.size:
        raise InvalidValueError(
            f"the camera was calibrated at {camera.size[1]}x{camera.size[0]} pixels, and the image has "
            f"{corners.size[1]}x{corners.size[0]}"
        )
    p_B = board.corners_B[corners.ids]
    if len(corners) < LEAST_CORNERS or np.linalg.matrix_rank(p_B[:, :2] - p_B[0, :2], tol=1e-9) < 2:
        raise InvalidValueError(f"{len(corners)} corners, or all in one line, are too few for a pose")
    found = [refined(camera, p_B, corners.uv, X_CB) for X_CB in _starts(camera, p_B, corners.uv)]
    found.sort(key=lambda each: each[1])
    if not found or not np.isfinite(found[0][1]):
        raise InvalidValueError("no pose of the board explains its corners")
    X_CB, rms = found[0]
    others = [each for each in found[1:] if np.isfinite(each[1]) and not _is_same(X_CB, each[0])]
    middle = X_CB.act(p_B.mean(axis=0))
    normal = X_CB.rotation[:, 2]
    distance = float(np.linalg.norm(middle))
    return BoardPose(
        X_CB=X_CB,
        rms_px=rms,
        other_X_CB=others[0][0] if others else None,
        other_rms_px=others[0][1] if others else float("inf"),
        distance_m=distance,
        tilt=float(np.arccos(np.clip(abs(normal @ middle) / distance, 0.0, 1.0))),
        covariance=_covariance(camera, X_CB, p_B),
    )


def projection(
    camera: CameraModel, p_C: Float[np.ndarray, "N 3"]
) -> tuple[Float[np.ndarray, "N 2"], Float[np.ndarray, "N 2 3"]]:
    """Projections of points in C [m] to [pixels], and their derivatives [pixels/m]."""
    step = 1e-6 * np.linalg.norm(p_C, axis=1)
    moved = np.concatenate([p_C + step[:, None] * e for e in (*np.eye(3), *-np.eye(3))])
    uv = camera.project(np.concatenate([p_C, moved]))
    at, ahead, behind = uv[: len(p_C)], uv[len(p_C) : 4 * len(p_C)], uv[4 * len(p_C) :]
    slope = (ahead - behind).reshape(3, -1, 2) / (2 * step)[None, :, None]
    return at, slope.transpose(1, 2, 0)


def refined(
    camera: CameraModel, p_B: Float[np.ndarray, "N 3"], uv: Float[np.ndarray, "N 2"], X_CB: pin.SE3
) -> tuple[pin.SE3, float]:
    """The nearest pose with the least reprojection error, and its rms [pixels]: Levenberg-Marquardt."""
    damping, best = 1e-4, _cost(camera, p_B, uv, X_CB)
    for _ in range(_STEPS):
        if not np.isfinite(best):
            return X_CB, float("inf")
        at, J = _jacobian(camera, X_CB, p_B)
        r = (uv - at).ravel()
        H, g = J.T @ J, J.T @ r
        step = np.linalg.solve(H + damping * np.diag(np.diag(H)), g)
        moved = pin.SE3(pin.exp3(step[3:]) @ X_CB.rotation, X_CB.translation + step[:3])
        if (cost := _cost(camera, p_B, uv, moved)) < best:
            gain, X_CB, best, damping = best - cost, moved, cost, max(damping / 10, 1e-12)
            if gain < 1e-8 * best or best < 1e-16:
                break
        else:
            damping *= 10
            if damping > 1.0:
                break
    return X_CB, float(np.sqrt(best / len(p_B)))


def _cost(camera: CameraModel, p_B: np.ndarray, uv: np.ndarray, X_CB: pin.SE3) -> float:
    """Sum of squared distances [pixels^2]; infinite if a point is not seen."""
    off = camera.project(p_B @ X_CB.rotation.T + X_CB.translation) - uv
    return float((off * off).sum()) if np.isfinite(off).all() else float("inf")


def _jacobian(camera: CameraModel, X_CB: pin.SE3, p_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pixels, and their Jacobian by [translation, rotation vector about the board's origin], both in C."""
    arm = p_B @ X_CB.rotation.T
    at, slope = projection(camera, arm + X_CB.translation)
    turned = np.cross(np.eye(3)[None], arm[:, None, :])  # d(exp(w) arm)/dw_k = e_k x arm
    J = np.concatenate([slope, slope @ turned.transpose(0, 2, 1)], axis=2)
    return at, J.reshape(-1, 6)


def _covariance(camera: CameraModel, X_CB: pin.SE3, p_B: np.ndarray) -> np.ndarray:
    middle = p_B.mean(axis=0)
    about = pin.SE3(X_CB.rotation, X_CB.act(middle))
    _, J = _jacobian(camera, about, p_B - middle)
    return np.linalg.pinv(J.T @ J)


def _starts(camera: CameraModel, p_B: np.ndarray, uv: np.ndarray) -> list[pin.SE3]:
    """Both poses of IPPE, in a frame facing the corners, where any lens is a pinhole."""
    rays = camera.unproject(uv)
    rays, p_B = rays[ok := np.isfinite(rays).all(axis=1)], p_B[ok]
    if len(rays) < 4:
        return []
    z = rays.mean(axis=0)
    R_CV = np.asarray(
        pin.Quaternion.FromTwoVectors(np.array([0.0, 0.0, 1.0]), z / np.linalg.norm(z)).matrix()
    )
    rays_V = rays @ R_CV
    if (rays_V[:, 2] < 0.05).any():
        return []
    xy = np.ascontiguousarray(rays_V[:, :2] / rays_V[:, 2:])
    middle = p_B.mean(axis=0)
    try:
        _, turns, translations, _ = cv2.solvePnPGeneric(
            p_B - middle, xy[:, None], np.eye(3), None, flags=cv2.SOLVEPNP_IPPE
        )
    except cv2.error:
        return []
    out = []
    for turn, translation in zip(turns, translations, strict=True):
        R_CB = R_CV @ pin.exp3(turn.ravel())
        if translation.ravel()[2] > 0.0 and np.isfinite(R_CB).all():
            out.append(pin.SE3(R_CB, R_CV @ translation.ravel() - R_CB @ middle))
    return out


def _is_same(a: pin.SE3, b: pin.SE3) -> bool:
    return float(np.linalg.norm(pin.log3(a.rotation.T @ b.rotation))) < np.deg2rad(0.5)
