"""What the pages say of commands: each can be typed as it is shown."""

import re
import shlex
from pathlib import Path

import pytest
import tyro

from robot_runtime.cli.commands import Subcommand
from robot_runtime.cli.options import registry
from robot_runtime.server.gateways.key_map import KeyMap
from tests.cli.options_of import options

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "SECURITY.md", "sim/README.md", "robot_runtime/server/README.md")
COMMANDS = ("demo", "serve", "run", "eval", "train", "record", "describe", "keys", "bench")


def shown(page: str) -> tuple[list[str], list[str]]:
    """Whole commands, without `robot-runtime`; and parts of some, which begin with the command."""
    text = (ROOT / page).read_text()
    blocks = "".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    lines = [line.partition("#")[0] for line in blocks.splitlines()]
    quoted = re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    whole, parts = [], []
    for words in (*lines, *quoted):
        _, is_whole, after = words.replace("\n", " ").rpartition("robot-runtime ")
        if after.split(" ")[0] in COMMANDS and " --" in after:
            (whole if is_whole else parts).append(after.strip())
    return whole, parts


@pytest.mark.parametrize("page", PAGES)
def test_every_whole_command_that_is_shown_can_be_typed(page, capsys):
    wrong = []
    for command in shown(page)[0]:
        try:
            tyro.cli(Subcommand, args=shlex.split(command), registry=registry())
        except SystemExit:
            wrong.append((command, capsys.readouterr().err))
    assert wrong == []


@pytest.mark.parametrize("page", PAGES)
def test_every_option_that_is_shown_is_one_of_its_command(page):
    known = {(option.command[0], option.name) for option in options()}
    for command in shown(page)[1]:
        name = command.split(" ")[0]
        assert [each for each in re.findall(r"--[\w-]+", command) if (name, each) not in known] == [], command


def test_the_pages_show_commands():
    assert [len(found) > 10 for found in shown("README.md")] == [True, True]


def test_every_file_of_names_that_is_shown_is_one(tmp_path):
    found = re.findall(r'`(\{"convention".*?\})`', (ROOT / "README.md").read_text())
    assert len(found) >= 2
    for i, text in enumerate(found):
        path = tmp_path / f"{i}.json"
        path.write_text(text)
        KeyMap.load(path)
