"""Policies from a simulated person's captured demonstrations, on the mobile robot, 300 ms late.

    headline    four tasks, flow, act and diffusion, from captures' labels, the person's ground truth, the
    expert grid        labels {world, chest, decoupled} x splices {none, time, state}, two tasks

python -m scripts.bench.capture_policies --tasks fetch --folder outputs/captures --json outputs/fetch.json

Finished steps are kept in the folder, so that an interrupted run continues.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

from rich.progress import Progress

from robot_runtime.cli.options import (
    Count,
    HouseholdTask,
    KeptFile,
    Maybe,
    OutputFolder,
    Processes,
    Seed,
    Several,
    Steps,
    Within,
)
from robot_runtime.cli.progress import counted
from robot_runtime.evaluation.statistics import wilson_interval
from scripts.harness import run_script, write_result
from scripts.lab.captures import (
    CapturePlan,
    Network,
    Source,
    make_samples,
    shorter,
    splices_of,
    train_policy,
)
from scripts.lab.cells import Cell, ResultsFile, rows_of, run_cells


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train and evaluate policies from captured demonstrations; defaults are as below."""

    tasks: Several[HouseholdTask] = ("fetch", "drawer", "clear", "wipe")
    networks: Several[Network] = ("flow",)
    sources: Several[Source] = ("decoupled", "truth")
    splices: Several[str] = ("naive", "time-aligned", "state-matching", "pipelined-prefix")
    folder: OutputFolder = Path("outputs/captures")
    """Folder for captures, samples, policies and results."""
    demonstrations: Count = 50
    episodes: Count = 50
    steps: Steps = 4000
    batch_size: Count = 128
    width: Count = 96
    slower: Annotated[float, Within(0.2, 10.0)] = 1.0
    """Duration of the robot's motion relative to the person's, as `capture label --slower`."""
    seed: Seed = 0
    workers: Processes = 2
    """Processes that train or run episodes."""
    plan: bool = False
    """Only print what would be done."""
    short: bool = False
    """Run a few steps and episodes as a test."""
    json: Maybe[KeptFile] = None
    """Write the rows to this file."""


def main(options: Options) -> int:
    plan = CapturePlan(
        folder=options.folder.resolve(),
        demonstrations=options.demonstrations,
        episodes=options.episodes,
        steps=options.steps,
        batch_size=options.batch_size,
        width=options.width,
        slower=options.slower,
        seed=options.seed,
    )
    plan = shorter(plan) if options.short else plan
    policies = list(product(options.tasks, options.networks, options.sources))
    if options.plan:
        for task, network, source in policies:
            print(" ".join(plan.command(task, network, source)))
            print(f"    runs: {', '.join(splices_of(network, options.splices))}")
        return 0
    with counted(with_notes=True) as progress:
        _prepare(plan, options, progress)
        results = ResultsFile(plan.folder / "results.jsonl")
        cells = list(_cells(plan, options))
        bar = progress.add_task("episodes", total=sum(cell.config.episodes for cell in cells), note="")
        done = [cell for cell in cells if results.score(cell) is not None]
        progress.advance(bar, sum(cell.config.episodes for cell in done))
        failed = run_cells(
            cells,
            results,
            workers=options.workers,
            on_group=lambda cell, num: progress.update(bar, advance=num, note=cell.method_name),
        )
    for each in failed:
        print(f"not run: {each}")
    rows = rows_of(cells, results)
    for row in rows:
        low, high = wilson_interval(row.successes, row.episodes)
        share = f"{100 * row.successes / row.episodes:.0f} ({100 * low:.0f}-{100 * high:.0f})"
        print(f"{row.task:<8}{row.method:<36}{share}")
    if options.json is not None:
        settings = {
            name: getattr(plan, name)
            for name in ("demonstrations", "steps", "batch_size", "width", "delay_ms", "slower")
        }
        write_result(
            options.json,
            {"settings": settings, "rows": [row.as_dict() for row in rows]},
            seeds=[plan.seed],
        )
    return 1 if failed else 0


def _prepare(plan: CapturePlan, options: Options, progress: Progress) -> None:
    """Samples and policies that are not there yet."""
    wanted = list(product(options.tasks, options.sources))
    bar = progress.add_task("samples", total=len(wanted), note="")
    for task, source in wanted:
        progress.update(bar, note=f"{task}, {source}")
        make_samples(plan, task, source, progress.print)
        progress.advance(bar)
    policies = list(product(options.tasks, options.networks, options.sources))
    bar = progress.add_task("policies", total=len(policies), note="")
    with ThreadPoolExecutor(options.workers) as pool:
        for _ in pool.map(lambda each: train_policy(plan, *each), policies):
            progress.advance(bar)


def _cells(plan: CapturePlan, options: Options) -> Iterator[Cell]:
    for task, network, source in product(options.tasks, options.networks, options.sources):
        for splice in splices_of(network, options.splices):
            yield plan.cell(task, network, source, splice)


if __name__ == "__main__":
    run_script(Options, main, description=__doc__)
