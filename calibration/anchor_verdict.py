"""Judges an anchor: `reasons` lists what is wrong and what to do."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import pinocchio as pin

from calibration.anchor_fit import Spread
from calibration.anchor_views import Agreed, apart, mean_pose
from calibration.board import Board
from calibration.verdict import Reason
from robot_runtime.core.values.action import NS_PER_S

FEWEST, ENOUGH = 8, 30
"""Views of each device: below the first a refusal, below the second a warning."""
TILTED, MOST_TILT = np.deg2rad(20.0), np.deg2rad(65.0)
LEAST_SPAN = 0.15
ENOUGH_SIDES, SIDE_SHARE = 2, 0.1
"""Quarters around the board that each device must cover, each with this share of views."""
HELD_OUT_PX, WORST_HELD_OUT_PX = 1.0, 3.0
GRAVITY, WORST_GRAVITY = np.deg2rad(0.5), np.deg2rad(1.0)
SIGMA_M, SIGMA_RAD = 0.006, np.deg2rad(0.5)
MOVED_M, MOVED_RAD = 0.010, np.deg2rad(1.0)
SCALE = 0.007
BLUR_PX = 2.0


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """All figures that an anchor is judged by."""

    sides: tuple[Agreed, Agreed]
    """The chest's views, and the hand's."""
    held_out_px: float | None
    single_px: float | None
    """Held-out errors: of all views of the half together, and of single images."""
    gravity: float
    """Angle between both worlds' verticals, without assuming that they agree [rad]."""
    spread: Spread
    rms_px: tuple[float, float] | None
    pairs_apart: tuple[float, float] | None
    """Difference between the simultaneous and the sequential anchor [m], [rad]."""
    board: Board
    is_board_moving: bool = False

    def numbers(self) -> dict[str, float]:
        out = {"gravity_rad": self.gravity}
        if self.held_out_px is not None:
            out["held_out_px"] = self.held_out_px
        if self.single_px is not None:
            out["held_out_single_px"] = self.single_px
        if np.isfinite(self.spread.scale_sigma):
            out |= {"board_scale": self.spread.scale, "board_scale_sigma": self.spread.scale_sigma}
        if self.pairs_apart is not None:
            out |= {"same_time_apart_m": self.pairs_apart[0], "same_time_apart_rad": self.pairs_apart[1]}
        for i, (name, side) in enumerate(zip(("chest", "hand"), self.sides, strict=True)):
            if self.rms_px is not None:
                out[f"{name}_rms_px"] = self.rms_px[i]
            out |= {
                f"{name}_views": len(side.views),
                f"{name}_rejected": len(side.rejected),
                f"{name}_flipped": side.num_flipped,
                f"{name}_tilt_median_rad": float(np.median(side.tilts)),
            }
        return out


def reasons(found: Findings) -> list[Reason]:
    out = []
    for name, side in zip(("chest", "hand"), found.sides, strict=True):
        out += [*_views(name, side), *_one_side(name, side, found.board)]
        if not found.is_board_moving:
            out += [*_standing(name, side)]
    return [*out, *_together(found)]


def frontal_views(name: str, tilts: np.ndarray) -> Reason | None:
    """Check for views from the front alone; tilts: of a device's views (N,) [rad]."""
    num = len(tilts)
    tilted = int(((tilts > TILTED) & (tilts < MOST_TILT)).sum())
    if tilted >= min(FEWEST, max(num, 1)) and tilted >= 0.3 * num:
        return None
    return Reason(
        name="frontal-views",
        what=f"Only {tilted} of {num} views of the {name} are tilted by 20 to 65 degrees against the "
        f"board (median {np.rad2deg(np.median(tilts)):.0f}): a board's tilt is not seen from the "
        "front.",
        do="Look at the board from the side, at 25 to 50 degrees, and from several sides.",
    )


def quarter(board: Board, X_BC: pin.SE3) -> int:
    """Quarter around the board that a camera is in, by the board's x and y."""
    x, y, _ = X_BC.translation - board.centre_B
    return int(np.floor((np.arctan2(y, x) + np.pi / 4.0) / (np.pi / 2.0))) % 4


def _one_side(name: str, side: Agreed, board: Board) -> Iterator[Reason]:
    """Check for views from one side of the board alone."""
    from_B = [X.inverse() * view.X_WC for X, view in zip(side.X_WB, side.views, strict=True)]
    quarters = np.bincount([quarter(board, X_BC) for X_BC in from_B], minlength=4)
    if (quarters >= SIDE_SHARE * max(len(from_B), 1)).sum() < ENOUGH_SIDES:
        yield Reason(
            name="one-side",
            what=f"The {name} looked from one side of the board alone: errors of its lens and odometry "
            "there affect the anchor, but not its standard deviation.",
            do="Look from two sides or more.",
            is_fatal=False,
        )


def _views(name: str, side: Agreed) -> Iterator[Reason]:
    num = len(side.views)
    if num < FEWEST:
        yield Reason(
            name="few-views",
            what=f"The {name} has {num} views that agree on where the board is, and {FEWEST} are needed.",
            do="Look at the board for 3 s from several sides, holding still at each.",
        )
    elif num < ENOUGH:
        yield Reason(
            name="few-views",
            what=f"The {name} has {num} views of the board; with {ENOUGH} an anchor is sure.",
            do="Look at the board longer.",
            is_fatal=False,
        )
    if (frontal := frontal_views(name, side.tilts)) is not None:
        yield frontal
    span = float(np.median([max(view.corners.span) for view in side.views])) if num else 0.0
    if num and span < LEAST_SPAN:
        yield Reason(
            name="board-small",
            what=f"The board fills {100 * span:.0f} % of the {name}'s image (median), under 15 %.",
            do="Go nearer, to 0.4 to 0.8 m, or print a larger board.",
            is_fatal=False,
        )
    blur = float(np.median([view.corners.blur_px for view in side.views])) if num else 0.0
    if blur > BLUR_PX:
        yield Reason(
            name="blurred",
            what=f"The {name}'s images are blurred: edges are {blur:.1f} px wide (median), {BLUR_PX:g} "
            "is the most.",
            do="Hold still at each view, and give more light.",
            is_fatal=False,
        )
    if side.num_given > 10 and num < 0.5 * side.num_given:
        yield Reason(
            name="views-rejected",
            what=f"{side.num_given - num} of {side.num_given} views of the {name} fit no common pose of "
            "the board.",
            do="Odometry may have jumped, or another board is near: look again.",
            is_fatal=False,
        )


def _standing(name: str, side: Agreed) -> Iterator[Reason]:
    """Check that the board did not move."""
    num = len(side.views)
    if len(side.rejected) >= max(4, 0.15 * num) and _is_elsewhere(side):
        t_ns, X = side.rejected[len(side.rejected) // 2]
        far_m, far_rad = apart(side.mean, X)
        yield Reason(
            name="board-moved",
            what=f"The {name} saw the board at two positions, {100 * far_m:.1f} cm and "
            f"{np.rad2deg(far_rad):.1f} degrees apart (the other one at {t_ns / NS_PER_S:.2f} s of its "
            "clock): the board was moved, or odometry jumped.",
            do="Fix the board, and make both devices look at it again.",
        )
        return
    if num < 12:
        return
    thirds = [mean_pose(part) for part in (side.X_WB[: num // 3], side.X_WB[-(num // 3) :])]
    far_m, far_rad = apart(*thirds)
    positions = np.array([X.translation for X in side.X_WB])
    scatter = float(np.sqrt(((positions - positions.mean(axis=0)) ** 2).sum(axis=1).mean()))
    if far_m > max(MOVED_M, 0.9 * scatter) or far_rad > MOVED_RAD:
        yield Reason(
            name="board-moved",
            what=f"Between the first and the last third of the {name}'s views the board moved by "
            f"{1e3 * far_m:.0f} mm and {np.rad2deg(far_rad):.1f} degrees: it was moved, or odometry "
            "drifts or jumped.",
            do="Fix the board, wait until tracking is good, and look at it again.",
        )


def _is_elsewhere(side: Agreed) -> bool:
    """Whether rejected views agree with each other."""
    positions = np.array([X.translation for _, X in side.rejected])
    return bool((np.linalg.norm(positions - np.median(positions, axis=0), axis=1) < 0.05).mean() > 0.6)


def _together(found: Findings) -> Iterator[Reason]:
    held_out, gravity = found.held_out_px, found.gravity
    if held_out is not None and held_out > HELD_OUT_PX:
        yield Reason(
            name="held-out",
            what=f"The hand's corners are {held_out:.1f} px from where the chest's view of the board and "
            f"the anchor predict them, in views that were not fitted; up to {HELD_OUT_PX:g} is good.",
            do="A shared input is wrong: a camera file of another device or size, the time of its "
            "images, the board's size, or odometry that drifts. Calibrate the cameras, measure the "
            "print, look again.",
            is_fatal=held_out > WORST_HELD_OUT_PX,
        )
    if gravity > GRAVITY:
        yield Reason(
            name="gravity",
            what=f"The two odometries' verticals differ by {np.rad2deg(gravity):.2f} degrees through the "
            "board; up to 0.5 is good.",
            do="The camera's pose in one of the devices is wrong, a board's pose is flipped, or a world "
            "is not z up.",
            is_fatal=gravity > WORST_GRAVITY,
        )
    scale, sigma = found.spread.scale, found.spread.scale_sigma
    if abs(scale - 1.0) > max(SCALE, 3 * sigma):
        side = "larger" if scale > 1 else "smaller"
        yield Reason(
            name="board-scale",
            what=f"By both odometries the board is {100 * abs(scale - 1):.1f} % {side} than "
            f"declared (squares of {1e3 * found.board.square_m:.4g} mm).",
            do="Measure the printed ruler with a calliper and give --measured-mm to `calibrate board`; "
            "if the print is right, calibrate the cameras again.",
        )
    sigma_m = float(np.sqrt(np.trace(found.spread.covariance[:3, :3])))
    sigma_rad = float(np.sqrt(found.spread.covariance[5, 5]))
    if sigma_m > SIGMA_M or sigma_rad > SIGMA_RAD:
        yield Reason(
            name="unsure",
            what=f"The anchor is known to {1e3 * sigma_m:.1f} mm and {np.rad2deg(sigma_rad):.2f} degrees "
            f"only (one standard deviation); {1e3 * SIGMA_M:g} mm and 0.5 degrees are the most.",
            do="Look longer, nearer, and from more sides.",
        )
    if found.pairs_apart is not None:
        far_m, far_rad = found.pairs_apart
        if far_m > 2 * MOVED_M or far_rad > 2 * MOVED_RAD:
            yield Reason(
                name="forms-differ",
                what=f"Images of the same time give an anchor {1e3 * far_m:.0f} mm and "
                f"{np.rad2deg(far_rad):.1f} degrees from that of all images.",
                do="The board was moved between the two looks, the clocks are joined wrongly, or "
                "odometry drifts.",
            )
