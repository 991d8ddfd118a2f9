"""The same policies before and after a change, from result files of two versions.

    git show v1:sim/results/mobile.json > before.json
    python scripts/compare_results.py before.json sim/results/mobile.json --json sim/results/gate.json

Each side is a file that `robot-runtime lab` or `mobile` left, or a folder of what `robot-runtime eval --json`
wrote. What both have is compared: the same task, policy, method, delay and number of episodes. Equal rows are
left out, for the file of a comparison keeps those that were not run again.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from robot_runtime.results import result_json

FIGURES = ("jerk_mean", "jerk_max", "completion_s", "error_mean_m", "behind_max", "clipped_share")


@dataclass(frozen=True, kw_only=True)
class Args:
    """Compare results of two versions."""

    before: Annotated[Path, tyro.conf.Positional]
    after: Annotated[Path, tyro.conf.Positional]
    json: Path | None = None
    """Write the comparison to this file, beside the rows it has of other comparisons."""


def main(args: Args) -> int:
    """Print and write the comparison; 1 if there is nothing to compare."""
    before, after = results(args.before), results(args.after)
    rows = [
        {"name": name, "before": before[name], "after": after[name]}
        for name in sorted(after.keys() & before.keys())
        if after[name] != before[name]
    ]
    if not rows:
        print(f"{args.before} and {args.after} have no place in common that was run twice", file=sys.stderr)
        return 1
    show(rows)
    if args.json is not None:
        kept = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
        names = {row["name"] for row in rows}
        rows += [row for row in kept if row["name"] not in names]
        args.json.write_text(result_json({"rows": sorted(rows, key=lambda row: str(row["name"]))}))
    return 0


def results(path: Path) -> dict[str, dict[str, Any]]:
    """Figures by what they are of."""
    if path.is_dir():
        return dict(of_evaluation(json.loads(file.read_text())) for file in path.glob("*.json"))
    return dict(of_cell(row) for row in json.loads(path.read_text())["rows"])


def of_evaluation(result: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """As `robot-runtime eval` writes it."""
    config, summary = result["config"], result["summary"]
    name = (
        f"{config['task']}, {config['policy']}, default, {config['trace']['name']}, n = {config['episodes']}"
    )
    figures = {**summary, "completion_s": summary["completion_s_median"]}
    return name, picked(summary, figures)


def of_cell(row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """As `lab` and `mobile` write it: every figure with its interval."""
    policies = " ".join(row["policies"])
    name = f"{row['task']}, {policies}, {row['method']}, {row['trace']}, n = {row['episodes']}"
    figures = {key: value[0] for key, value in row["figures"].items()}
    return name, picked(row, {**figures, "completion_s": (row["completion_s"] or [None])[0]})


def picked(success: dict[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
    """What is compared."""
    out = {key: success[key] for key in ("success", "success_interval_95")}
    return out | {key: figures[key] for key in FIGURES if figures.get(key) is not None}


def show(rows: list[dict[str, Any]]) -> None:
    """The table."""
    table = Table("task, policy, method, delay", "success, 95 % interval", *FIGURES)
    for row in rows:
        sides = row["before"], row["after"]
        success = " -> ".join(
            "{:.0f} ({:.0f} to {:.0f})".format(
                *(100 * x for x in (side["success"], *side["success_interval_95"]))
            )
            for side in sides
        )
        figures = (
            " -> ".join(f"{side[key]:.3g}" if key in side else "-" for side in sides) for key in FIGURES
        )
        table.add_row(row["name"], success, *figures)
    Console(width=200).print(table)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
