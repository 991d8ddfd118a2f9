"""`robot-runtime bench`: speed, measured against something else in the same run."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import OmitSubcommandPrefixes, configure, subcommand

from robot_runtime.cli.bench.cameras import BenchCameras
from robot_runtime.cli.bench.faults.command import BenchFaults
from robot_runtime.cli.bench.franka import BenchFranka
from robot_runtime.cli.bench.gpu import BenchGpu
from robot_runtime.cli.bench.household import BenchHousehold
from robot_runtime.cli.bench.log import BenchLog
from robot_runtime.cli.bench.loop import BenchLoop
from robot_runtime.cli.bench.methods import BenchMethods
from robot_runtime.cli.bench.pedal import BenchPedal
from robot_runtime.cli.bench.peers import BenchPeers
from robot_runtime.cli.bench.reaction import BenchReaction
from robot_runtime.cli.bench.robots import BenchRobots
from robot_runtime.cli.bench.stream import BenchStream
from robot_runtime.cli.bench.wire import BenchWire


@configure(OmitSubcommandPrefixes)
@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure the speed of one part on this machine, against something else in the same run.

    For whoever doubts a figure of `docs/results`, or wants it for another machine.
    """

    what: (
        Annotated[BenchLoop, subcommand("loop")]
        | Annotated[BenchCameras, subcommand("cameras")]
        | Annotated[BenchLog, subcommand("log")]
        | Annotated[BenchWire, subcommand("wire")]
        | Annotated[BenchFaults, subcommand("faults")]
        | Annotated[BenchPedal, subcommand("pedal")]
        | Annotated[BenchFranka, subcommand("franka")]
        | Annotated[BenchReaction, subcommand("reaction")]
        | Annotated[BenchStream, subcommand("stream")]
        | Annotated[BenchPeers, subcommand("peers")]
        | Annotated[BenchGpu, subcommand("gpu")]
        | Annotated[BenchRobots, subcommand("robots")]
        | Annotated[BenchMethods, subcommand("methods")]
        | Annotated[BenchHousehold, subcommand("household")]
    )

    def main(self) -> int:
        return self.what.main()
