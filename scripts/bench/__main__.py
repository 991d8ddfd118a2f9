"""`python -m scripts.bench`: the benchmarks are imported once a signal would end that in one line."""

import sys

from robot_runtime.cli import run_to_the_end


def _run() -> int:
    from scripts.bench.commands import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    run_to_the_end(_run)
