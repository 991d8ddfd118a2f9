"""Demonstrations as tensors, from which all recipes draw their batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float
from msgspec import structs
from torch import Tensor

from policies.flow.features import (
    FeatureConfig,
    Normaliser,
    state_features,
    turns_in_features,
    turns_in_rows,
)
from policies.flow.recipes import Offset, Plain, Recipe, Residual, refuse_beyond_chunk
from robot_runtime.core.plan.predict import HandPose, hand_pose_of
from robot_runtime.core.values.action import (
    ActionSpec,
    GripperFraction,
    GripperWidth,
    JointPosition,
    Reference,
)
from robot_runtime.core.values.row_statistics import row_origin
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import ArmState, GripperState, Observation, PartState, RobotState
from robot_runtime.errors import InvalidValueError

HandPoses = HandPose | Mapping[str, HandPose]
"""Forward kinematics, joints (N,) [rad] to X_BE: of the part "arm", or of each arm by name."""


class Demonstration(Protocol):
    """One training sample: an observation, and what the demonstrator did from then on."""

    @property
    def observation(self) -> Observation: ...

    @property
    def rows(self) -> Float[np.ndarray, "H D"]:
        """Rows in the action spec's columns; row 0 is due at the observation."""
        ...

    @property
    def num_committed(self) -> int:
        """First rows that were given, not chosen: those of an older plan, which run in any case."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Statistics:
    """Normalisers of states and rows, and the order of tasks; fine-tuning keeps those of the policy."""

    features: Normaliser
    """(F,)"""
    rows: Normaliser
    """(H, D)"""
    tasks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Demonstrations as tensors."""

    features: Tensor
    """(N, F) normalised."""
    tasks: Tensor
    """(N,) indices into the statistics' tasks."""
    rows: Tensor
    """(N, H, D) relative and normalised."""
    num_committed: Tensor
    """(N,) rows that were given."""
    statistics: Statistics
    robot_dim: int
    """Number R of leading features that describe the robot; the rest is the scene."""
    future_robot: Tensor
    """(N, K + 1, R) normalised: the robot's features 0 to K rows later if it follows the rows; K is 0 except
    for the recipe Offset."""
    future_shift: Tensor
    """(N, K + 1, D) [rad, m]: displacement of a row's origin by then."""


def make_dataset(
    demonstrations: Sequence[Demonstration],
    schema: Schema,
    spec: ActionSpec,
    config: FeatureConfig,
    *,
    statistics: Statistics | None = None,
    recipe: Recipe | None = None,
    hand_pose: HandPoses | None = None,
) -> Dataset:
    """The demonstrations a recipe can use, with robot states rolled forward if it is `Offset`.

    statistics: of the policy to start from; None takes those of all demonstrations.
    hand_pose: needed to roll forward if the features include the end-effector pose.
    InvalidValueError: a demonstration does not fit schema or spec, has another task, or none is left.
    """
    if not demonstrations:
        raise InvalidValueError("training needs at least one demonstration, got none")
    features = np.array([_shown(i, d, schema, config) for i, d in enumerate(demonstrations)])
    rows = _relative_rows(demonstrations, spec)
    texts = tuple(sorted({d.observation.task for d in demonstrations}))
    if statistics is None:
        statistics = Statistics(
            features=Normaliser.fit(features, turns=turns_in_features(schema, config)),
            rows=Normaliser.fit(rows, turns=turns_in_rows(spec)),
            tasks=texts,
        )
    if not set(texts) <= set(statistics.tasks):
        raise InvalidValueError(
            f"the policy to start from knows {statistics.tasks}, demonstrations are of {texts}"
        )
    if features.shape[1] != (expected := len(statistics.features.mean)):
        raise InvalidValueError(
            f"the policy to start from takes {expected} numbers, demonstrations have {features.shape[1]}"
        )
    kept = np.flatnonzero([is_usable(d.num_committed, recipe) for d in demonstrations])
    if not len(kept):
        raise InvalidValueError(f"none of {len(demonstrations)} demonstrations fits the recipe {recipe}")
    chosen = [demonstrations[i] for i in kept]
    robot_dim = features.shape[1] - schema.environment_state_dim
    normal = torch.tensor(statistics.features.features(features[kept]), dtype=torch.float32)
    future_robot, future_shift = normal[:, None, :robot_dim], torch.zeros(len(kept), 1, spec.dim)
    if isinstance(recipe, Offset):
        later, shifts = _futures(chosen, schema, spec, config, recipe, hand_pose)
        steps = [statistics.features.features(f) for f in later.swapaxes(0, 1)]
        future_robot = torch.tensor(np.stack(steps, axis=1)[..., :robot_dim], dtype=torch.float32)
        future_shift = torch.tensor(shifts, dtype=torch.float32)
    return Dataset(
        features=normal,
        tasks=torch.tensor([statistics.tasks.index(d.observation.task) for d in chosen]),
        rows=torch.tensor(statistics.rows.normalise(rows[kept]), dtype=torch.float32),
        num_committed=torch.tensor([d.num_committed for d in chosen]),
        statistics=statistics,
        robot_dim=robot_dim,
        future_robot=future_robot,
        future_shift=future_shift,
    )


def _shown(
    number: int, demonstration: Demonstration, schema: Schema, config: FeatureConfig
) -> Float[np.ndarray, " F"]:
    try:
        return state_features(demonstration.observation, schema, config)
    except ValueError as error:
        raise InvalidValueError(f"demonstration {number} cannot be learned from: {error}") from error


def _relative_rows(demonstrations: Sequence[Demonstration], spec: ActionSpec) -> Float[np.ndarray, "n H D"]:
    """Rows relative to the origin of their own observation."""
    rows = np.empty((len(demonstrations), spec.horizon, spec.dim))
    for i, d in enumerate(demonstrations):
        if d.rows.shape != rows.shape[1:] or not np.isfinite(d.rows).all():
            raise InvalidValueError(
                f"demonstration {i} needs {rows.shape[1:]} finite rows, got shape {d.rows.shape}"
            )
        rows[i] = d.rows - row_origin(spec, d.observation.state)
    return rows


def is_usable(num_committed: int, recipe: Recipe | None) -> bool:
    """Whether a recipe can use a demonstration whose first rows were given.

    Plain and Residual cannot mark them as given. Offset starts a chunk at the last given row, where the robot
    is certain to be, so it accepts one row more than its longest offset.
    """
    match recipe:
        case None:
            return True
        case Plain() | Residual():
            return num_committed == 0
        case Offset(max_delay=rows):
            return num_committed <= rows + 1
        case _:
            return num_committed <= recipe.max_delay


def roll_forward(
    state: RobotState,
    rows: Float[np.ndarray, "H D"],
    spec: ActionSpec,
    *,
    num_rows: int,
    tracking_lag_s: float,
    hand_pose: HandPoses | None,
) -> list[RobotState]:
    """The states of a robot that follows the rows, 0 (measured), 1, ... `num_rows` rows later.

    Between two rows the setpoint r moves evenly, r' = m, and the joints follow it by lag q' = r - q:

        q(dt) = r(dt) - m lag + (q(0) - r(0) + m lag) exp(-dt / lag)

    Without lag q is r, and q' is m of the interval that has just ended. Grippers are at their commanded
    width; parts that the rows do not move keep their state.
    ValueError: the rows command an arm by anything but absolute joint positions.
    """
    joints = [(f, c) for f, c in spec.columns() if isinstance(f, JointPosition)]
    others = [
        f.part for f in spec.fields if not isinstance(f, JointPosition | GripperWidth | GripperFraction)
    ]
    if not joints or others or any(f.reference is not Reference.ABSOLUTE for f, _ in joints):
        raise InvalidValueError("rolling a state forward needs rows of absolute joint positions")
    dt_s, out = spec.dt_s, [state]
    for k in range(1, num_rows + 1):
        parts: dict[str, PartState] = {}
        for f, columns in joints:
            r, before = np.asarray(rows[k - 1 : k + 1, columns], float), out[-1].arm(f.part)
            q, dq = _followed(r, before.q, dt_s, tracking_lag_s)
            pose = hand_pose_of(hand_pose, f.part)
            parts[f.part] = ArmState(q=q, dq=dq, X_BE=None if pose is None else pose(q))
        for moved, columns in spec.columns():
            if isinstance(moved, GripperWidth | GripperFraction):
                number = float(rows[k, columns][0])
                width = moved.width(number) if isinstance(moved, GripperFraction) else number
                parts[moved.part] = GripperState(width=float(width))
        out.append(state.with_parts(parts, t_ns=state.t_ns + k * spec.dt_ns))
    return out


def _followed(
    r: Float[np.ndarray, "2 N"], q: Float[np.ndarray, " N"], dt_s: float, tracking_lag_s: float
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Joints and their velocities a row later, while the setpoint moves from r[0] to r[1]."""
    m = (r[1] - r[0]) / dt_s
    if tracking_lag_s <= 0.0:
        return r[1], m
    late = m * tracking_lag_s
    q = r[1] - late + (q - r[0] + late) * np.exp(-dt_s / tracking_lag_s)
    return q, (r[1] - q) / tracking_lag_s


def _futures(
    demonstrations: Sequence[Demonstration],
    schema: Schema,
    spec: ActionSpec,
    config: FeatureConfig,
    recipe: Offset,
    hand_pose: HandPoses | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Features (N, K + 1, F) of later states in the old scene, and shifts (N, K + 1, D) of their origins."""
    refuse_beyond_chunk(recipe, spec.horizon)
    hands = [name for name, arm in schema.arms.items() if arm.has_hand and config.use_hand_pose]
    if any(hand_pose_of(hand_pose, name) is None for name in hands):
        raise InvalidValueError(
            f"the recipe Offset needs hand_pose, joints to X_BE, to roll {' and '.join(hands)} forward"
        )
    features, shifts = [], []
    for d in demonstrations:
        origin = row_origin(spec, d.observation.state)
        states = roll_forward(
            d.observation.state,
            d.rows,
            spec,
            num_rows=recipe.max_delay,
            tracking_lag_s=recipe.tracking_lag_s,
            hand_pose=hand_pose,
        )
        seen = [structs.replace(d.observation, state=state) for state in states]
        features.append([state_features(observation, schema, config) for observation in seen])
        shifts.append([row_origin(spec, state) - origin for state in states])
    return np.array(features), np.array(shifts)
