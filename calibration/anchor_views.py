"""Selects views of a board that agree, and the right one of a view's two poses: `agreed`.

A device's odometry gives its camera's pose; with the board's pose in each image that gives the board in the
device's world, once for each of the two poses. The right ones agree from view to view, the flipped ones do
not. Views of which neither agrees (odometry jumped, the board moved) are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.board_pose import BoardPose, pose_of
from calibration.camera import CameraModel
from calibration.detection import LEAST_CORNERS, Corners
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

_NEAR_M, _NEAR_SHARE, _NEAR_RAD = 0.03, 0.04, np.deg2rad(5.0)
"""Differences below which views agree: metres and a share of the distance, radians."""
_MOST_REFERENCES = 60
FASTEST = float(np.deg2rad(8.0))
"""Speed of turning above which the board is blurred [rad/s]."""
MOST_RMS_PX = 3.0
"""Largest rms of a single view; above it, its corners are not the board's, or the camera is another one."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """Corners of the board in one image, and the camera's pose."""

    t_ns: int
    """Mid-exposure, on the device's own clock."""
    corners: Corners
    X_WC: pin.SE3
    """The camera's optical frame in the world of the device's odometry, at that time."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceViews:
    """Views of the board by one device, in order of time."""

    camera: CameraModel
    views: Sequence[View]
    focal_sigma: float = 0.0
    """Relative standard deviation of its focal length; 0: exact. Adds to the anchor's covariance."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Agreed:
    """Views of one device that agree on the board's pose."""

    views: tuple[View, ...]
    poses: tuple[BoardPose, ...]
    X_WB: tuple[pin.SE3, ...]
    """The board in the device's world by each view, from the one of its two poses that agrees."""
    mean: pin.SE3
    num_given: int
    num_flipped: int
    """Number of views whose second pose was the right one."""
    rejected: tuple[tuple[int, pin.SE3], ...]
    """Time [ns] and X_WB of views that had a pose and agree with no other."""

    @property
    def tilts(self) -> Float[np.ndarray, " N"]:
        return np.array([pose.tilt for pose in self.poses])


def agreed(board: Board, device: DeviceViews, name: str) -> Agreed:
    """Select the views that agree. InvalidValueError: no view shows the board well enough for a pose."""
    seen = []
    for view in device.views:
        if len(view.corners) < LEAST_CORNERS:
            continue
        try:
            pose = pose_of(board, view.corners, device.camera)
        except InvalidValueError as error:
            if view.corners.size != device.camera.size:
                raise InvalidValueError(f"{name}: {error}") from error
            continue
        if pose.rms_px <= MOST_RMS_PX:
            seen.append((view, pose))
    if not seen:
        raise InvalidValueError(
            f"{name}: no valid view of the board among {len(device.views)} images: check that it is the "
            f"right board, in view and sharp, and its camera the right one"
        )
    both = [_candidates(view, pose) for view, pose in seen]
    reference = _most_agreed(both)
    chosen = [_nearest(reference, each) for each in both]
    for _ in range(3):
        near = [c for c in chosen if c is not None]
        reference = mean_pose([X for X, _ in near])
        chosen = [_nearest(reference, each) for each in both]
    kept = [(view, pose, c) for (view, pose), c in zip(seen, chosen, strict=True) if c is not None]
    return Agreed(
        views=tuple(view for view, _, _ in kept),
        poses=tuple(pose for _, pose, _ in kept),
        X_WB=tuple(c[0] for _, _, c in kept),
        mean=mean_pose([c[0] for _, _, c in kept]),
        num_given=len(device.views),
        num_flipped=sum(c[1] == 1 for _, _, c in kept),
        rejected=tuple(
            (view.t_ns, each[0][0])
            for (view, _), c, each in zip(seen, chosen, both, strict=True)
            if c is None
        ),
    )


def mean_pose(poses: Sequence[pin.SE3]) -> pin.SE3:
    """Mean of poses near each other: mean position, and the rotation nearest to the mean matrix."""
    u, _, vt = np.linalg.svd(np.mean([X.rotation for X in poses], axis=0))
    R = u @ np.diag([1.0, 1.0, np.linalg.det(u @ vt)]) @ vt
    return pin.SE3(R, np.mean([X.translation for X in poses], axis=0))


def apart(a: pin.SE3, b: pin.SE3) -> tuple[float, float]:
    """Difference of two poses: [m], [rad]."""
    turn = float(np.linalg.norm(pin.log3(a.rotation.T @ b.rotation)))
    return float(np.linalg.norm(a.translation - b.translation)), turn


def _candidates(view: View, pose: BoardPose) -> list[tuple[pin.SE3, float]]:
    poses = [pose.X_CB] if pose.other_X_CB is None else [pose.X_CB, pose.other_X_CB]
    if pose.other_rms_px > 20 * max(pose.rms_px, 0.1):
        poses = poses[:1]
    return [(view.X_WC * X_CB, _NEAR_M + _NEAR_SHARE * pose.distance_m) for X_CB in poses]


def _nearest(reference: pin.SE3, candidates: Sequence[tuple[pin.SE3, float]]) -> tuple[pin.SE3, int] | None:
    """The candidate that agrees best, and its index; None: neither agrees."""
    found = []
    for i, (X, near_m) in enumerate(candidates):
        far_m, far_rad = apart(reference, X)
        if far_m < near_m and far_rad < _NEAR_RAD:
            found.append((far_m / near_m + far_rad / _NEAR_RAD, i, X))
    if not found:
        return None
    _, i, X = min(found, key=lambda each: each[0])
    return X, i


def _most_agreed(both: Sequence[Sequence[tuple[pin.SE3, float]]]) -> pin.SE3:
    every = [X for each in both for X, _ in each]
    some = every[:: max(1, len(every) // _MOST_REFERENCES)]
    return max(some, key=lambda X: sum(_nearest(X, each) is not None for each in both))
