"""The command `robot-runtime`: one module per subcommand, imported without torch or mujoco."""

import os
import select
import signal
import sys

from robot_runtime.cli.signals import Ending, exit_code


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    argv: instead of the process's own, which then also keeps its signals.
    """
    ending = Ending() if argv is None else None
    try:
        try:
            from robot_runtime.cli.commands import run_command  # takes seconds, and may be interrupted

            return run_command(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _nobody_reads_stdout():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is left in its buffer
        return exit_code(signal.SIGPIPE)
    except BaseException as error:
        if ending is None or (number := ending.behind(error)) is None:
            raise
        return ending.end(number)
    finally:
        if ending is not None:
            ending.leave_at_once()


def _nobody_reads_stdout() -> bool:
    """Whether it is a pipe whose reader is gone, as after `| head`."""
    poll = select.poll()
    poll.register(sys.stdout, select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))
