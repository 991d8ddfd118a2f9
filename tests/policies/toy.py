"""A toy task with two equally good ways, and small networks for it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pinocchio as pin

from policies.flow.checkpoint import Checkpoint
from policies.flow.recipes import Prefix, Recipe
from policies.flow.train import TrainConfig, train
from robot_runtime.core.method.sampler_parts import ClampedPrefix, ConstantSchedule, SamplerPart
from robot_runtime.core.policy import ChunkRequest, Policy
from robot_runtime.core.values.action import ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Observation, RobotState

SPEC = ActionSpec(fields=(JointPosition(7), GripperWidth()), horizon=8, dt_ns=50_000_000)
SCHEMA = Schema(
    action_fields=SPEC.fields, num_joints=7, has_gripper=True, has_base=False, environment_state_dim=2
)
TASK = "pass the post on either side"
BOW_RAD = 0.5


@dataclass(frozen=True)
class Sample:
    observation: Observation
    rows: np.ndarray
    num_committed: int = 0


def make_observation(seed: int, *, task: str = TASK) -> Observation:
    rng = np.random.default_rng(seed)
    state = RobotState(
        t_ns=seed, q=rng.normal(size=7), dq=np.zeros(7), X_BE=pin.SE3.Identity(), gripper_width=0.04
    )
    return Observation(state=state, environment_state=rng.normal(size=2), task=task)


def rows_past(observation: Observation, side: int) -> np.ndarray:
    """The right answer: joint 0 bows out to the side, -1 or 1, the others stay."""
    s = np.linspace(0.0, 1.0, SPEC.horizon)
    q = np.tile(observation.state.q, (SPEC.horizon, 1))
    q[:, 0] += side * BOW_RAD * np.sin(np.pi * s / 2)
    return np.column_stack([q, np.full(SPEC.horizon, 0.08)])


def side_of(rows: np.ndarray, observation: Observation) -> float:
    """Bow of the last row: near -1 or 1 for a right answer, near 0 for an average of the two."""
    return float((rows[-1, 0] - observation.state.q[0]) / BOW_RAD)


def train_toy(
    folder: Path,
    *,
    steps: int,
    seed: int = 0,
    recipe: Recipe | None = None,
    init: Checkpoint | None = None,
) -> Path:
    observations = [make_observation(1000 + i) for i in range(500)]
    samples = [Sample(o, rows_past(o, side)) for o in observations for side in (-1, 1)]
    config = TrainConfig(
        seed=seed, steps=steps, batch_size=64, learning_rate=3e-3, warmup_steps=20, ema_decay=0.98,
        recipe=recipe or Prefix(max_delay=4), width=32, num_layers=2, num_heads=2, bfloat16=False,
    )  # fmt: skip
    return train(
        samples, config, schema=SCHEMA, action_spec=SPEC, folder=folder, init=init,
        hand_pose=lambda q: pin.SE3.Identity(),
    )  # fmt: skip


def infer(
    policy: Policy,
    observation: Observation,
    *,
    seed: int = 0,
    prefix: np.ndarray | None = None,
    sampler: SamplerPart | None = None,
) -> np.ndarray:
    """All rows of an answer in which the rows of `prefix` are committed."""
    request = ChunkRequest(
        observation=observation,
        prev_action_chunk=prefix,
        inference_delay=0 if prefix is None else len(prefix),
        sampler=sampler or (ConstantSchedule() if prefix is None else ClampedPrefix()),
        seed=seed,
    )
    return np.concatenate(list(policy.infer(request)))
