"""The anchor: the hand's odometry world in the chest's, from a board that both cameras saw: `solve_anchor`.

    W_c ──odometry── C ──board's pose── B ──board's pose── H ──odometry── W_h
     └────────────────────────── X_WcWh ──────────────────────────────────┘

Sequential: the board is stationary, each device looks at it at any time, and no clocks need to be joined.
Simultaneous: both look at the same time, and the board may move. It checks the first where images have the
same time, and is a method of its own for a hand-held board (`at_the_same_time`).

An error of the anchor grows with the distance from the board: 0.3 degrees are 5 mm per metre.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np
import pinocchio as pin

from calibration.anchor_fit import Fit, Spread, Watched, fit, spread
from calibration.anchor_verdict import Findings, reasons
from calibration.anchor_views import Agreed, DeviceViews, View, agreed, apart, mean_pose
from calibration.board import Board
from calibration.board_pose import pose_of
from calibration.detection import LEAST_CORNERS
from calibration.store import pose_from_json, pose_to_json
from calibration.verdict import Verdict
from robot_runtime.core.values.shapes import Float
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


__all__ = ["Anchor", "AnchorConfig", "Closure", "DeviceViews", "View", "closure", "solve_anchor"]

GRAVITY_SIGMA = np.deg2rad(0.1)


@final
@dataclass(frozen=True, kw_only=True)
class AnchorConfig:
    """Parameters of solving an anchor."""

    is_level: bool = True
    """Both odometries are gravity-aligned: yaw and translation are solved, and the tilt is a check."""
    gravity_sigma: float = GRAVITY_SIGMA
    """Error of each odometry's vertical [rad]; the tilt's part of a level anchor's covariance."""
    most_views: int = 80
    """Most views of each device; of more, an evenly spread subset is used."""
    hand_time: Callable[[int], int] | None = None
    """Converts the chest's time to the hand's [ns], if the clocks are joined: for the simultaneous check."""
    at_the_same_time: bool = False
    """The board moved: use only images of the same time. Needs hand_time."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Anchor:
    """X_WcWh with its covariance and a verdict."""

    KIND: ClassVar[str] = "anchor"
    VERSION: ClassVar[int] = 1
    UNITS: ClassVar[Mapping[str, str]] = {
        "covariance": "m^2, m rad, rad^2",
        "_px": "pixels",
        "_ns": "nanoseconds",
    }
    FRAMES: ClassVar[Mapping[str, str]] = {
        "X_WcWh": "the hand's odometry world in the chest's, both z up",
        "X_WcB": "the board in the chest's odometry world",
        "covariance": "of [translation, rotation vector] from the left, in W_c, about the board's "
        "origin: the true anchor takes a point x of W_c to o + dp + exp(w) (x - o), o the translation of "
        "X_WcB",
    }

    X_WcWh: pin.SE3
    X_WcB: pin.SE3
    covariance: Float[np.ndarray, "6 6"]
    """Covariance of [p, w], from the left in W_c about o = X_WcB.translation: the true anchor is
    T(o) [exp(w), p] T(-o) X_WcWh."""
    chest_ns: int
    """Mean time of the chest's views, on its clock."""
    hand_ns: int
    """Mean time of the hand's views, on the hand's clock."""
    residuals: Mapping[str, float]
    """`chest_rms_px`, `hand_rms_px`, `held_out_px`, `gravity_rad`, `chest_views`, ..."""
    board: Mapping[str, Any]
    """`Board.to_dict` of the board."""
    verdict: Verdict

    @property
    def sigma(self) -> tuple[float, float]:
        """Standard deviations at the board: of position [m] and yaw [rad]."""
        return float(np.sqrt(np.trace(self.covariance[:3, :3]))), float(np.sqrt(self.covariance[5, 5]))

    def to_dict(self) -> dict[str, Any]:
        return {
            "X_WcWh": pose_to_json(self.X_WcWh),
            "X_WcB": pose_to_json(self.X_WcB),
            "covariance": self.covariance.tolist(),
            "chest_ns": self.chest_ns,
            "hand_ns": self.hand_ns,
            "residuals": {name: float(value) for name, value in self.residuals.items()},
            "board": dict(self.board),
            "verdict": self.verdict.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        covariance = np.array(data["covariance"], dtype=float)
        if covariance.shape != (6, 6) or not np.isfinite(covariance).all():
            raise InvalidValueError("expected an anchor's covariance of 6 by 6 finite numbers")
        return cls(
            X_WcWh=pose_from_json(data["X_WcWh"]),
            X_WcB=pose_from_json(data["X_WcB"]),
            covariance=covariance,
            chest_ns=int(data["chest_ns"]),
            hand_ns=int(data["hand_ns"]),
            residuals=data["residuals"],
            board=data["board"],
            verdict=Verdict.from_dict(data["verdict"]),
        )


def solve_anchor(
    board: Board, chest: DeviceViews, hand: DeviceViews, config: AnchorConfig | None = None
) -> Anchor:
    """Solve an anchor from all views, with its covariance and a verdict.

    InvalidValueError: a device has no valid view, images of another size than its camera, or (at the same
    time) no pair. The verdict reports all other faults.
    """
    config = config or AnchorConfig()
    most = config.most_views
    sides = agreed(board, _some(chest, most), "chest"), agreed(board, _some(hand, most), "hand")
    pairs = _paired(board, chest, hand, config)
    if config.at_the_same_time:
        if pairs is None:
            raise InvalidValueError("an anchor of images at the same time needs the joined clocks: hand_time")
        if not len(pairs):
            raise InvalidValueError("no two images of the board are of the same time: look at it together")
        return _of_pairs(board, sides, pairs, config)
    return _of_all(board, (chest, hand), sides, pairs, config)


def _paired(board: Board, chest: DeviceViews, hand: DeviceViews, config: AnchorConfig) -> Pairs | None:
    """Image pairs of the same time: of a few images as a check, else of all; None: no joined clocks."""
    if config.hand_time is None:
        return None
    return pairs_of(
        board, _some(chest, config.most_views if config.at_the_same_time else 30), hand, config.hand_time
    )


def _some(device: DeviceViews, most: int) -> DeviceViews:
    """At most `most` of the views, spread evenly."""
    some = np.linspace(0, len(device.views) - 1, min(len(device.views), most)).round().astype(int)
    return replace(device, views=[device.views[i] for i in some])


def level(X: pin.SE3) -> pin.SE3:
    """The nearest yaw and translation: removes the tilt about the world's origin."""
    R = X.rotation
    yaw = float(np.arctan2(R[1, 0] - R[0, 1], R[0, 0] + R[1, 1]))
    return pin.SE3(pin.exp3(np.array([0.0, 0.0, yaw])), X.translation)


def tilt_of(X: pin.SE3) -> float:
    """Angle between both worlds' verticals [rad]."""
    return float(np.arccos(np.clip(X.rotation[2, 2], -1.0, 1.0)))


@final
@dataclass(frozen=True, kw_only=True)
class Closure:
    """Difference of a second anchor from a first, at the second's board."""

    distance_m: float
    yaw: float
    """[rad]"""
    sigmas: float
    """The difference in standard deviations of both (Mahalanobis, four numbers)."""


def closure(first: Anchor, last: Anchor) -> Closure:
    """The drift between two anchors (or the motion of the board)."""
    difference = last.X_WcWh * first.X_WcWh.inverse()
    o = last.X_WcB.translation
    dp = difference.act(o) - o
    yaw = float(pin.log3(difference.rotation)[2])
    e = np.append(dp, yaw)
    some = [0, 1, 2, 5]
    covariance = _at(first, o)[np.ix_(some, some)] + last.covariance[np.ix_(some, some)]
    return Closure(
        distance_m=float(np.linalg.norm(dp)),
        yaw=abs(yaw),
        sigmas=float(np.sqrt(e @ np.linalg.pinv(covariance) @ e)),
    )


def _at(anchor: Anchor, o: np.ndarray) -> np.ndarray:
    """The anchor's covariance about another point of W_c."""
    M = np.eye(6)
    M[:3, 3:] = -pin.skew(o - anchor.X_WcB.translation)
    return np.asarray(M @ anchor.covariance @ M.T)


def _of_all(
    board: Board,
    devices: tuple[DeviceViews, DeviceViews],
    sides: tuple[Agreed, Agreed],
    pairs: Pairs | None,
    config: AnchorConfig,
) -> Anchor:
    watched = [
        Watched.of(board, device.camera, side.views, is_hand=is_hand)
        for device, side, is_hand in zip(devices, sides, (False, True), strict=True)
    ]
    chest, hand = watched
    start = sides[0].mean * sides[1].mean.inverse()
    free = fit(chest, hand, sides[0].mean, start, is_level=False)
    found = free
    if config.is_level:
        found = fit(chest, hand, free.X_WcB, _level_about(free), is_level=True)
    focal = (devices[0].focal_sigma, devices[1].focal_sigma)
    how_sure = spread(chest, hand, found, is_level=config.is_level, focal_sigma=focal)
    held_out = _held_out(chest, hand, found, is_level=config.is_level)
    findings = Findings(
        sides=sides,
        held_out_px=None if held_out is None else held_out[0],
        single_px=None if held_out is None else held_out[1],
        gravity=tilt_of(free.X_WcWh),
        spread=how_sure,
        rms_px=found.rms_px,
        pairs_apart=None if pairs is None or not len(pairs) else pairs.apart_from(found.X_WcWh, found.X_WcB),
        board=board,
    )
    return _anchor(board, sides, found.X_WcWh, found.X_WcB, how_sure, findings, config)


def _of_pairs(board: Board, sides: tuple[Agreed, Agreed], pairs: Pairs, config: AnchorConfig) -> Anchor:
    X_WcWh = pairs.mean()
    findings = Findings(
        sides=sides,
        held_out_px=None,
        single_px=None,
        gravity=tilt_of(X_WcWh),
        spread=pairs.spread(),
        rms_px=None,
        pairs_apart=None,
        board=board,
        is_board_moving=True,
    )
    X_WcB = mean_pose(pairs.X_WcB)
    if config.is_level:
        o = X_WcWh.actInv(X_WcB.translation)
        flat = level(X_WcWh)
        X_WcWh = pin.SE3(flat.rotation, X_WcB.translation - flat.rotation @ o)
    return _anchor(board, sides, X_WcWh, X_WcB, pairs.spread(), findings, config)


def _anchor(
    board: Board,
    sides: tuple[Agreed, Agreed],
    X_WcWh: pin.SE3,
    X_WcB: pin.SE3,
    how_sure: Spread,
    findings: Findings,
    config: AnchorConfig,
) -> Anchor:
    covariance = how_sure.covariance.copy()
    if config.is_level:
        covariance[3:5] = covariance[:, 3:5] = 0.0
        covariance[3, 3] = covariance[4, 4] = 2 * config.gravity_sigma**2
    times = [int(np.median([view.t_ns for view in side.views])) for side in sides]
    return Anchor(
        X_WcWh=X_WcWh,
        X_WcB=X_WcB,
        covariance=covariance,
        chest_ns=times[0],
        hand_ns=times[1],
        residuals=findings.numbers(),
        board=board.to_dict(),
        verdict=Verdict.of(reasons(findings)),
    )


def _level_about(found: Fit) -> pin.SE3:
    """The level anchor that agrees with the free one on the board's position."""
    flat = level(found.X_WcWh)
    o = found.X_WcB.translation
    return pin.SE3(flat.rotation, o - flat.rotation @ found.X_WcWh.actInv(o))


def _held_out(chest: Watched, hand: Watched, found: Fit, *, is_level: bool) -> tuple[float, float] | None:
    """Held-out errors of the hand's corners, predicted by the chest and an anchor of other views [pixels].

    Both devices' views are split by blocks: the anchor comes from one half, the views of the board from the
    other. First, rms to the joint fit of the hand's own views of that half; second, to the corners of each
    image, which includes odometry jitter. None: too few.
    """
    off, single, num = 0.0, 0.0, 0
    for half in (0, 1):
        masks = [watched.blocks() % 2 == half for watched in (chest, hand)]
        if min(min(mask.sum(), (~mask).sum()) for mask in masks) < 2:
            return None
        fitted = [watched.only(mask) for watched, mask in zip((chest, hand), masks, strict=True)]
        others = [watched.only(~mask) for watched, mask in zip((chest, hand), masks, strict=True)]
        anchor = fit(fitted[0], fitted[1], found.X_WcB, found.X_WcWh, is_level=is_level).X_WcWh
        held = fit(others[0], others[1], found.X_WcB, found.X_WcWh, is_level=False)  # each from its own views
        at = others[1]
        predicted = at.pixels(anchor.inverse() * held.X_WcB)
        off += float(np.nansum((predicted - at.pixels(held.X_WcWh.inverse() * held.X_WcB)) ** 2))
        single += float(np.nansum((predicted - at.uv) ** 2))
        num += len(predicted)
    return float(np.sqrt(off / num)), float(np.sqrt(single / num))
