"""Results of the comparison's cells, with their uncertainty.

CellScore   one training seed: sums that can be pooled, and every reaction
Row         one method on one task under one trace, over all training seeds, with 95 % intervals
Reaction    how soon a robot reacts, measured or allowed by its answers

    observations  |---- interval ----|---- interval ----|
    event              *             |
                       |<- waiting ->|<---- TTFA ---->| first command that can depend on it
                       |<--------- reaction --------->|

TTFA, time to first action: from the observation to the first command of its answer. An event falls anywhere
between two observations, so the reaction is uniform in [TTFA, TTFA + interval) if both are constant: FASTER
(arXiv 2603.19199, section 3). Where they differ from answer to answer, the bound is the mixture over the
answers of a run, each as likely as its interval is long. Jitter makes reactions later than this bound.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256

import numpy as np

from robot_runtime.evaluation.result import EpisodeResult
from robot_runtime.evaluation.statistics import Z_95, wilson_interval

RESULTS_VERSION = 3
"""Version of results; increase it when the code changes them, so that older results are ignored."""
_POINTS_PER_ANSWER = 20
REFERENCE_DELAY_MS = 400.0
"""Where the comparison looks closer: capture to answer."""


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
        """Return what answers allow, each as (interval, TTFA) [s]; the percentile is that of a grid."""
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


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Number, mean and sum of squared deviations of a figure over episodes: enough to pool."""

    n: int
    mean: float
    squares: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Moments":
        mean = float(np.mean(values)) if values else 0.0
        return cls(n=len(values), mean=mean, squares=float(np.sum((np.asarray(values) - mean) ** 2)))

    def __add__(self, other: "Moments") -> "Moments":
        """Pool with another, as if all values had been seen at once (Chan et al. 1979)."""
        n = self.n + other.n
        if n == 0:
            return self
        step = other.mean - self.mean
        mean = self.mean + step * other.n / n
        return Moments(
            n=n, mean=mean, squares=self.squares + other.squares + step * step * self.n * other.n / n
        )

    @property
    def estimate(self) -> "Estimate | None":
        """Return the mean and its uncertainty; None without values."""
        if self.n == 0:
            return None
        sure = None if self.n < 2 else Z_95 * float(np.sqrt(self.squares / (self.n - 1) / self.n))
        return Estimate(mean=self.mean, half_width=sure)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over episodes."""

    mean: float
    half_width: float | None
    """Half width of its 95 % interval; None for a single value."""


_NOTHING = Moments(n=0, mean=0.0, squares=0.0)


@dataclass(frozen=True, kw_only=True)
class CellScore:
    """One cell, summed up."""

    episodes: int
    successes: int
    digest: str
    """Fingerprint of all command logs."""
    completion: Moments
    """Of the episodes that succeeded [s]."""
    figures: dict[str, Moments]
    """Of every episode's summary and the task's own metrics."""
    reactions_s: tuple[float, ...]
    bound: Reaction | None
    """None if no two answers came."""

    @classmethod
    def of(cls, results: Sequence[EpisodeResult]) -> "CellScore":
        """What the episodes of one cell come to, in order of seed."""
        rows = [{**r.score.metrics, **r.summary} for r in results]
        names = sorted({name for row in rows for name in row})
        times = [r.score.completion_s for r in results if r.score.completion_s is not None]
        arrivals = [arrival for r in results for arrival in r.arrivals if arrival[0] > 0.0]
        return cls(
            episodes=len(results),
            successes=sum(r.score.success for r in results),
            digest=sha256("".join(r.digest for r in results).encode()).hexdigest(),
            completion=Moments.of(times),
            figures={name: Moments.of([row[name] for row in rows if name in row]) for name in names},
            reactions_s=tuple(round(t, 6) for r in results for t in r.score.reactions_s),
            bound=Reaction.bound(arrivals) if arrivals else None,
        )

    def as_dict(self) -> dict[str, object]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict) -> "CellScore":
        """What `as_dict` gave; KeyError or TypeError if it is not."""
        return cls(
            **{
                **data,
                "completion": Moments(**data["completion"]),
                "figures": {name: Moments(**value) for name, value in data["figures"].items()},
                "reactions_s": tuple(data["reactions_s"]),
                "bound": None if data["bound"] is None else Reaction(**data["bound"]),
            }
        )


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method on one task under one trace, over all training seeds that were run."""

    task: str
    method: str
    trace: str
    recipes: tuple[str, ...]
    """Of the policies, as recipe-seed."""
    episodes: int
    successes: int
    success_by_seed: tuple[float, ...]
    """Of each training seed's policy."""
    completion: Estimate | None
    """Of the episodes that succeeded [s]."""
    figures: Mapping[str, Estimate] = field(repr=False)
    """Of every episode's summary and the task's own metrics."""
    reaction: Reaction | None
    """Measured, over all unforeseen events that were answered; None if the task has none."""
    reaction_mean: Estimate | None
    """Of the same [s]."""
    bound: Reaction | None
    """What its answers' intervals and delays allow; the mean over training seeds, the worst of all."""
    digests: tuple[str, ...]
    """Of each training seed's command logs."""
    command: str
    """What it was run with."""

    @classmethod
    def of(
        cls,
        cells: Sequence[CellScore],
        *,
        task: str,
        method: str,
        trace: str,
        recipes: tuple[str, ...],
        command: str,
    ) -> "Row":
        """What the cells of one place come to, one of each training seed."""
        times = [t for cell in cells for t in cell.reactions_s]
        names = sorted({name for cell in cells for name in cell.figures})
        pooled = {n: sum((c.figures[n] for c in cells if n in c.figures), _NOTHING) for n in names}
        return cls(
            task=task,
            method=method,
            trace=trace,
            recipes=recipes,
            episodes=sum(cell.episodes for cell in cells),
            successes=sum(cell.successes for cell in cells),
            success_by_seed=tuple(cell.successes / cell.episodes for cell in cells),
            completion=sum((cell.completion for cell in cells), _NOTHING).estimate,
            figures={name: known for name, moments in pooled.items() if (known := moments.estimate)},
            reaction=Reaction.measured(times) if times else None,
            reaction_mean=Moments.of(times).estimate,
            bound=_pooled_bound([cell.bound for cell in cells if cell.bound is not None]),
            digests=tuple(cell.digest[:16] for cell in cells),
            command=command,
        )

    @property
    def place(self) -> tuple[str, str, str]:
        """The cell that it is a row of: task, method and trace."""
        return self.task, self.method, self.trace

    @property
    def delay_ms(self) -> float | None:
        """Of a constant trace [ms]; None for the others."""
        number = self.trace.removesuffix("ms")
        is_number = number != self.trace and number.replace(".", "", 1).isdigit()
        return float(number) if is_number else None

    @property
    def success(self) -> float:
        return self.successes / self.episodes

    @property
    def success_interval(self) -> tuple[float, float]:
        """Wilson's, over the episodes of all training seeds."""
        return wilson_interval(self.successes, self.episodes)

    def as_dict(self) -> dict[str, object]:
        """Return the result in compact form."""
        return {
            "task": self.task,
            "method": self.method,
            "trace": self.trace,
            "policies": list(self.recipes),
            "episodes": self.episodes,
            "success": round(self.success, 4),
            "success_interval_95": [round(x, 4) for x in self.success_interval],
            "success_by_training_seed": [round(x, 4) for x in self.success_by_seed],
            "completion_s": _pair(self.completion),
            "reaction": None if self.reaction is None else _rounded(asdict(self.reaction)),
            "reaction_bound": None if self.bound is None else _rounded(asdict(self.bound)),
            "reaction_mean_interval_95_s": _pair(self.reaction_mean),
            "figures": {name: _pair(value) for name, value in self.figures.items()},
            "digests": list(self.digests),
            "command": self.command,
        }

    @classmethod
    def from_dict(cls, data: dict) -> "Row":
        """What `as_dict` gave, to its digits; KeyError or TypeError if it is not."""
        return cls(
            task=data["task"],
            method=data["method"],
            trace=data["trace"],
            recipes=tuple(data["policies"]),
            episodes=data["episodes"],
            successes=round(data["success"] * data["episodes"]),
            success_by_seed=tuple(data["success_by_training_seed"]),
            completion=_estimate(data["completion_s"]),
            figures={name: value for name, pair in data["figures"].items() if (value := _estimate(pair))},
            reaction=None if data["reaction"] is None else Reaction(**data["reaction"]),
            reaction_mean=_estimate(data["reaction_mean_interval_95_s"]),
            bound=None if data["reaction_bound"] is None else Reaction(**data["reaction_bound"]),
            digests=tuple(data["digests"]),
            command=data["command"],
        )


def beside(rows: Sequence[Row], older: Sequence[Row]) -> list[Row]:
    """Rows, and those of an older run for the places that these have not; short delays first."""
    places = {row.place for row in rows}
    kept = [row for row in older if row.place not in places]

    def order(row: Row) -> tuple[str, bool, float]:
        return row.task, row.delay_ms is None, row.delay_ms or 0.0

    return sorted([*kept, *rows], key=order)


def with_other_seeds(older: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Those of an older run with a training seed that the row in their place has not."""
    newer = {row.place: row for row in rows}
    return [row for row in older if _seeds(row) - _seeds(newer.get(row.place, row))]


def _seeds(row: Row) -> set[str]:
    return {recipe.rpartition("-")[2] for recipe in row.recipes}


def _pooled_bound(bounds: Sequence[Reaction]) -> Reaction | None:
    if not bounds:
        return None
    return Reaction(
        best_s=min(b.best_s for b in bounds),
        mean_s=float(np.mean([b.mean_s for b in bounds])),
        p95_s=float(np.mean([b.p95_s for b in bounds])),
        worst_s=max(b.worst_s for b in bounds),
    )


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _pair(value: Estimate | None) -> list[float | None] | None:
    """[mean, half width of its 95 % interval]."""
    if value is None:
        return None
    return [round(value.mean, 5), None if value.half_width is None else round(value.half_width, 5)]


def _estimate(pair: Sequence | None) -> Estimate | None:
    return None if pair is None else Estimate(mean=pair[0], half_width=pair[1])


def at_reference(rows: Sequence[Row], task: str) -> list[Row]:
    """A task's rows at the constant delay nearest to the reference."""
    delays = {row.delay_ms for row in rows if row.task == task and row.delay_ms is not None}
    if not delays:
        return []
    nearest = min(delays, key=lambda delay_ms: abs(delay_ms - REFERENCE_DELAY_MS))
    return [row for row in rows if row.task == task and row.delay_ms == nearest]
