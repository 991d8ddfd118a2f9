"""`Exporter` copies finished trials from the run's log into the dataset while the next trial runs.

run's log   |--trial 0--|      |--trial 1--|      |--trial 2 ...          killed here
dataset                  ├─ 0 ─┤            ├─ 1 ─┤                       has 0 and 1, whole
"""

import multiprocessing
import multiprocessing.queues
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING

from robot_runtime.errors import RobotRuntimeError
from robot_runtime.log.reader import RunLog

Job = tuple[Path, int]
"""A run's log, and the end of one of its trials [ns]."""

if TYPE_CHECKING:
    from robot_runtime.dataset.from_log import Exported

    Jobs = multiprocessing.queues.Queue[Job | None] | Queue[Job | None]
    Done = multiprocessing.queues.Queue[list[Exported] | str] | Queue[list[Exported] | str]

_WRITTEN_S = 5.0
"""Longest time that a mark may take to reach the log's file [s]."""


class Exporter:
    """Exports one trial at a time, in order, in its own process; only `finish` waits."""

    def __init__(
        self, folder: Path, *, fps: int, cameras: Sequence[str] | None, say: Callable[[str], None]
    ) -> None:
        self.fault = ""
        """Why nothing more can be written; empty without a fault."""
        self.num_left_out = 0
        """Number of kept trials that could not be exported; the reason was printed."""
        self._say, self._num_open = say, 0
        context = multiprocessing.get_context("spawn")
        self._jobs: Jobs = context.Queue()
        self._done: Done = context.Queue()
        self._process = context.Process(
            target=_export_all,
            args=(self._jobs, self._done, folder, fps, cameras, os.getpid()),
            name="exporter",
        )
        self._process.start()

    def add(self, log: Path, end_ns: int) -> None:
        """Queue the trial of a log that ended at `end_ns` for export."""
        self._num_open += 1
        self._jobs.put((log, end_ns))

    @property
    def is_busy(self) -> bool:
        """Whether something is still to be written."""
        return self._num_open > 0 and not self.fault

    def look(self, wait_s: float = 0.0) -> None:
        """Print the results of finished exports."""
        while self.is_busy:
            try:
                found = self._done.get(timeout=wait_s) if wait_s > 0.0 else self._done.get_nowait()
            except Empty:
                if not self._process.is_alive():
                    self._fail("its process has ended")
                return
            self._num_open -= 1
            self._report(found)

    def finish(self) -> None:
        """Wait until all trials are written, and end the process; may be called twice."""
        while self.is_busy:
            self.look(wait_s=0.2)
        if self._process.is_alive():
            self._jobs.put(None)
        self._process.join()

    def _report(self, found: "list[Exported] | str") -> None:
        if isinstance(found, str):
            self._fail(found)
            return
        for each in found:
            if each.num_frames:
                self._say(f"in the dataset: trial {each.trial} of the run, {each.num_frames} frames")
            elif each.why not in ("in the dataset already", "marked as not worth keeping"):
                self.num_left_out += 1
                self._say(f"left out: trial {each.trial} of the run: {each.why}")

    def _fail(self, why: str) -> None:
        self.fault = why
        self._say(f"the dataset is not written any more: {why}; the log has all")


def _export_all(
    jobs: "Jobs", done: "Done", folder: Path, fps: int, cameras: Sequence[str] | None, parent: int
) -> None:
    """Main function of the exporting process."""
    os.setsid()  # Ctrl-C or a closed terminal must not end exports of finished trials
    os.nice(10)
    export_jobs(jobs, done, folder, fps=fps, cameras=cameras, parent=parent)


def export_jobs(
    jobs: "Jobs", done: "Done", folder: Path, *, fps: int, cameras: Sequence[str] | None, parent: int
) -> None:
    """Export trials until a job is None or the parent is gone; put the result, or the reason of a failure.

    parent: id of the process that posts the jobs; this child ends after it.
    """
    from robot_runtime.dataset.from_log import from_log, operator_name

    with suppress(ImportError):
        import lerobot.datasets.compute_stats  # noqa: F401  # takes seconds; nothing waits for it now

    operator = operator_name()
    while (job := _next(jobs, parent)) is not None:
        log, end_ns = job
        try:
            done.put(from_log(_written(log, end_ns), folder, fps=fps, cameras=cameras, operator=operator))
        except (RobotRuntimeError, OSError) as error:
            done.put(str(error))


def _next(jobs: "Jobs", parent: int) -> "Job | None":
    while True:
        with suppress(Empty):
            return jobs.get(timeout=1.0)
        if os.getppid() != parent:
            return None


def _written(log: Path, end_ns: int) -> RunLog:
    """Return the log once the end of that trial is in its file."""
    until_s = time.monotonic() + _WRITTEN_S
    while True:
        run = RunLog.open(log)
        if time.monotonic() > until_s or any(mark.end_ns >= end_ns for mark in run.episodes()):
            return run
        time.sleep(0.1)
