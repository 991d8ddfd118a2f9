"""`python -m scripts.bench faults`: every fault of the table injected, and judged by its figures."""

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text

from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import Count, Maybe, OutputFile, Several, Within
from robot_runtime.cli.progress import counted
from scripts.bench.faults.table import Fault, Injection, Judged, Verdict, judge
from scripts.harness import write_result


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence warnings, of which these runs are full."""
    logger = logging.getLogger("robot_runtime")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@dataclass(frozen=True, kw_only=True)
class BenchFaults:
    """Inject every fault that a policy's runtime has to survive, and measure the robot's reaction.

    Breaks real processes, sockets and disks under a moving robot. Each row has limits on its figures; a row
    in which anything undefined happens has failed, too. Exit code 1 if a row has failed.
    """

    rows: Several[Annotated[int, Within(1, 19)]] = ()
    """Numbers of the rows to run; all if not given."""
    repeats: Maybe[Count] = None
    """Injections of each row; the row's own number if not given."""
    json: Maybe[OutputFile] = None
    """Write the results to this file, as JSON."""

    def main(self) -> int:
        console = plain_console()
        with _without_warnings():
            verdicts = self._verdicts()
        show(console, verdicts)
        return int(any(each.word == "missed" for each in verdicts))

    def _verdicts(self) -> list[Verdict]:
        chosen = self._chosen()
        verdicts: list[Verdict] = []
        with counted(with_notes=True) as progress:
            for fault in chosen:
                times = self.repeats or fault.times
                bar = progress.add_task(f"{fault.number:2} {fault.name}", total=times, note="")
                verdicts.append(verdict_of(fault, times, partial(progress.update, bar)))
                progress.update(bar, completed=times, note=verdicts[-1].word)
                if self.json is not None:  # so that a row that hangs loses no other
                    write_result(self.json, {"rows": [each.to_plain() for each in verdicts]})
        return verdicts

    def _chosen(self) -> list[Fault]:
        from scripts.bench.faults.rows import ROWS

        return [fault for fault in ROWS if not self.rows or fault.number in self.rows]


def verdict_of(fault: Fault, times: int, on_injection: Callable[..., object] = lambda **of: None) -> Verdict:
    """Inject one row's fault `times` times. on_injection: gets the number so far, as `completed`."""
    start_s = time.monotonic()
    if missing := fault.missing():
        return Verdict(fault=fault, injections=0, judged=(), surprises=(), seconds=0.0, missing=missing)
    injections: list[Injection] = []
    error = ""
    try:
        for injection in fault.inject(times):
            injections.append(injection)
            on_injection(completed=sum(each.count for each in injections))
    except Exception as raised:  # any error is undefined behaviour of the row
        words = str(raised) or traceback.extract_tb(raised.__traceback__)[-1].line
        error = f"after {len(injections)} runs: {type(raised).__name__}: {words}"
    return judge(fault, injections, seconds=time.monotonic() - start_s, error=error)


def show(console: Console, verdicts: Sequence[Verdict]) -> None:
    """Print the table, and all surprises."""
    table = Table("#", "fault", "figure", "median", "worst", "at most", "n", "verdict")
    for verdict in verdicts:
        first = [str(verdict.fault.number), verdict.fault.name]
        for judged in verdict.judged:
            table.add_row(*first, *_cells(judged), verdict.word if first[0] else "")
            first = ["", ""]
        if not verdict.judged:
            table.add_row(*first, verdict.missing, "", "", "", "", verdict.word)
    console.print(table)
    for verdict in verdicts:
        for surprise, count in _tally(verdict.surprises).items():
            console.print(f"surprise in row {verdict.fault.number}, {count} times: {surprise}")
    held = sum(each.holds for each in verdicts)
    seconds = sum(each.seconds for each in verdicts)
    console.print(f"{held} of {len(verdicts)} rows held, in {seconds:.0f} s")


def _tally(texts: Sequence[str]) -> dict[str, int]:
    return {text: texts.count(text) for text in dict.fromkeys(texts)}


def _cells(judged: Judged) -> list[str | Text]:
    figure = judged.figure
    name = f"{figure.name} [{figure.unit}]" if figure.unit else figure.name
    if figure.share < 1.0:
        name += f", p{100 * figure.share:g}"
    most = "" if figure.most is None else f"{figure.most:g}"
    worst = Text(f"{judged.worst:.3g}", style="" if judged.holds or judged.n == 0 else "red")
    return [name, f"{judged.median:.3g}", worst, most, str(judged.n)]
