"""Measures how much a scripted person helps a policy that was made bad on purpose: `fetch`, without and with
help.

python -m scripts.bench.takeover --episodes 50 --json outputs/takeover.json
"""

from dataclasses import dataclass

from rich.progress import track

from robot_runtime.cli.options import Count, Maybe, OutputFile, Seed
from robot_runtime.core.safety import Mode
from scripts.harness import finish, run_script
from scripts.tables.runs import takeover
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
    return finish({"episodes": rows}, options.json, takeover({"episodes": rows}), seeds=seeds)


if __name__ == "__main__":
    run_script(Options, main, description=__doc__)
