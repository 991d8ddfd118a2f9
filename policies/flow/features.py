"""What the network sees and says, in numbers it likes: state features and normalised rows.

    robot columns  --- minus where it is measured --->  relative rows  --- (x - mean) / std --->  network
    [rad, m]       <----------- plus that ------------                 <--- mean + std x ------

Absolute columns are counted from the joints, the base and the position of the hand measured at the
observation: a chunk then starts near zero wherever the robot is, which is far better conditioned.
Statistics are per row and column, because row 0 hardly leaves the measured joints and row H-1 leaves them
most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.row_statistics import measured_hand, p_WE, world_base
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import (
    ARM,
    BASE,
    GRIPPER,
    ArmState,
    GripperState,
    Observation,
    RobotState,
    readonly,
)
from robot_runtime.core.values.transforms import rotation_to_6d

MIN_STD = 1e-3  # [rad, m]: what moves less than this counts as constant
NEAR = 0.3  # [m]: how far off the hand sees differences
MAX_SIGMA = 5.0  # features beyond this many standard deviations are clipped


@dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """Which parts of an observation the network sees besides joints, gripper and environment state."""

    use_hand_pose: bool = True
    """Position (3) and 6D rotation (6) of `X_BE`; follows from the joints, but saves learning kinematics."""
    use_joint_velocity: bool = True
    """`dq` (N,): a plan has to start at the speed the arm has. A teleoperator's last action shows in it, and
    policies like to copy that; a planner's does not matter, so it is on."""
    points: tuple[int, ...] = ()
    """Sizes of the points (x, y, z) or (x, y), in B, that the environment state begins with. Those of three
    are also seen from the hand, up to `NEAR`: in a room, a centimetre is little of a point's deviation."""
    use_world_pose: bool = False
    """Where a mobile base and its hand are in the world: for policies that tell the hand there."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", tuple(self.points))  # a file has lists


def state_features(
    observation: Observation, schema: Schema, config: FeatureConfig
) -> Float[np.ndarray, " F"]:
    """The state as one vector: q, gripper width, p_BE, 6D rotation of `X_BE`, dq, `V_WB_B`, scene;
    each of all parts in the schema's order.

    Where a mobile base is in the world is left out, for its rows count from there, unless it is asked for:
    then x, y, cos yaw, sin yaw and the hand's position there come after the twist. Points seen from the hand
    (`FeatureConfig.points`) come before the scene: they are different for a robot elsewhere.

    ValueError: the observation lacks a part or has another size than the schema says, or is not finite.
    """
    state, environment = observation.state, observation.environment_state
    arms = {name: state.parts.get(name) for name in schema.arms}
    for name, arm in arms.items():
        n, has = schema.arms[name].num_joints, arm.q.size if isinstance(arm, ArmState) else 0
        if n != has:
            raise ValueError(f"the policy needs {n} joints{_of(name, ARM)}, the state has {has}")
    if environment.shape != (schema.environment_state_dim,):
        raise ValueError(
            f"the policy needs an environment state of {schema.environment_state_dim} numbers, "
            f"the observation has {environment.size}"
        )
    parts = [state.arm(name).q for name in arms]
    for name in schema.grippers:
        gripper = state.parts.get(name)
        if not isinstance(gripper, GripperState):
            raise ValueError(f"the policy needs gripper_width{_of(name, GRIPPER)}, the state has none")
        parts.append(np.array([gripper.width]))
    if config.use_hand_pose:
        for name in arms:
            if schema.arms[name].has_hand:
                X_BE = measured_hand(state, name)
                parts += [X_BE.translation, rotation_to_6d(X_BE.rotation)]
    if config.use_joint_velocity:
        parts += [state.arm(name).dq for name in arms]
    for name in schema.bases:
        twist = state.base(name).V_WB_B
        if twist is None:
            raise ValueError(f"the policy needs the base's twist V_WB_B{_of(name, BASE)}, the state has none")
        parts.append(twist)
        if config.use_world_pose:
            parts.append(_world_pose(state))
    parts += [_quantity(state, name, size) for name, size in schema.measured.items()]
    features = np.concatenate([*parts, *points_from_hand(state, environment, config.points), environment])
    if not np.isfinite(features).all():
        raise ValueError("the observation holds NaN or infinite numbers")
    return features


def _of(part: str, usual: str) -> str:
    return "" if part == usual else f" of {part}"


def _quantity(state: RobotState, name: str, size: int) -> np.ndarray:
    values = state.measured.get(name)
    if values is None or values.shape != (size,):
        has = "none" if values is None else f"shape {values.shape}"
        raise ValueError(f"the policy needs {size} numbers {name}, the state has {has}")
    return values


def points_from_hand(
    state: RobotState, environment: Float[np.ndarray, " K"], points: tuple[int, ...]
) -> list[Float[np.ndarray, "3"]]:
    """Points as the hand sees them, axes of B, saturating at `NEAR` [m]."""
    in_space = points_in_space(points)
    if not in_space:
        return []
    if state.X_BE is None:
        raise ValueError("the policy needs the hand pose X_BE, the state has none")
    p_BE = state.X_BE.translation
    return [NEAR * np.tanh((environment[point] - p_BE) / NEAR) for point in in_space]


def slices_of_points(points: Sequence[int]) -> list[slice]:
    """Where points of these sizes are in the environment state, which begins with them."""
    return [slice(a, b) for a, b in pairwise([0, *accumulate(points)])]


def points_in_space(points: Sequence[int]) -> list[slice]:
    """Those of three numbers."""
    return [point for point in slices_of_points(points) if point.stop - point.start == 3]


def _world_pose(state: RobotState) -> Float[np.ndarray, "7"]:
    x, y, yaw = world_base(state)
    return np.array([x, y, np.cos(yaw), np.sin(yaw), *p_WE(state)])


@dataclass(frozen=True, kw_only=True, eq=False)
class Normaliser:
    """Mean and standard deviation of each number, and the way there and back."""

    mean: np.ndarray
    """(F,) for features, (H, D) for rows."""
    std: np.ndarray
    """The same shape, at least `MIN_STD`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", readonly(self.mean))
        object.__setattr__(self, "std", readonly(self.std))

    @classmethod
    def fit(cls, samples: np.ndarray) -> "Normaliser":
        """Statistics over the first axis."""
        return cls(mean=samples.mean(axis=0), std=np.maximum(samples.std(axis=0), MIN_STD))

    def features(self, features: Float[np.ndarray, "*n F"]) -> Float[np.ndarray, "*n F"]:
        """Features at mean 0 and deviation 1, clipped."""
        return np.clip((features - self.mean) / self.std, -MAX_SIGMA, MAX_SIGMA)

    def normalise(self, rows: Float[np.ndarray, "*n d D"]) -> Float[np.ndarray, "*n d D"]:
        """The first d rows of a chunk, d <= H, from relative to normalised."""
        d = rows.shape[-2]
        return (rows - self.mean[:d]) / self.std[:d]

    def restore(self, rows: Float[np.ndarray, "*n d D"]) -> Float[np.ndarray, "*n d D"]:
        """Inverse of `normalise`."""
        d = rows.shape[-2]
        return self.mean[:d] + self.std[:d] * rows
