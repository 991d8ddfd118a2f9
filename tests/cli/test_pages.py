"""What the pages say of commands: each can be typed as it is shown."""

import re
import shlex
from pathlib import Path

import pytest
import tyro

from robot_runtime.cli.commands import commands, named, parsed
from robot_runtime.cli.options import registry
from robot_runtime.server.gateways.key_map import KeyMap
from scripts.bench.commands import Subcommand as Benchmarks
from tests.cli.options_of import options
from tests.source_tree import SCRIPTS

ROOT = Path(__file__).parents[2]
PAGES = tuple(
    str(path.relative_to(ROOT))
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    if "_build" not in path.parts
)
COMMANDS = (
    "demo", "serve", "run", "eval", "train", "record", "log", "replay", "describe", "keys", "teleop",
)  # fmt: skip


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
            words = shlex.split(command)
            name = named(words)
            parsed(commands()[name].load(), words[len(name) :], program="robot-runtime")
        except (SystemExit, KeyError, TypeError):
            wrong.append((command, capsys.readouterr().err))
    assert wrong == []


@pytest.mark.parametrize("page", PAGES)
def test_every_option_that_is_shown_is_one_of_its_command(page):
    known = {(option.command[0], option.name) for option in options()}
    for command in shown(page)[1]:
        name = command.split(" ")[0]
        assert [each for each in re.findall(r"--[\w-]+", command) if (name, each) not in known] == [], command


def test_the_pages_show_commands():
    whole, parts = zip(*(shown(page) for page in PAGES), strict=True)
    assert sum(map(len, whole)) > 50
    assert sum(map(len, parts)) >= 4


@pytest.mark.parametrize("page", PAGES)
def test_every_benchmark_that_is_named_is_there(page):
    known = {option.command[0] for option in options(Benchmarks)}
    named = re.findall(r"(?:python -m scripts\.|`)bench ([a-z]+)", (ROOT / page).read_text())
    assert set(named) <= known


@pytest.mark.parametrize("page", PAGES)
def test_every_script_that_is_named_is_there_and_every_command_of_one_in_a_block_can_be_typed(page, capsys):
    text = (ROOT / page).read_text()
    if page != "CHANGELOG.md":
        assert set(re.findall(r"-m (scripts(?:\.\w+)*)", text)) <= {*SCRIPTS}
    blocks = "".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    wrong = []
    for line in blocks.replace("\\\n", " ").splitlines():
        if (found := re.match(r"python -m scripts\.bench (.*)", line.partition("#")[0])) is not None:
            try:
                tyro.cli(Benchmarks, args=shlex.split(found[1]), registry=registry())
            except SystemExit:
                wrong.append((line, capsys.readouterr().err))
    assert wrong == []


def test_every_key_map_that_is_shown_is_one(tmp_path):
    blocks = [
        text
        for page in PAGES
        for text in re.findall(r"```json\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    ]
    assert len(blocks) >= 2
    for i, text in enumerate(blocks):
        path = tmp_path / f"{i}.json"
        path.write_text(text)
        for client in (None, "openpi", "lerobot", "groot"):
            KeyMap.load(path, client)
