"""Finished trials go from the run's log into the dataset while the next one runs: `Exporter`.

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
"""A run's log, and the end of a trial of it [ns]."""

if TYPE_CHECKING:
    from robot_runtime.dataset.from_log import Exported

    Jobs = multiprocessing.queues.Queue[Job | None] | Queue[Job | None]
    Done = multiprocessing.queues.Queue[list[Exported] | str] | Queue[list[Exported] | str]

_WRITTEN_S = 5.0
"""How long a mark may take from the run to its log's file [s]."""


class Exporter:
    """One export at a time, in the order of the trials; nothing here waits but `finish`."""

    def __init__(
        self, folder: Path, *, fps: int, cameras: Sequence[str] | None, say: Callable[[str], None]
    ) -> None:
        self.fault = ""
        """Why nothing more can be written; empty: it can."""
        self.num_left_out = 0
        """Trials that were worth keeping and could not be used; why was said."""
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
        """The trial of a log that ended then [ns] is to go into the dataset."""
        self._num_open += 1
        self._jobs.put((log, end_ns))

    @property
    def is_busy(self) -> bool:
        """Whether something is still to be written."""
        return self._num_open > 0 and not self.fault

    def look(self, wait_s: float = 0.0) -> None:
        """Say what has become of those that are done."""
        while self.is_busy:
            try:
                found = self._done.get(timeout=wait_s) if wait_s > 0.0 else self._done.get_nowait()
            except Empty:
                if not self._process.is_alive():
                    self._fail("its process has ended")
                return
            self._num_open -= 1
            self._tell(found)

    def finish(self) -> None:
        """Wait until all are written, and end the process; may be called twice."""
        while self.is_busy:
            self.look(wait_s=0.2)
        if self._process.is_alive():
            self._jobs.put(None)
        self._process.join()

    def _tell(self, found: "list[Exported] | str") -> None:
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
    """In the process of its own."""
    os.setsid()  # neither Ctrl-C nor a terminal that is closed ends what is finished already
    os.nice(10)
    export_jobs(jobs, done, folder, fps=fps, cameras=cameras, parent=parent)


def export_jobs(
    jobs: "Jobs", done: "Done", folder: Path, *, fps: int, cameras: Sequence[str] | None, parent: int
) -> None:
    """Until there is a None among the jobs, or who asks is gone: of each trial what was exported, or why it
    cannot be.

    parent: the process that asks; its child ends after it.
    """
    from robot_runtime.dataset.from_log import from_log, operator_name

    with suppress(ImportError):
        import lerobot.datasets.compute_stats  # noqa: F401  # takes seconds; nobody waits for it now

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
    """The log, once the end of that trial is in its file."""
    until_s = time.monotonic() + _WRITTEN_S
    while True:
        run = RunLog.open(log)
        if time.monotonic() > until_s or any(mark.end_ns >= end_ns for mark in run.episodes()):
            return run
        time.sleep(0.1)
