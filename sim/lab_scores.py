"""What cells of the comparison come to, and how sure that is.

CellScore   one training seed: sums that can be pooled, and every reaction
Row         one method on one task under one trace, over all training seeds, with 95 % intervals
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256

import numpy as np

from sim.evaluate import EpisodeResult
from sim.reaction_bound import Reaction
from sim.statistics import Z_95, wilson_interval

REFERENCE_DELAY_MS = 400.0
"""Where the comparison looks closer: capture to answer."""


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
        """As if all values had been seen at once (Chan et al. 1979)."""
        n = self.n + other.n
        if n == 0:
            return self
        step = other.mean - self.mean
        mean = self.mean + step * other.n / n
        return Moments(
            n=n, mean=mean, squares=self.squares + other.squares + step * step * self.n * other.n / n
        )

    @property
    def half_width(self) -> float:
        """Of the 95 % interval of the mean; infinite for fewer than two values."""
        if self.n < 2:
            return float("inf")
        return Z_95 * float(np.sqrt(self.squares / (self.n - 1) / self.n))


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
    cells: tuple[CellScore, ...] = field(repr=False)

    @property
    def delay_ms(self) -> float | None:
        """Of a constant trace [ms]; None for the others."""
        number = self.trace.removesuffix("ms")
        is_number = number != self.trace and number.replace(".", "", 1).isdigit()
        return float(number) if is_number else None

    @property
    def episodes(self) -> int:
        return sum(cell.episodes for cell in self.cells)

    @property
    def success(self) -> float:
        return sum(cell.successes for cell in self.cells) / self.episodes

    @property
    def success_interval(self) -> tuple[float, float]:
        """Wilson's, over the episodes of all training seeds."""
        return wilson_interval(sum(cell.successes for cell in self.cells), self.episodes)

    @property
    def success_by_seed(self) -> tuple[float, ...]:
        """Of each training seed's policy."""
        return tuple(cell.successes / cell.episodes for cell in self.cells)

    @property
    def completion(self) -> Moments:
        return sum((cell.completion for cell in self.cells), _NOTHING)

    def figure(self, *names: str) -> Moments | None:
        """The first of these figures that the episodes have."""
        for name in names:
            found = [cell.figures[name] for cell in self.cells if name in cell.figures]
            if found:
                return sum(found, _NOTHING)
        return None

    @property
    def reaction(self) -> Reaction | None:
        """Measured, over all unforeseen events that were answered; None if the task has none."""
        times = self.reactions_s
        return Reaction.measured(times) if times else None

    @property
    def reactions_s(self) -> tuple[float, ...]:
        return tuple(t for cell in self.cells for t in cell.reactions_s)

    @property
    def bound(self) -> Reaction | None:
        """What its answers' intervals and delays allow; the mean over training seeds, the worst of all."""
        bounds = [cell.bound for cell in self.cells if cell.bound is not None]
        if not bounds:
            return None
        return Reaction(
            best_s=min(b.best_s for b in bounds),
            mean_s=float(np.mean([b.mean_s for b in bounds])),
            p95_s=float(np.mean([b.p95_s for b in bounds])),
            worst_s=max(b.worst_s for b in bounds),
        )

    def as_dict(self) -> dict[str, object]:
        """Everything a reader wants, small."""
        figures = {name: self.figure(name) for name in sorted({n for c in self.cells for n in c.figures})}
        return {
            "task": self.task,
            "method": self.method,
            "trace": self.trace,
            "policies": list(self.recipes),
            "episodes": self.episodes,
            "success": round(self.success, 4),
            "success_interval_95": [round(x, 4) for x in self.success_interval],
            "success_by_training_seed": [round(x, 4) for x in self.success_by_seed],
            "completion_s": _mean_and_interval(self.completion),
            "reaction": None if self.reaction is None else _rounded(asdict(self.reaction)),
            "reaction_bound": None if self.bound is None else _rounded(asdict(self.bound)),
            "reaction_mean_interval_95_s": _mean_and_interval(Moments.of(self.reactions_s)),
            "figures": {name: _mean_and_interval(value) for name, value in figures.items() if value},
            "digests": [cell.digest[:16] for cell in self.cells],
        }


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _mean_and_interval(value: Moments) -> list[float | None] | None:
    """[mean, half width of its 95 % interval]."""
    if value.n == 0:
        return None
    return [round(value.mean, 5), round(value.half_width, 5) if value.n > 1 else None]


def at_reference(rows: Sequence[Row], task: str) -> list[Row]:
    """A task's rows at the constant delay nearest to the reference."""
    delays = {row.delay_ms for row in rows if row.task == task and row.delay_ms is not None}
    if not delays:
        return []
    nearest = min(delays, key=lambda delay_ms: abs(delay_ms - REFERENCE_DELAY_MS))
    return [row for row in rows if row.task == task and row.delay_ms == nearest]
