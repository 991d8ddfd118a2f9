"""Bundle adjustment of a camera's parameters and the board's poses over all views: `adjusted`.

Gauss-Newton with Huber weights; the poses of the views are eliminated (Schur), so the cost of a step is
linear in the views. It serves every camera model, as derivatives by its parameters are finite differences.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import final

import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.board_pose import projection
from calibration.camera import CameraModel
from calibration.detection import Corners
from robot_runtime.core.values.shapes import Float

_ROUNDS = 30
_FOCALS = ("fx", "fy")
_HUBER_PX = 2.0
"""Huber threshold in units of the median error."""
_FOCAL_WEIGHT = 1.0
"""Weight of the squared logarithm of a focal length over its initial value [pixels^2]. Views that determine
it weigh 10^4 and more; with others it would diverge to a pixel or to infinity."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Bundle:
    """Camera, poses, and residuals."""

    camera: CameraModel
    X_CB: tuple[pin.SE3, ...]
    off: tuple[Float[np.ndarray, "N 2"], ...]
    """Observed minus projected corners of each view [pixels]."""
    covariance: Float[np.ndarray, "K K"]
    """Covariance of the free parameters in the order of `free`, if errors of views are independent."""
    free: tuple[str, ...]

    @property
    def rms_px(self) -> float:
        """RMS error of corners, both coordinates together."""
        return float(np.sqrt((np.concatenate(self.off) ** 2).sum(axis=1).mean()))

    def sigma(self, name: str) -> float:
        """Standard deviation of one parameter."""
        return float(np.sqrt(self.covariance[(i := self.free.index(name)), i]))


def adjusted(
    board: Board,
    views: Sequence[Corners],
    camera: CameraModel,
    X_CB: Sequence[pin.SE3],
    free: tuple[str, ...],
) -> Bundle:
    """Fit a camera and the poses of all views.

    camera, X_CB: initial guess; a pose for each view.
    free: names of the camera's parameters to fit; the others are fixed.
    """
    points = [board.corners_B[view.ids] for view in views]
    poses, damping, start = list(X_CB), 1e-6, camera
    cost, weights = _cost(views, points, camera, poses, None)
    for _ in range(_ROUNDS):
        step, steps, _ = _step(views, points, camera, poses, weights, free, damping, start)
        try:
            moved = replace(camera, **{n: getattr(camera, n) + d for n, d in zip(free, step, strict=True)})
        except ValueError:
            damping *= 10
            continue
        turned = [
            pin.SE3(pin.exp3(d[3:]) @ X.rotation, X.translation + d[:3])
            for X, d in zip(poses, steps, strict=True)
        ]
        new, _ = _cost(views, points, moved, turned, weights)
        new, was = new + _strayed(moved, start), cost + _strayed(camera, start)
        if new < was:
            is_done = was - new < 1e-7 * was
            camera, poses, damping = moved, turned, max(damping / 10, 1e-12)
            cost, weights = _cost(views, points, camera, poses, None)
            if is_done:
                break
        else:
            damping *= 10
            if damping > 1e8:
                break
    _, _, covariance = _step(views, points, camera, poses, weights, free, 0.0, None)
    off = tuple(
        view.uv - camera.project(p @ X.rotation.T + X.translation)
        for view, p, X in zip(views, points, poses, strict=True)
    )
    return Bundle(camera=camera, X_CB=tuple(poses), off=off, covariance=covariance, free=free)


def _cost(
    views: Sequence[Corners],
    points: Sequence[np.ndarray],
    camera: CameraModel,
    poses: Sequence[pin.SE3],
    weights: Sequence[np.ndarray] | None,
) -> tuple[float, list[np.ndarray]]:
    """Weighted sum of squares, by given weights or by Huber weights of these errors; and the weights."""
    off = [
        np.linalg.norm(view.uv - camera.project(p @ X.rotation.T + X.translation), axis=1)
        for view, p, X in zip(views, points, poses, strict=True)
    ]
    every = np.concatenate(off)
    if not np.isfinite(every).all():
        return float("inf"), []
    if weights is None:
        most = _HUBER_PX * max(float(np.median(every)), 1e-9)
        weights = [np.minimum(1.0, most / np.maximum(each, 1e-12)) for each in off]
    return float(sum((w * each**2).sum() for w, each in zip(weights, off, strict=True))), list(weights)


def _strayed(camera: CameraModel, start: CameraModel) -> float:
    """Cost of focal lengths that differ from their initial values [pixels^2]."""
    return _FOCAL_WEIGHT * sum(
        float(np.log(getattr(camera, name) / getattr(start, name))) ** 2 for name in _FOCALS
    )


def _step(
    views: Sequence[Corners],
    points: Sequence[np.ndarray],
    camera: CameraModel,
    poses: Sequence[pin.SE3],
    weights: Sequence[np.ndarray],
    free: tuple[str, ...],
    damping: float,
    start: CameraModel | None,
) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Steps of the camera and of each pose; the camera's covariance by the scatter of views.

    start: camera whose focal lengths are preferred; None: no preference.
    """
    num = len(free)
    H, g = np.zeros((num, num)), np.zeros(num)
    for i, name in enumerate(free):
        if start is not None and name in _FOCALS:
            f = getattr(camera, name)
            H[i, i] = _FOCAL_WEIGHT / f**2
            g[i] = -_FOCAL_WEIGHT * np.log(f / getattr(start, name)) / f
    kept, pulls = [], []
    for view, p, X, weight in zip(views, points, poses, weights, strict=True):
        at, Jp, Jc = slopes(camera, X, p, free)
        w = np.repeat(weight, 2)
        r = (view.uv - at).ravel()
        Hpp = Jp.T @ (w[:, None] * Jp)
        Hpp += damping * np.diag(np.diag(Hpp))
        Hcp = Jc.T @ (w[:, None] * Jp)
        gain = np.linalg.solve(Hpp, Hcp.T).T
        gp, gc = Jp.T @ (w * r), Jc.T @ (w * r)
        H += Jc.T @ (w[:, None] * Jc) - gain @ Hcp.T
        pulls.append(gc - gain @ gp)
        g += pulls[-1]
        kept.append((Hpp, Hcp, gp))
    scale = np.sqrt(np.maximum(np.diag(H), 1e-30))
    scaled = H / np.outer(scale, scale) + damping * np.eye(num)
    step = np.linalg.lstsq(scaled, g / scale, rcond=1e-12)[0] / scale
    steps = [np.linalg.solve(Hpp, gp - Hcp.T @ step) for Hpp, Hcp, gp in kept]
    lever = np.linalg.pinv(scaled, rcond=1e-12) / np.outer(scale, scale)
    scatter = np.array(pulls) @ lever
    few = len(views) / max(len(views) - num, 1)
    return step, steps, scatter.T @ scatter * few


def slopes(
    camera: CameraModel, X_CB: pin.SE3, p_B: np.ndarray, free: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pixels (N, 2), and their Jacobians by pose (2 N, 6) and by the camera's free parameters (2 N, K)."""
    arm = p_B @ X_CB.rotation.T
    at, slope = projection(camera, arm + X_CB.translation)
    turned = np.cross(np.eye(3)[None], arm[:, None, :])
    Jp = np.concatenate([slope, slope @ turned.transpose(0, 2, 1)], axis=2).reshape(-1, 6)
    return at, Jp, _by_numbers(camera, arm + X_CB.translation, free)


def _by_numbers(camera: CameraModel, p_C: np.ndarray, free: tuple[str, ...]) -> np.ndarray:
    columns = []
    for name in free:
        value = getattr(camera, name)
        d = 1e-4 if name[0] in "fc" else 1e-6
        ahead, behind = (replace(camera, **{name: value + s * d}).project(p_C) for s in (1, -1))
        columns.append(((ahead - behind) / (2 * d)).ravel())
    return np.stack(columns, axis=1)


def numbers_of(camera: CameraModel) -> tuple[str, ...]:
    """Names of all parameters of a camera."""
    return tuple(f.name for f in fields(camera) if f.name != "size")
