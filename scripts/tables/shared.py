"""Shared code of the pages' tables: where figures are, and how they are written."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from robot_runtime.evaluation.statistics import wilson_interval
from scripts.harness import RESULTS
from scripts.lab.scores import Row

ROOT = Path(__file__).parents[2]
NOTHING = "–"


@cache
def result(name: str) -> Any:
    """What `name.json` holds, without what made it."""
    found = json.loads((RESULTS / f"{name}.json").read_text())
    return (
        {key: value for key, value in found.items() if key != "made_by"} if isinstance(found, dict) else found
    )


def of(name: str, show: Callable[[Any], str]) -> Callable[[], str]:
    """Return the table of a result file; `show` makes it from the figures, also for the benchmark itself."""
    return lambda: show(result(name))


def plain(lines: Iterable[Sequence[str]], words: Mapping[str, str] = MappingProxyType({})) -> list[list[str]]:
    """A command's table without a per cent sign in every cell; words: cells that are called otherwise."""
    return [[words.get(cell, cell.replace("%", "")) for cell in line] for line in lines]


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """In Markdown; figures to the right, words to the left."""
    lines = list(lines)
    rule = ["---:" if all(map(_is_figure, column)) else "---" for column in zip(*lines, strict=True)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *lines))


def _is_figure(cell: str) -> bool:
    return cell.lstrip("*+-")[:1].isdigit() or cell == NOTHING


def share(value: float, interval: Sequence[float] | None = None) -> str:
    """A success and its 95 % interval, in per cent: `94 (89–97)`."""
    shown = f"{100 * value:.0f}"
    return shown if interval is None else f"{shown} ({100 * interval[0]:.0f}–{100 * interval[1]:.0f})"


def pooled(rows: Sequence[Row]) -> str:
    """Success over all episodes of these rows, with its interval."""
    successes, episodes = (sum(getattr(row, name) for row in rows) for name in ("successes", "episodes"))
    return share(successes / episodes, wilson_interval(successes, episodes))


def quantiles(
    found: Mapping[str, float], names: Sequence[str] = ("p50", "p95", "p99"), digits: int = 2
) -> str:
    """`0.83 / 1.14 / 1.53`; what was not measured is a dash."""
    return " / ".join(f"{found[name]:.{digits}f}" if name in found else NOTHING for name in names)


def commands(shown: Iterable[str]) -> str:
    """A block of commands as they are typed today, whatever they were called when they ran."""
    return "\n".join(["```bash", *dict.fromkeys(_today(command) for command in shown), "```"])


def _today(command: str) -> str:
    for then, now in (
        ("robot-runtime lab", "robot-runtime bench methods"),
        ("robot-runtime mobile", "robot-runtime bench household"),
        ("robot-runtime bench", "python -m scripts.bench"),
        ("compare_third_party.py", "python -m scripts.bench.third_party"),
        ("--write-readme", "--write-results"),
        ("sim/results/", "sim/lab/results/"),
        ("sim/lab/results/", "scripts/results/"),
        ("sim/lab/", "scripts/lab/"),
    ):
        command = command.replace(then, now)
    return command
