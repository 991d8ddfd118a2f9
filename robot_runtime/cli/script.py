"""How the files of `scripts/` are run: as commands are, options first, and with one line where they end."""

import sys
from collections.abc import Callable
from typing import NoReturn

import tyro

from robot_runtime.cli.options import check, check_words, registry
from robot_runtime.cli.signals import Ending
from robot_runtime.error_text import drop_mujoco_gl, sentence


def run_script[T](
    options: type[T], main: Callable[[T], int | None], *, description: str | None = None
) -> NoReturn:
    """Read the options, try each, and run; ends the process with the exit code.

    options: a dataclass whose annotations are those of `cli.options`: a number that would leave nothing to be
        done is refused, or what was never tried would pass.
    """
    ending = Ending()
    try:
        drop_mujoco_gl()
        check_words(options, sys.argv[1:])
        args = tyro.cli(options, description=description, registry=registry())
        check(args)
        code = main(args)
    except BaseException as error:
        if (number := ending.behind(error)) is not None:
            ending.end(number)
        if (said := sentence(error)) is None:
            raise
        sys.exit(f"error: {said}")
    ending.leave(code or 0)
