"""Corners of a board in an image: `detect`, and why none are found: `wrong_board`.

OpenCV's ChArUco corners count pixels from the corner of the image: a pixel's centre is at +0.5. Here, as
in `cornerSubPix` and in camera.py, a pixel's centre is at integers; only this file subtracts the half
pixel. (Measured on rendered boards: it is 0.8 mm at 1 m for 640 pixels of 55 degrees.)
OpenCV also refines a corner in a window that may reach into the adjacent markers, which biases it by up to a
pixel; here the window ends where the markers begin, which is 2 to 4 times as exact.

Markers are numbered row by row, so only with the right number of columns do all of them lie on one flat grid
in an image; `layout_of` finds it independently of the board's declaration:

    7 columns     0   1   2          5 columns     0   1
                3   4   5   6                    2   3   4
                  7   8   9                        5   6
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, final

import cv2
import numpy as np

from calibration.board import DICTIONARIES, Board
from calibration.verdict import Reason
from robot_runtime.core.values.shapes import Float, Int
from robot_runtime.errors import InvalidValueError

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


HALF_PIXEL = 0.5
LEAST_CORNERS = 6
"""Least corners of a usable image: fewer are often misread markers."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Corners:
    """The board's inner corners detected in an image."""

    ids: Int[np.ndarray, " N"]
    """Numbers of corners, rising: rows of `Board.corners_B`."""
    uv: Float[np.ndarray, "N 2"]
    """Their positions [pixels]; integers are centres of pixels."""
    size: tuple[int, int]
    """(height, width) of the image [pixels]"""
    num_markers: int = 0
    """Number of markers of the board's dictionary that were read, at any position."""
    blur_px: float = 0.0
    """Width of the board's edges across the blurrier of its two directions, as the standard deviation of a
    Gaussian [pixels]; 0: not measured. A sharp image has about 0.5."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def span(self) -> tuple[float, float]:
        """Width and height that they cover, as shares of the image's."""
        if not len(self):
            return 0.0, 0.0
        width, height = np.ptp(self.uv, axis=0)
        return float(width / self.size[1]), float(height / self.size[0])

    def only(self, keep: np.ndarray) -> "Corners":
        """The corners that a mask selects."""
        return replace(self, ids=self.ids[keep], uv=self.uv[keep])


def detect(board: Board, picture: np.ndarray) -> Corners:
    """Detect the board's corners in an image; none (`len` 0) if it is not seen.

    picture: (h, w) or (h, w, 3) uint8; the order of colours does not matter much.
    """
    if picture.dtype != np.uint8 or picture.ndim not in (2, 3):
        raise InvalidValueError(
            f"an image is uint8 of (h, w) or (h, w, 3), got {picture.dtype} {picture.shape}"
        )
    grey = picture if picture.ndim == 2 else cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    size = (int(grey.shape[0]), int(grey.shape[1]))
    uv, ids, _, marker_ids = _detector(board).detectBoard(grey)
    num_markers = 0 if marker_ids is None else len(marker_ids)
    if ids is None or len(ids) < LEAST_CORNERS:
        empty = np.empty((0, 2))
        return Corners(ids=np.empty(0, dtype=np.int64), uv=empty, size=size, num_markers=num_markers)
    order = np.argsort(ids[:, 0])
    corners = Corners(
        ids=ids[order, 0].astype(np.int64),
        uv=uv.reshape(-1, 2)[order].astype(float) - HALF_PIXEL,
        size=size,
        num_markers=num_markers,
    )
    corners = _refined(board, grey, corners.only(_regular(board, corners)))
    if len(corners) < LEAST_CORNERS:
        return corners.only(np.zeros(len(corners), dtype=bool))
    return replace(corners, blur_px=blur_of(board, grey, corners))


def wrong_board(board: Board, pictures: Sequence[np.ndarray]) -> Reason | None:
    """Why a board is not found in images that may show another one: mirrored, other numbers of columns and
    rows, sides swapped, the other layout, another dictionary; None if no other one fits better."""
    as_declared = _seen(board, pictures)
    if (mirrored := _seen(board, [each[:, ::-1] for each in pictures])) > max(2 * as_declared, LEAST_CORNERS):
        return Reason(
            name="mirrored",
            what=f"The images are mirrored: turned from left to right {mirrored} corners of {board} are "
            f"found, as they are {as_declared}.",
            do="Switch the mirroring of the camera or its preview off (selfie mode), and take them again.",
        )
    if (layout := layout_of(board.dictionary, pictures)) is not None:
        return _other_layout(board, layout)
    best, most = None, max(2 * as_declared, LEAST_CORNERS)
    for other in _variants(board):
        if (seen := _seen(other, pictures)) > most:
            best, most = other, seen
    if best is not None:
        return Reason(
            name="wrong-board",
            what=f"The images show {_difference(board, best)}: {most} corners are found so, and "
            f"{as_declared} as {board}.",
            do="Give the board that was printed (its parameters are printed on it), or print this one.",
        )
    if as_declared:
        return None
    name, found = _dictionary_of(board, pictures)
    if not found:
        return None
    markers = f"markers of {name} with numbers up to {max(found)}"
    if name == board.dictionary:
        what = f"Its markers are read ({markers}), and they lie otherwise than on {board}."
    else:
        what = f"The images show {markers}, and the board has {board.dictionary}."
    return Reason(
        name="wrong-board",
        what=what,
        do="Give columns, rows and dictionary of the board that was printed; they are printed on it.",
    )


def _other_layout(board: Board, layout: Layout) -> Reason | None:
    """Reason for another layout than the board's; None: it is the board's own."""
    begins_white = board.legacy and board.rows % 2 == 0
    is_as_declared = (layout.columns, layout.begins_white) == (board.columns, begins_white)
    if is_as_declared and layout.rows <= board.rows:
        return None
    is_swapped = (layout.columns, layout.rows) == (board.rows, board.columns)
    if layout.columns != board.columns or layout.rows > board.rows:
        what = f"a board of {layout.columns} columns and {layout.rows} rows"
        what += (
            " (columns and rows are swapped)"
            if is_swapped
            else ", as far as it is seen, another board than the one given (of another paper size?)"
        )
    else:
        what = "the layout " + ("of before OpenCV 4.6 (legacy)" if layout.begins_white else "without legacy")
    return Reason(
        name="wrong-board",
        what=f"The images show {what}: {layout.num_markers} markers lie so, and not as on {board}.",
        do="Give the board that was printed (its parameters are printed on it), or print this one.",
    )


def blur_of(board: Board, grey: np.ndarray, corners: Corners) -> float:
    """`Corners.blur_px`: across edges half way between neighbouring corners; 0 if there are none."""
    at = {int(number): uv for number, uv in zip(corners.ids, corners.uv, strict=True)}
    in_row = board.columns - 1
    widths = []
    for step in (1, in_row):
        pairs = [
            (at[a], at[a + step]) for a in at if a + step in at and (step > 1 or (a + 1) % in_row)
        ]  # neighbours in a row, then in a column
        if pairs:
            widths.append(_edge_width(grey, np.array(pairs)))
    return float(max(widths, default=0.0))


def _edge_width(grey: np.ndarray, ends: np.ndarray) -> float:
    """Median width of straight edges from corner to corner, (n, 2 ends, 2)."""
    along = ends[:, 1] - ends[:, 0]
    length = np.linalg.norm(along, axis=1)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1) / length[:, None]
    steps = np.linspace(-1.0, 1.0, 33)
    reach = np.clip(0.25 * length, 2.0, 12.0)
    points = ends.mean(axis=1)[:, None] + steps[None, :, None] * reach[:, None, None] * across[:, None]
    x, y = points[..., 0].astype(np.float32), points[..., 1].astype(np.float32)
    profile = cv2.remap(grey, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE).astype(float)
    contrast = np.ptp(profile, axis=1)
    steepest = np.abs(profile[:, 2:] - profile[:, :-2]).max(axis=1) / (2 * reach * (steps[1] - steps[0]))
    seen = contrast > 20
    if not seen.any():
        return 0.0
    return float(np.median(contrast[seen] / np.maximum(steepest[seen], 1e-9)) / np.sqrt(2 * np.pi))


def _regular(board: Board, corners: Corners) -> np.ndarray:
    """Corners consistent with their neighbours, (N,) bool: one that jumped to another edge is not.

    A corner between two others in its row or column is near their middle for any lens: off by more than a
    fifth of the distance it is left out.
    """
    at = {int(number): uv for number, uv in zip(corners.ids, corners.uv, strict=True)}
    in_row = board.columns - 1
    bad: Counter[int] = Counter()
    for number, uv in at.items():
        for step in (1, in_row):
            if step == 1 and not 0 < number % in_row < in_row - 1:
                continue
            if number - step in at and number + step in at:
                before, after = at[number - step], at[number + step]
                off = np.linalg.norm(uv - (before + after) / 2) / (np.linalg.norm(after - before) / 2)
                if off > 0.2:
                    bad.update((number, number, number - step, number + step))
    return np.array([bad[int(number)] < 2 for number in corners.ids], dtype=bool)


def _refined(board: Board, grey: np.ndarray, corners: Corners) -> Corners:
    """Refine each corner to where its edges cross, in a window without markers; drop those that diverge."""
    if not len(corners):
        return corners
    margin = (1.0 - board.marker_m / board.square_m) / 2.0
    reach = np.clip(0.9 * margin * _square_heights(board, corners), 2.0, 11.0).astype(int)
    uv = corners.uv.astype(np.float32)
    enough = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, 60, 0.002)
    for w in np.unique(reach):
        some = uv[reach == w].reshape(-1, 1, 2)
        uv[reach == w] = cv2.cornerSubPix(grey, some, (int(w), int(w)), (-1, -1), enough)[:, 0]
    moved = np.linalg.norm(uv - corners.uv, axis=1)
    return replace(corners, uv=uv.astype(float)).only(moved < np.maximum(reach, 3))


def _square_heights(board: Board, corners: Corners) -> np.ndarray:
    """Smaller apparent height of the square at each corner, by its neighbours, (N,) [pixels]."""
    in_row = board.columns - 1
    at = {int(number): uv for number, uv in zip(corners.ids, corners.uv, strict=True)}
    heights = np.full(len(corners), np.nan)
    for i, (number, uv) in enumerate(at.items()):
        column = number % in_row
        beside = [number + d for d in (-1, 1) if 0 <= column + d < in_row and number + d in at]
        above = [number + d for d in (-in_row, in_row) if number + d in at]
        found = [
            abs(a[0] * b[1] - a[1] * b[0]) / max(np.linalg.norm(a), np.linalg.norm(b))
            for a in (at[n] - uv for n in beside)
            for b in (at[n] - uv for n in above)
        ]
        heights[i] = min(found, default=np.nan)
    least = np.nanmin(heights) if np.isfinite(heights).any() else 0.0
    return np.where(np.isfinite(heights), heights, least)


@lru_cache(maxsize=64)
def _detector(board: Board) -> Any:
    parameters = cv2.aruco.DetectorParameters()
    parameters.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
    return cv2.aruco.CharucoDetector(board.charuco, detectorParams=parameters)


def _seen(board: Board, pictures: Sequence[np.ndarray]) -> int:
    return sum(len(detect(board, picture)) for picture in pictures)


def _variants(board: Board) -> list[Board]:
    swapped = replace(board, columns=board.rows, rows=board.columns)
    boards = [swapped] if board.columns != board.rows else []
    return [*boards, *(replace(each, legacy=not each.legacy) for each in (board, *boards))]


def _difference(board: Board, other: Board) -> str:
    parts = []
    if other.columns != board.columns:
        parts.append(
            f"{other.columns} columns and {other.rows} rows in place of {board.columns} and {board.rows}"
        )
    if other.legacy != board.legacy:
        parts.append(
            f"the {'layout of before OpenCV 4.6 (legacy)' if other.legacy else 'layout without legacy'}"
        )
    return " and ".join(parts)


_SURE_MARKERS = 4
"""Single markers of large dictionaries are easily misread; as many as images are not."""


def _dictionary_of(board: Board, pictures: Sequence[np.ndarray]) -> tuple[str, list[int]]:
    """The dictionary of which most markers are read, the first of equals, and their numbers; no numbers if
    they are too few."""
    best: tuple[str, list[int]] = (board.dictionary, [])
    for name in (board.dictionary, *DICTIONARIES):
        dictionary = cv2.aruco.getPredefinedDictionary(DICTIONARIES[name])
        detector = cv2.aruco.ArucoDetector(dictionary)
        found = [detector.detectMarkers(picture)[1] for picture in pictures]
        numbers = [int(each) for ids in found if ids is not None for each in ids[:, 0]]
        if len(numbers) > len(best[1]):
            best = (name, numbers)
    return best if len(best[1]) >= max(_SURE_MARKERS, len(pictures)) else (board.dictionary, [])
