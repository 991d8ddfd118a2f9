"""How often the scripted experts succeed on late observations; one file per task in `sim/results`.

python scripts/measure_delayed_expert.py                # ten minutes on two idle cores
"""

import json
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import tyro

from sim.delayed_expert import constant_delay, run_delayed_expert
from sim.statistics import wilson_interval
from sim.task import EpisodeScore
from sim.tasks import TASKS, make_task
from sim.workers import worker_pool
from sim.world import World

RESULTS = Path(__file__).parent.parent / "sim" / "results"


@dataclass(frozen=True, kw_only=True)
class Args:
    tasks: tuple[str, ...] = tuple(TASKS)
    """Which tasks."""
    delays_ms: tuple[int, ...] = (0, 200, 400)
    """From capture to the command [ms]."""
    rows_per_plan: int = 1
    """Rows from one plan to the next."""
    episodes: int = 100
    """How many, with the seeds of `robot-runtime eval`."""
    first_seed: int = 10_000
    workers: int = 2
    """Processes."""
    output: Path = RESULTS
    """Folder of the files."""


@cache
def _world(task: str) -> World:
    return World(make_task(task))


def _run_one(task: str, delay_ms: int, rows_per_plan: int, seed: int) -> EpisodeScore:
    delay = constant_delay(delay_ms * 1_000_000)
    return run_delayed_expert(_world(task), seed=seed, delay=delay, rows_per_plan=rows_per_plan)


def summarised(scores: list[EpisodeScore]) -> dict[str, object]:
    """Success with its interval, median completion and mean reaction of one case."""
    successes = sum(score.success for score in scores)
    times = [score.completion_s for score in scores if score.completion_s is not None]
    reactions = [time_s for score in scores for time_s in score.reactions_s]
    return {
        "success": successes / len(scores),
        "success_interval_95": wilson_interval(successes, len(scores)),
        "completion_s_median": float(np.median(times)) if times else None,
        "reaction_mean_s": float(np.mean(reactions)) if reactions else None,
    }


def main(args: Args) -> None:
    seeds = range(args.first_seed, args.first_seed + args.episodes)
    for task in args.tasks:
        cases = {}
        for delay_ms in args.delays_ms:
            run = partial(_run_one, task, delay_ms, args.rows_per_plan)
            with worker_pool(args.workers) as pool:
                cases[f"{delay_ms} ms"] = summarised(pool.map(run, seeds))
            print(task, delay_ms, cases[f"{delay_ms} ms"], flush=True)
        data = {"rows_per_plan": args.rows_per_plan, "seeds": [seeds[0], seeds[-1]], "cases": cases}
        (args.output / f"delayed-expert-{task}.json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
