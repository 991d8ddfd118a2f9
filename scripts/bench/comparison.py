"""Shared code of comparisons: finished cells are kept, and the same command continues after them."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robot_runtime.cli.options import InputFile, Maybe, OutputFolder, Processes, need
from robot_runtime.cli.progress import counted
from robot_runtime.errors import InvalidValueError
from robot_runtime.results import typed_command

if TYPE_CHECKING:
    from scripts.lab.cells import Cell, FailedCell, ResultsFile
    from scripts.lab.scores import Row
    from scripts.lab.training import Trainable


@dataclass(frozen=True, kw_only=True)
class Comparison(ABC):
    """Cells to run, and what becomes of them; a command adds which, and what it leaves behind."""

    output: OutputFolder
    """Folder for results, pages and plots; a finished episode found there is not run again."""
    workers: Processes = 2
    """Processes that share the work; the results do not depend on their number."""
    train: bool = False
    """First train the missing policies, as many at a time as there are workers."""
    plan: bool = False
    """Only print what would be run, and which policies are missing."""
    keep: Maybe[InputFile] = None
    """JSON file of an earlier run, from which cells are shown that this run lacks."""
    write_results: bool = False
    """Also put figures and a plot into `scripts/results`, from which `python -m scripts.tables.docs_tables`
    writes the tables of `docs/results`."""

    @property
    @abstractmethod
    def num_episodes(self) -> int:
        """In each cell."""

    @abstractmethod
    def _check(self) -> None:
        """InvalidValueError: the options name something that is not there."""

    @abstractmethod
    def _cells(self) -> "tuple[list[Cell], list[Trainable]]":
        """What to run, and the policies that are missing for more."""

    @abstractmethod
    def _write(self, rows: "list[Row]") -> None:
        """Tables and plots of what is finished; the folder is there."""

    def main(self) -> int:
        """Train, run and write; return the exit code."""
        from scripts.lab.cells import ResultsFile, rows_of
        from scripts.lab.page import read_json

        self._check()
        need("matplotlib")
        kept = [] if self.keep is None else read_json(self.keep)
        cells, missing = self._cells()
        results = ResultsFile(self.output / "cells.jsonl")
        self._announce(cells, missing, results)
        if self.plan:
            return 0
        if self.train and missing:
            self._train(missing)
            cells, missing = self._cells()
            self._announce(cells, [], results)
        if not cells:
            raise InvalidValueError("there is nothing to compare: no policy is there; --train makes them")
        start_s = time.monotonic()
        try:
            failed = self._run(cells, results)
        except KeyboardInterrupt:
            print("what was finished is kept: the same command goes on from there", file=sys.stderr)
            raise
        print(f"{time.monotonic() - start_s:.0f} s with {self.workers} workers")
        for refused in failed:
            print(f"left out: {refused}", file=sys.stderr)
        if rows := self._beside(rows_of(cells, results, command=typed_command()), kept):
            self.output.mkdir(parents=True, exist_ok=True)
            self._write(rows)
        return 0

    def _beside(self, rows: "list[Row]", kept: "list[Row]") -> "list[Row]":
        from scripts.lab.scores import beside, with_other_seeds

        if replaced := with_other_seeds(kept, rows):
            print(
                f"{len(replaced)} places of {self.keep} have training seeds that this run has not, and its "
                "figures stand in their place: name all --seeds to have them pooled",
                file=sys.stderr,
            )
        return beside(rows, kept)

    def _announce(
        self, cells: "Sequence[Cell]", missing: "Sequence[Trainable]", results: "ResultsFile"
    ) -> None:
        done = sum(results.score(cell) is not None for cell in cells)
        todo = (len(cells) - done) * self.num_episodes
        so_far = " with the policies that are there" if self.train and missing else ""
        print(f"{len(cells)} cells{so_far}, {done} of them done before; {todo} episodes to run")
        if missing:
            fate = "trained first" if self.train else "missing, and the methods that need them are left out"
            are = "policy is" if len(missing) == 1 else "policies are"
            print(f"{len(missing)} {are} {fate}:")
            for policy in missing:
                print(f"  {policy}")

    def _train(self, missing: "Sequence[Trainable]") -> None:
        from scripts.lab.training import train_missing

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
        from scripts.lab.cells import run_cells

        todo = sum(results.score(cell) is None for cell in cells)
        with counted() as progress:
            bar = progress.add_task("episodes", total=todo * self.num_episodes)

            def on_group(cell: "Cell", num_done: int) -> None:
                where = f"{cell.config.task}, {cell.method_name}, {cell.config.trace.name}"
                progress.update(bar, advance=num_done, description=where)

            return run_cells(cells, results, workers=self.workers, on_group=on_group)
