"""Whether what a camera gives is a picture of now: `CameraWatch` looks at each before anybody acts on it.

picture    1     2     2'    2'    2'    3
stamp      0    33    66    99   132   270 ms      2' is picture 2 again, to the last bit, with a new stamp
shown      1     2     2     2     2     3         and stays as old as it is

A sensor is never still: noise alone makes every picture differ from the one before, in every row. So one that
is the same to the last bit is no new picture, whatever its stamp says, nor is one that was there a few
pictures ago, as from a driver that goes round in its buffers; and one of which a band of rows is the same
while the rest is not has been put together from two (torn). Simulated cameras without noise see still scenes
as they are, and so do compressed videos: with `has_noise=False` a picture may be the same as often as it
likes, and none is torn.

A camera that gives nothing is missed after 200 ms, or after three of its own periods if that is longer:

capture    |--|--|--|--|--|--|                     30 fps: 6 pictures are missing
shown                        |~~~~~~~~~| silent
                             0        200 ms
capture    |---------|---------|---------|         10 fps: 3 pictures are missing
shown                                    |~~~~~~~~~~~~~~| silent
                                         0             300 ms
"""

from collections import Counter, deque
from dataclasses import dataclass, fields
from enum import Enum
from functools import lru_cache

import numpy as np

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.shapes import UInt8
from robot_runtime.core.values.state import Image
from robot_runtime.errors import InvalidValueError

TORN_SHARE = 8
"""One row of so many, or more, at the top or at the bottom has to be old for a picture to be torn."""
MIDDLE = 32
"""Rows are compared at so many columns first: nearly all pictures differ there, and that is seen at once."""

ALWAYS = 4
"""Rows that have differed so often in a row always do, but for a picture that is old in them."""
MARK_ROWS = 64
"""Rows, spread over a picture, that tell it from those before."""
REMEMBERED = 8
"""Pictures that a new one may not be: drivers have so many buffers, or fewer."""
MISSED = 3
"""So many periods of a slow camera may pass without a picture."""
LEARNT = 9
"""Its period is the median of so many; one that slows down in the dark is learnt again after half of them."""


class CameraFault(Enum):
    """What is wrong with a picture, or with a camera that gives none."""

    SILENT = "gives no picture"
    FAILED = "has failed"
    FROZEN = "gives the same picture again, with new stamps"
    TORN = "gave a picture that is half the one before"
    MISSHAPEN = "gave a picture of another size or type"
    BACK = "gave a picture whose stamp goes back"
    OLD = "gave a picture that was too old when it came"
    AHEAD = "gave a picture whose stamp lies in the future"


@dataclass(frozen=True, kw_only=True)
class CameraLimits:
    """What is taken for a fault."""

    timeout_ns: int = NS_PER_S // 2
    """A picture older than this is not shown any more [ns]."""
    frozen_ns: int = NS_PER_S // 5
    """Nor any when nothing new has come for so long; if what came were not the same again and again, three of
    the camera's periods may pass [ns]."""
    ahead_ns: int = 20_000_000
    """A stamp farther in the future than this is wrong [ns]."""
    start_ns: int = 5 * NS_PER_S
    """How long the start waits for the first picture of each camera [ns]."""
    has_noise: bool = True
    """Whether two pictures of a still scene differ; see above."""

    def __post_init__(self) -> None:
        """InvalidValueError: a time is none above 0, or `has_noise` neither true nor false."""
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "has_noise":
                if not isinstance(value, bool):
                    raise InvalidValueError(f"has_noise is true or false, got {value!r:.60}")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise InvalidValueError(f"{each.name} is a time above 0 [ns], got {value!r:.60}")


class CameraWatch:
    """One camera's; the thread that reads the camera owns it, others read `trouble` and `counts`."""

    def __init__(self, size: tuple[int, int], limits: CameraLimits) -> None:
        """size: (height, width) of its pictures [pixels]."""
        self.trouble: CameraFault | None = None
        """What is wrong with the newest picture."""
        self.misshapen = ""
        """What came last that is none of its pictures, and what was expected."""
        self.counts = Counter(dict.fromkeys(CameraFault, 0))
        """Pictures by what was wrong with them; never gets another key, so that any thread may go through."""
        self.num_refused = 0
        """All of them."""
        self._shape, self._limits = (*size, 3), limits
        self._last: Image | None = None
        self._newest_ns: int | None = None
        self._looked_ns = self._shown_ns = 0
        self._gaps_ns: deque[int] = deque(maxlen=LEARNT)
        self._good_ns: int | None = None
        self._patience_ns = limits.timeout_ns
        self._streaks: np.ndarray = np.zeros(size[0], dtype=np.int64)
        """(h,) How many pictures, up to the one that is shown, each row has differed from the one before."""
        self._num_compared = 0
        self._marks: deque[int] = deque(maxlen=REMEMBERED)

    def look(self, image: Image, now_ns: int) -> bool:
        """Whether this is a new picture, to be shown from now on; if not, the one before stays."""
        fault = self._fault(image, now_ns)
        if fault is None:
            self._looked_ns, self._shown_ns, self.trouble = now_ns, now_ns, None
            self._learn_period(image.t_ns)
        else:
            self.fails(fault, now_ns)
        return fault is None

    def fails(self, fault: CameraFault, now_ns: int) -> None:
        """Something came that is no picture, or nothing ever will."""
        self._looked_ns, self.trouble = now_ns, fault
        self.counts[fault] += 1
        self.num_refused += 1

    def why_blind(self, shown: Image | None, now_ns: int) -> CameraFault | None:
        """Why the last good picture may not be shown any more; None if it may."""
        trouble = self.trouble
        if trouble is CameraFault.FAILED:
            return trouble
        patience_ns = self._limits.frozen_ns if trouble is CameraFault.FROZEN else self._patience_ns
        if (
            shown is not None
            and now_ns - self._shown_ns <= patience_ns
            and now_ns - shown.t_ns <= self._limits.timeout_ns
        ):
            return None
        is_silent = trouble is None or now_ns - self._looked_ns > patience_ns
        return CameraFault.SILENT if is_silent else trouble

    def _learn_period(self, t_ns: int) -> None:
        """How long it may be quiet, by the captures of its good pictures."""
        if self._good_ns is not None:
            self._gaps_ns.append(t_ns - self._good_ns)
            period_ns = sorted(self._gaps_ns)[len(self._gaps_ns) // 2]
            patience_ns = max(self._limits.frozen_ns, MISSED * period_ns)
            self._patience_ns = min(self._limits.timeout_ns, patience_ns)
        self._good_ns = t_ns

    def _fault(self, image: Image, now_ns: int) -> CameraFault | None:
        if image.pixels.shape != self._shape or image.pixels.dtype != np.uint8:
            came = f"{image.pixels.shape} {image.pixels.dtype}"
            self.misshapen = f"{came}, its size says {self._shape} uint8"
            return CameraFault.MISSHAPEN
        if image.t_ns - now_ns > self._limits.ahead_ns:
            return CameraFault.AHEAD
        if self._newest_ns is not None and image.t_ns < self._newest_ns:
            return CameraFault.BACK
        self._newest_ns = image.t_ns
        if now_ns - image.t_ns > self._limits.timeout_ns:
            return CameraFault.OLD
        if not self._limits.has_noise:
            return None
        last, self._last = self._last, image
        mark = _mark(image.pixels)
        if last is None:
            self._marks.append(mark)
            return None
        differs = _differing_rows(last.pixels, image.pixels)
        fault = CameraFault.FROZEN
        if differs.any() and mark not in self._marks:
            telling = self._streaks >= max(1, min(ALWAYS, self._num_compared))
            if not _is_torn(image.pixels, differs, telling):
                self._marks.append(mark)
                self._streaks = np.where(differs, self._streaks + 1, 0)
                self._num_compared += 1
                return None
            fault = CameraFault.TORN
        self._last = last  # the next is compared with the picture that is shown
        return fault


def _mark(pixels: UInt8[np.ndarray, "h w 3"]) -> int:
    """What hardly any other picture has: the words of some of its rows, each times a number of its own."""
    flat = np.ascontiguousarray(pixels[:: max(1, len(pixels) // MARK_ROWS)]).reshape(-1)
    words = flat[: flat.size // 8 * 8].view(np.uint64)
    rest = flat[words.size * 8 :].astype(np.uint64)
    weights = _weights(words.size + rest.size)
    return int(words @ weights[: words.size]) + int(rest @ weights[words.size :])


@lru_cache(maxsize=16)
def _weights(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**64, count, dtype=np.uint64)


def _differing_rows(a: UInt8[np.ndarray, "h w 3"], b: UInt8[np.ndarray, "h w 3"]) -> np.ndarray:
    """Which rows differ in any bit: (h,) bool."""
    first = max(0, (a.shape[1] - MIDDLE) // 2)
    middle = slice(first, first + MIDDLE)
    rows: np.ndarray = (a[:, middle] != b[:, middle]).any(axis=(1, 2))
    alike = np.flatnonzero(~rows)
    if len(alike):
        rows[alike] = (a[alike] != b[alike]).any(axis=(1, 2))
    return rows


def _is_torn(pixels: UInt8[np.ndarray, "h w 3"], differs: np.ndarray, telling: np.ndarray) -> bool:
    """Whether rows from an edge on are those of the picture that is shown.

    differs, telling: whether rows differ from that one's, and whether they always have, (h,) bool. Only those
    count that have: black bars around a picture, lettering in it and what a coder has smoothed say nothing.
    Nor do those that are as dark or as bright as can be from one side to the other.
    """
    same = np.flatnonzero(telling & ~differs)
    if not len(same):
        return False
    is_clipped = ((pixels[same] == 0) | (pixels[same] == 255)).all(axis=(1, 2))
    telling = telling.copy()
    telling[same[is_clipped]] = False
    old = ~differs[telling]
    least = max(1, len(differs) // TORN_SHARE)
    return len(old) > least and bool(old[:least].all() or old[-least:].all())
