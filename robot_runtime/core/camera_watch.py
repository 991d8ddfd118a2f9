"""Checks whether a camera's images are current: `CameraWatch` looks at each before anything acts on it.

image      1     2     2'    2'    2'    3
stamp      0    33    66    99   132   270 ms      2' is image 2 again, to the last bit, with a new stamp
shown      1     2     2     2     2     3         and keeps its age

A sensor always has noise: it makes every image differ from the one before, in every row. So an image that is
the same to the last bit is not new, whatever its stamp, nor is one that was there a few images ago, as from a
driver that cycles through its buffers; and one of which a band of rows is the same while the rest is not was
assembled from two (torn). Simulated cameras without noise and compressed videos repeat images of a still
scene: with `has_noise=False` an image may repeat any number of times, and none counts as torn.

A camera without images is reported after 200 ms, or after three of its own periods if that is longer:

capture    |--|--|--|--|--|--|                     30 fps: 6 images are missing
shown                        |~~~~~~~~~| silent
                             0        200 ms
capture    |---------|---------|---------|         10 fps: 3 images are missing
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
"""At least one in this many rows, at the top or at the bottom, has to be old for an image to be torn."""
MIDDLE = 32
"""Number of columns at which rows are compared first: nearly all images differ there, which is quick."""

ALWAYS = 4
"""Rows that have differed this often in succession always do, unless an image is old in them."""
MARK_ROWS = 64
"""Number of rows, spread over an image, that distinguish it from those before."""
REMEMBERED = 8
"""Number of earlier images that a new one must differ from: drivers have at most this many buffers."""
MISSED = 3
"""Number of periods of a slow camera that may pass without an image."""
LEARNT = 9
"""A period is the median of this many; one that grows in the dark is learnt again after half of them."""


class CameraFault(Enum):
    """What is wrong with an image, or with a camera without images."""

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
    """Thresholds beyond which an image or a camera counts as faulty."""

    timeout_ns: int = NS_PER_S // 2
    """An image older than this is not shown any more [ns]."""
    frozen_ns: int = NS_PER_S // 5
    """No image is shown after this long without a new one; unless the camera repeats images, three of its
    periods may pass [ns]."""
    ahead_ns: int = 20_000_000
    """A stamp farther in the future than this is wrong [ns]."""
    start_ns: int = 5 * NS_PER_S
    """How long the start waits for the first image of each camera [ns]."""
    has_noise: bool = True
    """Whether two images of a still scene differ; see above."""

    def __post_init__(self) -> None:
        """InvalidValueError: a time is not above 0, or `has_noise` is neither true nor false."""
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "has_noise":
                if not isinstance(value, bool):
                    raise InvalidValueError(f"has_noise is true or false, got {value!r:.60}")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise InvalidValueError(f"{each.name} is a time above 0 [ns], got {value!r:.60}")


class CameraWatch:
    """Checks one camera; the thread that reads it owns this, others read `trouble` and `counts`."""

    def __init__(self, size: tuple[int, int], limits: CameraLimits) -> None:
        """size: (height, width) of its images [pixels]."""
        self.trouble: CameraFault | None = None
        """What is wrong with the newest image."""
        self.misshapen = ""
        """Size and type of the last image that did not match, and what was expected."""
        self.counts = Counter(dict.fromkeys(CameraFault, 0))
        """Refused images by fault; its keys never change, so that any thread may iterate over it."""
        self.num_refused = 0
        """All refused images."""
        self._shape, self._limits = (*size, 3), limits
        self._last: Image | None = None
        self._newest_ns: int | None = None
        self._looked_ns = self._shown_ns = 0
        self._gaps_ns: deque[int] = deque(maxlen=LEARNT)
        self._good_ns: int | None = None
        self._patience_ns = limits.timeout_ns
        self._streaks: np.ndarray = np.zeros(size[0], dtype=np.int64)
        """(h,) For how many images, up to the one shown, each row has differed from the one before."""
        self._num_compared = 0
        self._marks: deque[int] = deque(maxlen=REMEMBERED)

    def look(self, image: Image, now_ns: int) -> bool:
        """Whether this is a new image, to be shown from now on; if not, the one before remains."""
        fault = self._fault(image, now_ns)
        if fault is None:
            self._looked_ns, self._shown_ns, self.trouble = now_ns, now_ns, None
            self._learn_period(image.t_ns)
        else:
            self.fails(fault, now_ns)
        return fault is None

    def fails(self, fault: CameraFault, now_ns: int) -> None:
        """Note an invalid image, or that no image will come any more."""
        self._looked_ns, self.trouble = now_ns, fault
        self.counts[fault] += 1
        self.num_refused += 1

    def why_blind(self, shown: Image | None, now_ns: int) -> CameraFault | None:
        """Why the last good image may not be shown any more; None if it may."""
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
        """Update the time it may be silent, from the capture times of its good images."""
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
        self._last = last  # the next is compared with the image that is shown
        return fault


def _mark(pixels: UInt8[np.ndarray, "h w 3"]) -> int:
    """A hash of some rows of an image: the sum of their words, each times a weight of its own."""
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
    """Whether rows from an edge on are those of the image that is shown.

    differs, telling: whether rows differ from that one's, and whether they always have, (h,) bool. Only rows
    that always have differed count: black bars around an image, lettering in it and areas that a codec has
    smoothed are no evidence, nor are rows that are black or white from one side to the other.
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
