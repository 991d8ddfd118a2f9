"""`Finding`: one result of the doctor, and the table of findings."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """How a finding affects a run."""

    FINE = "fine"
    DOUBTFUL = "doubtful"
    WRONG = "wrong"


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    what: str
    found: str
    verdict: Verdict = Verdict.FINE
    mend: str = ""
    """How to fix it: a command or a sentence."""


def fine(what: str, found: str) -> Finding:
    """Return a finding that a run can go ahead with."""
    return Finding(what, found)


def doubtful(what: str, found: str, mend: str = "") -> Finding:
    """Return a finding that may hinder a run."""
    return Finding(what, found, Verdict.DOUBTFUL, mend)


def wrong(what: str, found: str, mend: str = "") -> Finding:
    """Return a finding that prevents a run."""
    return Finding(what, found, Verdict.WRONG, mend)


_COLOURS = {Verdict.FINE: "green", Verdict.DOUBTFUL: "yellow", Verdict.WRONG: "red"}


def print_findings(title: str, findings: Sequence[Finding]) -> None:
    """Print findings as a table, with the fix below each that is not fine."""
    from rich.markup import escape
    from rich.table import Table

    from robot_runtime.cli.console import PipedConsole

    table = Table("", "", "found", title=title, title_justify="left", show_header=False)
    for each in findings:
        colour = _COLOURS[each.verdict]
        mend = f"\n[{colour}]{escape(each.mend)}[/]" if each.mend else ""
        table.add_row(f"[{colour}]{each.verdict.value}[/]", escape(each.what), escape(each.found) + mend)
    PipedConsole().print(table)
