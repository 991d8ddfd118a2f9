"""Measures how much a scripted person helps a policy that was made bad on purpose: `fetch`, without and with
help.

python -m scripts.bench.takeover --episodes 50 --json outputs/takeover.json
"""

from dataclasses import dataclass

import numpy as np
from rich.progress import track

from robot_runtime.cli.options import Count, Maybe, OutputFile, Seed
from robot_runtime.core.safety import Mode
from robot_runtime.evaluation.statistics import wilson_interval
from scripts.harness import run_script, write_result
from sim.takeover.episode import bad_policy, run_both


@dataclass(frozen=True, kw_only=True)
class Options:
    """Episodes to run."""

    episodes: Count = 50
    first_seed: Seed = 10_000
    json: Maybe[OutputFile] = None
    """Write every episode to this file, as JSON."""


def main(options: Options) -> int:
    seeds = range(options.first_seed, options.first_seed + options.episodes)
    rows = []
    pairs = run_both(bad_policy(), seeds)
    for alone, helped in track(pairs, description="episodes", total=len(seeds)):
        ticks = helped.episode.record.ticks
        rows.append(
            {
                "seed": alone.seed,
                "success_alone": alone.success,
                "success_helped": helped.success,
                "takeovers": helped.num_takeovers,
                "human_share": helped.human_share,
                "ends_in_stop": ticks[-1].mode is Mode.STOP,
                "reasons": helped.reasons,
            }
        )
    for name in ("success_alone", "success_helped"):
        won = sum(bool(row[name]) for row in rows)
        low, high = wilson_interval(won, len(rows))
        print(f"{name}: {won} of {len(rows)} (95 % interval {low:.2f} to {high:.2f})")
    print(f"takeovers per episode: {np.mean([row['takeovers'] for row in rows]):.2f}")
    print(
        f"share of time that the person moved the robot: {np.mean([row['human_share'] for row in rows]):.2f}"
    )
    if options.json is not None:
        write_result(options.json, {"episodes": rows}, seeds=seeds)
    return 0


if __name__ == "__main__":
    run_script(Options, main, description=__doc__)
