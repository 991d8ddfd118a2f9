"""`robot-runtime trace`: prints the latency of each stage of a run, and writes a trace for Perfetto."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from tyro.conf import Positional

from robot_runtime.cli.options import InputFile, Maybe, OutputFile
from robot_runtime.commands.read_log import log_of
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from robot_runtime.log.stages import Journey

SHARES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Show where a run's latency from capture to command comes from, stage by stage.

    Prints a table of the stages from capture to command, and writes a trace that ui.perfetto.dev and Chrome
    open: one track for each stage, and an arrow from each capture to its command.
    """

    file: Annotated[InputFile, Positional]
    """Log of a run, .mcap."""
    output: Maybe[OutputFile] = None
    """File for the trace; beside the log if not given, with the ending .trace.json."""

    def main(self) -> int:
        import json

        from robot_runtime.cli.console import plain_console
        from robot_runtime.log.perfetto import trace_events
        from robot_runtime.log.stages import stages_of
        from robot_runtime.results import keep_text

        status = plain_console(is_error=True).status(f"reading {self.file.name}")
        with log_of(self.file, needs_whole=False) as log, status:
            journeys = list(stages_of(log.entries()))
            if not journeys:
                raise InvalidValueError(
                    f"{self.file}: no answer of a policy has run: there is nothing to trace"
                )
            text = json.dumps(trace_events(journeys, log.entries()))
        show(journeys, is_virtual=log.info.is_virtual)
        output = Path(f"{self.file.with_suffix('')}.trace.json") if self.output is None else self.output
        keep_text(output, text)
        print(f"{output}: open it at ui.perfetto.dev, or in chrome://tracing")
        log.refuse_damage()
        return 0


def show(journeys: "Sequence[Journey]", *, is_virtual: bool) -> None:
    """Print the table of stages."""
    from rich.table import Table

    from robot_runtime.cli.console import plain_console
    from robot_runtime.log.stages import MEANINGS, STAGES

    table = Table(title=f"capture to command, {len(journeys)} answers that ran [ms]")
    for column in ("stage", *(f"p{100 * share:g}" for share in SHARES), "mean", "share"):
        table.add_column(column, justify="left" if column == "stage" else "right", no_wrap=True)
    table.add_column("what it is")
    whole = np.array([of.command_ns - of.captured_ns for of in journeys]) / 1e6
    for stage in STAGES:
        took = np.array([of.stages_ns[stage] for of in journeys]) / 1e6
        share = took.mean() / whole.mean() if whole.mean() > 0 else 0.0
        table.add_row(stage, *_figures(took), f"{100 * share:.0f} %", MEANINGS[stage])
    table.add_section()
    table.add_row("all", *_figures(whole), "100 %", "capture to command: the means add up to it")
    plain_console(is_wide=True).print(table)
    if is_virtual:
        print("simulated time: nothing was sent, the simulated delay is listed under network")


def _figures(took_ms: np.ndarray) -> tuple[str, ...]:
    return (*(f"{np.quantile(took_ms, share):.2f}" for share in SHARES), f"{took_ms.mean():.2f}")
