"""The ChArUco board: a chessboard with a numbered marker in every white square."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Self, final

import cv2
import numpy as np

from robot_runtime.core.values.shapes import Float, UInt8
from robot_runtime.errors import InvalidValueError, UnknownNameError

DICTIONARIES: Mapping[str, int] = {
    f"{bits}X{bits}_{number}": getattr(cv2.aruco, f"DICT_{bits}X{bits}_{number}")
    for bits in (4, 5, 6, 7)
    for number in (50, 100, 250, 1000)
}
"""OpenCV's dictionaries by name without `DICT_`: bits and number of markers."""


@final
@dataclass(frozen=True, kw_only=True)
class Board:
    """A printed ChArUco board.

    Frame B: its origin is the outer corner of the top left square as the board is read (the text upright), x
    to the right along a row, y down along a column, z INTO the board: its visible side has the
    normal -z.
    """

    KIND: ClassVar[str] = "board"
    VERSION: ClassVar[int] = 1
    UNITS: ClassVar[Mapping[str, str]] = {"print_scale": "real over wanted length"}
    FRAMES: ClassVar[Mapping[str, str]] = {
        "B": "origin at the outer corner of the top left square, x right, y down, z into the board"
    }

    columns: int
    """Squares in a row."""
    rows: int
    """Squares in a column."""
    square_m: float
    """ACTUAL side of a square: after `measured`, of the print and not of the drawing [m]."""
    marker_m: float
    """Side of a marker [m]."""
    dictionary: str = "5X5_100"
    """One of `DICTIONARIES`."""
    legacy: bool = False
    """The layout of OpenCV before 4.6, and of calib.io: boards with an even number of rows begin with a white
    square."""
    print_scale: float = 1.0
    """Scale of the print against the drawing; square_m and marker_m already include it."""

    def __post_init__(self) -> None:
        if self.dictionary not in DICTIONARIES:
            raise UnknownNameError("dictionary", str(self.dictionary), DICTIONARIES)
        are_whole = isinstance(self.columns, int) and isinstance(self.rows, int)
        if not are_whole or not isinstance(self.legacy, bool):
            raise InvalidValueError(
                f"expected whole numbers of squares, and legacy true or false; got {self.columns} "
                f"by {self.rows} and {self.legacy!r:.40}"
            )
        if min(self.columns, self.rows) < 3 or max(self.columns, self.rows) > 50:
            raise InvalidValueError(f"expected 3 to 50 squares a side, got {self.columns} by {self.rows}")
        if not 0.0 < self.marker_m < self.square_m < 2.0:
            raise InvalidValueError(
                f"expected a marker smaller than its square, which is smaller than 2 m; got a marker of "
                f"{self.marker_m} m and a square of {self.square_m} m (lengths are in metres)"
            )
        if not 0.5 <= self.print_scale <= 2.0:
            raise InvalidValueError(f"expected a print of 0.5 to 2 times its drawing, got {self.print_scale}")
        room = int(self.dictionary.partition("_")[2])
        if self.num_markers > room:
            raise InvalidValueError(
                f"{self.columns} by {self.rows} squares need {self.num_markers} markers, and "
                f"{self.dictionary} has {room}: use {self.dictionary.partition('_')[0]}_1000, or fewer"
            )

    @property
    def num_markers(self) -> int:
        return self.columns * self.rows // 2

    @property
    def num_corners(self) -> int:
        return (self.columns - 1) * (self.rows - 1)

    @property
    def corners_B(self) -> Float[np.ndarray, "K 3"]:
        """Inner corners by number, row by row from the top left [m]."""
        x, y = np.meshgrid(np.arange(1, self.columns), np.arange(1, self.rows))
        return np.stack([x, y, np.zeros_like(x)], axis=-1).reshape(-1, 3) * self.square_m

    @property
    def size_m(self) -> tuple[float, float]:
        """(width, height) [m]"""
        return self.columns * self.square_m, self.rows * self.square_m

    @property
    def centre_B(self) -> Float[np.ndarray, "3"]:
        width, height = self.size_m
        return np.array([width / 2, height / 2, 0.0])

    @property
    def charuco(self) -> Any:
        """The board as OpenCV's `cv2.aruco.CharucoBoard`."""
        return _charuco(self)

    def measured(self, is_m: float, of_m: float) -> Self:
        """The board as printed: a nominal length of_m measures is_m by a calliper [m]."""
        if not (of_m > 0.0 and 0.5 <= is_m / of_m <= 2.0):
            raise InvalidValueError(
                f"expected a print of 0.5 to 2 times its drawing, got {is_m} m in place of {of_m} m"
            )
        square, marker = self.square_m / self.print_scale, self.marker_m / self.print_scale
        scale = is_m / of_m
        return replace(self, square_m=square * scale, marker_m=marker * scale, print_scale=scale)

    def picture(self, pixels_per_square: int) -> UInt8[np.ndarray, "h w"]:
        """The board without a margin, black 0 and white 255; edges of markers fall between pixels if
        pixels_per_square * marker_m / square_m is whole."""
        size = (self.columns * pixels_per_square, self.rows * pixels_per_square)
        return np.asarray(self.charuco.generateImage(size, marginSize=0, borderBits=1))

    def __str__(self) -> str:
        layout = " legacy" if self.legacy else ""
        return (
            f"{self.columns} x {self.rows} squares of {1e3 * self.square_m:.4g} mm, markers "
            f"{1e3 * self.marker_m:.4g} mm, {self.dictionary}{layout}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "columns": self.columns,
            "rows": self.rows,
            "square_m": self.square_m,
            "marker_m": self.marker_m,
            "dictionary": self.dictionary,
            "legacy": self.legacy,
            "print_scale": self.print_scale,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(**data)


@cache
def _charuco(board: Board) -> Any:
    dictionary = cv2.aruco.getPredefinedDictionary(DICTIONARIES[board.dictionary])
    size = (board.columns, board.rows)
    charuco = cv2.aruco.CharucoBoard(size, board.square_m, board.marker_m, dictionary)
    charuco.setLegacyPattern(board.legacy)
    return charuco
