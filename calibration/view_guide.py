"""Collects views of a board for a camera's intrinsics from live images: `ViewGuide`.

image   ─► look ─►  no board, or blurred: what is wrong
               └─► a new view: taken; what to show next
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from calibration.board import Board
from calibration.coverage import ENOUGH_VIEWS, Coverage, Side, Tilt, by_side, is_other, lacking, rough_tilt
from calibration.detection import Corners, detect

MOST_BLUR_PX = 2.0
"""Largest blur of an image that is taken [pixels]."""
_WITHOUT = 8
"""Number of images without a board that are kept."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Look:
    """Result of one image."""

    corners: Corners
    problem: str = ""
    """Why it is not a view, and what to do; empty: it is one."""
    is_taken: bool = False
    """Whether it was taken; an image with the board where and tilted as in others is not."""


class ViewGuide:
    """Collects views and advises which to show next."""

    def __init__(self, board: Board, *, num: int, model: Literal["pinhole", "fisheye"] = "pinhole") -> None:
        """num: of views at most. model: of the lens, for how the board is tilted."""
        self._board, self._model, self._num = board, model, num
        self.views: list[Corners] = []
        self.tilts: list[Tilt] = []
        """Tilt of each view."""
        self.without: list[np.ndarray] = []
        """The last images that showed no board."""
        self.num_pictures = self.num_seen = 0
        """Numbers of processed images, and of those that showed the board."""

    def look(self, picture: np.ndarray) -> Look:
        """Process the next image, (h, w, 3) uint8."""
        corners = detect(self._board, picture)
        self.num_pictures += 1
        if not len(corners):
            self.without = [*self.without[1 - _WITHOUT :], picture]
            return Look(corners=corners, problem="the board is not seen: whole, flat, lit?")
        self.num_seen += 1
        if corners.blur_px > MOST_BLUR_PX:
            return Look(corners=corners, problem="blurred: hold still, or give more light")
        tilt = rough_tilt(self._board, corners, self._model)
        is_new_side = tilt.is_enough and not self.tilted[tilt.nearer]
        if not is_new_side and not is_other(corners, self.views):
            return Look(corners=corners)
        self.views.append(corners)
        self.tilts.append(tilt)
        return Look(corners=corners, is_taken=True)

    @property
    def advice(self) -> str:
        """What to show next; empty: there is enough."""
        return lacking(self.views, self.tilts)

    @property
    def is_over(self) -> bool:
        """Whether no more views are needed."""
        return len(self.views) >= self._num or not self.advice

    @property
    def num_wanted(self) -> int:
        """Number of views wanted: enough for a sure result, and beyond that the most that are taken."""
        return min(self._num, ENOUGH_VIEWS) if len(self.views) < ENOUGH_VIEWS else self._num

    @property
    def coverage(self) -> Coverage | None:
        """Coverage by all views; None: there are none."""
        return Coverage.of(self.views) if self.views else None

    @property
    def tilted(self) -> Mapping[Side, int]:
        """Number of views tilted enough to each side."""
        return by_side(self.tilts)

    @property
    def largest_share(self) -> float:
        """Largest share of the image's width or height that the board covered."""
        return max((max(view.span) for view in self.views), default=0.0)
