"""`python -m scripts.bench reaction`: measures the time from an unforeseen event to the first command after
it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from robot_runtime.cli.options import Maybe, OutputFile, Processes, Within
from robot_runtime.cli.progress import counted
from robot_runtime.core.method.choose import DEFAULTS
from robot_runtime.core.method.table import METHODS, method_named
from scripts.harness import write_result

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

        method_named(self.method)
        with counted() as progress:
            bar = progress.add_task("cases", total=len(cases(self.method)))
            outcomes = measure(
                self.method,
                episodes=self.episodes,
                workers=self.workers,
                on_case=lambda outcome: progress.advance(bar),
            )
        show(outcomes)
        if self.json is not None:
            seeds = range(FIRST_SEED, FIRST_SEED + self.episodes)
            write_result(self.json, to_dict(outcomes), seeds=seeds)
        return 0


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


def show(outcomes: "list[Outcome]") -> None:
    """Print them as a table."""
    from rich.table import Table

    from robot_runtime.cli.console import plain_console

    table = Table(title="Reaction on track: measured / bound [ms]")
    for column in ("chunks", "delay", "method", "events", "mean", "± 95 %", "p95", "worst"):
        is_word = column in ("chunks", "delay", "method")
        table.add_column(column, justify="left" if is_word else "right", no_wrap=True)
    for column in ("over bound", "requests/s", "to synchronous"):
        table.add_column(column, justify="right")
    for o in outcomes:
        shorter = _shorter(outcomes, o)
        pairs = [
            f"{1e3 * getattr(o.measured, name):.0f} / {1e3 * getattr(o.bound, name):.0f}"
            for name in ("mean_s", "p95_s", "worst_s")
        ]
        table.add_row(
            *(o.case.chunks.name, o.case.trace, o.case.name, str(o.events)),
            *(pairs[0], f"{1e3 * o.mean_half_width_s:.0f}", pairs[1], pairs[2]),
            f"{100 * (o.measured.mean_s / o.bound.mean_s - 1):+.1f} %",
            f"{o.requests_per_s:.1f}",
            "–" if shorter is None else f"{shorter:.1f} x shorter",
        )
    plain_console(is_wide=True).print(table)
