"""The comparison of Mobile UMI in simulation: by labels, policy, splice and delay.

    labels     base    the base from where it is, the hand in it        world    both in odometry's world
    network    shipped    ours as it is shipped        seeing    the same from pictures alone
               flow    ours        act, diffusion    LeRobot's own
    splice     naive, time-aligned, state-matching; for ours also the default method, its rows under way given
               state-matching-faded, state-matching-untimed, pipelined-prefix-4    only where they are named

A policy is `<checkpoints>/<task>/<network>-<labels>-<training seed>`, and the shipped ones of the task count
as shipped-base-0 and seeing-base-0. Flow, act and diffusion, in base and world, learn from the same
demonstrations in as many steps, and so show the effect of network and labels; the shipped ones have learned
from others, as their cards state, and show what a user gets.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

from policies.shipped import find_checkpoint, shipped_checkpoints
from robot_runtime.core.method.request_parts import PlainObservation
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.method.splice_parts import CrossFade, StateMatched
from robot_runtime.core.method.table import METHODS, Method, method_named
from robot_runtime.evaluation.traces import LatencyTrace
from scripts.lab.cells import CONTROL_PERIOD_NS, Cell
from scripts.lab.policies import TrainedPolicy, trained_policy
from sim.episodes.evaluation import EvaluationConfig
from sim.experts.motion import HORIZON

Labels = Literal["base", "world"]
Network = Literal["shipped", "seeing", "flow", "act", "diffusion"]
LABELS, NETWORKS = get_args(Labels), get_args(Network)
SHIPPED_MOBILE, SHIPPED_SEEING, SEEING_SUFFIX = "shipped-base-0", "seeing-base-0", "-seeing"
"""What the shipped policies `<task>` and `<task>-seeing` count as."""
SEEING_EPISODES = 250
"""Recorded for each policy that sees, the failed ones included."""
SPLICES = ("naive", "time-aligned", "state-matching", "pipelined-prefix")
VARIANTS = MappingProxyType(
    {
        "state-matching-faded": Method(
            request=PlainObservation(),
            sampler=ConstantSchedule(),
            splice=StateMatched(),
            blend=CrossFade(duration_s=0.2),
        ),
        "state-matching-untimed": Method(
            request=PlainObservation(),
            sampler=ConstantSchedule(),
            splice=StateMatched(window_rows=HORIZON, time_weight=0.0),
        ),
        "pipelined-prefix-4": method_named("pipelined-prefix", execution_horizon=4),
    }
)
"""Variants of state matching: faded into the new plan in 0.2 s; without regard to what is due by time.
Variant of the default method: asked every 4 rows at any latency, as the shipped policies require."""


@dataclass(frozen=True, kw_only=True)
class MissingMobilePolicy:
    """Checkpoint that must be trained first; fits `scripts.lab.training.Trainable`."""

    task: str
    network: Network
    labels: Labels
    training_seed: int
    folder: Path

    @property
    def can_train(self) -> bool:
        """Whether it can be trained: it needs no other policy, but a vision policy needs recorded images."""
        return self.network != "seeing" or self._dataset.is_dir()

    @property
    def command(self) -> tuple[str, ...]:
        """The command that makes it."""
        demonstrations = str(self.folder.parent / "demonstrations.npz")
        state_based = ("--network", self.network, "--labels", self.labels, "--demonstrations", demonstrations)
        seen = ("--dataset", str(self._dataset), "--init", self.task)
        return (
            *("robot-runtime", "train", "--task", self.task, "--seed", str(self.training_seed)),
            *(seen if self.network == "seeing" else state_based),
            *("--output", str(self.folder)),
        )

    @property
    def _dataset(self) -> Path:
        return self.folder.parent / "dataset"

    def __str__(self) -> str:
        if self.can_train:
            return shlex.join(self.command)
        record = ("robot-runtime", "record", "--task", self.task, "--episodes", str(SEEING_EPISODES))
        return f"{shlex.join((*record, '--output', str(self._dataset)))} && {shlex.join(self.command)}"


def can_exist(network: Network, labels: Labels, training_seed: int) -> bool:
    """Return whether such a policy is shipped or trained: shipped and vision policies have labels in the
    base, and each task has one shipped policy."""
    match network:
        case "shipped":
            return (labels, training_seed) == ("base", 0)
        case "seeing":
            return labels == "base"
        case _:
            return True


def find_mobile_policy(
    checkpoints: Path, task: str, network: Network, labels: Labels, training_seed: int
) -> TrainedPolicy | MissingMobilePolicy:
    """The checkpoint in its folder, the shipped one of the task, or what is to be done for it."""
    folder = checkpoints / task / f"{network}-{labels}-{training_seed}"
    kind = f"{network}-{labels}"
    if folder.is_dir():
        return trained_policy(kind, training_seed, str(folder), folder)
    shipped = {SHIPPED_MOBILE: task, SHIPPED_SEEING: task + SEEING_SUFFIX}.get(folder.name)
    if shipped in shipped_checkpoints():
        return trained_policy(kind, training_seed, shipped, find_checkpoint(shipped))
    return MissingMobilePolicy(
        task=task,
        network=network,
        labels=labels,
        training_seed=training_seed,
        folder=folder,
    )


def splices_of(network: Network) -> tuple[str, ...]:
    """Those that a network is run with: only ours know committed rows."""
    return SPLICES[:-1] if network in ("act", "diffusion") else SPLICES


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
                method={**METHODS, **VARIANTS}[splice],
                trace=trace,
                episodes=episodes,
                control_period_ns=CONTROL_PERIOD_NS,
            ),
        )
        for splice in splices
        for trace in traces
    ]
