"""Inputs and outputs of the network: state features and normalised rows.

    robot columns  --- minus where it is measured --->  relative rows  --- (x - mean) / std --->  network
    [rad, m]       <----------- plus that ------------                 <--- mean + std x ------

Absolute columns are relative to the joints, the base and the end-effector position measured at the
observation, so a chunk starts near zero wherever the robot is, which is far better conditioned. Statistics
are per row and column, because row 0 hardly differs from the measured joints and row H-1 differs most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.action import ActionSpec, EndEffectorPose, WorldEndEffectorPose
from robot_runtime.core.values.row_statistics import measured_hand, p_WE, world_base
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import (
    ARM,
    BASE,
    ArmState,
    GripperState,
    Observation,
    RobotState,
    readonly,
)
from robot_runtime.core.values.transforms import rotation_to_6d

MIN_STD = 1e-3  # [rad, m]: what moves less than this counts as constant
MIN_STD_TURN = 0.03  # for numbers of a rotation: less is measurement noise or compliance of the arm
NEAR = 0.3  # [m]: distance from the end effector within which differences are resolved
MAX_SIGMA = 5.0  # features beyond this many standard deviations are clipped


@dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """Which parts of an observation the network sees besides gripper and environment state."""

    use_joints: bool = True
    """Joint positions (N,). Off for demonstrations by people, which have none, only the hand's pose."""
    use_hand_pose: bool = True
    """Position (3) and 6D rotation (6) of `X_BE`; follows from the joints, but saves learning kinematics."""
    use_joint_velocity: bool = True
    """`dq` (N,): a plan has to start at the arm's speed. It reveals a teleoperator's last action, which
    policies tend to copy; with a planner that does no harm, so it is on."""
    points: tuple[int, ...] = ()
    """Sizes of the points (x, y, z) or (x, y), in B, that the environment state begins with. Points in space
    are also given relative to the end effector, saturating at `NEAR`: in a room, a centimetre is a small
    share of a point's deviation."""
    use_world_pose: bool = False
    """Poses of a mobile base and its end effector in the world, for policies with rows in the world."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", tuple(self.points))  # a file has lists

    @property
    def needs_hand(self) -> bool:
        """Whether a robot has to measure its end-effector pose."""
        return self.use_hand_pose or self.use_world_pose or bool(points_in_space(self.points))


def state_features(
    observation: Observation, schema: Schema, config: FeatureConfig
) -> Float[np.ndarray, " F"]:
    """The state as one vector, without what the config leaves out: q, gripper width, p_BE, 6D rotation of
    `X_BE`, dq, `V_WB_B`, scene. With several arms each of these is repeated for every arm, in the order of
    the schema.

    The pose of a mobile base in the world is left out, because its rows are relative to it, unless
    `use_world_pose` is set: then x, y, cos yaw, sin yaw and the end effectors' positions in the world come
    after the twist. Points relative to the end effector (`FeatureConfig.points`) come before the scene, since
    they change with the robot state.

    ValueError: the observation lacks a part, differs in size from the schema, or is not finite.
    """
    state, environment = observation.state, observation.environment_state
    if environment.shape != (schema.environment_state_dim,):
        raise ValueError(
            f"the policy needs an environment state of {schema.environment_state_dim} numbers, "
            f"the observation has {environment.size}"
        )
    arms = _arms(state, schema)
    parts = [arm.q for arm in arms.values()] if config.use_joints else []
    for name in schema.grippers:
        if not isinstance(state.parts.get(name), GripperState):
            raise ValueError(f"the policy needs {name}_width, the state has none")
        parts.append(np.array([state.gripper(name).width]))
    hands = [name for name, arm in schema.arms.items() if arm.has_hand]
    if config.use_hand_pose:
        for name in hands:
            X_BE = measured_hand(state, name)
            parts += [X_BE.translation, rotation_to_6d(X_BE.rotation)]
    if config.use_joint_velocity:
        parts += [arm.dq for arm in arms.values()]
    for name in schema.bases:
        V_WB_B = state.base(name).V_WB_B
        if V_WB_B is None:
            of = "" if name == BASE else f" of {name!r}"
            raise ValueError(f"the policy needs the base's twist V_WB_B{of}, the state has none")
        parts.append(V_WB_B)
        if config.use_world_pose:
            parts.append(_world_pose(state, name, hands))
    parts += [_quantity(state, name, size) for name, size in schema.measured.items()]
    for name in hands:
        parts += points_from_hand(state, environment, config.points, arm=name)
    features = np.concatenate([*parts, environment])
    if not np.isfinite(features).all():
        raise ValueError("the observation holds NaN or infinite numbers")
    return features


def turns_in_features(schema: Schema, config: FeatureConfig) -> list[slice]:
    """Slices of `state_features` that hold end-effector rotations."""
    if not config.use_hand_pose:
        return []
    at = len(schema.grippers) + sum(arm.num_joints for arm in schema.arms.values() if config.use_joints)
    hands = [name for name, arm in schema.arms.items() if arm.has_hand]
    return [slice(at + 9 * i + 3, at + 9 * i + 9) for i in range(len(hands))]


def turns_in_rows(spec: ActionSpec) -> list[slice]:
    """Columns of rows that hold end-effector rotations."""
    poses = [
        columns
        for field, columns in spec.columns()
        if isinstance(field, EndEffectorPose | WorldEndEffectorPose)
    ]
    return [slice(columns.start + 3, columns.stop) for columns in poses]


def _arms(state: RobotState, schema: Schema) -> dict[str, ArmState]:
    """The measured state of each arm of the schema. ValueError: one is missing, or differs in joints."""
    out = {}
    for name, arm in schema.arms.items():
        has = state.parts.get(name)
        q = has.q if isinstance(has, ArmState) else np.zeros(0)
        if not isinstance(has, ArmState) or q.shape != (arm.num_joints,):
            of = "" if name == ARM else f" of {name}"
            raise ValueError(f"the policy needs {arm.num_joints} joints{of}, the state has {q.size}")
        out[name] = has
    return out


def _quantity(state: RobotState, name: str, size: int) -> np.ndarray:
    """A measured quantity, such as a force. ValueError: it is missing, or of another size."""
    values = state.measured.get(name)
    if values is None or values.shape != (size,):
        has = "none" if values is None else f"{values.size}"
        raise ValueError(f"the policy needs {size} numbers {name}, the state has {has}")
    return values


def points_from_hand(
    state: RobotState, environment: Float[np.ndarray, " K"], points: tuple[int, ...], *, arm: str = ARM
) -> list[Float[np.ndarray, "3"]]:
    """Points relative to an arm's end effector, axes of B, saturating at `NEAR` [m]."""
    in_space = points_in_space(points)
    if not in_space:
        return []
    p_BE = measured_hand(state, arm).translation
    return [NEAR * np.tanh((environment[point] - p_BE) / NEAR) for point in in_space]


def slices_of_points(points: Sequence[int]) -> list[slice]:
    """Slices of the environment state, which begins with points of these sizes."""
    return [slice(a, b) for a, b in pairwise([0, *accumulate(points)])]


def points_in_space(points: Sequence[int]) -> list[slice]:
    """The slices of points with three numbers."""
    return [point for point in slices_of_points(points) if point.stop - point.start == 3]


def _world_pose(state: RobotState, base: str, hands: Sequence[str]) -> Float[np.ndarray, " n"]:
    x, y, yaw = world_base(state, base)
    return np.concatenate([[x, y, np.cos(yaw), np.sin(yaw)], *(p_WE(state, arm, base) for arm in hands)])


@dataclass(frozen=True, kw_only=True, eq=False)
class Normaliser:
    """Normalises numbers by their mean and standard deviation, and restores them."""

    mean: np.ndarray
    """(F,) for features, (H, D) for rows."""
    std: np.ndarray
    """The same shape, at least `MIN_STD`; for numbers of a rotation at least `MIN_STD_TURN`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", readonly(self.mean))
        object.__setattr__(self, "std", readonly(self.std))

    @classmethod
    def fit(cls, samples: np.ndarray, *, turns: Sequence[slice] = ()) -> "Normaliser":
        """Statistics over the first axis.

        turns: slices of the last axis that hold rotations.
        """
        least = np.full(samples.shape[-1], MIN_STD)
        for turn in turns:
            least[turn] = MIN_STD_TURN
        return cls(mean=samples.mean(axis=0), std=np.maximum(samples.std(axis=0), least))

    def features(self, features: Float[np.ndarray, "*n F"]) -> Float[np.ndarray, "*n F"]:
        """Features scaled to mean 0 and deviation 1, clipped."""
        return np.clip((features - self.mean) / self.std, -MAX_SIGMA, MAX_SIGMA)

    def normalise(self, rows: Float[np.ndarray, "*n d D"]) -> Float[np.ndarray, "*n d D"]:
        """The first d rows of a chunk, d <= H, from relative to normalised."""
        d = rows.shape[-2]
        return (rows - self.mean[:d]) / self.std[:d]

    def restore(self, rows: Float[np.ndarray, "*n d D"]) -> Float[np.ndarray, "*n d D"]:
        """The inverse of `normalise`."""
        d = rows.shape[-2]
        return self.mean[:d] + self.std[:d] * rows
