"""`robot-runtime train`: collect demonstrations in simulation and train a flow policy on them."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from policies.flow.train import Demonstration, TrainConfig

EPISODES = MappingProxyType({"track": 400, "pick_place": 800, "strike": 1600, "conveyor": 800})
"""Demonstrations per task behind the shipped checkpoints."""


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a policy. The defaults are those of the shipped checkpoints."""

    task: tuple[Literal["track", "pick_place", "strike", "conveyor"], ...]
    """What to learn; tasks can share one network if their scene states have the same size."""
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

    def main(self) -> int:
        import torch

        from policies.flow.train import train
        from sim.experts import ACTION_SPEC
        from sim.tasks import make_task

        torch.set_num_threads(self.threads)
        t_start = time.perf_counter()
        with _progress() as progress:
            demonstrations = self._demonstrations(progress)
            collect_s = time.perf_counter() - t_start
            config = self._config()
            bar = progress.add_task("train", total=config.steps, note="")
            train(
                demonstrations,
                config,
                schema=make_task(self.task[0]).schema,
                action_spec=ACTION_SPEC,
                folder=self.output,
                notes={"tasks": ", ".join(self.task)},
                on_step=lambda step, loss: progress.update(bar, completed=step, note=f"loss {loss:.4f}"),
            )
        train_s = time.perf_counter() - t_start - collect_s
        print(f"{self.output}: {config.steps} steps on {len(demonstrations)} samples in {train_s:.0f} s")
        if self.json is not None:
            training = json.loads((self.output / "config.json").read_text())["training"]
            report = {"checkpoint": str(self.output), "collect_s": collect_s, "train_s": train_s, **training}
            self.json.write_text(json.dumps(report, indent=2) + "\n")
        return 0

    def _config(self) -> "TrainConfig":
        from policies.flow.train import TrainConfig

        names = ("steps", "batch_size", "learning_rate")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(TrainConfig(seed=self.seed), **given)

    def _demonstrations(self, progress: Progress) -> "Sequence[Demonstration]":
        """From the file if it exists, else collected, and kept in the file if one is named."""
        from policies.flow.demonstrations import load_demonstrations, save_demonstrations
        from sim.demonstrations import collect

        if self.demonstrations is not None and self.demonstrations.exists():
            return load_demonstrations(self.demonstrations)
        out: list[Demonstration] = []
        for task in self.task:
            bar = progress.add_task(f"demonstrate {task}", note="")
            out += collect(
                task,
                num_episodes=self.episodes or EPISODES[task],
                seed=self.seed,
                num_workers=self.workers,
                progress=_advance(progress, bar),
            )
        if self.demonstrations is not None:
            save_demonstrations(self.demonstrations, out)
        return out


def _advance(progress: Progress, bar: TaskID) -> Callable[[int, int], None]:
    """What moves a bar when called with (done, in all)."""
    return lambda done, total: progress.update(bar, completed=done, total=total)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
