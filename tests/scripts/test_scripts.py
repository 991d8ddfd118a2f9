"""The files of `scripts/` refuse what a command would, and never pass what they have not tried."""

import importlib
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

from robot_runtime.cli.options import option_name
from scripts.bench.commands import Subcommand
from tests.cli.options_of import NUMBERS, first_value, options
from tests.source_tree import ROOT, SCRIPTS

BENCHMARKS = sorted({option.command[0] for option in options(Subcommand)})

RUN = {
    name.removeprefix("scripts."): found[1]
    for name, path in SCRIPTS.items()
    if name != "scripts.harness" and (found := re.search(r"run_script\((\w+),", path.read_text()))
}
"""Module of `scripts`: name of its options."""
NO_OPTIONS = {"bench.__main__", "lab.baselines.wire_lerobot", "lab.baselines.wire_openpi", "lab.fci.scene"}
"""Processes that a benchmark starts, and the benchmarks: see test_bench.py."""


def options_of(name: str) -> type:
    return getattr(importlib.import_module(f"scripts.{name}"), RUN[name])


def test_every_script_that_is_run_has_its_options_tried():
    run = {name for name, path in SCRIPTS.items() if '__name__ == "__main__"' in path.read_text()}
    assert {name.removeprefix("scripts.") for name in run} == set(RUN) | NO_OPTIONS


def test_the_page_of_the_scripts_names_each_of_them():
    page = (ROOT / "scripts" / "README.md").read_text()
    assert [name for name in RUN if f"scripts.{name}`" not in page] == []
    assert [name for name in BENCHMARKS if f"scripts.bench {name}`" not in page] == []
    named = re.findall(r"`(?:python -m )?(scripts\.[\w.]+)(?: (\w+))?`", page)
    known = {(f"scripts.{name}", "") for name in RUN} | {("scripts.bench", name) for name in BENCHMARKS}
    assert set(named) <= known
    results = set(re.findall(r"[\w-]+\.(?:json|png)", page))
    assert results == {path.name for path in (ROOT / "scripts" / "results").iterdir()}


@pytest.mark.parametrize("name", sorted(RUN))
def test_every_number_of_a_script_has_a_range_and_every_file_a_purpose(name):
    options = options_of(name)
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        kind, rules, _ = first_value(hints[field.name])
        assert rules or kind not in (*NUMBERS, Path), option_name(field.name, hints[field.name])


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"scripts.{name}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("attack.server", "--only", "nope"), "nope"),
        (("attack.server", "--policy", "nope", "--only", "greetings"), "valid: clear, "),
        (("attack.fuzz_sessions", "--deliveries", "0"), "--deliveries takes a number from 1 to"),
        (("attack.fuzz_sessions", "--json", "/proc/nothing"), "--json names a file to write"),
        (("attack.soak", "--method", "nope"), "time-aligned"),
        (("train_shipped_policies", "--checkpoints", "nope"), "fetch-seeing"),
    ],
)
def test_what_a_script_does_not_know_or_would_leave_it_nothing_to_try_is_refused(arguments, words):
    ended = run(*arguments)
    assert ended.returncode in (1, 2)
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_help_names_the_attacks():
    shown = re.sub(r"[\s│]", "", run("attack.server", "--help").stdout)
    assert all(name in shown for name in ("busy_neighbour", "robot_commands", "lerobot_unfinished"))
