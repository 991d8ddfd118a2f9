"""Finds the commands of all installed packages by entry point, and imports a command when it is used.

[project.entry-points."robot_runtime.commands"]
train = "policies.commands.train:Train"                                 a command: a dataclass with `main`
capture = "calibration.commands.capture"                                a group: a module
"capture.label" = "calibration.commands.capture.label:CaptureLabel"     a command of that group

The help of a group imports no command: the line for each command is the first sentence of its docstring, read
from the source file.
"""

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from robot_runtime.errors import RobotRuntimeError

GROUP = "robot_runtime.commands"
PROGRAM = "robot-runtime"
DESCRIPTION = "Run learned policies on robots in real time, or in simulation."
_FIRST = ("demo", "serve", "run", "eval", "train", "record", "teleop")
"""Commands that the help lists first."""


@cache
def commands() -> dict[tuple[str, ...], EntryPoint]:
    """Return every command and group, by the words that name it."""
    found = {tuple(each.name.split(".")): each for each in entry_points(group=GROUP)}

    def rank(words: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
        return _FIRST.index(words[0]) if words[0] in _FIRST else len(_FIRST), words

    return {words: found[words] for words in sorted(found, key=rank)}


def named(words: Sequence[str]) -> tuple[str, ...]:
    """Return the command or group that the first words name; () if they name none."""
    for number in (2, 1):
        if (first := tuple(words[:number])) in commands():
            return first
    return ()


def is_group(name: tuple[str, ...]) -> bool:
    return not name or not commands()[name].attr


def summary(entry: EntryPoint) -> str:
    """Return the first sentence of the docstring of a command or a group's module; empty without one."""
    root, *rest = entry.module.split(".")
    spec = find_spec(root)
    if spec is None or spec.origin is None:
        return ""
    path = Path(spec.origin).parent.joinpath(*rest) if rest else Path(spec.origin)
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    try:
        text = path.read_text()
    except OSError:
        return ""
    start = rf'^class {entry.attr}\b.*?"""' if entry.attr else '^"""'
    if (found := re.search(rf'{start}(.*?)(?:"""|\n\s*\n)', text, re.DOTALL | re.MULTILINE)) is None:
        return ""
    words = " ".join(re.sub(r"^`robot-runtime [\w-]+`: ", "", found[1]).split())
    sentence = re.split(r"(?<=\.) ", words)[0].rstrip(".")
    return sentence[:1].upper() + sentence[1:]


def help_of(group: tuple[str, ...]) -> str:
    """Return the help of a group of commands; () is the group of all commands."""
    program, entries = " ".join((PROGRAM, *group)), commands()
    inside = [words for words in entries if words[:-1] == group]
    width = max(len(words[-1]) for words in inside)
    about = f"{summary(entries[group])}." if group else DESCRIPTION
    lines = [f"usage: {program} COMMAND ...", "", about, "", "commands:"]
    lines += [f"  {words[-1]:<{width}}  {summary(entries[words])}" for words in inside]
    return "\n".join([*lines, "", f"{program} COMMAND --help shows the options of one."])


def _answer_group(group: tuple[str, ...], rest: Sequence[str]) -> int:
    """Print the help, or the error for a missing or unknown command of a group; return the exit code."""
    if rest and rest[0] in ("-h", "--help"):
        print(help_of(group))
        return 0
    known = [words[-1] for words in commands() if words[:-1] == group]
    program = " ".join((PROGRAM, *group))
    if not rest:
        print(f"error: expected a command of {program}, got none; see {program} --help", file=sys.stderr)
        return 2
    near = get_close_matches(rest[0], known, 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    print(
        f"error: expected a command of {program}, got {rest[0]!r}{hint}; see {program} --help",
        file=sys.stderr,
    )
    return 2


def parsed(kind: Any, words: Sequence[str], *, program: str, description: str | None = None) -> Any:
    """Return a command with its options parsed but not checked."""
    import tyro
    from tyro.conf import FlagCreatePairsOff

    from robot_runtime.cli.options import check_words, registry

    check_words(kind, words)
    return tyro.cli(
        kind,
        args=list(words),
        prog=program,
        description=description,
        config=(FlagCreatePairsOff,),
        registry=registry(),
    )


def run_command(argv: list[str] | None) -> int:
    """Parse the options, check them and run the command; return the exit code."""
    words = sys.argv[1:] if argv is None else argv
    if not commands():
        raise RobotRuntimeError("no commands are installed: install robot-runtime again, as pip install -e .")
    name = named(words)
    rest = words[len(name) :]
    if is_group(name):
        return _answer_group(name, rest)
    from robot_runtime.cli.options import check

    command = parsed(commands()[name].load(), rest, program=" ".join((PROGRAM, *name)))
    check(command)
    code: int = command.main()
    return code
