"""The table of faults: `Fault`, a row; `Injection`, what one of them came to; `Verdict`, the row's."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number that injections of a row give."""

    name: str
    unit: str = ""
    most: float | None = None
    """What it may be at most; None: it is told, and nothing is asked of it."""
    share: float = 1.0
    """Of the values that may not be above `most`: 1 is all of them, 0.99 the 99th percentile."""


@dataclass(frozen=True, kw_only=True)
class Injection:
    """What one injection came to."""

    figures: Mapping[str, float] = field(default_factory=dict)
    """By the names of the row's figures; not every injection has to give every one."""
    surprises: tuple[str, ...] = ()
    """What happened that the row does not define."""
    count: int = 1
    """How often the fault was injected meanwhile, where one run has several."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One row: what is broken, and what is to become of it."""

    number: int
    """In the table, from 1."""
    name: str
    how: str
    """How it is injected."""
    behaviour: str
    """What is defined to happen."""
    figures: tuple[Figure, ...]
    inject: Callable[[int], Iterator[Injection]]
    """So many injections, one after the other."""
    times: int = 50
    """Injections, if nobody says another number."""
    missing: Callable[[], str] = lambda: ""
    """Why it cannot be injected here; empty: it can."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A figure of a row, over all injections."""

    figure: Figure
    median: float
    worst: float
    """Or the percentile that the figure is judged by."""
    n: int

    @property
    def holds(self) -> bool:
        return self.n > 0 and (self.figure.most is None or self.worst <= self.figure.most)

    @classmethod
    def of(cls, figure: Figure, values: list[float]) -> "Judged":
        """NaN is no value that holds."""
        if not values:
            return cls(figure=figure, median=float("nan"), worst=float("nan"), n=0)
        worst = float(np.quantile(values, figure.share, method="higher"))
        return cls(figure=figure, median=float(np.median(values)), worst=worst, n=len(values))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A row after its injections."""

    fault: Fault
    injections: int
    judged: tuple[Judged, ...]
    surprises: tuple[str, ...]
    seconds: float
    missing: str = ""
    """Why it was not run."""

    @property
    def holds(self) -> bool:
        """Every figure was measured and is within its limit, and nobody was surprised."""
        return not self.missing and not self.surprises and all(each.holds for each in self.judged)

    @property
    def word(self) -> str:
        if self.missing:
            return "not run"
        return "held" if self.holds else "missed"

    def to_plain(self) -> dict[str, object]:
        """For JSON."""
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
    """What a row's injections say. error: what ended them before their time, which is a surprise."""
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
