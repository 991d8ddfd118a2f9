"""`robot-runtime train`: collect demonstrations in simulation and train a flow policy on them."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from policies.flow.train import Demonstration, TrainConfig

EPISODES = MappingProxyType({"track": 400, "pick_place": 400})
"""Demonstrations per task behind the shipped checkpoints."""


@dataclass(frozen=True, kw_only=True)
class TrainArgs:
    """Train a policy. The defaults are those of the shipped checkpoints."""

    task: tuple[Literal["track", "pick_place"], ...]
    """What to learn; several tasks share one network if their scene states have the same size."""
    output: Path
    """Folder of the checkpoint; its last part becomes the policy's name."""
    seed: int = 0
    """Of demonstrations, initial weights and everything drawn in training."""
    episodes: int | None = None
    """Demonstrated episodes per task; None takes the shipped checkpoints' number."""
    steps: int | None = None
    """Gradient steps; None takes the default of the training code, as do the next two."""
    batch_size: int | None = None
    """Samples per step."""
    learning_rate: float | None = None
    """Peak learning rate."""
    workers: int = 1
    """Processes that collect demonstrations."""
    threads: int = 1
    """Threads that train; another number rounds differently and gives slightly different weights."""
    demonstrations: Path | None = None
    """An .npz file to take the demonstrations from, or to keep them in if it is not there yet."""
    json: Path | None = None
    """Where to write what was done, as JSON."""


def main(args: TrainArgs) -> Path:
    """Run the command; returns the checkpoint's folder."""
    import torch

    from policies.flow.train import train
    from sim.experts import ACTION_SPEC
    from sim.tasks import make_task

    torch.set_num_threads(args.threads)
    console = Console()
    t_start = time.perf_counter()
    with _progress(console) as progress:
        demonstrations = _demonstrations(args, progress)
        t_collected = time.perf_counter()
        config = _config(args)
        bar = progress.add_task("train", total=config.steps, note="")
        folder = train(
            demonstrations,
            config,
            schema=make_task(args.task[0]).schema,
            action_spec=ACTION_SPEC,
            folder=args.output,
            notes={"tasks": ", ".join(args.task), "episodes_per_task": _episodes(args)},
            on_step=lambda step, loss: progress.update(bar, completed=step, note=f"loss {loss:.4f}"),
        )
    report = {
        "checkpoint": str(folder),
        "demonstrations": len(demonstrations),
        "collect_s": round(t_collected - t_start, 1),
        "train_s": round(time.perf_counter() - t_collected, 1),
        **json.loads((folder / "config.json").read_text())["training"],
    }
    if args.json is not None:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    console.print(
        f"{folder}: {config.steps} steps on {len(demonstrations)} samples in {report['train_s']} s, "
        f"loss {report['final_loss']}"
    )
    return folder


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=console,
    )


def _episodes(args: TrainArgs) -> str:
    return ", ".join(str(args.episodes or EPISODES[task]) for task in args.task)


def _config(args: TrainArgs) -> "TrainConfig":
    from policies.flow.train import TrainConfig

    names = ("steps", "batch_size", "learning_rate")
    changes = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return replace(TrainConfig(seed=args.seed), **changes)


def _demonstrations(args: TrainArgs, progress: Progress) -> "Sequence[Demonstration]":
    """From the file if it exists, else collected, and kept in the file if one is named."""
    from policies.flow.demonstrations import load_demonstrations, save_demonstrations
    from sim.demonstrations import collect

    if args.demonstrations is not None and args.demonstrations.exists():
        return load_demonstrations(args.demonstrations)
    demonstrations: list[Demonstration] = []
    for task in args.task:
        num_episodes = args.episodes or EPISODES[task]
        demonstrations += collect(
            task, num_episodes=num_episodes, seed=args.seed, num_workers=args.workers, progress=progress
        )
    if args.demonstrations is not None:
        save_demonstrations(args.demonstrations, demonstrations)
    return demonstrations
