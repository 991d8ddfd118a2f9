"""What commands print is what was meant: nothing in it is taken for Rich's marks."""

import re

from rich.table import Table

from robot_runtime.cli.console import plain_console
from robot_runtime.cli.progress import counted
from tests.source_tree import ROOT

OWN_MARKS = {"robot_runtime/cli/console.py", "robot_runtime/cli/doctor/finding.py"}
"""Has colours, and escapes what it is told."""


def test_a_unit_in_brackets_is_printed(capsys):
    table = Table("cost [us]", title="late [ms]")
    table.add_row("arm [left]")
    plain_console().print(table)
    said = capsys.readouterr().out
    for words in ("cost [us]", "late [ms]", "arm [left]"):
        assert words in said


def test_a_progress_bar_shows_brackets_too(capsys):
    with counted() as progress:
        progress.add_task("read [a].mcap", total=1)
    assert "read [a].mcap" in capsys.readouterr().out


def test_nothing_that_a_person_reads_is_printed_by_a_console_with_marks():
    files = [*(ROOT / "robot_runtime" / "cli").rglob("*.py"), *(ROOT / "scripts").glob("*.py")]
    made = {str(path.relative_to(ROOT)) for path in files if re.search(r"\bConsole\(", path.read_text())}
    assert made == OWN_MARKS
