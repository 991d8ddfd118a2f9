"""Help and errors are of the command that was typed: its options, its own help, a line to begin with."""

import re
import shlex
import subprocess
import sys
from dataclasses import fields
from typing import get_type_hints

import pytest

from robot_runtime.cli import main
from robot_runtime.cli.commands import commands, named, parsed, summary
from tests.cli.options_of import options

COMMANDS = {option.command: option.dataclass for option in options()}
WITH_EXAMPLES = [words for words in COMMANDS if words[0] in ("calibrate", "capture")]


def shown(words: tuple[str, ...], capsys: pytest.CaptureFixture) -> str:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    return capsys.readouterr().out


def titles(words: tuple[str, ...], capsys: pytest.CaptureFixture) -> set[str]:
    """Of the boxes, which are of lines where there is no terminal."""
    return set(re.findall(r"^ (\S.*?) *\n -{9}", shown(words, capsys), re.MULTILINE))


def test_boxes_of_help_have_titles_that_say_what_is_in_them(capsys):
    for words in COMMANDS:
        assert {"options"} <= titles(words, capsys) <= {"options", "positional arguments"}, words


@pytest.mark.parametrize("group", [(), ("calibrate",), ("capture",), ("dataset",), ("log",)])
def test_help_of_a_group_has_a_line_on_each_command_of_it(group, capsys):
    assert main([*group, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    inside = [words for words in commands() if words[:-1] == group]
    assert [line.split()[0] for line in lines if line.startswith("  ")] == [words[-1] for words in inside]
    assert all(len(line.split()) > 3 for line in lines if line.startswith("  "))


def test_the_line_on_a_command_is_the_beginning_of_its_docstring():
    for entry in commands().values():
        text = " ".join((entry.load().__doc__ or "").split())
        assert len(summary(entry)) > 10, entry
        assert summary(entry).lower() in text.lower(), entry


def test_help_imports_no_command():
    program = (
        "import sys; from robot_runtime.cli.commands import help_of; help_of(()); "
        "print([m for m in ('numpy', 'tyro', 'sim.commands', 'policies.commands') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "words", [("capture", "check"), ("calibrate", "hand-eye"), ("eval",), ("dataset", "merge")]
)
@pytest.mark.parametrize("given", ["--nonsense", "--seed=x", ""])
def test_an_error_names_the_help_of_its_own_command(words, given, capsys):
    with pytest.raises(SystemExit):
        main([*words, given or "--no-such"])
    said = re.findall(r"(robot-runtime[\w -]*?) --help", " ".join(capsys.readouterr().err.split()))
    assert set(said) == {f"robot-runtime {' '.join(words)}"}


def test_what_names_no_command_is_answered_by_the_group_that_it_was_asked_of(capsys):
    for words in (("calibrate", "bord"), ("bord",), ("calibrate",)):
        assert main(list(words)) == 2
        assert f"robot-runtime{' calibrate' if words[0] == 'calibrate' else ''} --help" in " ".join(
            capsys.readouterr().err.split()
        )


def test_a_flag_that_switches_off_says_so():
    for words, kind in COMMANDS.items():
        for field in fields(kind):
            if field.default is True:
                said = get_type_hints(kind, include_extras=True)[field.name].__metadata__[-1].help
                assert said.startswith("Do not"), (words, field.name)


@pytest.mark.parametrize("words", WITH_EXAMPLES, ids=" ".join)
def test_an_example_of_each_command_can_be_typed(words):
    kind = COMMANDS[words]
    text = " ".join((kind.__doc__ or "").split())
    lines = [line.strip() for line in re.split(r"Examples?: ", text)[-1].split(";")]
    assert "Example" in text
    for line in lines:
        program, *rest = shlex.split(line)
        assert program == "robot-runtime"
        name = named(rest)
        assert name == words
        parsed(kind, rest[len(name) :], program="robot-runtime")  # ends with SystemExit if it cannot be read
