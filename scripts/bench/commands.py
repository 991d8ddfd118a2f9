"""`python -m scripts.bench`: benchmarks of speed, each against a reference in the same run."""

from collections.abc import Sequence
from typing import Annotated

from tyro.conf import subcommand

from robot_runtime.cli import exit_code_of
from scripts.bench.cameras import BenchCameras
from scripts.bench.faults.command import BenchFaults
from scripts.bench.franka import BenchFranka
from scripts.bench.gpu import BenchGpu
from scripts.bench.household import BenchHousehold
from scripts.bench.log import BenchLog
from scripts.bench.loop import BenchLoop
from scripts.bench.methods import BenchMethods
from scripts.bench.peers import BenchPeers
from scripts.bench.reaction import BenchReaction
from scripts.bench.robots import BenchRobots
from scripts.bench.stream import BenchStream
from scripts.bench.wire import BenchWire
from scripts.harness import run_group

Subcommand = (
    Annotated[BenchLoop, subcommand("loop")]
    | Annotated[BenchCameras, subcommand("cameras")]
    | Annotated[BenchLog, subcommand("log")]
    | Annotated[BenchWire, subcommand("wire")]
    | Annotated[BenchFaults, subcommand("faults")]
    | Annotated[BenchFranka, subcommand("franka")]
    | Annotated[BenchReaction, subcommand("reaction")]
    | Annotated[BenchStream, subcommand("stream")]
    | Annotated[BenchPeers, subcommand("peers")]
    | Annotated[BenchGpu, subcommand("gpu")]
    | Annotated[BenchRobots, subcommand("robots")]
    | Annotated[BenchMethods, subcommand("methods")]
    | Annotated[BenchHousehold, subcommand("household")]
)
DESCRIPTION = """Measure the speed of one part on this machine, against something else in the same run.

They reproduce the figures of `docs/results`, also on another machine.
"""


def run(words: Sequence[str]) -> int:
    """Run the benchmark that these words name; returns the exit code."""
    return run_group(Subcommand, words, program="python -m scripts.bench", description=DESCRIPTION)


def main(words: Sequence[str]) -> int:
    """As `run`, in a process that goes on: an error is a line and an exit code."""
    return exit_code_of(lambda: run(words))
