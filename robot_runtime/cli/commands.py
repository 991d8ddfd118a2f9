"""The subcommands, and how they are run."""

import logging
import sys
from typing import Annotated

import tyro
from tyro.conf import FlagCreatePairsOff, subcommand

from robot_runtime.cli.bench.commands import Bench
from robot_runtime.cli.calibrate.command import Calibrate
from robot_runtime.cli.capture.command import Capture
from robot_runtime.cli.compare import Compare
from robot_runtime.cli.dataset import Dataset
from robot_runtime.cli.demo import Demo
from robot_runtime.cli.describe import Describe
from robot_runtime.cli.doctor.command import Doctor
from robot_runtime.cli.eval import Eval
from robot_runtime.cli.keys import Keys
from robot_runtime.cli.log import Log
from robot_runtime.cli.options import check, registry
from robot_runtime.cli.page import Page
from robot_runtime.cli.record import Record
from robot_runtime.cli.replay import Replay
from robot_runtime.cli.run import Run
from robot_runtime.cli.serve import Serve
from robot_runtime.cli.trace import Trace
from robot_runtime.cli.train import Train

Subcommand = (
    Annotated[Demo, subcommand("demo")]
    | Annotated[Serve, subcommand("serve")]
    | Annotated[Run, subcommand("run")]
    | Annotated[Eval, subcommand("eval")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Record, subcommand("record")]
    | Annotated[Log, subcommand("log")]
    | Annotated[Replay, subcommand("replay")]
    | Annotated[Trace, subcommand("trace")]
    | Annotated[Compare, subcommand("compare")]
    | Annotated[Dataset, subcommand("dataset")]
    | Annotated[Capture, subcommand("capture")]
    | Annotated[Calibrate, subcommand("calibrate")]
    | Annotated[Page, subcommand("page")]
    | Annotated[Describe, subcommand("describe")]
    | Annotated[Doctor, subcommand("doctor")]
    | Annotated[Keys, subcommand("keys")]
    | Annotated[Bench, subcommand("bench")]
)


def run_command(argv: list[str] | None) -> int:
    """Parse, try the options, and run; returns the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("robot_runtime").setLevel(logging.INFO)
    description = "Run learned policies on robots in real time, or in simulation."
    command = tyro.cli(
        Subcommand,
        args=argv,
        prog="robot-runtime",
        description=description,
        config=(FlagCreatePairsOff,),
        registry=registry(),
    )
    check(command)
    return command.main()
