"""What commands print to: `plain_console`, which takes text as it is.

Rich reads square brackets as its own marks, and a title "late [ms]" would lose its unit without a word. And
it ends the process where a pipe has lost its reader, before results are written.
"""

import os
import sys

from rich.console import Console

WIDE = 160
"""Columns of a wide table where no terminal says how many there are."""


class PipedConsole(Console):
    """Where nobody reads any more, as behind `| head -1`, the command goes on without a word: what it does is
    worth more than what it says."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


def plain_console(*, is_wide: bool = False, is_error: bool = False) -> Console:
    """
    is_wide: for tables that need more than 80 columns.
    is_error: to standard error, for what is no result.
    """
    width = WIDE if is_wide and not sys.stdout.isatty() else None
    return PipedConsole(markup=False, stderr=is_error, width=width)
