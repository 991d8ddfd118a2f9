"""The command `robot-runtime`, and how it and other programs run: signals, logging, errors, exit codes."""

import logging
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from robot_runtime.cli.signals import ShutdownHandler, exit_code
from robot_runtime.error_text import drop_mujoco_gl, sentence


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    argv: replaces the process's own arguments; the process then also keeps its signals and its logging.
    """

    def run() -> int:
        from robot_runtime.cli.commands import run_command  # takes seconds, and may be interrupted

        return run_command(argv)

    return run_to_the_end(run) if argv is None else exit_code_of(run)


def run_to_the_end(run: Callable[[], int | None]) -> NoReturn:
    """Run a program that owns its process: handles its signals, configures logging, and ends it.

    run: returns the exit code, None for 0. It imports what is large: a signal ends that in one line, too.
    """
    ending = ShutdownHandler()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("robot_runtime").setLevel(logging.INFO)
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it builds its font cache
    ending.leave(exit_code_of(run, ending))


def exit_code_of(run: Callable[[], int | None], ending: ShutdownHandler | None = None) -> int:
    """Run a program; return its exit code, and print an error that has a sentence for the user."""
    try:
        try:
            drop_mujoco_gl()
            return run() or 0
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _stdout_has_no_reader():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # takes what is left in its buffer
        return exit_code(signal.SIGPIPE)
    except BaseException as error:
        if ending is not None and (number := ending.behind(error)) is not None:
            ending.end(number)
        if (message := sentence(error)) is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 1
    finally:
        if ending is not None:
            ending.leave_at_once()


def _stdout_has_no_reader() -> bool:
    """Return whether standard output is a pipe whose reader is gone, as after `| head`."""
    poll = select.poll()
    poll.register(sys.stdout, select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))
