"""Delay of a camera's stamps, from a screen before it that turns white and black.

    screen set     off |on       |off   |on
    brightness     -------/~~~~~~~~~~|-----/~~~~
                       |<->| delay: the screen's own and the camera's

First coarse, by correlation over all lags, so that a delay longer than the time between two changes is found
too; then per change, where brightness crosses the middle between its two levels, interpolated between images.
Each is wrong by at most half an image's period, to either side, so the median is much better: change the
screen at random times, not in step with the camera.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.correlation import lag_between
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError

LEAST_CHANGES = 10
LEAST_CORRELATION = 0.6
"""Least correlation between brightness and screen at the best lag; unrelated signals reach about 0.2."""
EARLIEST_S, LATEST_S, STEP_S = -0.1, 1.0, 0.005
"""Searched lags [s]."""
_EDGE_S = 1e-6


@dataclass(frozen=True, kw_only=True)
class Change:
    """A command to the screen to turn white (on) or black."""

    t_ns: int
    is_on: bool


@dataclass(frozen=True, kw_only=True)
class Delay:
    """Delay from the command to the screen to the stamp of the image that shows it."""

    median_s: float
    spread_s: float
    """Interquartile range of the single changes [s]."""
    num_changes: int
    """Number of changes that were seen."""


def delay_of(changes: Sequence[Change], stamps_ns: Sequence[int], brightness: Sequence[float]) -> Delay:
    """The delay of a camera that sees the screen.

    changes: in order of time.
    stamps_ns, brightness: of each image, in order; brightness in any unit.
    InvalidValueError: too few changes, or brightness does not follow them.
    """
    start_ns, commands = _commands_of(changes)
    seen_s = (np.asarray(stamps_ns, dtype=np.int64) - start_ns) / NS_PER_S
    values = np.asarray(brightness, dtype=float)
    if seen_s.ndim != 1 or seen_s.shape != values.shape or len(values) < 2 * LEAST_CHANGES:
        raise InvalidValueError(
            f"at least {2 * LEAST_CHANGES} images with a stamp and a brightness each are needed, got "
            f"{seen_s.shape} stamps and {values.shape} numbers"
        )
    if not np.isfinite(values).all() or (np.diff(seen_s) <= 0).any():
        raise InvalidValueError("brightness has to be finite, and stamps have to rise")
    lag_s = _best_lag(commands, seen_s, values)
    single_s = _crossings(commands, seen_s, values, lag_s) - _crossed(commands, seen_s, lag_s)
    single_s = single_s[np.isfinite(single_s)]
    if len(single_s) < LEAST_CHANGES:
        raise InvalidValueError(f"only {len(single_s)} changes were seen, {LEAST_CHANGES} are needed")
    low, middle, high = np.quantile(single_s, (0.25, 0.5, 0.75))
    return Delay(median_s=float(middle), spread_s=float(high - low), num_changes=len(single_s))


@dataclass(frozen=True, kw_only=True, eq=False)
class _LastCommand:
    """Commands to the screen: times [s] after the first change, each to the other of two states."""

    at_s: np.ndarray
    first_is_on: bool

    def is_on(self, t_s: np.ndarray) -> np.ndarray:
        """State at these times, (n,) bool; before the first change it was the opposite."""
        return (np.searchsorted(self.at_s, t_s, side="right") % 2 == 1) == self.first_is_on

    def as_signal(self) -> tuple[np.ndarray, np.ndarray]:
        """Times and values 0 or 1, with both edges of every change, so that lines form steps."""
        t_s = np.sort(np.concatenate([self.at_s - _EDGE_S, self.at_s]))
        return t_s, self.is_on(t_s).astype(float)


def _commands_of(changes: Sequence[Change]) -> tuple[int, _LastCommand]:
    kept = [c for i, c in enumerate(changes) if i == 0 or c.is_on != changes[i - 1].is_on]
    if len(kept) < LEAST_CHANGES:
        raise InvalidValueError(f"{len(kept)} changes of the screen are too few, {LEAST_CHANGES} are needed")
    at_s = np.array([(c.t_ns - kept[0].t_ns) / NS_PER_S for c in kept])
    if (np.diff(at_s) <= 0).any():
        raise InvalidValueError("expected changes in order of time")
    return kept[0].t_ns, _LastCommand(at_s=at_s, first_is_on=kept[0].is_on)


def _best_lag(commands: _LastCommand, seen_s: np.ndarray, values: np.ndarray) -> float:
    """Lag at which brightness follows the screen best; InvalidValueError: none, or several."""
    shows_some = (seen_s > LATEST_S) & (seen_s < commands.at_s[-1] + EARLIEST_S)  # at all lags
    if shows_some.sum() < 2 * LEAST_CHANGES:
        raise InvalidValueError(
            f"only {shows_some.sum()} images lie from {LATEST_S:g} s after the first change to the last "
            f"one, {2 * LEAST_CHANGES} are needed"
        )
    seen_s, values = seen_s[shows_some], values[shows_some]
    if np.ptp(values) == 0.0:
        raise InvalidValueError("brightness does not change: does the camera see the screen?")
    found = lag_between(
        *commands.as_signal(), seen_s, values, earliest_s=EARLIEST_S, latest_s=LATEST_S, step_s=STEP_S
    )
    if found.correlation < LEAST_CORRELATION:
        raise InvalidValueError(
            f"brightness does not follow the screen (correlation {found.correlation:.2f} at the best lag up "
            f"to {LATEST_S:g} s, {LEAST_CORRELATION} is needed): does the camera see it, and nothing else?"
        )
    best_s, near_s = found.lags_s[np.argmax(found.correlations)], float(np.min(np.diff(commands.at_s)))
    others = found.correlations[np.abs(found.lags_s - best_s) > near_s]
    if others.size and others.max() > 0.95 * found.correlation:
        raise InvalidValueError("the screen changes too regularly to tell one delay from another")
    same = found.lags_s[found.correlations > found.correlation - 1e-9]  # no image distinguishes these
    return float(same.mean())


def _crossed(commands: _LastCommand, seen_s: np.ndarray, lag_s: float) -> np.ndarray:
    """The changes with images before and after them."""
    shown_s = commands.at_s + lag_s
    return commands.at_s[(shown_s > seen_s[0]) & (shown_s < seen_s[-1])]


def _crossings(commands: _LastCommand, seen_s: np.ndarray, values: np.ndarray, lag_s: float) -> np.ndarray:
    """Times at which brightness crosses the middle for each of those, nearest to its lag; NaN: none [s]."""
    is_on = commands.is_on(seen_s - lag_s)
    middle = (np.median(values[is_on]) + np.median(values[~is_on])) / 2.0
    above = values > middle
    i = np.flatnonzero(above[1:] != above[:-1])
    share = (middle - values[i]) / (values[i + 1] - values[i])
    at_s, rises = seen_s[i] + share * (seen_s[i + 1] - seen_s[i]), above[i + 1]
    out = []
    for t_s in _crossed(commands, seen_s, lag_s):
        turns_on = bool(commands.is_on(np.array([t_s]))[0])
        same = at_s[rises == turns_on]
        gaps = np.abs(commands.at_s[commands.at_s != t_s] - t_s)
        nearest = same[np.argmin(np.abs(same - t_s - lag_s))] if same.size else np.nan
        out.append(nearest if abs(nearest - t_s - lag_s) < gaps.min() else np.nan)
    return np.array(out)
