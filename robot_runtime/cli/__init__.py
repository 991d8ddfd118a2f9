"""The command `robot-runtime`: one module per subcommand, imported without torch or mujoco."""

import logging
import os
import select
import signal
import sys

from robot_runtime.cli.signals import ShutdownHandler, exit_code
from robot_runtime.error_text import drop_mujoco_gl, sentence


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    argv: replaces the process's own arguments; the process then also keeps its signals and its logging.
    """
    ending = None
    if argv is None:
        ending = ShutdownHandler()
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
        logging.getLogger("robot_runtime").setLevel(logging.INFO)
        logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it builds its font cache
    code = _ended_with(argv, ending)
    if ending is not None:
        ending.leave(code)
    return code


def _ended_with(argv: list[str] | None, ending: ShutdownHandler | None) -> int:
    """Run the command line; return its exit code, and print an error that has a sentence for the user."""
    try:
        try:
            drop_mujoco_gl()
            from robot_runtime.cli.commands import run_command  # takes seconds, and may be interrupted

            return run_command(argv)
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
