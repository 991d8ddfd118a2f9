"""Image pairs of the board that both devices took at the same time: `pairs_of`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import pinocchio as pin

from calibration.anchor_fit import Spread
from calibration.anchor_views import DeviceViews, View, apart, mean_pose
from calibration.board import Board
from calibration.board_pose import pose_of
from calibration.detection import LEAST_CORNERS
from robot_runtime.errors import InvalidValueError

_SAME_NS = 20_000_000
_NEAR_M, _NEAR_RAD = 0.05, np.deg2rad(4.0)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """Anchors of the pairs that agree with the others, in order of time."""

    anchors: tuple[pin.SE3, ...]
    X_WcB: tuple[pin.SE3, ...]

    def __len__(self) -> int:
        return len(self.anchors)

    def mean(self) -> pin.SE3:
        return mean_pose(self.anchors)

    def apart_from(self, X_WcWh: pin.SE3, X_WcB: pin.SE3) -> tuple[float, float]:
        """Difference of the mean from another anchor, at the board: [m], [rad]."""
        there = self.mean() * X_WcWh.inverse()
        o = X_WcB.translation
        return float(np.linalg.norm(there.act(o) - o)), float(np.linalg.norm(pin.log3(there.rotation)))

    def spread(self) -> Spread:
        """Uncertainty of the mean, from the scatter of blocks of five pairs."""
        o = mean_pose(self.X_WcB).translation
        mean = self.mean()
        steps = []
        for X in self.anchors:
            off = X * mean.inverse()
            steps.append(np.concatenate([off.act(o) - o, pin.log3(off.rotation)]))
        num = max(len(steps) // 5, min(len(steps), 3))
        means = np.array([block.mean(axis=0) for block in np.array_split(np.array(steps), num)])
        covariance = means.T @ means / (num * max(num - 1, 1))
        return Spread(covariance=covariance, scale=1.0, scale_sigma=float("inf"))


def pairs_of(board: Board, chest: DeviceViews, hand: DeviceViews, hand_time: Callable[[int], int]) -> Pairs:
    """Pair images of the same time. hand_time: converts the chest's time to the hand's [ns]."""
    times = np.array([view.t_ns for view in hand.views], dtype=np.int64)
    found = []
    for view in chest.views:
        gap = np.abs(times - hand_time(view.t_ns))
        if len(gap) and gap[i := int(np.argmin(gap))] <= _SAME_NS:
            found += _anchors(board, chest, hand, view, hand.views[i])
    if not found:
        return Pairs(anchors=(), X_WcB=())
    reference = max((A for A, _ in found), key=lambda A: sum(_is_near(A, B, o) for B, o in found))
    kept = [(A, X) for A, X in found if _is_near(reference, A, X)]
    return Pairs(anchors=tuple(A for A, _ in kept), X_WcB=tuple(X for _, X in kept))


def _anchors(
    board: Board, chest: DeviceViews, hand: DeviceViews, one: View, other: View
) -> list[tuple[pin.SE3, pin.SE3]]:
    """Up to four anchors: both poses of both views."""
    both = []
    for device, view in ((chest, one), (hand, other)):
        if len(view.corners) < LEAST_CORNERS:
            return []
        try:
            pose = pose_of(board, view.corners, device.camera)
        except InvalidValueError:
            return []
        others = [pose.other_X_CB] if pose.other_X_CB is not None and pose.is_ambiguous else []
        both.append([view.X_WC * X_CB for X_CB in (pose.X_CB, *others)])
    return [(X_WcB * X_WhB.inverse(), X_WcB) for X_WcB in both[0] for X_WhB in both[1]]


def _is_near(A: pin.SE3, B: pin.SE3, X_WcB: pin.SE3) -> bool:
    there = B * A.inverse()
    o = X_WcB.translation
    at_board = pin.SE3(there.rotation, there.act(o) - o)
    far_m, far_rad = apart(at_board, pin.SE3.Identity())
    return far_m < _NEAR_M and far_rad < _NEAR_RAD
