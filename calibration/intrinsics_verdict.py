"""Judges a camera's intrinsics: `reasons` lists what is wrong and what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from calibration.camera import CameraModel
from calibration.coverage import ENOUGH_VIEWS, TILTED, Coverage
from calibration.detection import Corners
from calibration.structure import Pattern
from calibration.verdict import Reason

PATTERN_SHARE, WORST_PATTERN_SHARE = 5e-5, 2e-4
"""Rms of errors with a pattern, in widths of the image: a warning, and refused. A rolling shutter that
shears an image of 640 pixels by 1.5 from top to bottom makes 1.5e-4, and moves the middle by 2 pixels."""
_MODEL_EXPLAINS = 0.5
"""Share of the pattern's squares that the right model removes."""


@dataclass(frozen=True, kw_only=True)
class OtherModel:
    """Fit of the same views by the other lens model."""

    name: Literal["pinhole", "fisheye"]
    rms_px: float


def reasons(
    views: Sequence[Corners],
    camera: CameraModel,
    numbers: Mapping[str, float],
    tilts: np.ndarray,
    pattern: Pattern | None,
    other: OtherModel | None,
) -> list[Reason]:
    """Reasons for a verdict on intrinsics.

    views: those that were used. numbers: `Intrinsics.residuals`. tilts: of the board in each view [rad].
    pattern: of the errors. other: how the other model fits, if the pattern may be the lens's.
    """
    return [
        *_of_views(tilts),
        *_of_focal(numbers["focal_sigma_share"]),
        *_of_coverage(views, numbers["coverage_share"]),
        *_of_pattern(camera, numbers["rms_px"], pattern, other),
        *_of_errors(numbers["rms_px"]),
        *_of_left_out(numbers["left_out_share"]),
        *_of_halves(numbers["focal_repeat_share"]),
        *_of_camera(camera),
        *_of_distances(numbers["distance_ratio"]),
    ]


def of_two_cameras(found: list[Reason], focals: tuple[float, float] | None) -> list[Reason]:
    """Replace reasons that two cameras may mimic by one that names them. focals: of both [pixels]."""
    if focals is None:
        return found
    a, b = sorted(focals)
    mixed = Reason(
        name="mixed-cameras",
        what="The images are of two cameras, or of two zooms or focuses of one: focal lengths of "
        f"{a:.0f} and {b:.0f} px.",
        do="Calibrate each camera from its own images, with zoom and focus fixed.",
    )
    return [mixed, *(each for each in found if each.name not in OF_ERRORS)]


def _of_views(tilts: np.ndarray) -> list[Reason]:
    """Check the numbers of views and of tilted views."""
    out, num = [], len(tilts)
    if num < ENOUGH_VIEWS:
        what = f"{num} views were used; {ENOUGH_VIEWS} make it sure."
        do = "Take more, from other sides."
        out.append(Reason(name="few-views", what=what, do=do, is_fatal=False))
    tilted = int((tilts > TILTED).sum())
    if tilted < 0.3 * num or tilted < 5:
        out.append(
            Reason(
                name="frontal-views",
                what=f"Only {tilted} of {num} views are tilted by more than 20 degrees: from the front a "
                f"longer focal length and a board further off look the same.",
                do="Tilt the board by 30 to 45 degrees to all four sides, in a third of the views at least.",
            )
        )
    return out


def _of_focal(sigma_share: float) -> list[Reason]:
    """Check whether the views separate a longer focal length from a farther board."""
    if sigma_share <= 0.003:
        return []
    return [
        Reason(
            name="focal-uncertain",
            what=f"The focal length is known to {100 * sigma_share:.2g} % only (one standard deviation); "
            "0.3 % is good. The views do not separate a longer focal length from a board farther away.",
            do="Tilt the board by 30 to 45 degrees to all four sides, and bring it nearer.",
            is_fatal=sigma_share > 0.01,
        )
    ]


def _of_coverage(views: Sequence[Corners], share: float) -> list[Reason]:
    if share >= 0.75:
        return []
    return [
        Reason(
            name="coverage",
            what=f"Corners cover {100 * share:.0f} % of the image, least at the "
            f"{Coverage.of(views).emptiest()}; outside of them the lens is guessed.",
            do="Move the board over the whole image, to its very edges and corners.",
            is_fatal=share < 0.45,
        )
    ]


def _of_pattern(
    camera: CameraModel, rms_px: float, pattern: Pattern | None, other: OtherModel | None
) -> list[Reason]:
    """Check the errors for a pattern, and name its cause."""
    width = camera.size[1]
    if pattern is None or pattern.px <= PATTERN_SHARE * width:
        return []
    if other is not None and rms_px**2 - other.rms_px**2 > _MODEL_EXPLAINS * pattern.px**2:
        return [
            Reason(
                name="wrong-model",
                what=f"The lens is a {other.name}: as such the corners' rms is {other.rms_px:.2f} px, as "
                f"given {rms_px:.2f} px, with {pattern.px:.2f} px of it in a pattern.",
                do=f"Calibrate with --model {other.name}.",
            )
        ]
    name, what, do = _PATTERNS[pattern.cause]
    return [
        Reason(
            name=name,
            what=f"{pattern.px:.2f} px of the corners' rms of {rms_px:.2f} px have a pattern: {what}.",
            do=do,
            is_fatal=pattern.px > WORST_PATTERN_SHARE * width,
        )
    ]


_STILL = (
    "Fix the camera and hold the board still for each image, or use a camera with a global shutter; "
    "switch stabilisation off."
)
_PATTERNS = {
    "skew": ("rolling-shutter", "all images are sheared along their rows", _STILL),
    "rolling-shutter": (
        "rolling-shutter",
        "rows of each image are shifted against each other, as a rolling shutter does in motion",
        _STILL,
    ),
    "stretched": (
        "print-stretched",
        "the print is longer along one side than along the other, or skewed",
        "Print at 100 % without fit to page, measure squares along both sides, and glue the sheet flat.",
    ),
    "bent": (
        "board-bent",
        "the board is bent",
        "Glue the sheet to something flat and stiff: glass, aluminium.",
    ),
    "radial": (
        "radial-errors",
        "errors change with the distance from the image's middle, and no model of a lens explains it",
        "Switch zoom, autofocus, stabilisation and the camera's own correction of distortion off.",
    ),
    "smooth": (
        "errors-with-pattern",
        "neighbouring corners err alike",
        "Hold the board still, glue the sheet flat; switch autofocus, stabilisation and HDR off.",
    ),
}
"""Name of the reason, what it is, and what to do."""
OF_ERRORS = frozenset(
    {"rms", "corners-left-out", "focal-repeat", "pixels-not-square", "middle"}
    | {name for name, _, _ in _PATTERNS.values()}
)
"""Reasons that images of two cameras may mimic."""


def _of_errors(rms_px: float) -> list[Reason]:
    if rms_px <= 0.5:
        return []
    return [
        Reason(
            name="rms",
            what=f"Corners are {rms_px:.2f} px from where the camera would see them (rms); up to 0.5 is "
            "good.",
            do="Check that the board is flat, images are sharp, stabilisation is off, zoom and focus fixed.",
            is_fatal=rms_px > 1.0,
        )
    ]


def _of_left_out(share: float) -> list[Reason]:
    """Check the share of left-out corners: with noise alone, 1 in 50,000; views of few corners may be too."""
    if share <= 0.05:
        return []
    return [
        Reason(
            name="corners-left-out",
            what=f"{100 * share:.0f} % of the corners do not fit the others and were left out.",
            do="Check that all images are of one camera and one board, sharp, at one zoom and focus.",
            is_fatal=share > 0.3,
        )
    ]


def _of_halves(repeat: float) -> list[Reason]:
    """Check that two halves of the views agree."""
    if repeat <= 0.003:
        return []
    return [
        Reason(
            name="focal-repeat",
            what=f"Two halves of the views give focal lengths that differ by {100 * repeat:.2f} %; 0.3 % is "
            "good.",
            do="Take more tilted views, nearer, with the board over the whole image.",
            is_fatal=repeat > 0.015,
        )
    ]


def _of_camera(camera: CameraModel) -> list[Reason]:
    """Check for parameters that are unusual for a camera."""
    out, (height, width) = [], camera.size
    offset_px = np.hypot(camera.cx - (width - 1) / 2, camera.cy - (height - 1) / 2)
    if offset_px > 0.1 * width:
        what = (
            f"The optical axis is {offset_px:.0f} px from the image's middle: cropped images, or bad views."
        )
        do = "If the images are not cropped, take more tilted views."
        out.append(Reason(name="middle", what=what, do=do, is_fatal=False))
    if (apart := abs(camera.fy / camera.fx - 1.0)) > 0.01:
        what = f"Focal lengths along x and y differ by {100 * apart:.1f} %; most cameras have square pixels."
        do = (
            "Unless the images were scaled to another shape: hold still (a rolling shutter stretches), and "
            "measure the board's squares along both sides."
        )
        out.append(Reason(name="pixels-not-square", what=what, do=do, is_fatal=False))
    return out


def _of_distances(ratio: float) -> list[Reason]:
    if ratio >= 1.3:
        return []
    what, do = "All views are from one distance.", "Take some from nearer and from afar."
    return [Reason(name="one-distance", what=what, do=do, is_fatal=False)]
