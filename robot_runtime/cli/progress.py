"""The progress bars of long commands."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from sim.lab import Cell, FailedCell, ResultsFile


def counted() -> Progress:
    """So many of so many, and how long the rest will take."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )


def run_with_bar(
    cells: "Sequence[Cell]", results: "ResultsFile", *, workers: int, episodes: int
) -> "list[FailedCell]":
    """The cells that have not been run, with a bar over their episodes (so many in each)."""
    from sim.lab import run_cells

    todo = sum(results.score(cell) is None for cell in cells)
    with counted() as progress:
        bar = progress.add_task("episodes", total=todo * episodes)

        def on_group(cell: "Cell", num_done: int) -> None:
            where = f"{cell.config.task}, {cell.method_name}, {cell.config.trace.name}"
            progress.update(bar, advance=num_done, description=where)

        return run_cells(cells, results, workers=workers, on_group=on_group)
