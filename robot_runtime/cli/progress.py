"""The progress bars of long commands."""

from collections.abc import Callable

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from robot_runtime.cli.console import plain_console


def counted(*, with_notes: bool = False, stays: bool = True) -> Progress:
    """So many of so many, and how long the rest will take.

    with_notes: every bar is added with a `note`, which stands behind it. stays: when all is done, too.
    """
    notes = [TextColumn("{task.fields[note]}", markup=False)] if with_notes else []
    what = TextColumn("{task.description}", markup=False)
    console = plain_console()
    return Progress(
        what,
        BarColumn(),
        MofNCompleteColumn(),
        *notes,
        TimeRemainingColumn(),
        console=console,
        transient=not stays,
        disable=not stays and not console.is_terminal,  # it would leave an empty line
    )


def advance(progress: Progress, bar: TaskID) -> Callable[[int, int], None]:
    """What moves a bar when called with (done, in all)."""
    return lambda done, total: progress.update(bar, completed=done, total=total)


def report_steps(progress: Progress, bar: TaskID) -> Callable[[int, float], None]:
    """What moves a bar when called with (steps done, loss)."""
    return lambda step, loss: progress.update(bar, completed=step, note=f"loss {loss:.4f}")
