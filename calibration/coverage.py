"""Coverage of a camera's image by views: `Coverage`, what is lacking, and an image of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import cv2
import numpy as np

from calibration.detection import Corners
from calibration.tilt import SIDES, Tilt, by_side, num_tilted
from robot_runtime.core.values.shapes import Float, UInt8

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
