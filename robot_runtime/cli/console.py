"""What commands print to: `plain_console`, which takes text as it is.

Rich reads square brackets as its own marks, and a title "late [ms]" would lose its unit without a word.
"""

import sys

from rich.console import Console

WIDE = 160
"""Columns of a wide table where no terminal says how many there are."""


def plain_console(*, is_wide: bool = False, is_error: bool = False) -> Console:
    """
    is_wide: for tables that need more than 80 columns.
    is_error: to standard error, for what is no result.
    """
    width = WIDE if is_wide and not sys.stdout.isatty() else None
    return Console(markup=False, stderr=is_error, width=width)
