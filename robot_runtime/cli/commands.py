"""The subcommands, and how they are run."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any, get_args, get_type_hints

import tyro
from tyro.conf import FlagCreatePairsOff, subcommand

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
from robot_runtime.cli.options import check, check_words, registry
from robot_runtime.cli.page import Page
from robot_runtime.cli.record import Record
from robot_runtime.cli.replay import Replay
from robot_runtime.cli.run import Run
from robot_runtime.cli.serve import Serve
from robot_runtime.cli.trace import Trace
from robot_runtime.cli.train import Train

DESCRIPTION = "Run learned policies on robots in real time, or in simulation."
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
)


def named(words: Sequence[str]) -> tuple[Any, int]:
    """What the first words name, as far as they do: a command, a group, or all; and how many words do.

    It is then read by itself, so what is said of its options, and where help is to be had, is of it alone.
    """
    kind: Any = Subcommand
    for number, word in enumerate(words):
        found = {conf.name: inner for inner, conf in map(get_args, get_args(_choices(kind)))}
        if word not in found:
            return kind, number
        kind = found[word]
    return kind, len(words)


def _choices(kind: Any) -> Any:
    """The commands of a group, as a union; none of a command."""
    return get_type_hints(kind, include_extras=True).get("what") if isinstance(kind, type) else kind


def run_command(argv: list[str] | None) -> int:
    """Parse, try the options, and run; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    kind, number = named(words)
    check_words(kind, words[number:])
    command = tyro.cli(
        kind,
        args=words[number:],
        prog=" ".join(("robot-runtime", *words[:number])),
        description=DESCRIPTION if kind is Subcommand else None,
        config=(FlagCreatePairsOff,),
        registry=registry(),
    )
    check(command)
    return command.main()
