"""Finds the layout of a ChArUco board from images, independent of its declaration: `layout_of`.

Markers are numbered row by row, so only with the right number of columns do all of them lie on one flat grid
in an image:

    7 columns     0   1   2          5 columns     0   1
                3   4   5   6                    2   3   4
                  7   8   9                        5   6
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import cv2
import numpy as np

from calibration.board import DICTIONARIES
from robot_runtime.core.values.shapes import Float

MOST_COLUMNS = 24
LEAST_MARKERS = 6
"""Markers that an image needs to determine columns."""
_NEAR = 0.45
"""Share of a square within which markers fit a layout."""
_FITTING, _BETTER = 0.8, 1.1
"""Share of all markers that a layout must explain, and the ratio to the next best."""


@final
@dataclass(frozen=True, kw_only=True)
class Layout:
    """Layout of a board, as far as it is visible."""

    columns: int
    rows: int
    """Least number of rows, as far as markers were read."""
    begins_white: bool
    """The top left square is white and has a marker: the legacy layout of an even number of rows."""
    num_markers: int
    """Number of markers read in all images that fit it."""


def layout_of(dictionary: str, pictures: Sequence[np.ndarray]) -> Layout | None:
    """Layout of the board in images; None: too few markers of the dictionary, no grid fits, or several do.

    pictures: (h, w) or (h, w, 3) uint8, all of one board.
    """
    detector = cv2.aruco.ArucoDetector(cv2.aruco.getPredefinedDictionary(DICTIONARIES[dictionary]))
    seen = [(ids, middles) for picture in pictures for ids, middles in _markers(detector, picture)]
    total = sum(len(ids) for ids, _ in seen)
    if not total:
        return None
    found = {
        (columns, begins_white): sum(_fitting(columns, begins_white, *each) for each in seen)
        for columns in range(3, MOST_COLUMNS + 1)
        for begins_white in (False, True)  # with odd columns this shifts most markers, but not all
    }
    columns, begins_white = max(found, key=lambda each: found[each])
    most = found[columns, begins_white]
    second = max(fits for (others, _), fits in found.items() if others != columns)
    if most < _FITTING * total or most < _BETTER * second:
        return None
    last = max(int(ids.max()) for ids, _ in seen)
    rows = int(_cells(columns, begins_white, np.array([last]))[0, 1]) + 1
    return Layout(columns=columns, rows=rows, begins_white=begins_white, num_markers=most)


def _markers(
    detector: cv2.aruco.ArucoDetector, picture: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers (N,) and middles (N, 2) [pixels] of an image's markers, if there are enough."""
    corners, ids, _ = detector.detectMarkers(picture)
    if ids is not None and len(ids) >= LEAST_MARKERS:
        yield ids[:, 0].astype(int), np.array([each.reshape(4, 2).mean(axis=0) for each in corners])


def _cells(columns: int, begins_white: bool, ids: np.ndarray) -> Float[np.ndarray, "N 2"]:
    """Column and row of the squares that have these markers."""
    first = (0, 1) if begins_white else (1, 0)  # column of the first marker in even and odd rows
    counts = [len(range(first[row], columns, 2)) for row in (0, 1)]
    pairs, rest = np.divmod(ids, sum(counts))
    is_second = rest >= counts[0]
    column = 2 * np.where(is_second, rest - counts[0], rest) + np.where(is_second, first[1], first[0])
    return np.column_stack([column, 2 * pairs + is_second]).astype(float)


def _fitting(columns: int, begins_white: bool, ids: np.ndarray, middles: np.ndarray) -> int:
    """Number of an image's markers that lie on one flat grid of that many columns."""
    cells = _cells(columns, begins_white, ids)
    if np.linalg.matrix_rank(cells - cells.mean(axis=0), tol=0.1) < 2:
        return 0  # one row: any number of columns would do
    to_grid, _ = cv2.findHomography(middles, cells, cv2.RANSAC, _NEAR)
    if to_grid is None:
        return 0
    at = np.column_stack([middles, np.ones(len(middles))]) @ to_grid.T
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.linalg.norm(at[:, :2] / at[:, 2:] - cells, axis=1)
    return int((off < _NEAR).sum())
