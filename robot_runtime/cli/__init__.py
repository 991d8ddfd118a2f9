"""The command `robot-runtime`: one module per subcommand, imported without torch or mujoco."""

import logging
import os
import select
import signal
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
from robot_runtime.cli.serve import EXIT_INTERRUPTED, Serve
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
    "grpc": "gateways",
    "cv2": "gateways",
    "lerobot": "lerobot",
}
"""Module that may be missing -> the extra that brings it."""


def _end(number: int, frame: object) -> None:
    """So that what a command has started, a server say, is ended with it."""
    raise SystemExit(128 + number)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        try:
            return _main(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _nobody_reads_stdout():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is left in its buffer
        return 128 + signal.SIGPIPE


def _nobody_reads_stdout() -> bool:
    """Whether it is a pipe whose reader is gone, as after `| head`."""
    poll = select.poll()
    poll.register(sys.stdout, select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _main(argv: list[str] | None) -> int:
    if argv is None:
        signal.signal(signal.SIGTERM, _end)
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
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
