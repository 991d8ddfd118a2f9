"""The subcommands, and how they are run."""

import logging
import sys
from typing import Annotated

import tyro
from tyro.conf import subcommand

from robot_runtime.cli.bench import Bench
from robot_runtime.cli.demo import Demo
from robot_runtime.cli.describe import Describe
from robot_runtime.cli.eval import Eval
from robot_runtime.cli.keys import Keys
from robot_runtime.cli.lab import Lab
from robot_runtime.cli.mobile import Mobile
from robot_runtime.cli.record import Record
from robot_runtime.cli.run import Run
from robot_runtime.cli.serve import Serve
from robot_runtime.cli.train import Train
from robot_runtime.errors import RobotRuntimeError

Subcommand = (
    Annotated[Demo, subcommand("demo")]
    | Annotated[Serve, subcommand("serve")]
    | Annotated[Run, subcommand("run")]
    | Annotated[Eval, subcommand("eval")]
    | Annotated[Lab, subcommand("lab")]
    | Annotated[Mobile, subcommand("mobile")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Record, subcommand("record")]
    | Annotated[Describe, subcommand("describe")]
    | Annotated[Keys, subcommand("keys")]
    | Annotated[Bench, subcommand("bench")]
)

EXTRA_OF = {
    "torch": "policies",
    "safetensors": "policies",
    "mujoco": "sim",
    "franky_sim": "sim",
    "matplotlib": "sim",
    "PIL": "sim",
    "av": "sim",
    "websockets": "gateways",
    "grpc": "lerobot",
    "lerobot": "lerobot",
}
"""Module that may be missing -> the extra that brings it."""


def run_command(argv: list[str] | None) -> int:
    """Parse, run, and say what went wrong; returns the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("robot_runtime").setLevel(logging.INFO)
    description = "Run learned policies on robots in real time, or in simulation."
    command = tyro.cli(Subcommand, args=argv, prog="robot-runtime", description=description)
    try:
        return command.main()
    except RobotRuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name not in EXTRA_OF:
            raise
        extra = EXTRA_OF[error.name]
        print(
            f"error: this command needs {error.name}, which is not installed: "
            f"pip install 'robot-runtime[{extra}]', or add --extra {extra} to uv run",
            file=sys.stderr,
        )
        return 1
