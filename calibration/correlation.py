"""Lag of one signal behind another: `lag_between`, within given lags; `along`, at any lag.

    a      ..╭╮..╭─╮....            correlation, per lag, over what both have
    b      .....╭╮..╭─╮.                    ╭╮
           |-->| lag                ..╭╮...╭╯╰╮..╭╮..
                                           best    second

The correlation is normalised at every lag over the overlap of the two, so that neither an offset nor the
shorter overlap at long lags biases the peak; `lag_between` also removes a straight line from both, against
drift.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from robot_runtime.core.values.shapes import Float, Int
from robot_runtime.errors import InvalidValueError

LEAST_OVERLAP = 0.3
"""Least share of the shorter signal that must overlap at a lag; lags with less are skipped."""
LEAST_SAMPLES = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Lag:
    """Lag of b behind a: b(t) = gain a(t - lag) + a straight line."""

    lag_s: float
    """Lag, refined between steps by a parabola through the peak [s]."""
    gain: float
    correlation: float
    """Correlation at the peak, -1 to 1."""
    peak_ratio: float
    """Ratio of the peak to the next highest one; inf if none is above zero. Near 1 the lag is ambiguous."""
    lags_s: Float[np.ndarray, " L"]
    correlations: Float[np.ndarray, " L"]
    """Correlation at every searched lag; NaN where the overlap is too short."""

    @property
    def is_at_end(self) -> bool:
        """Whether the best lag is the first or the last searched: the true one may lie beyond."""
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
    """Find the lag of b behind a.

    a_s, b_s: times of the samples, rising [s]. a, b: one column, or several that belong together.
    earliest_s, latest_s: the searched lags.
    InvalidValueError: too few samples, a constant signal, or no overlap.
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


def along(template: Float[np.ndarray, " N"], signal: Float[np.ndarray, " M"]) -> Float[np.ndarray, " L"]:
    """Correlations of a short signal with a long one at all positions, both at even times.

    At position i the short one begins i - N // 2 samples after the long one: at the first and last, half of
    it lies outside and is left out. 0 where one hardly changes.
    """
    from scipy.signal import correlate

    template = template - template.mean()
    pad = np.zeros(len(template) // 2)
    there = np.concatenate([pad, np.ones(len(signal)), pad])
    signal = np.concatenate([pad, signal, pad]) - signal.mean() * there
    sums = partial(correlate, mode="valid", method="fft")
    ones = np.ones(len(template))
    count = np.maximum(sums(there, ones), 1.0)
    sum_t, sum_tt = sums(there, template), sums(there, template**2)
    sum_s, sum_ss = sums(signal, ones), sums(signal**2, ones)
    top = sums(signal, template) - sum_t * sum_s / count
    var_t, var_s = sum_tt - sum_t**2 / count, sum_ss - sum_s**2 / count
    floor = 1e-3 * float((template**2).sum())
    return np.where(
        (var_t > floor) & (var_s > floor), top / np.sqrt(np.maximum(var_t * var_s, floor**2)), 0.0
    )


def even(
    t_ns: Int[np.ndarray, " N"], values: Float[np.ndarray, " N"], step_ns: int
) -> Float[np.ndarray, " M"]:
    """Resample a signal to even times from the first on; faster samples are averaged, not dropped."""
    num = int((t_ns[-1] - t_ns[0]) // step_ns) + 1
    at = np.arange(num) * step_ns
    since = (t_ns - t_ns[0]).astype(float)
    if len(t_ns) < 1.5 * num:
        return np.interp(at, since, values)
    total = np.concatenate([[0.0], np.cumsum(0.5 * (values[1:] + values[:-1]) * np.diff(since))])
    edges = np.clip(np.concatenate([at - step_ns / 2, [at[-1] + step_ns / 2]]), 0.0, since[-1])
    wide = np.diff(edges)
    return np.diff(np.interp(edges, since, total)) / np.where(wide > 0.0, wide, 1.0)


def alike(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]) -> float:
    """Correlation of two signals at the same times, -1 to 1; 0 where one does not change."""
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size > 0.0 else 0.0


def between(values: Float[np.ndarray, " L"], best: int, *, reach: int = 1) -> float:
    """Sub-sample offset of the peak at `best`, in steps: by a parabola through it and the samples `reach` to
    both sides, fewer near the ends; 0 at the ends, and where the three form no peak."""
    reach = min(reach, best, len(values) - 1 - best)
    if reach == 0:
        return 0.0
    a, b, c = values[best - reach], values[best], values[best + reach]
    curve = a - 2.0 * b + c
    if not curve < 0.0:
        return 0.0
    return float(np.clip(0.5 * reach * (a - c) / curve, -0.5 * reach, 0.5 * reach))


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
    """Correlation and gain of y against x, without the linear trend of each column."""
    t = at_s - at_s.mean()
    power = max(float(t @ t), 1e-30)
    x, y = x - x.mean(0), y - y.mean(0)
    x, y = x - np.outer(t, t @ x / power), y - np.outer(t, t @ y / power)
    xx, yy, xy = float((x * x).sum()), float((y * y).sum()), float((x * y).sum())
    if xx <= 1e-30 or yy <= 1e-30:
        return 0.0, 0.0
    return xy / np.sqrt(xx * yy), xy / xx


def _ratio(found: np.ndarray, best: int) -> float:
    """Ratio of the peak at `best` to the highest other local peak."""
    filled = np.where(np.isfinite(found), found, -1.0)
    tops = np.flatnonzero((filled[1:-1] >= filled[:-2]) & (filled[1:-1] > filled[2:])) + 1
    others = filled[tops[tops != best]]
    second = float(others.max(initial=0.0))
    return float("inf") if second <= 0.0 else float(filled[best] / second)
