"""Judges a camera's pose on or beside an arm: `judge`; and advises further views: `lacking`."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pinocchio as pin

from calibration.chain import CENTRE_SIGMA_PX, FOCAL_SIGMA, RADIAL_SIGMA, ArmView, Chain, ChainFit, Excitation
from calibration.readings import READINGS, explains
from calibration.verdict import Reason, Verdict
from robot_runtime.errors import InvalidValueError

LEAST_VIEWS = 3
"""Views below which nothing can be solved."""
ENOUGH_VIEWS = 10
"""Views from which on a result is trusted."""
EXCITED_DEG = 8.0
"""Least standard deviation of the end effector's orientation about two directions, to trust a result."""
WELL_EXCITED_DEG = 15.0
MOST_PX = 5.0
"""RMS of corners beyond which a convention is wrong, rather than a measurement [pixels]."""
GOOD_PX, GOOD_HAND_M, GOOD_HAND_DEG = 0.6, 0.001, 0.1
"""Limits above which a result is usable with a warning."""
WORST_PX, WORST_HAND_M, WORST_HAND_DEG = 2.0, 0.01, 1.0
"""Limits above which a result is unusable: the covariance does not cover such faults."""
MOST_FOCAL_SHARE, WORST_FOCAL_SHARE = 2 * FOCAL_SIGMA, 5 * FOCAL_SIGMA
"""By which the focal length may seem to be off: a warning, and refused."""
MOST_CENTRE_PX, WORST_CENTRE_PX = 3 * CENTRE_SIGMA_PX, 5 * CENTRE_SIGMA_PX
"""The same of the principal point [pixels],"""
MOST_RADIAL, WORST_RADIAL = 3 * RADIAL_SIGMA, 8 * RADIAL_SIGMA
"""and of the radial distortion."""
MOST_SIGMA_M, MOST_SIGMA_DEG = 0.005, 0.5
"""Standard deviations of the camera's pose beyond which it is of no use."""
UNKNOWN_M = 1.0
"""Standard deviation from which on a quantity counts as unknown."""
MOST_SCALE_SHARE, WORST_SCALE_SHARE = 0.007, 0.015
"""Apparent errors of the board's size for a warning, and for a refusal,"""
SURE_SCALE = 4.0
"""if they are at least this many standard deviations."""
_AXES = "xyz"

ClosedForm = Callable[[Sequence[pin.SE3], Sequence[pin.SE3]], tuple[pin.SE3, pin.SE3]]
"""Y of every view, X_CB of every view -> X, Z; InvalidValueError: the views do not determine them."""


def refuse_few(views: Sequence[ArmView]) -> None:
    """Check the number of views; InvalidValueError: too few to solve anything."""
    if len(views) < LEAST_VIEWS:
        raise InvalidValueError(
            f"expected at least {LEAST_VIEWS} views of the board ({ENOUGH_VIEWS} to be trusted), got "
            f"{len(views)}"
        )
    sure = sum(not view.is_ambiguous for view in views)
    if sure < LEAST_VIEWS:
        raise InvalidValueError(
            f"in {len(views) - sure} of {len(views)} images the board's tilt is ambiguous: "
            "look at it from the side, by 25 to 50 degrees, and from near, so that it fills a quarter of the "
            "image's width"
        )


def judge(fit: ChainFit, chain: Chain, excitation: Excitation, closed_form: ClosedForm) -> Verdict:
    """Judge a fit, with the likeliest reason for a large residual."""
    reasons = [_misread(fit, chain, closed_form)] if fit.rms_px > MOST_PX else _imprecise(fit)
    reasons += [
        *intrinsics_off(fit),
        *board_scale(fit),
        *_too_little(fit, excitation),
        *_left_out(fit, chain.views),
    ]
    return Verdict.of(reasons)


def _imprecise(fit: ChainFit) -> list[Reason]:
    """Check errors of arm and corners against those of good ones."""
    out = []
    if fit.hand_m > GOOD_HAND_M or np.rad2deg(fit.hand_rad) > GOOD_HAND_DEG:
        out.append(
            Reason(
                name="arm-imprecise",
                what=f"the views disagree as if the arm erred by {1e3 * fit.hand_m:.1f} mm and "
                f"{np.rad2deg(fit.hand_rad):.2f} degrees.",
                do="Stop the arm when an image is taken, fasten camera and board, and check the "
                "square's size.",
                is_fatal=fit.hand_m > WORST_HAND_M or float(np.rad2deg(fit.hand_rad)) > WORST_HAND_DEG,
            )
        )
    if fit.corner_px > GOOD_PX:
        out.append(
            Reason(
                name="corners-imprecise",
                what=f"corners err by {fit.corner_px:.2f} px, in sharp images by less than {GOOD_PX:g}.",
                do="Check that images are sharp, the board is flat, and the intrinsics are this camera's.",
                is_fatal=fit.corner_px > WORST_PX,
            )
        )
    return out


def intrinsics_off(fit: ChainFit) -> list[Reason]:
    """Whether the views suit another lens than the intrinsics have, or another size of the board.

    A wrong focal length shows in part as a board of another size: with both, less of each is fatal.
    """
    out = []
    if fit.centre_px > MOST_CENTRE_PX:
        out.append(
            Reason(
                name="principal-point-off",
                what=f"a principal point {fit.centre_px:.1f} px from the intrinsics' fits the views best, "
                f"{fit.centre_px / CENTRE_SIGMA_PX:.0f} times the usual error.",
                do="Calibrate the intrinsics again, with the camera, crop and size that are used.",
                is_fatal=fit.centre_px > WORST_CENTRE_PX,
            )
        )
    if abs(fit.radial) > MOST_RADIAL:
        out.append(
            Reason(
                name="distortion-off",
                what=f"a radial distortion k1 that is {abs(fit.radial):.3f} "
                f"{'larger' if fit.radial > 0 else 'smaller'} fits the views best.",
                do="Calibrate the intrinsics again, with the lens, size and focus that are used.",
                is_fatal=abs(fit.radial) > WORST_RADIAL,
            )
        )
    if abs(fit.focal_share) <= MOST_FOCAL_SHARE:
        return out
    return [
        *out,
        Reason(
            name="intrinsics-off",
            what=f"a focal length that is {100 * abs(fit.focal_share):.2f} % "
            f"{'longer' if fit.focal_share > 0 else 'shorter'} would suit the views better, "
            f"{abs(fit.focal_share) / FOCAL_SIGMA:.0f} times what intrinsics err by.",
            do="Calibrate the intrinsics again, at the size and focus that are used; or is the board's "
            "square another size?",
            is_fatal=abs(fit.focal_share) > WORST_FOCAL_SHARE or abs(fit.scale_share) > MOST_SCALE_SHARE,
        ),
    ]


def board_scale(fit: ChainFit) -> list[Reason]:
    """Check whether the arm's motions fit a board of another size."""
    share = abs(fit.scale_share)
    if share <= max(MOST_SCALE_SHARE, SURE_SCALE * fit.scale_sigma):
        return []
    return [
        Reason(
            name="board-scale",
            what=f"a board that is {100 * share:.1f} % {'larger' if fit.scale_share > 0 else 'smaller'} than "
            f"its file says would suit the motions better (one sigma {100 * fit.scale_sigma:.1f} %).",
            do="Measure the print and store its size (calibrate board --board FILE --measured-mm); check "
            "that poses are in metres.",
            is_fatal=share > WORST_SCALE_SHARE,
        )
    ]


def _too_little(fit: ChainFit, excitation: Excitation) -> list[Reason]:
    """Check whether the views are too few, or too similar, to determine the camera's pose."""
    out = []
    if len(fit.used) < ENOUGH_VIEWS:
        out.append(
            Reason(
                name="few-views",
                what=f"{len(fit.used)} views are too few to trust the result or its covariance.",
                do=f"Take {ENOUGH_VIEWS} or more, 20 are good.",
            )
        )
    if excitation.degrees[1] < EXCITED_DEG:
        out.append(
            Reason(
                name="little-rotation",
                what="about its second direction the hand was turned by "
                f"{excitation.degrees[1]:.1f} degrees only (standard deviation; {EXCITED_DEG:g} is the "
                f"least, {WELL_EXCITED_DEG:g} is good).",
                do=_turn(excitation),
            )
        )
    sigma_m = float(np.sqrt(np.diag(fit.covariance)[:3].sum()))
    sigma_deg = float(np.rad2deg(np.sqrt(np.diag(fit.covariance)[3:6].sum())))
    if fit.rms_px <= MOST_PX and (sigma_m > MOST_SIGMA_M or sigma_deg > MOST_SIGMA_DEG):
        out.append(
            Reason(
                name="uncertain",
                what=f"the camera's pose is known to {1e3 * sigma_m:.1f} mm and {sigma_deg:.2f} degrees."
                if sigma_m < UNKNOWN_M
                else "the views do not determine the camera's pose.",
                do=f"Take more views. {_turn(excitation)}",
            )
        )
    return out


def _left_out(fit: ChainFit, views: Sequence[ArmView]) -> list[Reason]:
    left = [view for i, view in enumerate(views) if i not in fit.used]
    if not left:
        return []
    names = [view.name for view in left if view.name]
    return [
        Reason(
            name="views-left-out",
            what=f"{len(left)} of {len(views)} views do not fit the others and were left out"
            f"{': ' if names else ''}{', '.join(names[:5])}.",
            do="Check whether the arm moved, or the board was touched.",
            is_fatal=False,
        )
    ]


def lacking(poses: Sequence[pin.SE3]) -> list[str]:
    """Advice on views to take next, best first; empty if there are enough and varied ones. poses: X_AE."""
    out = []
    if len(poses) >= 2 and (excitation := Excitation.of(poses)).degrees[1] < WELL_EXCITED_DEG:
        out.append(_turn(excitation))
    elif len(poses) < 2:
        out.append("turn the hand by 20 to 40 degrees between views, about its x, its y and its z")
    if len(poses) < ENOUGH_VIEWS:
        out.append(f"{ENOUGH_VIEWS - len(poses)} more views are needed to be trusted")
    return out


def _turn(excitation: Excitation) -> str:
    weakest = next(i for i in (0, 1, 2) if excitation.degrees[i] < WELL_EXCITED_DEG or i == 2)
    axis = excitation.axes_E[max(weakest, 1)]
    k = int(np.abs(axis).argmax())
    name = f"its {_AXES[k]} axis" if abs(axis[k]) > 0.9 else f"the direction {_words(axis)} of the hand"
    return f"Turn the hand by 20 to 40 degrees to both sides about {name} between the views."


def _words(axis: np.ndarray) -> str:
    axis = axis if axis[np.abs(axis).argmax()] > 0 else -axis
    return f"({', '.join(f'{value:+.1f}' for value in axis)})"


def _misread(fit: ChainFit, chain: Chain, closed_form: ClosedForm) -> Reason:
    """Try other readings of the poses: one that fits names the fault."""
    what = f"corners are off by {fit.rms_px:.1f} px: the arm's poses and the images do not belong together."
    found = {
        name: min(_median_px(chain, read, closed_form) for read in reading.poses)
        for name, reading in READINGS.items()
    }
    best = min(found, key=lambda name: found[name])
    unread_px = _median_px(chain, lambda X_AE: X_AE, closed_form)
    if explains(found[best], unread_px, chain.camera.size[1]):
        do = f"Write the poses as documented: {READINGS[best].what}"
        if best == "inverse-poses":
            beside, on_arm = "beside the arm and the board on the hand", "on the arm and the board apart"
            do = f"{do}, or the camera is {beside if chain.is_on_arm else on_arm}"
        what = f"{what} They do ({found[best]:.1f} px) if read another way."
        return Reason(name=best, what=what, do=f"{do}.")
    return Reason(
        name="does-not-fit",
        what=what,
        do="Do images and poses come in the same order and at the same time, do camera and board sit fast, "
        "is it the right board file, are the intrinsics this camera's at this size?",
    )


def _median_px(chain: Chain, read: Callable[[pin.SE3], pin.SE3], closed_form: ClosedForm) -> float:
    """Median error of corners by the closed form, with the arm's poses read this way [pixels]."""
    views = [replace(view, X_AE=read(view.X_AE)) for view in chain.views]
    other = Chain(views, chain.camera, is_on_arm=chain.is_on_arm)
    try:
        X, Z = closed_form(other.Y, [view.X_CB for view in views])
        X, Z = closed_form(other.Y, other.with_boards(X, Z))
    except InvalidValueError:
        return float("inf")
    return float(np.median(other.view_px(X, Z)))
