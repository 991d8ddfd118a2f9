"""The comparison of Mobile UMI in simulation: how the hand is told, by which policy, spliced how, how late.

    labels     base    the base from where it is, the hand in it        world    both in odometry's world
    network    flow    ours        act, diffusion    LeRobot's own
    splice     naive, time-aligned, state-matching; for ours also the default method, its rows under way given

A policy is `<checkpoints>/<task>/<network>-<labels>-<training seed>`, and the shipped one of the task counts
as flow-base-0; all of a task learn from the same demonstrations.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from policies.shipped import find_checkpoint, shipped_checkpoints
from robot_runtime.core.method import METHODS
from sim.evaluation import EvaluationConfig
from sim.lab import CONTROL_PERIOD_NS, Cell
from sim.lab_policies import TrainedPolicy, trained_policy
from sim.traces import LatencyTrace

Labels = Literal["base", "world"]
Network = Literal["flow", "act", "diffusion"]
LABELS, NETWORKS = get_args(Labels), get_args(Network)
SHIPPED_MOBILE = "flow-base-0"
"""What the shipped policies count as."""
SPLICES = ("naive", "time-aligned", "state-matching", "pipelined-prefix")


@dataclass(frozen=True, kw_only=True)
class MissingMobilePolicy:
    """A checkpoint that somebody has to train first; fits `sim.lab_training.Trainable`."""

    task: str
    network: Network
    labels: Labels
    training_seed: int
    folder: Path
    can_train: bool = True
    """It goes on from no other."""

    @property
    def command(self) -> tuple[str, ...]:
        """The command that makes it."""
        demonstrations = self.folder.parent / "demonstrations.npz"
        return (
            *("robot-runtime", "train", "--task", self.task, "--network", self.network),
            *("--labels", self.labels, "--seed", str(self.training_seed)),
            *("--demonstrations", str(demonstrations), "--output", str(self.folder)),
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
