"""Progress of long commands: bars, and lines for steps of unknown length."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from robot_runtime.cli.console import plain_console

LOG_PERIOD_S = 60.0
UNDER_WAY_PERIOD_S = 10.0


@contextmanager
def under_way(what: str, *, period_s: float = UNDER_WAY_PERIOD_S) -> Iterator[None]:
    """Print a line when work of unknown length begins, one each period, and one when it is done."""
    began_s, is_over = time.monotonic(), Event()

    def say(more: str) -> None:
        print(f"{what}{more}", flush=True)

    def tick() -> None:
        while not is_over.wait(period_s):
            say(f": {time.monotonic() - began_s:.0f} s so far")

    say(" ...")
    ticking = Thread(target=tick, daemon=True)
    ticking.start()
    try:
        yield
        is_over.set()
        ticking.join()
        say(f": {time.monotonic() - began_s:.1f} s")
    finally:
        is_over.set()


class _InLog(Progress):
    """Progress without a terminal: prints a line a minute for the bar that moves."""

    _logged_at: float | None = None

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._say(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._say(task_id)

    def _say(self, task_id: TaskID) -> None:
        now = self.get_time()
        if self._logged_at is None:
            self._logged_at = now
        if now - self._logged_at < LOG_PERIOD_S:
            return
        self._logged_at = now
        bar = self._tasks[task_id]
        total = "?" if bar.total is None else f"{bar.total:.0f}"
        parts = [bar.description, f"{bar.completed:.0f}/{total}", str(bar.fields.get("note", ""))]
        self.console.print(" ".join(part for part in parts if part), soft_wrap=True)


def counted(
    *, with_notes: bool = False, stays: bool = True, clock: Callable[[], float] = time.monotonic
) -> Progress:
    """Return bars that show a count and the time left; without a terminal, a line a minute.

    with_notes: every bar is added with a `note`, which is printed after it. stays: keep the bars when all is
    done. clock: [s].
    """
    notes = [TextColumn("{task.fields[note]}", markup=False)] if with_notes else []
    what = TextColumn("{task.description}", markup=False)
    console = plain_console()
    kind = Progress if console.is_terminal else _InLog
    return kind(
        what,
        BarColumn(),
        MofNCompleteColumn(),
        *notes,
        TimeRemainingColumn(),
        console=console,
        transient=not stays,
        get_time=clock,
        disable=not stays and not console.is_terminal,  # it would leave an empty line
    )


def advance(progress: Progress, bar: TaskID) -> Callable[[int, int], None]:
    """Return a function (done, total) that moves a bar."""
    return lambda done, total: progress.update(bar, completed=done, total=total)


def report_steps(
    progress: Progress, bar: TaskID, *, total: int | None = None
) -> Callable[[int, float], None]:
    """Return a function (steps done, loss) that moves a bar. total: number of steps, if the bar lacks it."""
    if total is not None:
        progress.update(bar, total=total)
    return lambda step, loss: progress.update(bar, completed=step, note=f"loss {loss:.4f}")
