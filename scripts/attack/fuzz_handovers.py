"""Checks that the robot never jumps in handovers at random moments, to random poses, with every method.

python -m scripts.attack.fuzz_handovers --runs 100
"""

from dataclasses import dataclass
from importlib import import_module

import numpy as np
from rich.progress import track

from robot_runtime.cli.options import Count, Seed
from scripts.harness import run_script


@dataclass(frozen=True, kw_only=True)
class Options:
    """Check handovers for jumps."""

    runs: Count = 100
    """Handovers of each kind."""
    seed: Seed = 0
    """Seed of the moments and the poses."""


def main(options: Options) -> int:
    tried = import_module("tests.core.test_takeover")
    rng = np.random.default_rng(options.seed)
    worst = {"off": 0.0, "back": 0.0}
    for kind in tried.KINDS:
        for _ in track(range(options.runs), description=f"{kind:<20}"):
            found = tried.handover(
                kind,
                start=int(rng.integers(0, 151)),
                lasts=int(rng.integers(1, 81)),
                q=rng.uniform(-4.0, 4.0, 7).tolist(),
                leads_from=int(rng.integers(0, 31)),
                some=bool(rng.random() < 0.5),
            )
            worst = {name: max(worst[name], found[name]) for name in worst}
    print(f"{options.runs} handovers of each of {len(tried.KINDS)} kinds, no limit exceeded")
    print(f"farthest first command from the last one carried on at its speed: {worst['off']:.2e} rad")
    print(f"farthest first command of the plan from where the part was: {worst['back']:.2e} rad")
    return 0


if __name__ == "__main__":
    run_script(Options, main, description=__doc__)
