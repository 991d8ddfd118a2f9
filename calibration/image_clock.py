"""Delay of a device's image stamps against its poses, from a board seen while moving: `image_clock`.

    poses      ──●──●──●──●──●──►          for the true dt, X_WC(t + dt) X_CB(t) of a stationary
    images     ────x───────x────►          board is the same in all images
                   |->| dt

The rotation-rate correlation joins the clocks of inertial sensors; an offset of the image stamps against
them shows only here, and only while the device moves.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.board_pose import pose_of
from calibration.camera import CameraModel
from calibration.capture.values import BoardCorners
from calibration.detection import Corners
from calibration.trajectory import LOST, Trajectory
from calibration.verdict import Reason
from robot_runtime.errors import InvalidValueError

MOST_OFF_NS = 15_000_000
"""Offset during which a hand at 0.7 m/s moves 10 mm."""
LONGEST_NS, FARTHEST_NS = 120_000_000, 500_000_000
"""Searched offsets between images and poses: first, and if that is not enough."""
LEAST_VIEWS, MOST_VIEWS, LEAST_CORNERS = 12, 60, 8
LEAST_TURN = 0.05
"""Mean rate [rad/s] over the views below which the offset is unobservable."""
_OUTLIER_PX = 2.0
_STEPS = np.array([1e-4] * 6 + [0.5])
"""Steps for derivatives [m, rad, ms]."""
_ITERATIONS, _ROUGHLY = 20, 4
_GRID_NS = 60_000_000
"""Spacing of the lags at which the wider search begins."""
_EXPLAINED = 0.3
"""Share of the errors that a far lag may leave; with more, the offset is not the fault."""
_EDGE_NS = 2_000_000
"""Distance to the end of the search within which a lag is unknown: it may lie beyond."""
_SMOOTHING = np.array([-2.0, 3.0, 6.0, 7.0, 6.0, 3.0, -2.0]) / 21.0


@dataclass(frozen=True, kw_only=True)
class ImageClock:
    """Offset of image stamps, from images of a board."""

    late_ns: int
    """An image with stamp t matches the pose at t + late_ns; negative: it is stamped too late."""
    sigma_ns: int
    rms_px: float
    """RMS of all corners with that offset; and without:"""
    rms_unmoved_px: float
    num_views: int
    is_beyond: bool = False
    """Whether no searched offset explains the images: `late_ns` and its sigma are then meaningless."""

    @property
    def reason(self) -> Reason | None:
        """The fault, if images and poses surely do not belong together."""
        if self.is_beyond:
            return Reason(
                name="pictures-off-poses",
                what="images and poses do not belong together: corners lie "
                f"{self.rms_unmoved_px:.1f} px off as stamped, and no shift of up to "
                f"{FARTHEST_NS / 1e6:.0f} ms explains them ({self.rms_px:.1f} px are left).",
                do="Import again with images' times by the clock of the poses; else the poses are of "
                "another device or another recording.",
            )
        if abs(self.late_ns) < max(MOST_OFF_NS, 4 * self.sigma_ns):
            return None
        return Reason(
            name="pictures-off-poses",
            what=f"images and poses are {self.late_ns / 1e6:+.0f} ms apart (sigma "
            f"{self.sigma_ns / 1e6:.1f} ms): "
            f"the board's corners lie {self.rms_unmoved_px:.1f} px off as stamped, {self.rms_px:.1f} px so.",
            do="Import again with images' times by the clock of the poses; exposure and readout may be in "
            "there.",
        )


def image_clock(board: Board, camera: CameraModel, corners: BoardCorners, poses: Trajectory) -> ImageClock:
    """Estimate the offset of image stamps.

    corners: of a stationary board, in images on the clock of the poses.
    InvalidValueError: too few views, hardly any motion, or no pose of the board explains them.
    """
    found = None
    with contextlib.suppress(InvalidValueError):
        found = _searched(board, camera, corners, poses, LONGEST_NS, (0,))
        if not found.is_beyond:
            return found
    starts = range(-FARTHEST_NS + _GRID_NS // 2, FARTHEST_NS, _GRID_NS)
    try:
        far = _searched(board, camera, corners, poses, FARTHEST_NS, (0, *starts))
    except InvalidValueError:  # or too few views lie far enough inside the poses
        if found is None:
            raise
        return found
    return replace(far, is_beyond=far.is_beyond or far.rms_px > _EXPLAINED * far.rms_unmoved_px)


def _searched(
    board: Board,
    camera: CameraModel,
    corners: BoardCorners,
    poses: Trajectory,
    longest_ns: int,
    starts_ns: Iterable[int],
) -> ImageClock:
    """Search lags up to longest_ns, from the best of several. InvalidValueError: see `image_clock`."""
    views = _views(corners, poses, longest_ns)
    poses = _smoothed(poses)
    t_ns = np.array([t for t, _, _ in views], dtype=np.int64)
    start = _board_in_world(board, camera, views, poses)
    points = [board.corners_B[ids] for _, ids, _ in views]
    seen = np.concatenate([uv for _, _, uv in views])

    def residuals(x: np.ndarray) -> np.ndarray:
        X_WB = start * pin.exp6(pin.Motion(x[:3], x[3:6]))
        moved = poses.sampled(t_ns + round(float(x[6]) * 1e6))
        p_W = [each @ X_WB.rotation.T + X_WB.translation for each in points]
        p_C = np.concatenate([(p - c) @ R for p, R, c in zip(p_W, moved.R, moved.p, strict=True)])
        return (camera.project(p_C) - seen).ravel()

    tried: list[np.ndarray] = []
    unmoved_px = float(np.hypot(*camera.size))
    for lag_ns in starts_ns:
        lag, rounds = [lag_ns / 1e6], _ROUGHLY if lag_ns else _ITERATIONS
        with contextlib.suppress(InvalidValueError):  # no pose of the board exists for that lag
            x, _ = _fitted(lambda x, lag=lag: residuals(np.append(x, lag)), _STEPS[:6], rounds=rounds)  # type: ignore[misc]
            tried.append(np.append(x, lag))
            if not lag_ns:
                unmoved_px = float(np.sqrt(np.mean(residuals(tried[-1]) ** 2)))
    if not tried:
        raise InvalidValueError("no pose of the board explains the images")
    begin = min(tried, key=lambda x: float(np.median(np.abs(residuals(x)))))
    most_ms = (longest_ns - _EDGE_NS) / 1e6
    found, information = _fitted(residuals, _STEPS, start=begin, most_ms=most_ms)
    rest = residuals(found)
    rms = float(np.sqrt(np.mean(rest**2)))
    # Errors of corners in one image are correlated: the number of images counts as independent samples.
    spread = rms**2 * len(seen) / len(views)
    sigma_ms = float(np.sqrt(np.linalg.pinv(information)[6, 6] * spread))
    return ImageClock(
        late_ns=round(float(found[6]) * 1e6),
        sigma_ns=max(50_000, round(sigma_ms * 1e6)),
        rms_px=rms,
        rms_unmoved_px=unmoved_px,
        num_views=len(views),
        is_beyond=abs(found[6]) >= most_ms,
    )


def _fitted(
    residuals: Callable[[np.ndarray], np.ndarray],
    steps: np.ndarray,
    *,
    start: np.ndarray | None = None,
    most_ms: float = 0.0,
    rounds: int = _ITERATIONS,
) -> tuple[np.ndarray, np.ndarray]:
    """(minimum of the robust sum of squares, its information there): Gauss-Newton with fixed steps, as times
    are whole nanoseconds and poses between them linear.

    InvalidValueError: it diverges.
    """
    x = np.zeros(len(steps)) if start is None else start
    for _ in range(rounds):
        rest = residuals(x)
        J = np.column_stack([(residuals(x + h) - residuals(x - h)) / (2.0 * h.sum()) for h in np.diag(steps)])
        weights = np.minimum(1.0, _OUTLIER_PX / np.maximum(np.abs(rest), 1e-12))
        information = J.T @ (weights[:, None] * J)
        if not (np.isfinite(information).all() and np.isfinite(rest).all()):
            raise InvalidValueError("no pose of the board explains the images")
        step = -np.linalg.solve(information + 1e-9 * np.diag(np.diag(information)), J.T @ (weights * rest))
        if len(x) == len(_STEPS):
            step[6] = np.clip(step[6], -20.0, 20.0)
        x = x + step
        if len(x) == len(_STEPS):
            x[6] = np.clip(x[6], -most_ms, most_ms)
        if (np.abs(step) < 1e-2 * steps).all():
            break
    return x, information


View = tuple[int, np.ndarray, np.ndarray]


def _views(corners: BoardCorners, poses: Trajectory, longest_ns: int) -> list[View]:
    """(time, ids, uv) of images with enough corners: those with the most and the least motion."""
    _, first = np.unique(corners.t_ns, return_index=True)
    edges = [*first.tolist(), len(corners.t_ns)]
    views = []
    for a, b in pairwise(edges):
        t_ns = int(corners.t_ns[a])
        is_inside = poses.t_ns[0] + longest_ns < t_ns < poses.t_ns[-1] - longest_ns
        if b - a >= LEAST_CORNERS and is_inside:
            views.append((t_ns, corners.corner[a:b], corners.uv[a:b]))
    if len(views) < LEAST_VIEWS:
        raise InvalidValueError(f"{len(views)} images show the board well, {LEAST_VIEWS} are needed")
    middles, speed = poses.angular_speed()
    turn = np.interp([v[0] - int(middles[0]) for v in views], (middles - middles[0]).astype(float), speed)
    rank = np.argsort(-turn)
    moving, still = rank[:MOST_VIEWS], rank[MOST_VIEWS:][::-1][: MOST_VIEWS // 2]
    if float(turn[moving].mean()) < LEAST_TURN:
        raise InvalidValueError("the board was looked at standing still: move while looking at it")
    # In motion in one direction alone, an offset looks like another pose of the board: still images fix it.
    return [views[i] for i in np.sort(np.concatenate([moving, still]))]


def _smoothed(poses: Trajectory) -> Trajectory:
    """Smooth by parabolas through 7 samples (Savitzky and Golay 1964). Noise between two samples is less than
    at them, so without it the fit would be best half a sample off, whatever the truth."""
    if len(poses) < len(_SMOOTHING):
        return poses
    signs = np.sign((poses.q[1:] * poses.q[:-1]).sum(axis=1))
    q = poses.q * np.concatenate([[1.0], np.cumprod(np.where(signs == 0.0, 1.0, signs))])[:, None]
    edge = len(_SMOOTHING) // 2
    out = np.hstack([poses.p, q])
    for column in out.T:
        column[edge:-edge] = np.convolve(column, _SMOOTHING, mode="valid")
    q = out[:, 3:] / np.linalg.norm(out[:, 3:], axis=1, keepdims=True)
    return Trajectory(t_ns=poses.t_ns, p=out[:, :3], q=q, tracking=poses.tracking)


def _board_in_world(board: Board, camera: CameraModel, views: Sequence[View], poses: Trajectory) -> pin.SE3:
    """Initial pose of the board, from the least ambiguous view."""
    best: tuple[float, pin.SE3] | None = None
    for t_ns, ids, uv in views[:: max(1, len(views) // 10)]:
        at = poses.sampled(np.array([t_ns], dtype=np.int64))
        if at.tracking[0] == LOST:
            continue
        found = pose_of(board, Corners(ids=ids, uv=uv, size=camera.size), camera)
        if best is None or found.ratio > best[0]:
            best = (found.ratio, at[0] * found.X_CB)
    if best is None:
        raise InvalidValueError("tracking was lost whenever the board was seen")
    return best[1]


def looks(corners: BoardCorners, spans: Sequence[tuple[int, int]]) -> list[BoardCorners]:
    """Corners of each span [begin, end), device's clock, in each of which the board is stationary."""
    out = []
    for begin_ns, end_ns in spans:
        rows = slice(*map(int, np.searchsorted(corners.t_ns, (begin_ns, end_ns))))
        out.append(
            BoardCorners(
                t_ns=corners.t_ns[rows],
                index=corners.index[rows],
                corner=corners.corner[rows],
                uv=corners.uv[rows],
            )
        )
    return [each for each in out if len(each.t_ns)]
