"""Every option of every command, with what its annotation says."""

from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from robot_runtime.cli.commands import commands
from robot_runtime.cli.options import Rule, option_name

NUMBERS = (int, float)


class Option(NamedTuple):
    """One option of one command."""

    command: tuple[str, ...]
    """The words before it."""
    dataclass: type
    """Of the command, which tyro reads."""
    name: str
    kind: type
    """Of the first of its values."""
    rules: tuple[Rule, ...]
    """For the first of its values."""
    num_values: int
    others: tuple[str, ...]
    """What the command needs beside it, or before it if both are positional."""
    after: tuple[str, ...] = ()
    """Positional ones that come after it."""

    def __str__(self) -> str:
        return f"{' '.join(self.command)} {self.name}"

    def typed(self, value: object) -> list[str]:
        """The command line with that value, without the words of the command."""
        values = [str(value)] * self.num_values
        given = values if self.name.isupper() else [self.name, *values]
        return [*self.others, *given, *self.after]


NEEDED = {
    "--output": ("--output", "{tmp}/new"),
    "--policy": ("--policy", "hold"),
    "--task": ("--task", "track"),
    "--robots": ("--robots", "left"),
    "--chest": ("--chest", "video:chest.mp4"),
    "--board": ("--board", "pyproject.toml"),
    "POLICY": (".",),
    "FILE": ("pyproject.toml",),
    "LOG": ("pyproject.toml",),
    "FOLDER": (".",),
    "FOLDERS": (".",),
    "CAPTURES": (".",),
    "RIG": ("pyproject.toml",),
    "CAPTURE": (".",),
    "DATASET": (".",),
    "ROBOT": ("pyproject.toml",),
    "SOURCE": (".",),
    "DEVICE": ("keyboard",),
    "--intrinsics": ("--intrinsics", "pyproject.toml"),
    "--open-m": ("--open-m", "0.08"),
    "A": (".",),
    "B": (".",),
}
"""Options without a default, and what to give."""


def kinds(group: Any) -> Iterator[tuple[tuple[str, ...], type]]:
    """Words and dataclass of every command: installed ones, or those of a union of subcommands."""
    if group is None:
        yield from ((words, entry.load()) for words, entry in commands().items() if entry.attr)
    else:
        yield from (((each.__metadata__[0].name,), get_args(each)[0]) for each in get_args(group))


def options(group: Any = None) -> Iterator[Option]:
    """All of them, of the dataclasses that tyro reads. group: as of `kinds`."""
    for words, kind in kinds(group):
        hints = get_type_hints(kind, include_extras=True)
        needed = [
            option_name(field.name, hints[field.name])
            for field in fields(kind)
            if field.default is MISSING and field.default_factory is MISSING
        ]
        for field in fields(kind):
            name = option_name(field.name, hints[field.name])
            at = needed.index(name) if name.isupper() and name in needed else len(needed)
            before, after = (
                tuple(word for other in part if other != name for word in NEEDED[other])
                for part in (needed[:at], needed[at:])
            )
            yield Option(words, kind, name, *first_value(hints[field.name]), before, after)


def first_value(hint: Any) -> tuple[type, tuple[Rule, ...], int]:
    """Kind and rules of the first value, and how many values there have to be."""
    rules: tuple[Rule, ...] = ()
    num_values = 1
    while get_args(hint) and get_origin(hint) is not None:
        inner = get_args(hint)
        if get_origin(hint) is Annotated:
            rules = tuple(each for each in hint.__metadata__ if isinstance(each, Rule))
        elif get_origin(hint) is tuple:
            rules, num_values = (), 1 if inner[-1] is ... else len(inner)
        hint = inner[0]
        if not isinstance(hint, type) and not get_args(hint):
            return str, rules, num_values  # a Literal
    return hint, rules, num_values


def is_path(option: Option) -> bool:
    """Whether it names a file or a folder."""
    return option.kind is Path
