"""A camera's intrinsics from views of a board: `calibrate`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.board_pose import pose_of
from calibration.bundle import Bundle, adjusted, numbers_of
from calibration.camera import CameraModel, Intrinsics, KannalaBrandt, Pinhole
from calibration.coverage import ENOUGH_VIEWS, USUAL_FOCALS, Coverage, tilt_of
from calibration.detection import Corners
from calibration.intrinsics_verdict import OF_ERRORS, OtherModel, of_two_cameras, reasons
from calibration.structure import Pattern, pattern_of, radial, unmodelled
from calibration.verdict import Verdict
from robot_runtime.errors import InvalidValueError

LEAST_VIEWS, MOST_VIEWS = 12, 60
LEAST_CORNERS = 10
MOST_BLUR_PX = 2.5
_FOCALS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
"""Initial focal lengths, in widths of the image."""
_LEAST_PLACED = 0.8
"""Share of the views that another model must explain to be compared."""
_LEAST_OF_A_CAMERA, _TWO_EXPLAIN, _OTHER_FOCAL = 4, 0.5, 0.02
"""Least views of a second camera; largest share of the errors that two cameras may leave; least logarithm of
the ratio of their focal lengths."""
_ALIKE = 1.5
"""Factor within which errors of focal lengths count as equal."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Calibrated:
    """Calibrated intrinsics, with the views that were used."""

    intrinsics: Intrinsics
    views: tuple[Corners, ...]
    """Views that were used."""
    bundle: Bundle
    tilts: np.ndarray
    """Tilt of the board in each against the image plane, 0 to pi / 2 [rad]."""


def calibrate(
    board: Board, views: Sequence[Corners], model: Literal["pinhole", "fisheye"] = "pinhole"
) -> Calibrated:
    """Calibrate a camera's intrinsics.

    views: of any number of images; the sharp ones that differ most are used.
    InvalidValueError: images of two sizes, too few views for any answer, or none that converges.
    """
    kept = usable(views)
    if len(kept) < LEAST_VIEWS:
        lacking = len(views) - len(kept)
        do = "" if lacking <= len(kept) else "; more light, more of the board in view, hold still"
        raise InvalidValueError(
            f"{len(kept)} of {len(views)} images show the board sharply, by {LEAST_CORNERS} corners: "
            f"at least {LEAST_VIEWS} are needed and {ENOUGH_VIEWS} make it sure, from other sides each{do}"
        )
    chosen = most_different(kept, MOST_VIEWS)
    camera, poses, placed = _start(board, chosen, model)
    used, bundle = _without_outliers(board, placed, camera, poses)
    order = np.arange(len(used))
    halves = [_half(board, used, bundle, order[k::2]) for k in (0, 1)]
    tilts = np.array([tilt_of(X) for X in bundle.X_CB])
    pattern = pattern_of(board, used, bundle)
    other = None
    if pattern is not None and pattern.may_be_lens:
        other = _other_model(board, used, model)
    numbers = _numbers(used, bundle, halves, tilts, pattern)
    numbers["left_out_share"] = 1.0 - sum(map(len, used)) / sum(map(len, chosen))
    found = reasons(used, bundle.camera, numbers, tilts, pattern, other)
    names = {each.name for each in found}
    if names & OF_ERRORS and "wrong-model" not in names:
        found = of_two_cameras(found, _two_cameras(board, chosen, model, bundle.camera))
    intrinsics = Intrinsics(
        camera=bundle.camera, residuals=numbers, board=board.to_dict(), verdict=Verdict.of(found)
    )
    return Calibrated(intrinsics=intrinsics, views=tuple(used), bundle=bundle, tilts=tilts)


def _two_cameras(
    board: Board, views: Sequence[Corners], model: str, camera: CameraModel
) -> tuple[float, float] | None:
    """Focal lengths [pixels] of two cameras that explain the views much better than one; None: one camera.

    Begins with the focal length that fits each view best alone, then fits and reassigns in turn.
    """
    focals = camera.fx * np.geomspace(0.7, 1.4, 9)
    one = [_rms(board, views, camera)]
    by_focal = [_rms(board, views, replace(camera, fx=f, fy=f * camera.fy / camera.fx)) for f in focals]
    alone = focals[np.argmin(by_focal, axis=0)]
    is_second = alone > np.median(alone) if np.ptp(alone) else np.arange(len(views)) % 2 > 0
    for _ in range(4):
        groups = [[v for v, b in zip(views, is_second, strict=True) if b == k] for k in (False, True)]
        if min(map(len, groups)) < _LEAST_OF_A_CAMERA:
            return None
        try:
            cameras = [_start(board, group, model)[0] for group in groups]
        except InvalidValueError:
            return None
        by_camera = [_rms(board, views, each) for each in cameras]
        is_second = by_camera[1] < by_camera[0]
    a, b = cameras[0].fx, cameras[1].fx
    left = float(np.median(np.minimum(*by_camera)) / np.median(one))
    return (a, b) if left < _TWO_EXPLAIN and abs(np.log(a / b)) > _OTHER_FOCAL else None


def _rms(board: Board, views: Sequence[Corners], camera: CameraModel) -> np.ndarray:
    """RMS of each view's corners by that camera [pixels]; infinite where it has no pose."""
    return np.array([np.inf if each is None else each[1] for each in _poses(board, views, camera)])


def usable(views: Sequence[Corners]) -> list[Corners]:
    """Sharp views with enough corners, all of one size. InvalidValueError: there are two sizes."""
    sizes = sorted({view.size for view in views if len(view)})
    if len(sizes) > 1:
        listed = " and ".join(f"{width}x{height}" for height, width in sizes)
        raise InvalidValueError(
            f"images are of {len(sizes)} sizes, {listed}: calibrate at the one size that is used"
        )
    kept = [view for view in views if len(view) >= LEAST_CORNERS]
    usual = float(np.median([view.blur_px for view in kept])) if kept else 0.0
    limit = min(MOST_BLUR_PX, 2.0 * usual + 0.3)
    return [view for view in kept if view.blur_px <= limit]


def most_different(views: Sequence[Corners], num: int) -> list[Corners]:
    """`num` of the views that differ most in position, size and foreshortening."""
    if len(views) <= num:
        return list(views)
    marks = np.array([_mark(view) for view in views])
    marks = (marks - marks.mean(axis=0)) / np.maximum(marks.std(axis=0), 1e-6)
    taken = [int(np.argmax([len(view) for view in views]))]
    far = np.linalg.norm(marks - marks[taken[0]], axis=1)
    while len(taken) < num:
        taken.append(int(np.argmax(far)))
        far = np.minimum(far, np.linalg.norm(marks - marks[taken[-1]], axis=1))
    return [views[i] for i in sorted(taken)]


def _mark(view: Corners) -> np.ndarray:
    """Middle, size and shape of the board in a view, in widths of the image."""
    uv = view.uv / view.size[1]
    middle = uv.mean(axis=0)
    spread = np.cov((uv - middle).T)
    third = ((uv - middle) ** 3).mean(axis=0)
    return np.array(
        [*middle, np.sqrt(np.linalg.det(spread)), *np.cbrt(third), spread[0, 1] / np.trace(spread)]
    )


def _camera(model: str, size: tuple[int, int], focal: float) -> CameraModel:
    kind = KannalaBrandt if model == "fisheye" else Pinhole
    return kind(size=size, fx=focal, fy=focal, cx=(size[1] - 1) / 2, cy=(size[0] - 1) / 2)


def _start(
    board: Board, views: Sequence[Corners], model: str
) -> tuple[CameraModel, list[pin.SE3], list[Corners]]:
    """The focal length that fits some views best, and their poses; views that fit none are left out."""
    some = most_different(views, 12)
    size = views[0].size
    errors = []
    for focal in _FOCALS:
        poses = _poses(board, some, _camera(model, size, focal * size[1]))
        rms = [each[1] for each in poses if each is not None]
        errors.append(float(np.median(rms)) if 2 * len(rms) > len(some) else np.inf)
    if not np.isfinite(min(errors)):
        raise InvalidValueError(
            f"no focal length of a {model} lens explains the views: check that it is the right board, "
            f"that all images are of one camera, and that the lens is a {model} (--model)"
        )
    camera = _camera(model, size, _likely_focal(errors, model) * size[1])
    placed = [(v, each[0]) for v, each in zip(some, _poses(board, some, camera), strict=True) if each]
    first = adjusted(board, [v for v, _ in placed], camera, [X for _, X in placed], ("fx", "fy"))
    first = adjusted(board, [v for v, _ in placed], first.camera, first.X_CB, _free(first.camera))
    poses = _poses(board, views, first.camera)
    placed = [(v, each[0]) for v, each in zip(views, poses, strict=True) if each]
    return first.camera, [X for _, X in placed], [v for v, _ in placed]


def _likely_focal(errors: Sequence[float], model: str) -> float:
    """The most common focal length of those that fit about as well as the best: frontal views fit all."""
    alike = [focal for focal, error in zip(_FOCALS, errors, strict=True) if error < _ALIKE * min(errors)]
    return min(alike, key=lambda focal: abs(np.log(focal / USUAL_FOCALS[model])))


def _poses(board: Board, views: Sequence[Corners], camera: CameraModel) -> list[tuple[pin.SE3, float] | None]:
    out: list[tuple[pin.SE3, float] | None] = []
    for view in views:
        try:
            pose = pose_of(board, view, camera)
        except (InvalidValueError, np.linalg.LinAlgError):
            out.append(None)
        else:
            out.append((pose.X_CB, pose.rms_px))
    return out


def _free(camera: CameraModel) -> tuple[str, ...]:
    """Parameters to fit. k3 of a pinhole is free where the lens is wide: elsewhere it would fit noise, and is
    free only if the errors have a radial pattern without it."""
    names = numbers_of(camera)
    is_wide = isinstance(camera, KannalaBrandt) or camera.size[1] / camera.fx > 1.6
    return names if is_wide else tuple(name for name in names if name != "k3")


def _without_outliers(
    board: Board, views: Sequence[Corners], camera: CameraModel, poses: Sequence[pin.SE3]
) -> tuple[list[Corners], Bundle]:
    """Fit all views, then again without corners whose errors are four times those of most."""
    bundle = adjusted(board, views, camera, poses, _free(camera))
    size = [np.linalg.norm(each, axis=1) for each in bundle.off]
    limit = 4.0 * max(float(np.median(np.concatenate(size))), 0.05)
    kept = [
        (view.only(s < limit), X)
        for view, s, X in zip(views, size, bundle.X_CB, strict=True)
        if (s < limit).sum() >= LEAST_CORNERS
    ]
    if len(kept) < LEAST_VIEWS:
        return list(views), bundle
    used = [view for view, _ in kept]
    bundle = adjusted(board, used, bundle.camera, [X for _, X in kept], bundle.free)
    if (
        bundle.free != (every := numbers_of(bundle.camera))
        and unmodelled(board, used, bundle, radial).is_sure
    ):
        bundle = adjusted(board, used, bundle.camera, bundle.X_CB, every)
    return used, bundle


def _half(board: Board, views: Sequence[Corners], bundle: Bundle, some: np.ndarray) -> CameraModel:
    some_views = [views[i] for i in some]
    return adjusted(board, some_views, bundle.camera, [bundle.X_CB[i] for i in some], bundle.free).camera


def _other_model(board: Board, views: Sequence[Corners], model: str) -> OtherModel | None:
    """Fit of the same views by the other model; None: it does not fit."""
    name: Literal["pinhole", "fisheye"] = "pinhole" if model == "fisheye" else "fisheye"
    try:
        camera, poses, placed = _start(board, views, name)
    except InvalidValueError:
        return None
    if len(placed) < _LEAST_PLACED * len(views):
        return None
    return OtherModel(name=name, rms_px=adjusted(board, views, camera, poses, _free(camera)).rms_px)


def _numbers(
    views: Sequence[Corners],
    bundle: Bundle,
    halves: Sequence[CameraModel],
    tilts: np.ndarray,
    pattern: Pattern | None,
) -> dict[str, float]:
    camera = bundle.camera
    coverage = Coverage.of(views)
    a, b = halves
    apart = float(abs(a.fx - b.fx) / camera.fx)
    far = [float(np.linalg.norm(X.translation)) for X in bundle.X_CB]
    return {
        "rms_px": bundle.rms_px,
        "pattern_px": 0.0 if pattern is None else pattern.px,
        "views": float(len(views)),
        "coverage_share": coverage.share,
        "tilt_median_rad": float(np.median(tilts)),
        "distance_ratio": max(far) / min(far),
        "focal_repeat_share": apart,
        "middle_repeat_px": float(np.hypot(a.cx - b.cx, a.cy - b.cy)),
        "focal_sigma_share": float(max(bundle.sigma("fx"), bundle.sigma("fy")) / camera.fx),
    }
