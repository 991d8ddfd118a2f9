"""Compares the same policies before and after a change, from result files of two versions.

    git show v1:scripts/results/mobile.json > before.json
    python -m scripts.tables.compare_results --before before.json --after scripts/results/mobile.json

A file is what `scripts.bench methods`, `scripts.bench household` or `eval --json` wrote. What both sides have
is compared: the same task, policy, method and delay. Equal rows are left out, for the file of a comparison
keeps those that were not run again.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import InputFile, Maybe, OutputFile, Some
from robot_runtime.errors import InvalidValueError
from scripts.harness import run_script, write_result

FIGURES = ("jerk_mean", "jerk_max", "completion_s", "error_mean_m", "behind_max", "clipped_share")


@dataclass(frozen=True, kw_only=True)
class Args:
    """Compare results of two versions."""

    before: Some[InputFile]
    """Result files before the change."""
    after: Some[InputFile]
    """Result files after the change."""
    json: Maybe[OutputFile] = None
    """Add the comparison to this file, which may hold rows of other comparisons."""


def main(args: Args) -> int:
    """Print and write the comparison."""
    before, after = results(args.before), results(args.after)
    rows = [
        {"name": name, "before": before[name], "after": after[name]}
        for name in sorted(after.keys() & before.keys())
        if after[name] != before[name]
    ]
    if not rows:
        raise InvalidValueError("the two have no place in common that was run twice")
    show(rows)
    if args.json is not None:
        kept = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
        names = {row["name"] for row in rows}
        rows += [row for row in kept if row["name"] not in names]
        write_result(args.json, {"rows": sorted(rows, key=lambda row: str(row["name"]))})
    return 0


def results(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Figures by what they are of."""
    out: dict[str, dict[str, Any]] = {}
    for path in paths:
        data = json.loads(path.read_text())
        out.update([of_evaluation(data)] if "config" in data else map(of_cell, data["rows"]))
    return out


def of_evaluation(result: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """As `robot-runtime eval` writes it."""
    config, summary = result["config"], result["summary"]
    method = " ".join(part.partition("(")[0] for part in config["method"].values())
    name = f"{config['task']}, {config['policy']}, {method}, {config['trace']['name']}"
    figures = {**summary, "completion_s": summary["completion_s_median"]}
    return name, picked(summary, figures)


def of_cell(row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """As `bench methods` and `bench household` write it: every figure with its interval."""
    policies = " ".join(row["policies"])
    name = f"{row['task']}, {policies}, {row['method']}, {row['trace']}"
    figures = {key: value[0] for key, value in row["figures"].items()}
    return name, picked(row, {**figures, "completion_s": (row["completion_s"] or [None])[0]})


def picked(success: dict[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
    """What is compared."""
    out = {key: success[key] for key in ("episodes", "success", "success_interval_95")}
    return out | {key: figures[key] for key in FIGURES if figures.get(key) is not None}


def show(rows: list[dict[str, Any]]) -> None:
    """The table."""
    table = Table("task, policy, method, delay", "success, 95 % interval", *FIGURES)
    for row in rows:
        sides = row["before"], row["after"]
        success = " -> ".join(
            "{:.0f} ({:.0f} to {:.0f}) of {}".format(
                *(100 * x for x in (side["success"], *side["success_interval_95"])), side["episodes"]
            )
            for side in sides
        )
        figures = (
            " -> ".join(f"{side[key]:.3g}" if key in side else "-" for side in sides) for key in FIGURES
        )
        table.add_row(row["name"], success, *figures)
    plain_console(is_wide=True).print(table)


if __name__ == "__main__":
    run_script(Args, main, description=__doc__)
