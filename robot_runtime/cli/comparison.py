"""What comparisons have in common: finished places are kept, and the same command goes on from there."""

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robot_runtime.cli.progress import counted
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from sim.lab import Cell, FailedCell, ResultsFile
    from sim.lab_training import Trainable

Found = tuple[list["Cell"], list["Trainable"]]
Write = Callable[[list["Cell"], "ResultsFile", list["Trainable"], list["FailedCell"]], None]


def this_command() -> str:
    """What was typed."""
    return shlex.join(["robot-runtime", *sys.argv[1:]])


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Cells to run, and what becomes of them."""

    find: Callable[[], Found]
    """The cells, and the policies that are missing for more."""
    write: Write
    """Tables and plots of what is finished, also after an interruption."""
    output: Path
    """Folder of `cells.jsonl`."""
    episodes: int
    workers: int
    train: bool
    plan: bool

    def run(self) -> int:
        """Train, run and write, as the options say; returns the exit code."""
        from sim.lab import ResultsFile

        if self.episodes < 1 or self.workers < 1:
            raise InvalidValueError(
                f"need episodes >= 1 and workers >= 1, got {self.episodes} and {self.workers}"
            )
        cells, missing = self.find()
        results = ResultsFile(self.output / "cells.jsonl")
        self._announce(cells, missing, results)
        if self.plan:
            return 0
        if self.train and missing:
            self._train(missing)
            cells, missing = self.find()
        if not cells:
            raise InvalidValueError("there is nothing to compare: no policy is there; --train makes them")
        failed: list[FailedCell] = []
        interrupted, start_s = False, time.monotonic()
        try:
            failed = self._run(cells, results)
        except KeyboardInterrupt:
            interrupted = True
        print(f"{time.monotonic() - start_s:.0f} s with {self.workers} workers")
        for refused in failed:
            print(f"left out: {refused}", file=sys.stderr)
        self.write(cells, results, missing, failed)
        if interrupted:
            print(
                "interrupted; what was finished is kept: the same command goes on from here", file=sys.stderr
            )
            raise KeyboardInterrupt
        return 0

    def _announce(
        self, cells: "Sequence[Cell]", missing: "Sequence[Trainable]", results: "ResultsFile"
    ) -> None:
        done = sum(results.score(cell) is not None for cell in cells)
        todo = (len(cells) - done) * self.episodes
        print(f"{len(cells)} cells, {done} of them done before; {todo} episodes to run")
        if missing:
            fate = "trained first" if self.train else "missing, and the methods that need them are left out"
            are = "policy is" if len(missing) == 1 else "policies are"
            print(f"{len(missing)} {are} {fate}:")
            for policy in missing:
                print(f"  {policy}")

    def _train(self, missing: "Sequence[Trainable]") -> None:
        from sim.lab_training import train_missing

        with counted() as progress:
            bar = progress.add_task("policies", total=len(missing))
            left_out = train_missing(
                missing,
                workers=self.workers,
                on_policy=lambda policy: progress.update(bar, advance=1, description=policy.folder.name),
            )
        for policy in left_out:
            print(f"left out, its demonstrations are missing: {policy}", file=sys.stderr)

    def _run(self, cells: "Sequence[Cell]", results: "ResultsFile") -> "list[FailedCell]":
        from sim.lab import run_cells

        todo = sum(results.score(cell) is None for cell in cells)
        with counted() as progress:
            bar = progress.add_task("episodes", total=todo * self.episodes)

            def on_group(cell: "Cell", num_done: int) -> None:
                where = f"{cell.config.task}, {cell.method_name}, {cell.config.trace.name}"
                progress.update(bar, advance=num_done, description=where)

            return run_cells(cells, results, workers=self.workers, on_group=on_group)
