"""Joins both odometries' worlds by all corners of all views: `fit`.

Unknowns are the board in the chest's world, X_WcB, and the anchor X_WcWh; odometry's poses are fixed.
The chest sees a corner through X_CWc X_WcB, and the hand through X_HWh X_WcWh^-1 X_WcB. Gauss-Newton
with Huber weights, on steps [translation, rotation vector] from the left about the board's origin, in W_c.

Errors of corners in one image are correlated (odometry, blur, the lens), so the covariance comes from
resampling blocks of views, not from counting corners.
"""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pinocchio as pin

from calibration.anchor_views import View
from calibration.board import Board
from calibration.board_pose import projection
from calibration.camera import CameraModel
from robot_runtime.core.values.shapes import Float, Int

BOARD, PLACE, TILT, YAW, SCALE = slice(0, 6), slice(6, 9), slice(9, 11), slice(11, 12), slice(12, 13)
"""Columns of a step: X_WcB (6); the anchor's translation (3), tilt (2) and yaw; the board's scale."""
_ROUNDS, _HUBER = 12, 1.345
_RESAMPLES = 400
_BLOCKS = 16
_NUMBERS = 4
"""Free columns of a level anchor."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Watched:
    """All corners that one device saw, concatenated."""

    camera: CameraModel
    is_hand: bool
    p_B: Float[np.ndarray, "M 3"]
    uv: Float[np.ndarray, "M 2"]
    view: Int[np.ndarray, " M"]
    """Index of each corner's view."""
    R_CW: Float[np.ndarray, "V 3 3"]
    p_CW: Float[np.ndarray, "V 3"]
    t_ns: Int[np.ndarray, " V"]

    @classmethod
    def of(cls, board: Board, camera: CameraModel, views: tuple[View, ...], *, is_hand: bool) -> "Watched":
        inverses = [view.X_WC.inverse() for view in views]
        return cls(
            camera=camera,
            is_hand=is_hand,
            p_B=np.concatenate([board.corners_B[view.corners.ids] for view in views]),
            uv=np.concatenate([view.corners.uv for view in views]),
            view=np.repeat(np.arange(len(views)), [len(view.corners) for view in views]),
            R_CW=np.array([X.rotation for X in inverses]),
            p_CW=np.array([X.translation for X in inverses]),
            t_ns=np.array([view.t_ns for view in views], dtype=np.int64),
        )

    def only(self, views: np.ndarray) -> "Watched":
        """The corners of the views that a mask selects."""
        number = np.cumsum(views) - 1
        keep = views[self.view]
        return replace(
            self, p_B=self.p_B[keep], uv=self.uv[keep], view=number[self.view[keep]],
            R_CW=self.R_CW[views], p_CW=self.p_CW[views], t_ns=self.t_ns[views],
        )  # fmt: skip

    def blocks(self, most: int = 16) -> Int[np.ndarray, " V"]:
        """Block of neighbouring views of each view: 6 to 16 blocks of about five."""
        num = len(self.t_ns)
        return np.arange(num) * min(max(num // 5, 6), most, num) // num

    def pixels(self, X_WB: pin.SE3) -> Float[np.ndarray, "M 2"]:
        """Projections of its corners for a pose of the board in this device's world."""
        p_W = self.p_B @ X_WB.rotation.T + X_WB.translation
        p_C = np.einsum("nij,nj->ni", self.R_CW[self.view], p_W) + self.p_CW[self.view]
        return self.camera.project(p_C)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """The poses on which all views agree best."""

    X_WcB: pin.SE3
    X_WcWh: pin.SE3
    rms_px: tuple[float, float]
    """RMS of the chest's and of the hand's corners, per coordinate pair [pixels]."""
    view_rms_px: tuple[np.ndarray, np.ndarray]


def fit(chest: Watched, hand: Watched, X_WcB: pin.SE3, X_WcWh: pin.SE3, *, is_level: bool) -> Fit:
    """Fit board and anchor to all corners.

    X_WcB, X_WcWh: initial guess.
    is_level: both worlds are gravity-aligned: the anchor is a yaw and a translation.
    """
    columns = _free(is_level=is_level)
    for _ in range(_ROUNDS):
        J, r, weight = _stacked(chest, hand, X_WcB, X_WcWh, columns)
        H = J.T @ (weight[:, None] * J)
        step = np.zeros(13)
        step[columns] = np.linalg.lstsq(H, J.T @ (weight * r), rcond=None)[0]
        X_WcB, X_WcWh = _moved(X_WcB, X_WcWh, step)
        if np.abs(step[:12]).max() < 1e-9:
            break
    rms, by_view = [], []
    for watched in (chest, hand):
        off = (watched.uv - _seen(watched, X_WcB, X_WcWh)[0]) ** 2
        sums = np.bincount(watched.view, off.sum(axis=1)) / np.bincount(watched.view)
        rms.append(float(np.sqrt(off.sum(axis=1).mean())))
        by_view.append(np.sqrt(sums))
    return Fit(X_WcB=X_WcB, X_WcWh=X_WcWh, rms_px=(rms[0], rms[1]), view_rms_px=(by_view[0], by_view[1]))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """Uncertainty of a fit."""

    covariance: Float[np.ndarray, "6 6"]
    """Covariance of [translation, rotation vector] of the anchor, from the left about the board's origin, in
    W_c; the tilt of a level fit is 0."""
    scale: float
    """Size of the board by odometry over its declared size."""
    scale_sigma: float


def spread(
    chest: Watched, hand: Watched, found: Fit, *, is_level: bool, focal_sigma: tuple[float, float]
) -> Spread:
    """Estimate the uncertainty by resampling blocks of views, plus that of the focal lengths.

    focal_sigma: standard deviations of the chest's and the hand's, as a share.
    """
    columns = _free(is_level=is_level)
    J, r, weight = _stacked(chest, hand, found.X_WcB, found.X_WcWh, columns)
    blocks = _block_of_rows(chest, hand, _BLOCKS)
    covariance = _widest(
        [_resampled(J, r, weight, _block_of_rows(chest, hand, most)) for most in (_BLOCKS, 6)]
    )
    for watched, sigma in zip((chest, hand), focal_sigma, strict=True):
        if sigma:
            camera = replace(
                watched.camera, fx=watched.camera.fx * (1 + sigma), fy=watched.camera.fy * (1 + sigma)
            )
            other = replace(watched, camera=camera)
            pair = (other, hand) if watched is chest else (chest, other)
            moved = _stacked(*pair, found.X_WcB, found.X_WcWh, columns)[1] - r
            step = np.linalg.lstsq(J.T @ (weight[:, None] * J), J.T @ (weight * moved), rcond=None)[0]
            covariance = covariance + np.outer(step, step)
    whole = np.zeros((13, 13))
    whole[np.ix_(columns, columns)] = covariance
    with_scale = np.append(columns, 12)
    J, r, weight = _stacked(chest, hand, found.X_WcB, found.X_WcWh, with_scale)
    step = np.linalg.lstsq(J.T @ (weight[:, None] * J), J.T @ (weight * r), rcond=None)[0]
    of_scale = _resampled(J, r - J @ step, weight, blocks)[-1, -1]
    return Spread(
        covariance=whole[6:12, 6:12], scale=1.0 + float(step[-1]), scale_sigma=float(np.sqrt(of_scale))
    )


def _free(*, is_level: bool) -> np.ndarray:
    return np.r_[0:9, 11] if is_level else np.arange(12)


def _seen(watched: Watched, X_WcB: pin.SE3, X_WcWh: pin.SE3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pixels; their derivative by the point in W_c (or in the anchor's image of it); that point."""
    x = watched.p_B @ X_WcB.rotation.T + X_WcB.translation
    in_world, R_WWc = x, np.eye(3)
    if watched.is_hand:
        R_WWc = X_WcWh.rotation.T
        in_world = (x - X_WcWh.translation) @ X_WcWh.rotation
    R = watched.R_CW[watched.view]
    at, slope = projection(watched.camera, np.einsum("nij,nj->ni", R, in_world) + watched.p_CW[watched.view])
    return at, slope @ R @ R_WWc, x


def _stacked(
    chest: Watched, hand: Watched, X_WcB: pin.SE3, X_WcWh: pin.SE3, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Jacobian by the free columns, residuals and weights: two rows per corner, the chest's first."""
    out = []
    for watched in (chest, hand):
        at, slope, x = _seen(watched, X_WcB, X_WcWh)
        arm = x - X_WcB.translation
        J = np.zeros((len(x), 2, 13))
        J[:, :, 0:3] = slope
        J[:, :, 3:6] = slope @ np.cross(np.eye(3)[None], arm[:, None, :]).transpose(0, 2, 1)
        if watched.is_hand:
            J[:, :, 6:12] = -J[:, :, 0:6]
        J[:, :, 12] = np.einsum("nij,nj->ni", slope, arm)
        r = watched.uv - at
        r[~np.isfinite(r).all(axis=1)] = 0.0
        out.append((np.nan_to_num(J).reshape(-1, 13)[:, columns], r.ravel(), np.repeat(_weights(r), 2)))
    J, r, weight = (np.concatenate(each) for each in zip(*out, strict=True))
    return J, r, weight


def _weights(r: np.ndarray) -> np.ndarray:
    """Huber weight of each corner, in units of this device's typical error."""
    size = np.linalg.norm(r, axis=1)
    scale = max(float(np.median(size)) / 1.1774, 1e-6)  # of two normal coordinates
    return np.asarray(np.minimum(1.0, _HUBER * 1.5 * scale / np.maximum(size, 1e-12)) / scale**2)


def _block_of_rows(chest: Watched, hand: Watched, most: int) -> np.ndarray:
    """Block of each row of the Jacobian; the hand's blocks are numbered after the chest's."""
    first = chest.blocks(most)
    both = (first[chest.view], hand.blocks(most)[hand.view] + first.max() + 1)
    return np.repeat(np.concatenate(both), 2)


def _resampled(J: np.ndarray, r: np.ndarray, weight: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Covariance of the step under resampling of blocks with replacement.

    Every block's gradient is first scaled to its value in a fit without it (leave one out).
    """
    num = int(blocks.max()) + 1
    size = J.shape[1]
    H, g = np.zeros((num, size, size)), np.zeros((num, size))
    for b in range(num):
        rows = blocks == b
        Jw = weight[rows, None] * J[rows]
        H[b], g[b] = J[rows].T @ Jw, Jw.T @ r[rows]
    whole = H.sum(axis=0)
    lever = np.linalg.pinv(whole)
    pulls = np.array([_without(whole, H[b], g[b]) for b in range(num)]) @ lever
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(num, np.full(num, 1.0 / num), size=_RESAMPLES)
    steps = (drawn - 1.0) @ pulls
    free = num - 2.0
    few = free / max(free - _NUMBERS - 1.0, 1.0)  # the spread of few blocks is itself uncertain (Hotelling)
    return np.asarray(steps.T @ steps / len(steps) * few)


def _widest(covariances: list[np.ndarray]) -> np.ndarray:
    """The widest covariance of short and long blocks: only long ones show drift (Flyvbjerg and Petersen)."""
    first, *others = covariances
    for other in others:
        if np.mean(np.diag(other) / np.maximum(np.diag(first), 1e-30)) > 1.0:
            first = other
    return first


def _without(whole: np.ndarray, H: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Gradient p of a block in a fit of all others, from g = (1 - H / whole) p."""
    return np.asarray(whole @ np.linalg.lstsq(whole - H, g, rcond=None)[0])


def _moved(X_WcB: pin.SE3, X_WcWh: pin.SE3, step: np.ndarray) -> tuple[pin.SE3, pin.SE3]:
    o = X_WcB.translation.copy()

    def turned(X: pin.SE3, d: np.ndarray) -> pin.SE3:
        R = pin.exp3(d[3:])
        return pin.SE3(R @ X.rotation, o + d[:3] + R @ (X.translation - o))

    return turned(X_WcB, step[:6]), turned(X_WcWh, step[6:12])
