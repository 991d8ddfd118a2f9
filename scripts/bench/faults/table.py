"""The table of faults: `Fault` is a row, `Injection` the result of one injection, `Verdict` that of the row.

The benchmark (`command.py`) and the tests (`tests/process/test_bench_faults.py`) run the same rows.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from robot_runtime.cli.progress import counted


@dataclass(frozen=True, kw_only=True)
class Injection:
    """Result of one injection."""

    figures: Mapping[str, float] = field(default_factory=dict)
    """Values by the names of the row's figures, without units; an injection need not measure all of them."""
    surprises: tuple[str, ...] = ()
    """Behaviour that the row does not define."""
    count: int = 1
    """Number of faults injected, where one run has several."""


Inject = Callable[[int], Iterator[Injection]]
"""Makes a number of injections, one after the other."""


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
    figures: Mapping[str, float | None]
    """"name [unit]" of what is measured: largest allowed value; None: it is reported but not judged."""
    inject: Inject
    times: int = 50
    """Default number of injections."""
    missing: Callable[[], str] = lambda: ""
    """Returns why it cannot be injected here; empty: it can."""

    def run(self, times: int) -> "Verdict":
        """Inject it `times` times; an error of an injection is a surprise and ends the row."""
        start_s = time.monotonic()
        if missing := self.missing():
            return Verdict(fault=self, missing=missing)
        injections: list[Injection] = []
        surprises: list[str] = []
        with counted(with_notes=True) as progress:
            bar = progress.add_task(f"{self.number:2} {self.name}", total=times, note="")
            try:
                for injection in self.inject(times):
                    injections.append(injection)
                    surprises += injection.surprises
                    progress.update(bar, completed=sum(each.count for each in injections))
            except Exception as raised:  # any error is undefined behaviour of the row
                words = str(raised) or traceback.extract_tb(raised.__traceback__)[-1].line
                surprises.append(f"after {len(injections)} runs: {type(raised).__name__}: {words}")
            verdict = Verdict(
                fault=self,
                injections=sum(each.count for each in injections),
                values={name: _values(injections, name) for name in self.figures},
                surprises=tuple(surprises),
                seconds=time.monotonic() - start_s,
            )
            progress.update(bar, completed=times, note=verdict.word)
        return verdict


def fault(
    number: int,
    name: str,
    *,
    how: str,
    behaviour: str,
    figures: Mapping[str, float | None],
    times: int = 50,
    missing: Callable[[], str] = lambda: "",
) -> Callable[[Inject], Fault]:
    """Decorate the function that injects a fault; the arguments are those of `Fault`."""
    return lambda inject: Fault(
        number=number, name=name, how=how, behaviour=behaviour, figures=figures, inject=inject, times=times,
        missing=missing,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of a row after its injections."""

    fault: Fault
    injections: int = 0
    values: Mapping[str, list[float]] = field(default_factory=dict)
    """All values of each figure."""
    surprises: tuple[str, ...] = ()
    seconds: float = 0.0
    missing: str = ""
    """Why it was not run."""

    @property
    def word(self) -> str:
        if self.missing:
            return "not run"
        is_held = not self.surprises and all(map(self._holds, self.values))
        return "held" if is_held else "missed"

    def _holds(self, name: str) -> bool:
        """Return whether a figure was measured and its worst value is within its limit; NaN never is."""
        values, most = self.values[name], self.fault.figures[name]
        return bool(values) and (most is None or all(value <= most for value in values))

    def to_plain(self) -> dict[str, object]:
        """Return the verdict for JSON."""
        facts = {name: getattr(self.fault, name) for name in ("number", "how", "behaviour")}
        figures = [
            {
                "name": name.partition(" [")[0],
                "unit": name.partition(" [")[2].removesuffix("]"),
                "most": self.fault.figures[name],
                "median": median(values) if values else None,
                "worst": max(values, default=None),
                "n": len(values),
                "holds": self._holds(name),
            }
            for name, values in self.values.items()
        ]
        return facts | {
            "fault": self.fault.name,
            "verdict": self.word,
            "missing": self.missing,
            "injections": self.injections,
            "seconds": round(self.seconds, 1),
            "surprises": list(self.surprises),
            "figures": figures,
        }


def _values(injections: list[Injection], name: str) -> list[float]:
    key = name.partition(" [")[0]
    return [float(each.figures[key]) for each in injections if key in each.figures]
