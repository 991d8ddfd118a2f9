"""Measures the time of `import robot_runtime` against importing its heavy parts alone, in the same run.

python -m scripts.bench.import_time --json PATH
"""

import statistics
import subprocess
import sys
from dataclasses import dataclass

from robot_runtime.cli.options import Count, Maybe, OutputFile
from scripts.harness import finish, run_script
from scripts.tables.speed import start_up

OURS = "import robot_runtime"
FLOOR = "import pinocchio, numpy, msgspec"


@dataclass(frozen=True, kw_only=True)
class Args:
    rounds: Count = 11
    """How often to start Python for each, in turn."""
    json: Maybe[OutputFile] = None
    """Write the results to this file."""


def seconds(statement: str) -> float:
    """Time of an import in a fresh interpreter [s]."""
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    return float(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )


def main(args: Args) -> int:
    pairs = [(seconds(OURS), seconds(FLOOR)) for _ in range(args.rounds)]
    ours, floor = (statistics.median(column) for column in zip(*pairs, strict=True))
    figures = {"ours_s": ours, "floor_s": floor, "ratio": ours / floor, "n": len(pairs)}
    return finish(figures, args.json, start_up(figures))


if __name__ == "__main__":
    run_script(Args, main)
