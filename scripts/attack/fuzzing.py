"""Shared code of the scripts that fuzz by ticks: episodes that may raise, and a table of violations."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import track
from rich.table import Table

from robot_runtime.cli.console import plain_console
from scripts.harness import write_result


def played(name: str, num_episodes: int, play: Callable[[int], None]) -> int:
    """Run episodes 0, 1, ...; return how many raised, which would have ended the control loop."""
    raised = 0
    for k in track(range(num_episodes), description=name):
        try:
            play(k)
        except Exception:
            traceback.print_exc()
            raised += 1
    return raised


def report(
    results: Mapping[str, Any], key: str, *, seed: int, path: Path | None, further: Sequence[str] = ()
) -> int:
    """Print a table with a column for each result, and write it to a file; return 1 on any violation.

    results: with `ticks`, those that `moved`, and `broken`: violations by kind.
    key: their name in the file. further: names of further counts to show.
    """
    table = Table("", *results)
    table.add_row("ticks", *(f"{c.ticks:,}" for c in results.values()))
    table.add_row("moving", *(f"{c.moved / max(c.ticks, 1):.0%}" for c in results.values()))
    for name in further:
        table.add_row(name, *(f"{getattr(c, name):,}" for c in results.values()))
    for kind in next(iter(results.values())).broken:
        table.add_row(kind, *(str(c.broken[kind]) for c in results.values()))
    plain_console().print(table)
    if path is not None:
        figures = {name: vars(counted) for name, counted in results.items()}
        write_result(path, {key: figures}, seeds=[seed])
    return 1 if any(any(counted.broken.values()) for counted in results.values()) else 0
