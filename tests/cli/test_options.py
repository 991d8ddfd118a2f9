"""Whatever is typed behind an option, a command is refused in one sentence before it begins, or can run."""

import os
import re
from pathlib import Path
from typing import get_args

import pytest
import tyro

from policies.commands.train import Train
from policies.load import policy_names
from robot_runtime.cli import main
from robot_runtime.cli.options import SHIPPED_POLICIES, TaskName, Written, check, check_words, registry
from robot_runtime.core.method.table import METHODS
from robot_runtime.errors import InvalidValueError
from sim.tasks import TASKS, TWO_ARM_TASKS
from tests.cli.options_of import NUMBERS, Option, is_path, options

OPTIONS = list(options())
NUMBER_OPTIONS = [option for option in OPTIONS if option.kind in NUMBERS]
PATH_OPTIONS = [option for option in OPTIONS if is_path(option)]


def complaint(option: Option, value: object, tmp_path: Path, capsys: pytest.CaptureFixture) -> str | None:
    """The error before the command begins; None if it would begin."""
    given = [word.replace("{tmp}", str(tmp_path)) for word in option.typed(value)]
    try:
        check(tyro.cli(option.dataclass, args=given, registry=registry()))
    except InvalidValueError as error:
        return str(error)
    except SystemExit as ended:
        return capsys.readouterr().err if ended.code == 2 else "wrong exit code"
    return None


def test_every_number_has_a_range_and_every_path_says_what_it_is_for():
    assert len(NUMBER_OPTIONS) > 60
    assert len(PATH_OPTIONS) > 25
    assert [str(option) for option in NUMBER_OPTIONS + PATH_OPTIONS if not option.rules] == []


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "1e18", str(10**18), "1e400", "-0.5", "x", ""])
def test_numbers_that_mean_nothing_are_refused_with_the_name_of_the_option(value, tmp_path, capsys):
    for option in NUMBER_OPTIONS:
        said = complaint(option, value, tmp_path, capsys)
        assert said is not None, option
        assert option.name in said, option
        assert "Traceback" not in said


def test_an_option_of_many_values_that_is_there_twice_is_refused_and_one_of_a_single_value_is_not():
    both = ["train", "--dataset", "a", "b", "--seed", "1", "--seed", "2"]
    check_words(Train, both)
    for again in (["--dataset", "c"], ["--dataset=c"]):
        with pytest.raises(InvalidValueError, match=r"--dataset takes all its values at once.* 2 times"):
            check_words(Train, [*both, *again])


def test_a_command_says_that_an_option_is_there_twice_before_it_begins(tmp_path, capsys):
    twice = ["--task", "wipe", "--task", "clear"]
    assert main(["train", *twice, "--output", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.startswith("error: --task takes all its values at once")
    assert list(tmp_path.iterdir()) == []


def test_nothing_and_zero_are_refused_where_something_is_counted_or_divided_by(tmp_path, capsys):
    takes_zero = {o.name for o in NUMBER_OPTIONS if complaint(o, 0, tmp_path, capsys) is None}
    assert takes_zero == {
        "--delay-ms", "--delay-sigma", "--delay-seed", "--seed", "--first-seed",
        "--sampling-share", "--connect-timeout-s", "--max-delay", "--random-views", "--estimator-steps",
        "--noise", "--start-s", "--episode", "--board-height-m", "--image-age-ms",
        "--from-s", "--tag", "--tip-in-tag", "--left", "--right", "--closed-m", "--warm-s",
    }  # fmt: skip


def test_a_path_that_cannot_be_what_it_is_for_is_refused_with_the_name_of_the_option(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "more").write_text("x")
    for option in PATH_OPTIONS:
        refused = {}
        for where in ("file/below", "folder", "file", "missing/x.png", "file\n"):
            refused[where] = complaint(option, tmp_path / where, tmp_path, capsys)
            assert refused[where] is None or option.name in refused[where], option
        takes_neither = any(isinstance(r, Written) and (r.is_new or r.endings) for r in option.rules)
        taken = {where for where in ("file", "folder") if refused[where] is None}
        assert len(taken) == (0 if takes_neither else 1) or option.name == "--output", option


def test_what_cannot_be_written_is_said_before_the_work(tmp_path, capsys):
    for option in PATH_OPTIONS:
        if "json" in option.name or "output" in option.name:
            said = complaint(option, "/proc/nothing", tmp_path, capsys)
            assert said is not None, option
            assert re.fullmatch(rf"{option.name} names a \w+ to (write|make), and /proc/nothing .*", said)


def test_help_shows_no_trace_of_how_it_was_made(capsys):
    for command in {option.command for option in OPTIONS}:
        with pytest.raises(SystemExit):
            main([*command, "--help"])
        shown = capsys.readouterr().out
        assert "None" not in shown, command
        assert "README's table" not in shown


def test_help_names_the_methods_tasks_and_policies(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for command in ("run", "eval", "demo"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        shown = set(re.findall(r"[\w-]+", capsys.readouterr().out))
        tasks = {*TASKS} - {*TWO_ARM_TASKS} if command == "demo" else {*TASKS}
        assert shown >= set(METHODS) | tasks, command
    for command in ("serve", "eval", "record"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert set(re.findall(r"[\w-]+", capsys.readouterr().out)) >= set(policy_names()), command
    assert set(get_args(TaskName)) == set(TASKS)
    assert set(SHIPPED_POLICIES) == set(policy_names())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_said(tmp_path, capsys):
    tmp_path.chmod(0o500)
    assert main(["eval", "--task", "track", "--json", str(tmp_path / "x.json")]) == 1
    assert "Permission denied" in capsys.readouterr().err
