"""Coverage of a camera's image by views: `Coverage`, what is lacking, and an image of it.

A board that is parallel to the image looks the same for a longer focal length and from farther away, wherever
in the image it is; so `tilt_of` is the angle to the optical axis, not to the line of sight, which is all that
`rough_tilt` can give before the lens is known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

import cv2
import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.board_pose import pose_of
from calibration.camera import CameraModel, KannalaBrandt, Pinhole
from calibration.detection import Corners
from robot_runtime.core.values.shapes import Float, UInt8
from robot_runtime.errors import InvalidValueError

Side = Literal["upper", "right", "lower", "left"]
"""An edge of the board, as it appears in the image."""
SIDES: tuple[Side, ...] = ("upper", "right", "lower", "left")
TILTED = float(np.deg2rad(20.0))
"""Least tilt of a view that determines the board's distance, and so the focal length [rad]."""
USUAL_FOCALS = {"pinhole": 0.87, "fisheye": 0.35}
"""Focal lengths of usual lenses, in widths of the image."""


@final
@dataclass(frozen=True, kw_only=True)
class Tilt:
    """Tilt of the board in one view."""

    angle: float
    """Angle between its normal and the line of sight; 0 is frontal [rad]."""
    nearer: Side
    """The edge that is nearer to the camera than the one across."""

    @property
    def is_enough(self) -> bool:
        """Whether the view counts as tilted."""
        return self.angle > TILTED


def num_tilted(tilts: Sequence[Tilt]) -> int:
    """Number of views that are tilted enough."""
    return sum(tilt.is_enough for tilt in tilts)


def by_side(tilts: Sequence[Tilt]) -> Mapping[Side, int]:
    """Number of views tilted enough to each side."""
    return {side: num_tilted([tilt for tilt in tilts if tilt.nearer == side]) for side in SIDES}


def tilt_of(X_CB: pin.SE3) -> float:
    """Angle between the board's normal, of either sign, and the optical axis, 0 to pi / 2 [rad]."""
    return float(np.arccos(np.clip(abs(X_CB.rotation[2, 2]), 0.0, 1.0)))


def rough_tilt(board: Board, corners: Corners, model: str = "pinhole") -> Tilt:
    """Tilt by a typical lens, accurate to some degrees.

    model: pinhole, for 60 degrees, or fisheye, for 160. What no such lens could see counts as frontal.
    """
    try:
        pose = pose_of(board, corners, _usual_lens(model, corners.size))
    except InvalidValueError:
        return Tilt(angle=0.0, nearer="upper")
    R, middle = pose.X_CB.rotation, pose.X_CB.act(board.corners_B[corners.ids].mean(axis=0))
    sight, normal = middle / np.linalg.norm(middle), R[:, 2]
    nearer = (sight @ normal) * normal - sight  # along the board, to where it is nearest
    x, y, _ = nearer - (nearer @ sight) * sight
    side: Side = ("right" if x > 0 else "left") if abs(x) > abs(y) else ("lower" if y > 0 else "upper")
    return Tilt(angle=pose.tilt, nearer=side)


def _usual_lens(model: str, size: tuple[int, int]) -> CameraModel:
    kind, (height, width) = KannalaBrandt if model == "fisheye" else Pinhole, size
    focal = USUAL_FOCALS[model] * width
    return kind(size=size, fx=focal, fy=focal, cx=(width - 1) / 2, cy=(height - 1) / 2)


COLUMNS, ROWS = 8, 6
ENOUGH_VIEWS = 30
ENOUGH_SHARE = 0.9
"""Least share of the image's cells."""
NEAR_SHARE = 0.5
"""Least share of the image's width or height that the board covers in the nearest view."""
FEW = 3
"""Corners from which on a cell counts."""
_PLACES = (
    ("top left", "top", "top right"),
    ("left", "middle", "right"),
    ("bottom left", "bottom", "bottom right"),
)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Coverage:
    """Distribution of corners over the image."""

    counts: np.ndarray
    """(rows, columns) of corners in each cell of the image."""
    size: tuple[int, int]
    reach: Float[np.ndarray, "4"]
    """Extent of corners: left, right, top, bottom, as shares of the image (0, 1, 0, 1 is all of it)."""

    @classmethod
    def of(cls, views: Sequence[Corners]) -> "Coverage":
        size = views[0].size
        uv = np.concatenate([view.uv for view in views])
        share = (uv + 0.5) / (size[1], size[0])
        counts, _, _ = np.histogram2d(share[:, 1], share[:, 0], bins=(ROWS, COLUMNS), range=((0, 1), (0, 1)))
        (left, top), (right, bottom) = share.min(axis=0), share.max(axis=0)
        return cls(counts=counts.astype(int), size=size, reach=np.array([left, right, top, bottom]))

    @property
    def are_filled(self) -> np.ndarray:
        """(rows, columns) bool: which cells hold three corners or more."""
        return self.counts >= FEW

    @property
    def share(self) -> float:
        """Share of cells that count."""
        return float(self.are_filled.mean())

    def emptiest(self) -> str:
        """The part of the image with the fewest corners, in words; empty if all have some."""
        thirds = [np.array_split(each, 3, axis=1) for each in np.array_split(self.are_filled, 3)]
        shares = np.array([[part.mean() for part in row] for row in thirds])
        row, column = np.unravel_index(int(np.argmin(shares)), shares.shape)
        return "" if shares.min() > 0.99 else _PLACES[row][column]


def lacking(views: Sequence[Corners], tilts: Sequence[Tilt]) -> str:
    """What to show next, in words; empty: there is enough.

    tilts: of the board in each view, roughly.
    """
    if not views:
        return "show the whole board, as large as a third of the image"
    coverage = Coverage.of(views)
    if len(views) >= 5 and num_tilted(tilts) < 0.5 * len(views):
        return _tilt_words(tilts)
    if coverage.share < ENOUGH_SHARE and (where := coverage.emptiest()):
        covered = f"{100 * coverage.share:.0f} % covered"
        return f"move it to the {where} of the image, to its very edge ({covered})"
    spans = [max(view.span) for view in views]
    if max(spans) < NEAR_SHARE:
        return "bring it nearer, to more than half of the image"
    if len(views) >= 5 and not all(by_side(tilts).values()):
        return _tilt_words(tilts)
    if len(views) < ENOUGH_VIEWS:
        return f"more views from other sides ({len(views)} of {ENOUGH_VIEWS})"
    return ""


def _tilt_words(tilts: Sequence[Tilt]) -> str:
    """To the first side that is missing."""
    there = by_side(tilts)
    missing = next((side for side in SIDES if not there[side]), None)
    how = "to all four sides" if missing is None else f"its {missing} edge in the image nearest"
    return f"tilt the board by 30 to 45 degrees, {how} ({num_tilted(tilts)} of {len(tilts)} are tilted)"


def is_other(corners: Corners, taken: Sequence[Corners]) -> bool:
    """Whether a view adds coverage: its corners differ from those of all others."""
    height, width = corners.size
    far = 0.06 * np.hypot(height, width)
    for other in taken:
        _, a, b = np.intersect1d(corners.ids, other.ids, return_indices=True)
        if len(a) and np.linalg.norm(corners.uv[a] - other.uv[b], axis=1).mean() < far:
            return False
    return True


def coverage_picture(
    views: Sequence[Corners], off: Sequence[np.ndarray], lines: Sequence[str]
) -> UInt8[np.ndarray, "h w 3"]:
    """All corners on the image's cells, coloured by their error (blue 0, red the 95th percentile), RGB.

    Below are a legend of dots and cells, a scale of the colours in pixels, and `lines` of text.
    off: errors of each view's corners (N, 2) [pixels]; all 0: unknown yet.
    """
    height, width = views[0].size
    scale = _WIDTH / width
    shape = (round(height * scale), _WIDTH)
    coverage = Coverage.of(views)
    cells = np.where(coverage.are_filled, _SEEN, _UNSEEN).astype(np.uint8)
    out = cv2.cvtColor(cv2.resize(cells, shape[::-1], interpolation=cv2.INTER_NEAREST), cv2.COLOR_GRAY2RGB)
    for i in range(1, COLUMNS):
        cv2.line(out, (i * shape[1] // COLUMNS, 0), (i * shape[1] // COLUMNS, shape[0]), (255, 255, 255), 1)
    for i in range(1, ROWS):
        cv2.line(out, (0, i * shape[0] // ROWS), (shape[1], i * shape[0] // ROWS), (255, 255, 255), 1)
    sizes = [np.linalg.norm(each, axis=1) for each in off]
    most = float(np.quantile(np.concatenate(sizes), 0.95))
    for view, size in zip(views, sizes, strict=True):
        for (u, v), s in zip((view.uv + 0.5) * scale, np.minimum(size / max(most, 1e-6), 1.0), strict=True):
            cv2.circle(out, (round(u), round(v)), 3, _colour(s), -1, cv2.LINE_AA)
    return np.concatenate([out, _legend(coverage, len(views), most), _text(lines)])


_WIDTH, _LINE = 960, 26
_SEEN, _UNSEEN = 235, 170
"""Grey of a cell with corners and without."""


def _colour(share: float) -> tuple[int, int, int]:
    """Colour of a share from 0, blue, to 1, red."""
    return int(255 * share), int(60 + 60 * (1 - share)), int(255 * (1 - share))


def _legend(coverage: Coverage, num_views: int, most_px: float) -> np.ndarray:
    height, width = coverage.size
    out = _text(
        [
            f"the whole image, {width} x {height} pixels; a dot for each corner that was found, in "
            f"{num_views} views",
            "",
            "error of a corner:" if most_px > 1e-6 else "error of a corner: not known yet",
        ]
    )
    words = (f"{FEW} corners or more in this part", "fewer: show the board here")
    for x, grey, word in zip((8, 400), (_SEEN, _UNSEEN), words, strict=True):
        top = _LINE + 14
        _write(out, word, (x + 38, 2 * _LINE))
        cv2.rectangle(out, (x, top), (x + 28, top + 16), (grey,) * 3, -1)
        cv2.rectangle(out, (x, top), (x + 28, top + 16), (90, 90, 90), 1)
    if most_px > 1e-6:
        left, long, top = 230, 240, 2 * _LINE + 14
        for i in range(long):
            cv2.line(out, (left + i, top), (left + i, top + 14), _colour(i / long), 1)
        _write(out, "0", (left - 18, 3 * _LINE))
        _write(out, f"{most_px:.2f} px or more (1 corner in 20)", (left + long + 8, 3 * _LINE))
    return out


def _text(lines: Sequence[str]) -> np.ndarray:
    strip = np.full((_LINE * len(lines) + 8, _WIDTH, 3), 255, dtype=np.uint8)
    for i, line in enumerate(lines):
        _write(strip, line, (8, _LINE * (i + 1)))
    return strip


def _write(picture: np.ndarray, text: str, at: tuple[int, int]) -> None:
    cv2.putText(picture, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.55, (0, 0, 0), 1, cv2.LINE_AA)
