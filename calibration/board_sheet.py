"""A board on a sheet of paper, to scale: `pdf_of` for the printer, `picture_of` for a screen.

It consists of rectangles, so that no printer's or viewer's smoothing moves an edge. Below the board are its
parameters as text, a ruler of 100 mm to measure with a calliper, and a golden corner: with the text upright
it is at the top left, at the origin of the board's frame.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import final

import cv2
import numpy as np

from calibration.board import DICTIONARIES, Board
from robot_runtime.core.values.shapes import UInt8
from robot_runtime.errors import InvalidValueError, UnknownNameError

PAPERS = {"a4": (297.0, 210.0), "a3": (420.0, 297.0), "letter": (279.4, 215.9), "tabloid": (431.8, 279.4)}
"""Paper sizes in landscape: (width, height) [mm]."""
BOARDS = {
    "a4": Board(columns=9, rows=7, square_m=0.024, marker_m=0.0168),
    "letter": Board(columns=9, rows=7, square_m=0.024, marker_m=0.0168),
    "a3": Board(columns=7, rows=5, square_m=0.05, marker_m=0.035),
    "tabloid": Board(columns=7, rows=5, square_m=0.045, marker_m=0.0315),
}
"""Default boards that fit: odd by odd, so that both layouts of OpenCV are the same."""
RULER_MM = 100.0
_EDGE, _TEXT, _STRIP = 5.0, 3.2, 16.0
"""Margin that printers leave white; height of the text; height of the strip below the board [mm]."""
_GOLD = (0.85, 0.65, 0.13)
_POINT = 72.0 / 25.4


@final
@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A board in the middle of a sheet of paper, with a strip below it."""

    board: Board
    paper: str
    """One of `PAPERS`."""

    def __post_init__(self) -> None:
        if self.paper not in PAPERS:
            raise UnknownNameError("paper", self.paper, PAPERS)
        (width, height), (across, down) = PAPERS[self.paper], self._board_mm
        room = (width - 2 * _EDGE, height - 2 * _EDGE - _STRIP)
        if across > room[0] or down > room[1]:
            side = 1e3 * self.board.square_m * min(room[0] / across, room[1] / down)
            raise InvalidValueError(
                f"a board of {across:g} x {down:g} mm is too large for {self.paper} ({room[0]:g} x "
                f"{room[1]:g} mm beside its text): squares of {np.floor(side):g} mm fit, or a larger paper"
            )

    @property
    def lines(self) -> tuple[str, str]:
        """Text of the strip."""
        board = self.board
        layout = "legacy" if board.legacy else "not legacy"
        return (
            f"ChArUco {board.columns} columns x {board.rows} rows   square {1e3 * board.square_m:.5g} mm  "
            f" marker {1e3 * board.marker_m:.5g} mm   DICT_{board.dictionary}   {layout}",
            f"Print at 100 %, glue flat. Measure the ruler ({RULER_MM:g} mm): robot-runtime calibrate board "
            f"--board board.json --measured-mm ... --of {RULER_MM:g}",
        )

    @property
    def _board_mm(self) -> tuple[float, float]:
        width, height = self.board.size_m
        return 1e3 * width, 1e3 * height

    @property
    def _corner_mm(self) -> tuple[float, float]:
        """Left and top of the board on the paper [mm]."""
        (width, height), (across, down) = PAPERS[self.paper], self._board_mm
        return (width - across) / 2, (height - _STRIP - down) / 2

    @property
    def _strip_mm(self) -> tuple[float, float]:
        """Left and top of the text [mm]."""
        height = PAPERS[self.paper][1]
        return _EDGE + 5.0, height - _EDGE - _STRIP + 1.0

    def black(self) -> Iterator[tuple[float, float, float, float]]:
        """Left, top, width, height of every black rectangle [mm]: squares, cells of markers, the ruler."""
        left, top = self._corner_mm
        for x, y, side in _black_of(self.board):
            yield left + 1e3 * x, top + 1e3 * y, 1e3 * side, 1e3 * side
        x0, y0 = self._strip_mm
        y0 += 2 * 1.5 * _TEXT + 0.5
        yield x0, y0 + 2.0, RULER_MM, 0.3
        for mm in range(0, int(RULER_MM) + 1, 10):
            tall = 2.0 if mm % 50 else 4.0
            thick = 0.2
            yield min(max(x0 + mm - thick / 2, x0), x0 + RULER_MM - thick), y0 + 2.15 - tall / 2, thick, tall

    def golden(self) -> tuple[tuple[float, float], ...]:
        """The three corners of the orientation mark [mm]."""
        left, top = self._corner_mm
        side, gap = min(0.45 * 1e3 * self.board.square_m, top - 1.0, left - 1.0), 0.8
        x, y = left - gap, top - gap
        return (x, y), (x - side, y), (x, y - side)


def pdf_of(sheet: Sheet) -> bytes:
    """A page of vector graphics at 1:1 that asks viewers not to scale it to the paper."""
    from reportlab.pdfgen.canvas import FILL_NON_ZERO, Canvas

    width, height = PAPERS[sheet.paper]
    out = BytesIO()
    page = Canvas(out, pagesize=(width * _POINT, height * _POINT), pageCompression=0, invariant=1)
    page.setViewerPreference("PrintScaling", "None")
    page.scale(_POINT, _POINT)
    black = page.beginPath()  # one path: no seams where rectangles touch
    for x, y, w, h in sheet.black():
        black.rect(x, height - y - h, w, h)
    page.drawPath(black, stroke=0, fill=1, fillMode=FILL_NON_ZERO)  # the ruler's strokes overlap
    (ax, ay), (bx, by), (cx, cy) = sheet.golden()
    gold = page.beginPath()
    gold.moveTo(ax, height - ay)
    gold.lineTo(bx, height - by)
    gold.lineTo(cx, height - cy)
    page.setFillColorRGB(*_GOLD)
    page.drawPath(gold, stroke=0, fill=1)
    page.setFillColorRGB(0.0, 0.0, 0.0)
    page.setFont("Helvetica", _TEXT)
    x, y = sheet._strip_mm
    for i, line in enumerate(sheet.lines):
        page.drawString(x, height - y - (i + 0.8) * 1.5 * _TEXT, line)
    page.save()
    return out.getvalue()


def picture_of(sheet: Sheet, *, dots_per_inch: int = 150) -> UInt8[np.ndarray, "h w 3"]:
    """The same sheet as an RGB image."""
    scale = dots_per_inch / 25.4
    width, height = PAPERS[sheet.paper]
    out = np.full((round(height * scale), round(width * scale), 3), 255, dtype=np.uint8)
    for x, y, w, h in sheet.black():
        x0, y0, x1, y1 = (round(each * scale) for each in (x, y, x + w, y + h))
        out[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] = 0
    gold = tuple(int(255 * each) for each in _GOLD)
    cv2.fillPoly(out, [np.round(np.array(sheet.golden()) * scale).astype(np.int32)], gold)
    x, y = sheet._strip_mm
    for i, line in enumerate(sheet.lines):
        at = (round(x * scale), round((y + (i + 0.8) * 1.5 * _TEXT) * scale))
        cv2.putText(out, line, at, cv2.FONT_HERSHEY_SIMPLEX, _TEXT * scale / 42, (0, 0, 0), 1, cv2.LINE_AA)
    return out


def _black_of(board: Board) -> Iterator[tuple[float, float, float]]:
    """Left, top and side of black squares and cells, from the board's corner [m]."""
    dictionary = cv2.aruco.getPredefinedDictionary(DICTIONARIES[board.dictionary])
    cells = dictionary.markerSize + 2
    marked = set()
    for number, corners in zip(board.charuco.getIds().ravel(), board.charuco.getObjPoints(), strict=True):
        left, top = np.asarray(corners, dtype=float)[:, :2].min(axis=0)
        marked.add((round(left // board.square_m), round(top // board.square_m)))
        bits = cv2.aruco.generateImageMarker(dictionary, int(number), cells)
        side = board.marker_m / cells
        for row, column in zip(*np.nonzero(bits == 0), strict=True):
            yield left + column * side, top + row * side, side
    for column in range(board.columns):
        for row in range(board.rows):
            if (column, row) not in marked:
                yield column * board.square_m, row * board.square_m, board.square_m
