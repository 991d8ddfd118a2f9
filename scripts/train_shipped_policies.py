"""Trains the shipped checkpoints with prefixes, and those of the table further with FASTER's mixed schedule.

Those that see were trained by the same parts from fewer recordings, and fetch-seeing from episodes without
pictures too; their cards say from how much, and which of them went on from where they led themselves.

python -m scripts.train_shipped_policies                # three hours of one core
python -m scripts.train_shipped_policies --no-train     # only write the model cards anew
python -m scripts.train_shipped_policies --checkpoints fetch-seeing     # from pictures, recorded first
python -m scripts.train_shipped_policies --checkpoints track-offset     # for vlash, on from track

The cards say what `python -m scripts.bench methods` and `bench household` found (`scripts/results`).
"""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from safetensors.torch import load_file, save_file

from policies.flow.checkpoint import WEIGHTS, load, write_card
from robot_runtime.cli.options import Some
from robot_runtime.evaluation.statistics import wilson_interval
from scripts.harness import run_script
from scripts.lab.household import SEEING_EPISODES, SEEING_SUFFIX, SHIPPED_MOBILE, SHIPPED_SEEING
from scripts.lab.policies import PREFIX, SHIPPED
from sim.tasks import HOUSEHOLD_TASKS, TABLE_TASKS

SEEING_ROUNDS, SEEING_OWN_EPISODES = 2, 110
"""Rounds in which a vision policy drives and learns the expert's actions there, and episodes in each."""
MORE_ESTIMATOR_STEPS = 2500
"""Of its eyes, every time."""
MOBILE_ROWS = 4
"""After which a mobile robot's policy is best asked again (scripts/results/mobile.json); the method has 2."""
RUNTIME = (sys.executable, "-m", "robot_runtime.cli")
ROOT = Path(__file__).parent.parent
CHECKPOINTS, RESULTS = ROOT / "policies" / "checkpoints", ROOT / "scripts" / "results"
METHOD_RECIPES = {"offset": "vlash", "masked": "remac", "lambda-mask": "xiaomi"}
"""Recipes that one method alone needs, and that method: policies to try it with, shipped for two tasks."""
METHOD_TASKS = ("track", "pick_place")
FOR_METHODS = {f"{task}-{recipe}": (task, recipe) for task in METHOD_TASKS for recipe in METHOD_RECIPES}
NAMES = (
    *TABLE_TASKS,
    *HOUSEHOLD_TASKS,
    *(f"{task}{SEEING_SUFFIX}" for task in HOUSEHOLD_TASKS),
    *FOR_METHODS,
)


@dataclass(frozen=True, kw_only=True)
class Args:
    checkpoints: Some[Literal[*NAMES]] = (*TABLE_TASKS, *HOUSEHOLD_TASKS)  # type: ignore[valid-type]
    """Checkpoints: a task, or a household task and -seeing."""
    train: bool = True
    """Train; otherwise use the existing checkpoints."""


def train(name: str) -> None:
    """A mobile robot's in one step, from pictures where it sees; the table's in two on one collection."""
    shutil.rmtree(CHECKPOINTS / name, ignore_errors=True)  # `train` replaces nothing
    if name in FOR_METHODS:
        train_for_method(*FOR_METHODS[name], CHECKPOINTS / name)
        return
    task = name.removesuffix(SEEING_SUFFIX)
    command = [*RUNTIME, "train", "--task", task]
    if name in HOUSEHOLD_TASKS:
        asked = ["--execution-horizon", str(MOBILE_ROWS)]
        subprocess.run([*command, *asked, "--output", str(CHECKPOINTS / name)], check=True)
        return
    with tempfile.TemporaryDirectory() as scratch:
        if name != task:
            train_seeing(task, Path(scratch), CHECKPOINTS / name)
            return
        start = Path(scratch) / f"{PREFIX}-0"
        command += ["--demonstrations", f"{scratch}/demonstrations.npz"]
        subprocess.run([*command, "--recipe", PREFIX, "--output", str(start)], check=True)
        command += ["--recipe", SHIPPED, "--init", str(start), "--output", str(CHECKPOINTS / task)]
        subprocess.run(command, check=True)


def train_for_method(task: str, recipe: str, output: Path) -> None:
    """On from the task's own policy, by way of a plain one for adapters; weights kept in half precision."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [*RUNTIME, "train", "--task", task, "--demonstrations", f"{scratch}/demonstrations.npz"]
        init = task
        if recipe == "masked":
            init = f"{scratch}/{task}-plain"
            subprocess.run([*command, "--recipe", "plain", "--init", task, "--output", init], check=True)
        subprocess.run([*command, "--recipe", recipe, "--init", init, "--output", str(output)], check=True)
    halve(output)


def halve(folder: Path) -> None:
    """Keep a checkpoint's network in half precision: half the size; `load` gives float32 again."""
    tensors = load_file(folder / WEIGHTS)
    half = {name: t.half() if name.startswith("model.") else t for name, t in tensors.items()}
    save_file(half, folder / WEIGHTS)


def success_of(name: str) -> dict[str, dict[str, object]]:
    """Success of a policy that one method needs, by `eval`: with the method, and by row 0 on arrival."""
    task, recipe = FOR_METHODS[name]
    out: dict[str, dict[str, object]] = {}
    for method in (METHOD_RECIPES[recipe], "naive"):
        for delay_ms in (0, 400):
            with tempfile.TemporaryDirectory() as scratch:
                kept = Path(scratch) / "eval.json"
                asked = ["--task", task, "--policy", name, "--method", method, "--delay-ms", str(delay_ms)]
                quick = ["--episodes", "50", "--control-hz", "100", "--json", str(kept)]
                subprocess.run([*RUNTIME, "eval", *asked, *quick], check=True)
                episodes = json.loads(kept.read_text())["episodes"]
            successes = sum(episode["score"]["success"] for episode in episodes)
            low, high = wilson_interval(successes, len(episodes))
            cell = f"{successes / len(episodes):.0%} ({low:.0%} to {high:.0%})"
            out.setdefault(f"{method}, {len(episodes)} seeds", {})[f"{delay_ms}ms"] = cell
    return out


def train_seeing(task: str, scratch: Path, output: Path) -> None:
    """Train on states that the expert reaches, then twice on states that the policy reaches."""
    record, datasets, policy = [*RUNTIME, "record", "--task", task], list[str](), task
    for i in range(1 + SEEING_ROUNDS):
        datasets.append(f"{scratch}/dataset-{i}")
        drawn = ["--seed", str(1000 * i), "--output", datasets[-1]]
        own = ["--episodes", str(SEEING_OWN_EPISODES), "--policy", policy]
        subprocess.run([*record, *drawn, *(own if i else ["--episodes", str(SEEING_EPISODES)])], check=True)
        to = output if i == SEEING_ROUNDS else scratch / f"{output.name}-{i}"
        learn = ["train", "--task", task, "--dataset", *datasets, "--init", policy, "--output", str(to)]
        more = ["--estimator-steps", str(MORE_ESTIMATOR_STEPS)] if i else []
        subprocess.run([*RUNTIME, *learn, *more], check=True)
        policy = str(to)


def results(checkpoint: str) -> dict[str, dict[str, object]]:
    """What the comparisons found with the shipped policy: for every method, success under every trace."""
    out: dict[str, dict[str, object]] = {}
    task = checkpoint.removesuffix(SEEING_SUFFIX)
    is_mobile = task in HOUSEHOLD_TASKS
    path = RESULTS / ("mobile.json" if is_mobile else "lab.json")
    mobile = SHIPPED_MOBILE if checkpoint == task else SHIPPED_SEEING
    label = mobile if is_mobile else f"{SHIPPED}-0"
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
    for name in args.checkpoints:
        if args.train:
            train(name)
        found = success_of(name) if name in FOR_METHODS else results(name)
        write_card(load(name), CHECKPOINTS / name, found)


if __name__ == "__main__":
    run_script(Args, main)
