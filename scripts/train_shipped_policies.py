"""Train the shipped checkpoints: with prefixes, and those of the table then on with FASTER's mixed schedule.

python scripts/train_shipped_policies.py                # three hours of one core
python scripts/train_shipped_policies.py --no-train     # only write the model cards anew

The cards say what `robot-runtime lab` and `robot-runtime mobile` found (`sim/results`).
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro

from policies.flow.checkpoint import load, write_card
from sim.lab_policies import PREFIX, SHIPPED
from sim.mobile_lab import SHIPPED_MOBILE
from sim.statistics import wilson_interval
from sim.tasks import HOUSEHOLD_TASKS, TABLE_TASKS

ROOT = Path(__file__).parent.parent
CHECKPOINTS, RESULTS = ROOT / "policies" / "checkpoints", ROOT / "sim" / "results"


@dataclass(frozen=True, kw_only=True)
class Args:
    tasks: tuple[str, ...] = (*TABLE_TASKS, *HOUSEHOLD_TASKS)
    """Which checkpoints."""
    train: bool = True
    """Train; otherwise take the checkpoints that are there."""


def train(task: str) -> None:
    """The one step of a mobile robot's, or both of the table's on the same demonstrations."""
    command = [sys.executable, "-m", "robot_runtime.cli", "train", "--task", task]
    if task in HOUSEHOLD_TASKS:
        subprocess.run([*command, "--output", str(CHECKPOINTS / task)], check=True)
        return
    with tempfile.TemporaryDirectory() as scratch:
        start = Path(scratch) / f"{PREFIX}-0"
        command += ["--demonstrations", f"{scratch}/demonstrations.npz"]
        subprocess.run([*command, "--recipe", PREFIX, "--output", str(start)], check=True)
        command += ["--recipe", SHIPPED, "--init", str(start), "--output", str(CHECKPOINTS / task)]
        subprocess.run(command, check=True)


def results(task: str) -> dict[str, dict[str, object]]:
    """What the comparisons found with the shipped policy: for every method, success under every trace."""
    out: dict[str, dict[str, object]] = {}
    is_mobile = task in HOUSEHOLD_TASKS
    path = RESULTS / ("mobile.json" if is_mobile else "lab.json")
    label = SHIPPED_MOBILE if is_mobile else f"{SHIPPED}-0"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    for row in sorted(rows, key=lambda row: _column(row["trace"])):
        if row["task"] != task or label not in row["policies"]:
            continue
        success = row["success_by_training_seed"][row["policies"].index(label)]
        n = row["episodes"] // len(row["policies"])
        low, high = wilson_interval(round(success * n), n)
        name = f"{row['method'].split(' ')[-1]}, {n} seeds"
        out.setdefault(name, {})[row["trace"]] = f"{success:.0%} ({low:.0%} to {high:.0%})"
    return out


def _column(trace: str) -> tuple[bool, int, str]:
    """Constant delays first, in order."""
    return not trace.endswith("ms"), len(trace), trace


def main(args: Args) -> None:
    for task in args.tasks:
        if args.train:
            train(task)
        write_card(load(task), CHECKPOINTS / task, results(task))


if __name__ == "__main__":
    main(tyro.cli(Args))
