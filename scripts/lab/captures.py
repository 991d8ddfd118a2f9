"""Policies from captured demonstrations: how they are made and run; finished steps are kept.

source      expert      the scripted expert on the robot, with a plan from every state
            expert-hand the same, the network sees the hand and no joints: as all below
            truth       a person's demonstrations from the ground truth, without devices
            decoupled   the same by their capture's labels: hand and base apart, exact together
            chest       by its labels with the hand as the chest sees it, lean and sway in it
            world       by its labels in the world of its start, as odometry counts
network     flow        ours       act, diffusion    LeRobot's own
splice      naive, time-aligned, state-matching; for ours pipelined-prefix, its default, too

FOLDER/<task>/session-<seed>/capture      a session as devices have it
FOLDER/<task>/<source>.npz                samples          FOLDER/<task>/<network>-<source>      policies
              <source>-x1.5                       of a robot that takes 1.5 times as long as the person
FOLDER/results.jsonl                      a line for every cell that was run
"""

import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from policies.flow.dataset import Demonstration
from policies.flow.demonstrations import save_demonstrations
from robot_runtime.core.method.table import METHODS
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.evaluation.traces import constant
from robot_runtime.results import keep
from scripts.lab.cells import CONTROL_PERIOD_NS, Cell
from scripts.lab.household import SPLICES
from scripts.lab.policies import trained_policy
from sim.capture.loop import Session, labelled, learnable, truly_meant
from sim.capture.session import record_session
from sim.demonstrations.demonstrations import collect
from sim.episodes.evaluation import EvaluationConfig

Source = Literal["expert", "expert-hand", "truth", "decoupled", "chest", "world"]
Network = Literal["flow", "act", "diffusion"]
NETWORKS: tuple[Network, ...] = get_args(Network)
PER_SESSION = 11
"""Demonstrations of a session, between which the board is looked at again twice."""
_NPZ_OF: dict[Source, Source] = {"world": "decoupled", "expert-hand": "expert"}
"""Whose samples a source learns from: rows in the world are made of those in the base, joints left out."""


@dataclass(frozen=True, kw_only=True)
class CapturePlan:
    """Selection of what is compared."""

    folder: Path
    demonstrations: int = 50
    """Each policy learns from."""
    episodes: int = 50
    """Of a cell."""
    delay_ms: float = 300.0
    slower: float = 1.0
    """How many times as long as the person the robot takes."""
    steps: int = 4000
    batch_size: int = 128
    width: int = 96
    """Of the networks."""
    seed: int = 0

    def sessions(self) -> list[range]:
        """Seeds of each session; another person gives each. Some demonstrations fail, so there are more."""
        wanted = self.demonstrations + math.ceil(self.demonstrations / 10)
        size = min(PER_SESSION, wanted)
        return [range(100 * i, 100 * i + size) for i in range(math.ceil(wanted / size))]

    def named(self, source: Source) -> str:
        """With how many times as long the robot takes; the expert is a robot itself."""
        return source if self.slower == 1.0 or source.startswith("expert") else f"{source}-x{self.slower:g}"

    def npz(self, task: str, source: Source) -> Path:
        return self.folder / task / f"{self.named(_NPZ_OF.get(source, source))}.npz"

    def policy(self, task: str, network: Network, source: Source) -> Path:
        return self.folder / task / f"{network}-{self.named(source)}"

    def command(self, task: str, network: Network, source: Source) -> list[str]:
        """What trains a policy."""
        joints = [] if source == "expert" else ["--no-joints"]
        return [
            *("robot-runtime", "train", "--task", task, "--network", network, *joints),
            *("--labels", "world" if source == "world" else "base"),
            *("--demonstrations", str(self.npz(task, source))),
            *("--steps", str(self.steps), "--batch-size", str(self.batch_size)),
            *("--width", str(self.width), "--seed", str(self.seed)),
            *("--output", str(self.policy(task, network, source))),
        ]

    def cell(self, task: str, network: Network, source: Source, splice: str) -> Cell:
        """A way of running a policy that is there."""
        folder = self.policy(task, network, source)
        config = EvaluationConfig(
            policy=str(folder),
            task=task,
            method=METHODS[splice],
            trace=constant(self.delay_ms),
            episodes=self.episodes,
            control_period_ns=CONTROL_PERIOD_NS,
        )
        policy = trained_policy(f"{network}-{self.named(source)}", self.seed, str(folder), folder)
        return Cell(method_name=f"{network} {self.named(source)} {splice}", policy=policy, config=config)


def splices_of(network: Network, wanted: Sequence[str]) -> list[str]:
    """Those of the wanted that a network can be run with: LeRobot's know no rows that are under way."""
    if unknown := sorted(set(wanted) - set(SPLICES)):
        raise InvalidValueError(f"splices are {', '.join(SPLICES)}; got {', '.join(unknown)}")
    return [splice for splice in wanted if network == "flow" or splice != "pipelined-prefix"]


def make_samples(plan: CapturePlan, task: str, source: Source, say: Callable[[str], None]) -> None:
    """Write the samples of a source, unless they are there."""
    path = plan.npz(task, source)
    if path.is_file():
        return
    samples: Sequence[Demonstration]
    if source.startswith("expert"):
        samples = collect(task, num_episodes=plan.demonstrations, seed=plan.seed)
    elif source == "truth":
        seeds = [seed for session in plan.sessions() for seed in session]
        samples = truly_meant(task, seeds, most=plan.demonstrations, seed=plan.seed, slower=plan.slower)
    else:
        kind: Literal["chest", "decoupled"] = "chest" if source == "chest" else "decoupled"
        sessions = list(_sessions(plan, task, say))
        samples, why = learnable(sessions, kind=kind, most=plan.demonstrations, seed=plan.seed)
        for line in why:
            say(f"{task}: left out, {line}")
    keep(path, lambda to: save_demonstrations(to, samples))
    say(f"{task}: {len(samples)} samples by {source}")


def _sessions(plan: CapturePlan, task: str, say: Callable[[str], None]) -> Iterator[Session]:
    for seeds in plan.sessions():
        folder = plan.folder / task / f"session-{seeds[0]}"
        if not (folder / "done").is_file():
            _remove(folder)
            record_session(task, seeds, folder)
            (folder / "done").touch()
        try:
            session = labelled(task, folder, slower=plan.slower)
        except InvalidValueError as error:
            say(f"{task}: session {seeds[0]} is left out, {error}")
            continue
        say(f"{task}: session {seeds[0]}, {len(session.labels)} demonstrations labelled")
        yield session


def _remove(folder: Path) -> None:
    """What an interrupted run has left."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def train_policy(plan: CapturePlan, task: str, network: Network, source: Source) -> None:
    """Train a policy in a process of its own, unless it is there. RobotRuntimeError: that failed."""
    folder = plan.policy(task, network, source)
    if (folder / "config.json").is_file():
        return
    command = plan.command(task, network, source)
    run = [sys.executable, "-m", "robot_runtime.cli", *command[1:]]
    result = subprocess.run(run, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RobotRuntimeError(f"`{' '.join(command)}` failed: {result.stderr.strip()[-500:]}")


def shorter(plan: CapturePlan) -> CapturePlan:
    """The same in a few minutes, to see that it runs: its figures say nothing."""
    return replace(plan, demonstrations=3, episodes=2, steps=30, width=32)
