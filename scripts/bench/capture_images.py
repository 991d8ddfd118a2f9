"""Policies that learn from images alone: a person's captures against the scripted expert, 300 ms late.

    person   capture sample --images ─► capture label ─► train --dataset ──┐
    expert   record --cameras chest wrist ─────────────► train --encoder ──┴─► eval --task

Every step is a command of the documentation, and is skipped once its result exists; an interrupted training
resumes. The person's gripper is hand-held, the robot sees its own: `--masks` compares policies that do not
see that region.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from robot_runtime.cli.options import Count, HouseholdTask, KeptFile, Maybe, OutputFolder, Several, Steps
from robot_runtime.evaluation.statistics import wilson_interval
from scripts.harness import run_script, write_result

PROGRAM = Path(sys.executable).with_name("robot-runtime")
PER_SESSION = 10
"""Demonstrations of one capture."""
SIZE = ("96", "96")
FIRST_SEED = 10_000
"""Of the evaluations."""
Source = Literal["person", "expert"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train and evaluate policies from images; every finished step is kept in the folder."""

    tasks: Several[HouseholdTask] = ("wipe", "clear", "fetch", "drawer")
    sources: Several[Source] = ("person", "expert")
    labels: Several[Literal["base", "world", "relative"]] = ("base",)
    """Frames of the end effector's rows."""
    networks: Several[Literal["flow", "act", "diffusion"]] = ("flow",)
    masks: Several[str] = ("none",)
    """Regions that the encoder does not see, as for `train --mask`; none: it sees everything."""
    methods: Several[str] = ("default",)
    """Methods of running chunks, as for `eval --method`."""
    folder: OutputFolder = Path("outputs/capture-images")
    """Folder for captures, datasets, policies and results."""
    demonstrations: Count = 100
    """Demonstrations of each task."""
    steps: Steps = 8000
    batch_size: Count = 64
    episodes: Count = 100
    json: Maybe[KeptFile] = None
    """Write the figures to this file."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One policy and how it is run."""

    task: str
    source: Source
    labels: str
    network: str
    mask: str
    method: str

    @property
    def policy(self) -> str:
        """Name of its policy."""
        mask = "" if self.mask == "none" else "-masked-" + self.mask.translate(str.maketrans("=,", "--"))
        return f"{self.task}-{self.source}-{self.network}-{self.labels}{mask}"


def main(options: Options) -> int:
    rows = []
    for case in cases(options):
        dataset = {"person": person, "expert": expert}[case.source](case.task, options)
        trained(case, dataset, options)
        rows.append(evaluated(case, options))
        print(shown(rows[-1]), flush=True)
        if options.json is not None:
            seeds = range(FIRST_SEED, FIRST_SEED + options.episodes)
            write_result(options.json, {"version": 1, "rows": rows}, seeds=seeds)
    return 0


def cases(options: Options) -> Iterator[Case]:
    """Yield all combinations; the first task entirely before the next."""
    for task in options.tasks:
        for source in options.sources:
            for network in options.networks:
                for labels in options.labels:
                    for mask in options.masks:
                        first = Case(
                            task=task, source=source, labels=labels, network=network, mask=mask, method=""
                        )
                        yield from (replace(first, method=method) for method in options.methods)


def person(task: str, options: Options) -> Path:
    """Record and label a person's demonstrations with images; return the dataset."""
    captures = []
    for first in range(0, options.demonstrations, PER_SESSION):
        captures.append(options.folder / "captures" / f"{task}-{first}")
        num = min(PER_SESSION, options.demonstrations - first)
        once(
            captures[-1],
            *("capture", "sample", "--output", str(captures[-1]), "--task", task, "--images", *SIZE),
            *("--demonstrations", str(num), "--seed", str(first)),
        )
    dataset = options.folder / "datasets" / f"{task}-person"
    done = dataset.with_suffix(".done")
    if not done.exists():  # it extends a dataset that an interrupted one has begun
        run("capture", "label", *map(str, captures), "--output", str(dataset), "--task", task)
        done.touch()
    return dataset


def expert(task: str, options: Options) -> Path:
    """Record the scripted expert with images; return the dataset."""
    dataset = options.folder / "datasets" / f"{task}-expert"
    done = dataset.with_suffix(".done")
    if not done.exists():
        resume = ["--resume"] if dataset.exists() else []
        words = ("record", "--task", task, "--output", str(dataset), "--cameras", "chest", "wrist")
        run(*words, "--size", *SIZE, "--episodes", str(options.demonstrations), *resume)
        done.touch()
    return dataset


def trained(case: Case, dataset: Path, options: Options) -> None:
    """Train a case's policy."""
    output = options.folder / "policies" / case.policy
    more = ["--encoder", "small"] if case.network == "flow" else ["--network", case.network]
    more += [] if case.mask == "none" else ["--mask", case.mask]
    once(
        output,
        *("train", "--task", case.task, "--dataset", str(dataset), "--output", str(output), "--no-joints"),
        *("--labels", case.labels, "--steps", str(options.steps), "--batch-size", str(options.batch_size)),
        *more,
    )


def evaluated(case: Case, options: Options) -> Mapping[str, Any]:
    """Evaluate a case; return its row."""
    path = options.folder / "results" / f"{case.policy}-{case.method}-{options.episodes}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    once(
        path,
        *("eval", "--task", case.task, "--policy", str(options.folder / "policies" / case.policy)),
        *("--method", case.method, "--delay-ms", "300", "--episodes", str(options.episodes)),
        *("--first-seed", str(FIRST_SEED), "--json", str(path)),
    )
    found = json.loads(path.read_text())
    num = len(found["episodes"])
    successes = round(num * found["summary"]["success"])
    low, high = wilson_interval(successes, num)
    return {**vars(case), "episodes": num, "successes": successes, "interval": [low, high]}


def shown(row: Mapping[str, Any]) -> str:
    """Return a row in words."""
    low, high = row["interval"]
    share = row["successes"] / row["episodes"]
    return (
        f"{row['task']}, {row['source']}, {row['network']}, labels {row['labels']}, mask {row['mask']}, "
        f"{row['method']}: {share:.0%} ({low:.0%} to {high:.0%})"
    )


def once(result: Path, *words: str) -> None:
    """Run a command unless its result exists."""
    if not result.exists():
        run(*words)


def run(*words: str) -> None:
    """Run a command of robot-runtime; SystemExit: it failed."""
    print("$ robot-runtime", *words, flush=True)
    if code := subprocess.run([str(PROGRAM), *words], check=False).returncode:
        raise SystemExit(code)


if __name__ == "__main__":
    run_script(Options, main, description=__doc__)
