"""Finds patterns in the errors of a calibrated camera's corners: `pattern_of`.

Errors of corners should be independent. A pattern has a cause that the camera model has no parameter for:

    along the radius, the same in all views    the lens is of another model
    along the rows of the image              a rolling shutter, while camera or board moved
    along the board                            the sheet is bent, or its print is stretched
    smooth over each view                      one of these, or something else

Each cause is fitted together with the camera and the poses, to first order, and counts if it explains more
than noise would.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.board_pose import projection
from calibration.bundle import Bundle, slopes
from calibration.camera import CameraModel
from calibration.detection import Corners

_RINGS = 8
"""Rings of the image from its principal point to its farthest corner, each with its own radial error."""
_SURE = 10.0
"""Standard deviations of noise beyond which a cause counts as present."""


@dataclass(frozen=True, kw_only=True)
class Unmodelled:
    """Errors that one cause explains."""

    explained_px: float
    """RMS of the explained errors, less what it would explain of noise."""
    ratio: float
    """Explained error per parameter over noise: 1 if the cause is absent (F statistic)."""
    num: int
    """Number of its parameters."""

    @property
    def is_sure(self) -> bool:
        """Whether it explains more than noise would."""
        return self.ratio > 1.0 + _SURE * float(np.sqrt(2.0 / self.num))


Cause = Callable[[CameraModel, pin.SE3, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Camera, X_CB of a view, its corners on the board (N, 3) [m] and where they should be seen (N, 2) [pixels]:
slopes of the latter (2 N, K) by numbers that all views share, and by numbers of this view."""


def unmodelled(board: Board, views: Sequence[Corners], bundle: Bundle, cause: Cause) -> Unmodelled:
    """Fit one cause to the errors. views: those of the bundle."""
    without, with_it = [], []
    num_shared = num_own = 0
    for view, X in zip(views, bundle.X_CB, strict=True):
        p_B = board.corners_B[view.ids]
        at, by_pose, by_camera = slopes(bundle.camera, X, p_B, bundle.free)
        shared, own = cause(bundle.camera, X, p_B, at)
        r = (view.uv - at).ravel()
        without.append((r, by_camera, by_pose))
        with_it.append((r, np.hstack([by_camera, shared]), np.hstack([by_pose, own])))
        num_shared, num_own = shared.shape[1], num_own + own.shape[1]
    num = num_shared + num_own
    left_0, left = _least(without), _least(with_it)
    rows = 2 * sum(map(len, views))
    noise = left / max(rows - 6 * len(views) - len(bundle.free) - num, 1)
    gain = max(left_0 - left, 0.0)
    return Unmodelled(
        explained_px=float(np.sqrt(max(gain - num * noise, 0.0) / (rows / 2))),
        ratio=float(gain / num / max(noise, 1e-12)),
        num=num,
    )


def _least(views: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> float:
    """Residual sum of squares of linear least squares.

    views: for each its errors, and their Jacobians by shared parameters and by its own.
    """
    size = views[0][1].shape[1]
    H, g, left = np.zeros((size, size)), np.zeros(size), 0.0
    for r, shared, own in views:
        U, sizes, _ = np.linalg.svd(own / np.maximum(np.linalg.norm(own, axis=0), 1e-12), full_matrices=False)
        U = U[:, sizes > 1e-6 * sizes[0]]
        r, shared = r - U @ (U.T @ r), shared - U @ (U.T @ shared)
        H, g, left = H + shared.T @ shared, g + shared.T @ r, left + float(r @ r)
    scale = np.sqrt(np.maximum(np.diag(H), 1e-30))
    x = np.linalg.lstsq(H / np.outer(scale, scale), g / scale, rcond=1e-12)[0] / scale
    return left - float(g @ x)


def radial(
    camera: CameraModel, X_CB: pin.SE3, p_B: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """An error along the radius, another one in each ring of the image."""
    out = at - (camera.cx, camera.cy)
    r = np.linalg.norm(out, axis=1)
    knots = np.linspace(0.0, np.hypot(*camera.size) / 2, _RINGS)
    rings = np.array([np.interp(r, knots, each) for each in np.eye(_RINGS)[1:]]).T
    shared = (out / np.maximum(r, 1e-9)[:, None])[:, :, None] * rings[:, None, :]
    return shared.reshape(2 * len(at), -1), _none(at)


def skew(
    camera: CameraModel, X_CB: pin.SE3, p_B: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows are shifted to the right the more the lower they are, the same in all views."""
    return _by_row(camera, at)[:, :1], _none(at)


def rolling_shutter(
    camera: CameraModel, X_CB: pin.SE3, p_B: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows are shifted to the right and down the more the lower they are, at another speed in each view."""
    return _none(at), _by_row(camera, at)


def bent(
    camera: CameraModel, X_CB: pin.SE3, p_B: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The sheet is bent along x, along y and diagonally, the same in all views."""
    x, y, _ = p_B.T
    return _along(camera, X_CB, p_B, [np.outer(z, [0, 0, 1]) for z in (x * x, x * y, y * y)]), _none(at)


def stretched(
    camera: CameraModel, X_CB: pin.SE3, p_B: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The print is longer along x than along y, or skewed."""
    x, y, _ = p_B.T
    return _along(camera, X_CB, p_B, [np.outer(each, [1, 0, 0]) for each in (x, y)]), _none(at)


def smooth(
    camera: CameraModel, X_CB: pin.SE3, p_B: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Any error that is a quadratic of the position on the board, another one in each view."""
    x, y, _ = p_B.T
    return _none(at), np.kron(np.stack([x, y, x * x, x * y, y * y], axis=1), np.eye(2))


def _by_row(camera: CameraModel, at: np.ndarray) -> np.ndarray:
    return np.kron((at[:, 1:] - camera.cy) / camera.size[0], np.eye(2))


def _along(camera: CameraModel, X_CB: pin.SE3, p_B: np.ndarray, moves: Sequence[np.ndarray]) -> np.ndarray:
    """Slopes of corners that are moved on the board, each (N, 3) in B."""
    _, slope = projection(camera, p_B @ X_CB.rotation.T + X_CB.translation)
    columns = [np.einsum("nij,nj->ni", slope, each @ X_CB.rotation.T).ravel() for each in moves]
    return np.stack(columns, axis=1)


def _none(at: np.ndarray) -> np.ndarray:
    return np.zeros((2 * len(at), 0))


CAUSES: dict[str, Cause] = {
    "skew": skew,
    "stretched": stretched,
    "bent": bent,
    "radial": radial,
    "rolling-shutter": rolling_shutter,
    "smooth": smooth,
}
"""Causes by name, those with the fewest parameters first."""
_NEAR = 0.9
"""A cause that explains this share of what any other does, with fewer numbers, is the more likely."""


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A pattern of the errors, by its likeliest cause."""

    cause: str
    px: float
    """RMS of the pattern over corners."""

    @property
    def may_be_lens(self) -> bool:
        """Whether another model of the lens might explain it."""
        return self.cause in ("radial", "smooth")


def pattern_of(board: Board, views: Sequence[Corners], bundle: Bundle) -> Pattern | None:
    """Find a pattern in the errors; None: they are noise."""
    found = {name: unmodelled(board, views, bundle, cause) for name, cause in CAUSES.items()}
    sure = {name: each.explained_px for name, each in found.items() if each.is_sure}
    if not sure:
        return None
    cause = next(name for name, px in sure.items() if px >= _NEAR * max(sure.values()))
    return Pattern(cause=cause, px=sure[cause])
