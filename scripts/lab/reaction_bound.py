"""How soon a robot can react: the bound that no way of running chunks beats, from two durations.

    observations  |---- interval ----|---- interval ----|
    event              *             |
                       |<- waiting ->|<---- TTFA ---->| first command that can know of it
                       |<--------- reaction --------->|

TTFA, time to first action: from the observation to the first command of its answer. An event falls anywhere
between two observations, so the reaction is uniform in [TTFA, TTFA + interval) if both are constant: FASTER
(arXiv 2603.19199, section 3). Jitter only makes it worse: it is a bound, not a forecast.

Where both differ from answer to answer, as in any run, the bound is the mixture of these distributions over
the answers of that run, each as likely as its interval is long: `Reaction.bound`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_POINTS_PER_ANSWER = 20


@dataclass(frozen=True, kw_only=True)
class ReactionBound:
    """A uniform distribution of reaction times [s]."""

    best_s: float
    worst_s: float

    @property
    def mean_s(self) -> float:
        return (self.best_s + self.worst_s) / 2

    @property
    def std_s(self) -> float:
        return (self.worst_s - self.best_s) / math.sqrt(12.0)

    def quantile_s(self, share: float) -> float:
        """The reaction that a share in 0..1 of events is answered within."""
        return self.best_s + share * (self.worst_s - self.best_s)


def reaction_bound(ttfa_s: float, interval_s: float) -> ReactionBound:
    """U(TTFA, TTFA + interval); ValueError unless both are positive.

    interval_s: from one observation that is asked about to the next.
    """
    if not (0.0 < ttfa_s < math.inf and 0.0 < interval_s < math.inf):
        raise ValueError(f"TTFA and interval are positive, got {ttfa_s} s and {interval_s} s")
    return ReactionBound(best_s=ttfa_s, worst_s=ttfa_s + interval_s)


def asynchronous_bound(latency_s: float, *, rows: int, dt_s: float) -> ReactionBound:
    """Asking every `rows` rows while the plan goes on; inference has to fit, rows dt >= latency."""
    if rows < shortest_horizon(latency_s, dt_s):
        raise ValueError(
            f"an answer takes {latency_s / dt_s:.2f} rows, so at least {shortest_horizon(latency_s, dt_s)} "
            f"have to be run before the next; got {rows}"
        )
    return reaction_bound(latency_s, rows * dt_s)


def synchronous_bound(latency_s: float, *, rows: int, dt_s: float) -> ReactionBound:
    """Running `rows` rows, then stopping to ask: observations are rows dt + latency apart."""
    return reaction_bound(latency_s, latency_s + rows * dt_s)


def shortest_horizon(latency_s: float, dt_s: float) -> int:
    """Least execution horizon that an answer of this latency sustains [rows], s_min = ceil(latency / dt)."""
    return max(math.ceil(latency_s / dt_s - 1e-9), 1)


def probability_faster(a: ReactionBound, b: ReactionBound) -> float:
    """Chance that a reaction drawn from `a` is shorter than one drawn from `b`, independently."""
    # E over y ~ b of P(a < y); the integral of a's distribution function up to y is a square, then a line.
    width = a.worst_s - a.best_s

    def integral(y: float) -> float:
        if y <= a.best_s:
            return 0.0
        if y <= a.worst_s:
            return (y - a.best_s) ** 2 / (2 * width)
        return width / 2 + (y - a.worst_s)

    return (integral(b.worst_s) - integral(b.best_s)) / (b.worst_s - b.best_s)


@dataclass(frozen=True, kw_only=True)
class Reaction:
    """Best, mean, 95th percentile and worst of reaction times [s], measured or allowed."""

    best_s: float
    mean_s: float
    p95_s: float
    worst_s: float

    @classmethod
    def measured(cls, times_s: Sequence[float]) -> "Reaction":
        """Of the reactions of a run."""
        return cls(
            best_s=float(np.min(times_s)),
            mean_s=float(np.mean(times_s)),
            p95_s=float(np.quantile(times_s, 0.95)),
            worst_s=float(np.max(times_s)),
        )

    @classmethod
    def bound(cls, answers: Sequence[tuple[float, float]]) -> "Reaction":
        """What the answers of a run allow, each as (interval, TTFA) [s]; the percentile is a grid's.

        Equal answers give `reaction_bound` of the two durations.
        """
        interval, ttfa = np.asarray(answers, dtype=float).T
        share = (np.arange(_POINTS_PER_ANSWER) + 0.5) / _POINTS_PER_ANSWER
        times = (ttfa[:, None] + share * interval[:, None]).ravel()
        weights = np.repeat(interval, _POINTS_PER_ANSWER)
        order = np.argsort(times)
        cumulated = np.cumsum(weights[order]) / weights.sum()
        return cls(
            best_s=float(ttfa.min()),
            mean_s=float(np.average(ttfa + interval / 2, weights=interval)),
            p95_s=float(times[order][np.searchsorted(cumulated, 0.95)]),
            worst_s=float((ttfa + interval).max()),
        )
