"""The files of `scripts/` refuse what a command would, and never pass what they have not tried."""

import importlib.util
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

from robot_runtime.cli.options import option_name
from tests.cli.options_of import NUMBERS, first_value

SCRIPTS = Path(__file__).parents[2] / "scripts"
RUN = {
    path.stem: found[1]
    for path in sorted(SCRIPTS.glob("*.py"))
    if (found := re.search(r"run_script\((\w+),", path.read_text()))
}
"""Name of a script: of its options."""


def options_of(name: str) -> type:
    spec = importlib.util.spec_from_file_location(f"script_{name}", SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    path = list(sys.path)
    sys.path.insert(0, str(SCRIPTS))  # as when it is run
    try:
        spec.loader.exec_module(module)
        return getattr(module, RUN[name])
    finally:
        sys.path[:] = path
        del sys.modules[spec.name]


def test_every_script_that_is_run_has_its_options_tried():
    run = {path.stem for path in SCRIPTS.glob("*.py") if '__name__ == "__main__"' in path.read_text()}
    assert run == set(RUN)


@pytest.mark.parametrize("name", sorted(RUN))
def test_every_number_of_a_script_has_a_range_and_every_file_a_purpose(name):
    options = options_of(name)
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        kind, rules, _ = first_value(hints[field.name])
        assert rules or kind not in (*NUMBERS, Path), option_name(field.name, hints[field.name])


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / f"{name}.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("attack_server", "--only", "nope"), "nope"),
        (("attack_server", "--policy", "nope", "--only", "greetings"), "valid: clear, "),
        (("fuzz_sessions", "--deliveries", "0"), "--deliveries takes a number from 1 to"),
        (("fuzz_sessions", "--json", "/proc/nothing"), "--json names a file to write"),
        (("kill_record", "--times", "0"), "--times takes a number from 1 to"),
        (("soak", "--method", "nope"), "time-aligned"),
        (("train_shipped_policies", "--checkpoints", "nope"), "fetch-seeing"),
    ],
)
def test_what_a_script_does_not_know_or_would_leave_it_nothing_to_try_is_refused(arguments, words):
    ended = run(*arguments)
    assert ended.returncode in (1, 2)
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_help_names_the_attacks():
    shown = re.sub(r"[\s│]", "", run("attack_server", "--help").stdout)
    assert all(name in shown for name in ("busy_neighbour", "robot_commands", "lerobot_unfinished"))
