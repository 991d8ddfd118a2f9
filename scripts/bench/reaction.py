"""`python -m scripts.bench reaction`: measures the time from an unforeseen event to the first command after
it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from robot_runtime.cli.options import Maybe, OutputFile, Processes, Within
from robot_runtime.cli.progress import counted
from robot_runtime.core.method.choose import DEFAULTS
from robot_runtime.core.method.table import METHODS, method_named
from scripts.harness import finish

if TYPE_CHECKING:
    from scripts.lab.reaction import Outcome


@dataclass(frozen=True, kw_only=True)
class BenchReaction:
    """Measure reaction times on `track` under the virtual clock, waiting included.

    Against U(TTFA, TTFA + interval), the bound for the answers that the run had, and against synchronous in
    the same run. With our chunks, and with those of VLASH's paper (25 rows at 50 Hz).
    """

    method: Annotated[str, arg(help=f"What is compared with synchronous. One of: {', '.join(METHODS)}.")] = (
        DEFAULTS[0][0]
    )
    episodes: Annotated[int, Within(2, 1_000_000)] = 50
    """Episodes of 10 s in each case, with the same seeds everywhere; each has about four events."""
    workers: Processes = 2
    """Processes that share the work; the results do not depend on their number."""
    json: Maybe[OutputFile] = None
    """Write the figures to this file, as JSON."""

    def main(self) -> int:
        """Measure, print a table, and write the figures if asked; returns the exit code."""
        from scripts.lab.reaction import FIRST_SEED, cases, measure
        from scripts.tables import speed

        method_named(self.method)
        with counted() as progress:
            bar = progress.add_task("cases", total=len(cases(self.method)))
            outcomes = measure(
                self.method,
                episodes=self.episodes,
                workers=self.workers,
                on_case=lambda outcome: progress.advance(bar),
            )
        figures, seeds = to_dict(outcomes), range(FIRST_SEED, FIRST_SEED + self.episodes)
        return finish(figures, self.json, speed.reaction(figures), seeds=seeds)


def to_dict(outcomes: "list[Outcome]") -> dict[str, object]:
    """The figures, each with how many times shorter it is than synchronous."""
    rows = [{**o.as_dict(), "synchronous_over_this": _shorter(outcomes, o)} for o in outcomes]
    return {"rows": rows}


def _shorter(outcomes: "list[Outcome]", this: "Outcome") -> float | None:
    """Mean reaction of synchronous over this one's; None if there is none to compare with."""
    for other in outcomes:
        same = (other.case.chunks, other.case.trace) == (this.case.chunks, this.case.trace)
        if same and other.case.method == "synchronous":
            return other.measured.mean_s / this.measured.mean_s
    return None
