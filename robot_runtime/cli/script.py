"""How the files of `scripts/` are run: their options are tried first, and mistakes end in a sentence."""

import sys
from collections.abc import Callable
from typing import NoReturn

import tyro

from robot_runtime.cli.errors import sentence
from robot_runtime.cli.options import check, registry


def run_script[T](
    options: type[T], main: Callable[[T], int | None], *, description: str | None = None
) -> NoReturn:
    """Read the options, try each as a command does, and run; ends the process with the exit code.

    options: a dataclass whose annotations are those of `options`: a number that would leave nothing to be
        done is refused, or what was never tried would pass.
    """
    args = tyro.cli(options, description=description, registry=registry())
    try:
        check(args)
        sys.exit(main(args))
    except Exception as error:
        if (said := sentence(error)) is None:
            raise
        sys.exit(f"error: {said}")
