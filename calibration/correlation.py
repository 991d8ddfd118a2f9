"""By how much one signal comes after another: `lag_between`.

    a      ..╭╮..╭─╮....            correlation, per lag, over what both have
    b      .....╭╮..╭─╮.                    ╭╮
           |-->| lag                ..╭╮...╭╯╰╮..╭╮..
                                           best    second

The correlation is normalised at every lag by what the two have in common there, and a straight line is taken
out of both, so that neither an offset, a drift nor the shorter overlap at long lags draws the peak.
"""

from dataclasses import dataclass

import numpy as np

from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

LEAST_OVERLAP = 0.3
"""Of the shorter signal that has to lie beside the other at a lag; lags with less are not tried."""
LEAST_SAMPLES = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Lag:
    """Of b behind a: b(t) = gain a(t - lag) + a straight line."""

    lag_s: float
    """Between the steps by a parabola through the peak [s]."""
    gain: float
    correlation: float
    """At the peak, -1 to 1."""
    peak_ratio: float
    """The peak over the next highest one; inf where there is none above zero. Near 1 the lag is a guess."""
    lags_s: Float[np.ndarray, " L"]
    correlations: Float[np.ndarray, " L"]
    """At every lag that was tried; NaN where too little overlaps."""

    @property
    def is_at_end(self) -> bool:
        """Whether the best lag is the first or the last that was tried: the true one may lie beyond."""
        known = np.flatnonzero(np.isfinite(self.correlations))
        return int(np.nanargmax(self.correlations)) in (known[0], known[-1])


def lag_between(
    a_s: Float[np.ndarray, " N"],
    a: Float[np.ndarray, "N *K"],
    b_s: Float[np.ndarray, " M"],
    b: Float[np.ndarray, "M *K"],
    *,
    earliest_s: float,
    latest_s: float,
    step_s: float = 0.001,
) -> Lag:
    """
    a_s, b_s: when the samples are of, rising [s]. a, b: one column or several that belong together.
    earliest_s, latest_s: the lags that are tried.
    InvalidValueError: too few samples, one does not move, or nothing overlaps.
    """
    a, b = _columns("the first signal", a_s, a), _columns("the second signal", b_s, b)
    if a.shape[1] != b.shape[1]:
        raise InvalidValueError(f"signals have {a.shape[1]} and {b.shape[1]} columns, they need the same")
    lags = np.arange(earliest_s, latest_s + step_s / 2, step_s)
    found, gains = np.full(len(lags), np.nan), np.zeros(len(lags))
    least = max(LEAST_SAMPLES, LEAST_OVERLAP * min(len(b), np.ptp(a_s) / max(np.median(np.diff(b_s)), 1e-12)))
    for i, lag in enumerate(lags):
        begin, end = np.searchsorted(b_s, (a_s[0] + lag, a_s[-1] + lag))
        if end - begin < least:
            continue
        at_s = b_s[begin:end]
        x = np.column_stack([np.interp(at_s - lag, a_s, column) for column in a.T])
        found[i], gains[i] = _normalised(at_s, x, b[begin:end])
    if not np.isfinite(found).any():
        raise InvalidValueError(
            f"the two signals have nothing in common in time: {a_s[0]:.3f} to {a_s[-1]:.3f} s and "
            f"{b_s[0]:.3f} to {b_s[-1]:.3f} s, with lags of {earliest_s:g} to {latest_s:g} s"
        )
    best = int(np.nanargmax(found))
    return Lag(
        lag_s=float(lags[best] + step_s * between(found, best)),
        gain=float(gains[best]),
        correlation=float(found[best]),
        peak_ratio=_ratio(found, best),
        lags_s=lags,
        correlations=found,
    )


def between(values: Float[np.ndarray, " L"], best: int) -> float:
    """Where between the samples the top lies that samples best - 1 to best + 1 are of, by a parabola, in
    steps of -0.5 to 0.5; 0 at the ends, and where the three are no top."""
    if not 0 < best < len(values) - 1 or not np.isfinite(values[best - 1 : best + 2]).all():
        return 0.0
    a, b, c = values[best - 1 : best + 2]
    curve = a - 2.0 * b + c
    return 0.0 if curve >= 0.0 else float(np.clip(0.5 * (a - c) / curve, -0.5, 0.5))


def _columns(what: str, at_s: np.ndarray, values: np.ndarray) -> np.ndarray:
    columns = np.asarray(values, dtype=float).reshape(len(values), -1)
    if np.ndim(at_s) != 1 or len(at_s) != len(columns) or len(columns) < LEAST_SAMPLES:
        raise InvalidValueError(
            f"{what} needs at least {LEAST_SAMPLES} samples with a time each, got {np.shape(values)} "
            f"samples and {np.shape(at_s)} times"
        )
    if not np.isfinite(columns).all() or (np.diff(at_s) <= 0).any():
        raise InvalidValueError(f"{what} has to be finite, and its times have to rise")
    if not np.ptp(columns, axis=0).any():
        raise InvalidValueError(f"{what} does not change: there is no delay to be found")
    return columns


def _normalised(at_s: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Correlation and gain of y against x, a straight line taken out of each column."""
    t = at_s - at_s.mean()
    power = max(float(t @ t), 1e-30)
    x, y = x - x.mean(0), y - y.mean(0)
    x, y = x - np.outer(t, t @ x / power), y - np.outer(t, t @ y / power)
    xx, yy, xy = float((x * x).sum()), float((y * y).sum()), float((x * y).sum())
    if xx <= 1e-30 or yy <= 1e-30:
        return 0.0, 0.0
    return xy / np.sqrt(xx * yy), xy / xx


def _ratio(found: np.ndarray, best: int) -> float:
    """The peak at `best` over the highest other local top."""
    filled = np.where(np.isfinite(found), found, -1.0)
    tops = np.flatnonzero((filled[1:-1] >= filled[:-2]) & (filled[1:-1] > filled[2:])) + 1
    others = filled[tops[tops != best]]
    second = float(others.max(initial=0.0))
    return float("inf") if second <= 0.0 else float(filled[best] / second)
