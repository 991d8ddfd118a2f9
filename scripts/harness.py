"""Shared code of the tools of `scripts`: runs a command, and writes a result.

Options are those of `robot_runtime.cli.options`; a command ends with one line. A result file states under
`made_by` which command, commit, machine and seeds made it (`robot_runtime.results`).
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, get_args

import numpy as np
import tyro
from tyro.conf import FlagCreatePairsOff

from robot_runtime.cli.options import check, check_words, registry
from robot_runtime.cli.signals import ShutdownHandler, exit_code
from robot_runtime.error_text import drop_mujoco_gl, sentence
from robot_runtime.results import keep_text, result_json

ROOT = Path(__file__).parents[1]
"""Of the repository."""
RESULTS = ROOT / "scripts" / "results"
"""Figures that README and pages show."""


def run_script[T](
    options: type[T], main: Callable[[T], int | None], *, description: str | None = None
) -> NoReturn:
    """Read the options, try each, and run; ends the process with the exit code.

    options: a dataclass whose annotations are those of `cli.options`: a number that would leave nothing to be
        done is refused, or what was never tried would pass.
    """

    def run() -> int | None:
        check_words(options, sys.argv[1:])
        args = tyro.cli(options, description=description, registry=registry())
        check(args)
        return main(args)

    _run_to_the_end(run)


def run_group(choices: Any, words: Sequence[str] | None, *, prog: str, description: str | None) -> int:
    """Run the command of a group that the first word names; returns the exit code.

    choices: a union of dataclasses with a method `main`, each an `Annotated[..., subcommand(name)]`.
    words: instead of the process's own, which otherwise ends with the exit code.
    """

    def run() -> int:
        rest = list(sys.argv[1:] if words is None else words)
        kinds = {conf.name: kind for kind, conf in map(get_args, get_args(choices))}
        kind, name = (kinds[rest[0]], rest.pop(0)) if rest and rest[0] in kinds else (choices, "")
        check_words(kind, rest)
        command = tyro.cli(
            kind,
            args=rest,
            prog=f"{prog} {name}".rstrip(),
            description=None if name else description,
            config=(FlagCreatePairsOff,),
            registry=registry(),
        )
        check(command)
        return int(command.main())

    if words is None:
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
        logging.getLogger("robot_runtime").setLevel(logging.INFO)
        logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it builds its font cache
        _run_to_the_end(run)
    try:
        return run()
    except Exception as error:
        if (message := sentence(error)) is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 1


def _run_to_the_end(run: Callable[[], int | None]) -> NoReturn:
    ending = ShutdownHandler()
    try:
        drop_mujoco_gl()
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader is gone, as after `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = exit_code(signal.SIGPIPE)
    except BaseException as error:
        if (number := ending.behind(error)) is not None:
            ending.end(number)
        if (message := sentence(error)) is None:
            raise
        sys.exit(f"error: {message}")
    ending.leave(code or 0)


def write_result(path: Path, data: Mapping[str, object], *, seeds: Iterable[int] = ()) -> None:
    """Write a result with what it takes to make it again, or keep it elsewhere if `path` cannot be written.

    seeds: of the episodes or draws; none if nothing is drawn.
    """
    keep_text(path, result_json(data, seeds=seeds))


def percentiles(times: Sequence[float] | np.ndarray) -> dict[str, float]:
    """p50, p95 and p99; NaN of nothing."""
    values = np.percentile(times, [50, 95, 99]) if len(times) else np.full(3, np.nan)
    return dict(zip(("p50", "p95", "p99"), map(float, values), strict=True))
