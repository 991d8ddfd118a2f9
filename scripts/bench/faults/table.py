"""Table of faults: `Fault` is a row, `Injection` the result of one injection, `Verdict` that of the row."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Figure that injections of a row measure."""

    name: str
    unit: str = ""
    most: float | None = None
    """Largest allowed value; None: the figure is reported but not judged."""
    share: float = 1.0
    """Share of the values that must not exceed `most`: 1 is all of them, 0.99 the 99th percentile."""


@dataclass(frozen=True, kw_only=True)
class Injection:
    """Result of one injection."""

    figures: Mapping[str, float] = field(default_factory=dict)
    """Values by the names of the row's figures; an injection need not measure all of them."""
    surprises: tuple[str, ...] = ()
    """Behaviour that the row does not define."""
    count: int = 1
    """Number of faults injected, where one run has several."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One row: a fault, and the defined behaviour."""

    number: int
    """Number in the table, from 1."""
    name: str
    how: str
    """How it is injected."""
    behaviour: str
    """Defined behaviour."""
    figures: tuple[Figure, ...]
    inject: Callable[[int], Iterator[Injection]]
    """Makes a number of injections, one after the other."""
    times: int = 50
    """Default number of injections."""
    missing: Callable[[], str] = lambda: ""
    """Returns why it cannot be injected here; empty: it can."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Figure of a row, over all injections."""

    figure: Figure
    median: float
    worst: float
    """Largest value, or the percentile that the figure is judged by."""
    n: int

    @property
    def holds(self) -> bool:
        return self.n > 0 and (self.figure.most is None or self.worst <= self.figure.most)

    @classmethod
    def of(cls, figure: Figure, values: list[float]) -> "Judged":
        """Judge a figure by its values; NaN never holds."""
        if not values:
            return cls(figure=figure, median=float("nan"), worst=float("nan"), n=0)
        worst = float(np.quantile(values, figure.share, method="higher"))
        return cls(figure=figure, median=float(np.median(values)), worst=worst, n=len(values))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of a row after its injections."""

    fault: Fault
    injections: int
    judged: tuple[Judged, ...]
    surprises: tuple[str, ...]
    seconds: float
    missing: str = ""
    """Why it was not run."""

    @property
    def holds(self) -> bool:
        """Whether every figure was measured and is within its limit, and nothing undefined happened."""
        return not self.missing and not self.surprises and all(each.holds for each in self.judged)

    @property
    def word(self) -> str:
        if self.missing:
            return "not run"
        return "held" if self.holds else "missed"

    def to_plain(self) -> dict[str, object]:
        """Return the verdict for JSON."""
        fault = self.fault
        return {
            "number": fault.number,
            "fault": fault.name,
            "how": fault.how,
            "behaviour": fault.behaviour,
            "verdict": self.word,
            "missing": self.missing,
            "injections": self.injections,
            "seconds": round(self.seconds, 1),
            "surprises": list(self.surprises),
            "figures": [
                {
                    "name": each.figure.name,
                    "unit": each.figure.unit,
                    "most": each.figure.most,
                    "share": each.figure.share,
                    "median": None if each.n == 0 else each.median,
                    "worst": None if each.n == 0 else each.worst,
                    "n": each.n,
                    "holds": each.holds,
                }
                for each in self.judged
            ],
        }


def judge(fault: Fault, injections: list[Injection], *, seconds: float, error: str = "") -> Verdict:
    """Judge a row's injections. error: what ended them early, which counts as a surprise."""
    surprises = [surprise for each in injections for surprise in each.surprises]
    judged = tuple(
        Judged.of(
            figure, [float(each.figures[figure.name]) for each in injections if figure.name in each.figures]
        )
        for figure in fault.figures
    )
    return Verdict(
        fault=fault,
        injections=sum(each.count for each in injections),
        judged=judged,
        surprises=(*surprises, error) if error else tuple(surprises),
        seconds=seconds,
    )
