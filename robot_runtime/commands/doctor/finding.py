"""What the doctor has found: `Finding`, and the table of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Whether a run should go ahead."""

    FINE = "fine"
    DOUBTFUL = "doubtful"
    WRONG = "wrong"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    found: str
    verdict: Verdict = Verdict.FINE
    mend: str = ""
    """The command, or the sentence, that mends it."""


def fine(what: str, found: str) -> Finding:
    return Finding(what, found)


def doubtful(what: str, found: str, mend: str = "") -> Finding:
    """It may do."""
    return Finding(what, found, Verdict.DOUBTFUL, mend)


def wrong(what: str, found: str, mend: str = "") -> Finding:
    """It will not."""
    return Finding(what, found, Verdict.WRONG, mend)


_COLOURS = {Verdict.FINE: "green", Verdict.DOUBTFUL: "yellow", Verdict.WRONG: "red"}


def print_findings(title: str, findings: Sequence[Finding]) -> None:
    """As a table, with what mends it below each that is not fine."""
    from rich.markup import escape
    from rich.table import Table

    from robot_runtime.cli.console import PipedConsole

    table = Table("", "", "found", title=title, title_justify="left", show_header=False)
    for each in findings:
        colour = _COLOURS[each.verdict]
        mend = f"\n[{colour}]{escape(each.mend)}[/]" if each.mend else ""
        table.add_row(f"[{colour}]{each.verdict.value}[/]", escape(each.what), escape(each.found) + mend)
    PipedConsole().print(table)
