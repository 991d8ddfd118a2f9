"""What commands print is what was meant: nothing in it is taken for Rich's marks."""

import os
import re
from pathlib import Path

from rich.table import Table

from robot_runtime.cli.console import plain_console
from robot_runtime.cli.progress import counted
from robot_runtime.commands.log import counting
from tests.source_tree import ROOT

COMMANDS = (
    "robot_runtime/cli", "robot_runtime/commands", "policies/commands", "sim/commands",
    "calibration/commands", "scripts",
)  # fmt: skip
OWN_MARKS = {"robot_runtime/cli/console.py", "robot_runtime/commands/doctor/finding.py"}
"""Has colours, and escapes what it is told."""
OWN_BARS = {"sim/commands/demo.py", "sim/commands/demo_takeover.py"}
"""Of demos whose runs take less than a minute."""


def command_files() -> list[Path]:
    return [file for folder in COMMANDS for file in (ROOT / folder).rglob("*.py")]


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


def test_without_a_terminal_a_long_work_says_a_line_a_minute(capsys):
    now = [0.0]
    with counted(with_notes=True, clock=lambda: now[0]) as progress:
        bar = progress.add_task("train [prefix]", total=600, note="")
        for second in range(1, 151):
            now[0] = float(second)
            progress.update(bar, completed=second, note=f"loss {1 / second:.3f}")
        lines = capsys.readouterr().out.splitlines()
    assert lines == ["train [prefix] 61/600 loss 0.016", "train [prefix] 121/600 loss 0.008"]


def test_short_work_says_nothing_but_its_end(capsys):
    with counted(clock=lambda: 0.0) as progress:
        bar = progress.add_task("read", total=3)
        for _ in range(3):
            progress.advance(bar)
        assert capsys.readouterr().out == ""
    assert "3/3" in capsys.readouterr().out


def test_work_that_leaves_nothing_when_it_is_done_leaves_no_line_in_a_file(capsys):
    with counting("messages") as on_message:
        on_message()
    assert capsys.readouterr().out == ""


def test_every_bar_of_a_command_says_a_line_a_minute_without_a_terminal():
    files = command_files()
    made = {str(path.relative_to(ROOT)) for path in files if re.search(r"\bProgress\(", path.read_text())}
    assert made == OWN_BARS


def test_a_pipe_whose_reader_has_gone_does_not_end_the_command():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as file:
        console = plain_console()
        console.file = file
        console.print("a table")
        print("a line", file=file, flush=True)


def test_nothing_that_a_person_reads_is_printed_by_a_console_with_marks():
    files = command_files()
    made = {
        str(path.relative_to(ROOT)) for path in files if re.search(r"\b(Piped)?Console\(", path.read_text())
    }
    assert made == OWN_MARKS
