"""The comparison of Mobile UMI in simulation: how the hand is told, by which policy, spliced how, how late.

    labels     base    the base from where it is, the hand in it        world    both in odometry's world
    network    flow    ours        act, diffusion    LeRobot's own
    splice     naive, time-aligned, state-matching; for ours also the default method, its rows under way given

A policy is `<checkpoints>/<task>/<network>-<labels>-<training seed>`, and the shipped one of the task counts
as flow-base-0; all of a task learn from the same demonstrations.
"""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from policies.shipped import find_checkpoint, shipped_checkpoints
from robot_runtime.core.method import DEFAULT_METHOD, METHODS
from sim.evaluation import EvaluationConfig
from sim.lab import CONTROL_PERIOD_NS, Cell
from sim.lab_policies import PREFIX, SHIPPED, TrainedPolicy, trained_policy
from sim.traces import LatencyTrace

Labels = Literal["base", "world"]
Network = Literal["flow", "act", "diffusion"]
LABELS, NETWORKS = get_args(Labels), get_args(Network)
SHIPPED_MOBILE = "flow-base-0"
"""What the shipped policies count as."""
SPLICES = ("naive", "time-aligned", "state-matching", DEFAULT_METHOD)


@dataclass(frozen=True, kw_only=True)
class MissingMobilePolicy:
    """A checkpoint that somebody has to train first; fits `sim.lab_training.Trainable`.

    Ours is trained as the shipped ones are: with prefixes, then on with the default recipe.
    """

    task: str
    network: Network
    labels: Labels
    training_seed: int
    folder: Path
    recipe: str = ""
    """Of ours."""

    @property
    def to_train(self) -> "tuple[MissingMobilePolicy, ...]":
        """Itself, after the one it goes on from if that is missing too."""
        if self.can_train:
            return (self,)
        return replace(self, recipe=PREFIX, folder=self._start), self

    @property
    def can_train(self) -> bool:
        """Whether the policy that it goes on from is there, or it goes on from none."""
        return self.recipe != SHIPPED or self._start.is_dir()

    @property
    def _start(self) -> Path:
        return self.folder.with_name(f"{PREFIX}-{self.labels}-{self.training_seed}")

    @property
    def command(self) -> tuple[str, ...]:
        """The command that makes it."""
        kind = ["--recipe", self.recipe] if self.recipe else ["--network", self.network]
        if self.recipe == SHIPPED:
            kind += ["--init", str(self._start)]
        demonstrations = self.folder.parent / "demonstrations.npz"
        return (
            *("robot-runtime", "train", "--task", self.task, *kind, "--labels", self.labels),
            *("--seed", str(self.training_seed), "--demonstrations", str(demonstrations)),
            *("--output", str(self.folder)),
        )

    def __str__(self) -> str:
        return shlex.join(self.command)


def find_mobile_policy(
    checkpoints: Path, task: str, network: Network, labels: Labels, training_seed: int
) -> TrainedPolicy | MissingMobilePolicy:
    """The checkpoint in its folder, the shipped one of the task, or what is to be done for it."""
    folder = checkpoints / task / f"{network}-{labels}-{training_seed}"
    kind = f"{network}-{labels}"
    if folder.is_dir():
        return trained_policy(kind, training_seed, str(folder), folder)
    if folder.name == SHIPPED_MOBILE and task in shipped_checkpoints():
        return trained_policy(kind, training_seed, task, find_checkpoint(task))
    return MissingMobilePolicy(
        task=task,
        network=network,
        labels=labels,
        training_seed=training_seed,
        folder=folder,
        recipe=SHIPPED if network == "flow" else "",
    )


def splices_of(network: Network) -> tuple[str, ...]:
    """Those that a network can be run with: only ours knows committed rows."""
    return SPLICES if network == "flow" else SPLICES[:-1]


def mobile_cells(
    policy: TrainedPolicy,
    task: str,
    splices: tuple[str, ...],
    traces: tuple[LatencyTrace, ...],
    episodes: int,
) -> list[Cell]:
    """A policy's cells; a method is called `<network> <labels> <splice>`."""
    kind = policy.recipe.replace("-", " ")
    return [
        Cell(
            method_name=f"{kind} {splice}",
            policy=policy,
            config=EvaluationConfig(
                policy=policy.name_or_path,
                task=task,
                method=METHODS[splice],
                trace=trace,
                episodes=episodes,
                control_period_ns=CONTROL_PERIOD_NS,
            ),
        )
        for splice in splices
        for trace in traces
    ]
