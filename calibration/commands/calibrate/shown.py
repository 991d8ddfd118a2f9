"""Contents of the page of a live calibration: `Guide`, made from measured views and shots."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from robot_runtime.page.guide import Cells, Gauge, Guide, Mark

if TYPE_CHECKING:
    import pinocchio as pin

    from calibration.anchor_guide import AnchorGuide, AnchorLook
    from calibration.coverage import Coverage
    from calibration.detection import Corners
    from calibration.view_guide import Look, ViewGuide


def guide_of_views(before: Guide, views: "ViewGuide", look: "Look | None" = None) -> Guide:
    """Return the guide for intrinsics. look: at the shown image; None: there is none yet."""
    from calibration.coverage import ENOUGH_SHARE, NEAR_SHARE
    from calibration.view_guide import MOST_BLUR_PX

    corners, problem = (None, "") if look is None else (look.corners, look.problem)
    coverage = views.coverage
    share = 0.0 if coverage is None else coverage.share
    return replace(
        before,
        do=views.advice or "enough",
        problem=problem,
        num_taken=len(views.views),
        num_wanted=views.num_wanted,
        corners=shares_of(corners),
        cells=cells_of(coverage),
        marks_name="tilted, with this edge nearest",
        marks=tuple(Mark(name=side, text=str(num), is_there=num > 0) for side, num in views.tilted.items()),
        gauges=(
            sharpness(corners, MOST_BLUR_PX),
            _at_least("covered", share, ENOUGH_SHARE),
            _at_least("largest view", views.largest_share, NEAR_SHARE),
        ),
    )


def guide_of_shots(
    before: Guide,
    poses: Sequence["pin.SE3"],
    corners: "Corners | None",
    *,
    do: str,
    problem: str,
) -> Guide:
    """Return the guide for a camera on an arm or beside it. poses: X_AE of the views taken so far."""
    from calibration.commands.calibrate.live_shots import LEAST_SPAN, MOST_BLUR_PX

    return replace(
        before,
        do=do,
        problem=problem,
        num_taken=len(poses),
        corners=shares_of(corners),
        marks_name="the end effector was turned",
        marks=_turns(poses),
        gauges=(
            sharpness(corners, MOST_BLUR_PX),
            _at_least("board's width", corners.span[0], LEAST_SPAN)
            if corners
            else Gauge(name="board's width", text="", limit_share=LEAST_SPAN),
        ),
    )


def guide_of_anchor(before: Guide, anchor: "AnchorGuide", look: "AnchorLook | None" = None) -> Guide:
    """Return the guide for an anchor of two devices. look: at the shown image; None: there is none yet."""
    from calibration.anchor_verdict import BLUR_PX, ENOUGH, ENOUGH_SIDES, LEAST_SPAN

    corners = None if look is None else look.corners
    problem = f"{look.role}: {look.problem}" if look is not None and look.problem else ""
    return replace(
        before,
        do=anchor.advice or "enough",
        problem=problem,
        num_taken=sum(min(len(each.views), ENOUGH) for each in anchor.progress.values()),
        num_wanted=ENOUGH * len(anchor.progress),
        corners=shares_of(corners),
        marks_name="has seen the board",
        marks=tuple(
            Mark(
                name=role,
                text=f"{len(each.views)} views of {ENOUGH}; sides {len(each.sides)}, at least {ENOUGH_SIDES}",
                is_there=not each.lacking,
            )
            for role, each in anchor.progress.items()
        ),
        gauges=(
            sharpness(corners, BLUR_PX),
            *(_at_least(f"size, {role}", each.span, LEAST_SPAN) for role, each in anchor.progress.items()),
        ),
    )


def shares_of(corners: "Corners | None") -> tuple[tuple[float, float], ...]:
    """Return the corners as shares of the image's width and height."""
    if corners is None:
        return ()
    height, width = corners.size
    return tuple((round((u + 0.5) / width, 4), round((v + 0.5) / height, 4)) for u, v in corners.uv.tolist())


def cells_of(coverage: "Coverage | None") -> Cells:
    """Return which parts of the image have enough corners."""
    from calibration.coverage import COLUMNS, ROWS

    filled = [False] * (ROWS * COLUMNS) if coverage is None else coverage.are_filled.ravel().tolist()
    return Cells(rows=ROWS, columns=COLUMNS, are_filled=tuple(filled))


def sharpness(corners: "Corners | None", most_px: float) -> Gauge:
    """Return the gauge of the image's sharpness, if the board is seen."""
    if not corners:
        return Gauge(name="blur", text="", limit_share=0.5)
    blur = corners.blur_px
    return Gauge(
        name="blur",
        text=f"{blur:.1f} px, at most {most_px:.1f}",
        share=min(blur / (2.0 * most_px), 1.0),
        limit_share=0.5,
        is_good=blur <= most_px,
    )


def _at_least(name: str, share: float, least: float) -> Gauge:
    return Gauge(
        name=name,
        text=f"{100 * share:.0f} %, at least {100 * least:.0f}",
        share=min(share, 1.0),
        limit_share=least,
        is_good=share >= least,
    )


def _turns(poses: Sequence["pin.SE3"]) -> tuple[Mark, ...]:
    """Return how far the end effector was turned about the two directions in which it was turned most."""
    from calibration.chain import Excitation
    from calibration.chain_verdict import WELL_EXCITED_DEG

    turned = Excitation.of(poses).degrees[:2].tolist() if len(poses) > 1 else [0.0, 0.0]
    return tuple(
        Mark(
            name=name,
            text=f"{degrees:.0f}°, at least {WELL_EXCITED_DEG:.0f}°",
            is_there=degrees >= WELL_EXCITED_DEG,
        )
        for name, degrees in zip(("about one direction", "about another"), turned, strict=True)
    )
