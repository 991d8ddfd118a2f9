"""The comparison: tasks x methods x traces x training seeds, cell by cell, each cell run once and kept.

A cell is one method on one task with one trained policy under one trace. Its result is one line of a file,
with everything that decides it; a finished cell is never run again.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_runtime.errors import RobotRuntimeError
from robot_runtime.evaluation.result import EpisodeResult
from robot_runtime.evaluation.workers import worker_pool
from scripts.lab.policies import TrainedPolicy
from scripts.lab.scores import RESULTS_VERSION, CellScore, Row
from sim.episodes.evaluation import EvaluationConfig, run_group

CONTROL_PERIOD_NS = 10_000_000
"""Ticks of the lab: five physics steps; 2 ms gives the same figures within their noise (docs/tasks.md)."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One place of the comparison."""

    method_name: str
    """Its name on the page, see `scripts.lab.methods`."""
    policy: TrainedPolicy
    config: EvaluationConfig

    @property
    def key(self) -> dict[str, object]:
        """Return everything that decides its result, which the checkpoint's path does not."""
        config = self.config.as_dict()
        del config["policy"]
        policy = {
            "recipe": self.policy.recipe,
            "training_seed": self.policy.training_seed,
            "fingerprint": self.policy.fingerprint,
        }
        return {"version": RESULTS_VERSION, "method_name": self.method_name, "policy": policy, **config}


class ResultsFile:
    """File with one line per finished cell; a line half-written by an interrupted run is ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._scores: dict[str, CellScore] = {}
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines():
            try:
                data = json.loads(line)
                self._scores[_text(data["key"])] = CellScore.from_dict(data["score"])
            except (ValueError, KeyError, TypeError):
                continue
        self._ends_in_line = not text or text.endswith("\n")

    def score(self, cell: Cell) -> CellScore | None:
        """Return the cell's result; None if it has not been run."""
        return self._scores.get(_text(cell.key))

    def append(self, cell: Cell, score: CellScore) -> None:
        """Keep a finished cell, on disk before this returns."""
        line = json.dumps({"key": cell.key, "score": score.as_dict()}) + "\n"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(line if self._ends_in_line else "\n" + line)
        self._ends_in_line = True
        self._scores[_text(cell.key)] = score


def _text(key: Mapping[str, object]) -> str:
    return json.dumps(key, sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class FailedCell:
    """A cell that cannot be run, and why."""

    cell: Cell
    reason: str

    def __str__(self) -> str:
        config = self.cell.config
        return f"{config.task}, {self.cell.method_name}, {config.trace.name}: {self.reason}"


def run_cells(
    cells: Sequence[Cell],
    results: ResultsFile,
    *,
    workers: int,
    on_group: Callable[[Cell, int], None] = lambda cell, episodes: None,
) -> list[FailedCell]:
    """Run the cells that `results` lacks and keep each as it ends; returns those that a policy refused.

    on_group: gets the episodes of a cell that have just ended.
    """
    todo = [cell for cell in cells if results.score(cell) is None]
    groups: dict[int, list[list[EpisodeResult]]] = {i: [] for i in range(len(todo))}
    failed: dict[int, FailedCell] = {}
    for i, outcome, num_episodes in _outcomes(todo, workers):
        cell = todo[i]
        on_group(cell, num_episodes)
        if isinstance(outcome, str):
            failed[i] = FailedCell(cell=cell, reason=outcome)
            continue
        groups[i].append(outcome)
        if len(groups[i]) == len(cell.config.groups()):
            episodes = [result for group in groups.pop(i) for result in group]
            results.append(cell, CellScore.of(sorted(episodes, key=lambda result: result.seed)))
    return list(failed.values())


def rows_of(cells: Sequence[Cell], results: ResultsFile, *, command: str = "") -> list[Row]:
    """The finished cells, those that differ in nothing but the training seed put together.

    command: what they were run with.
    """
    found: dict[tuple[str, str, str], list[tuple[Cell, CellScore]]] = {}
    for cell in cells:
        if (score := results.score(cell)) is not None:
            place = cell.config.task, cell.method_name, cell.config.trace.name
            found.setdefault(place, []).append((cell, score))
    return [
        Row.of(
            [score for _, score in scored],
            task=task,
            method=method,
            trace=trace,
            recipes=tuple(f"{cell.policy.recipe}-{cell.policy.training_seed}" for cell, _ in scored),
            command=command,
        )
        for (task, method, trace), scored in found.items()
    ]


_Job = tuple[int, EvaluationConfig, range]


def _outcomes(cells: Sequence[Cell], workers: int) -> Iterator[tuple[int, list[EpisodeResult] | str, int]]:
    jobs: Iterable[_Job] = [
        (i, cell.config, seeds) for i, cell in enumerate(cells) for seeds in cell.config.groups()
    ]
    if not jobs:
        return
    with worker_pool(workers, threads=1) as pool:
        yield from pool.imap_unordered(_run_job, jobs)


def _run_job(job: _Job) -> tuple[int, list[EpisodeResult] | str, int]:
    i, config, seeds = job
    try:
        return i, run_group(config, seeds), len(seeds)
    except (RobotRuntimeError, ValueError) as error:
        return i, f"{type(error).__name__}: {error}", len(seeds)
