"""`plain_console`: the console that commands print to, which prints text unchanged.

By default Rich reads square brackets as markup, so that a title "late [ms]" silently loses its unit, and
ends the process when a pipe loses its reader, before results are written.
"""

import os
import sys

from rich.console import Console

WIDE = 160
"""Columns of a wide table where output is no terminal."""


class PipedConsole(Console):
    """Console that goes quiet when its reader is gone, as after `| head -1`, so that the command finishes."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


def plain_console(*, is_wide: bool = False, is_error: bool = False) -> Console:
    """Return a console without markup.

    is_wide: for tables that need more than 80 columns.
    is_error: print to standard error, for text that is not a result.
    """
    width = WIDE if is_wide and not sys.stdout.isatty() else None
    return PipedConsole(markup=False, stderr=is_error, width=width)
