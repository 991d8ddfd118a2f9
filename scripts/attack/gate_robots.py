"""Robots of every kind for `fuzz_gate`: their columns, their limits, and absurd rows."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.plan.limits import Limits, MotionLimits
from robot_runtime.core.values.action import (
    ActionField,
    BasePose,
    BasePoseCommand,
    BaseTwist,
    BaseTwistCommand,
    Command,
    EndEffectorPose,
    GripperCommand,
    GripperWidth,
    JointCommand,
    JointPosition,
    PoseCommand,
)
from robot_runtime.core.values.transforms import rotation_to_6d

DT_NS, HORIZON = 50_000_000, 16
BASE = MotionLimits(
    speed=np.array([0.8, 0.8, 1.6]), acceleration=np.array([1.0, 1.0, 2.5]), jerk=np.array([20.0, 20.0, 50.0])
)
LIMITS = FR3_LIMITS.replace(base=BASE)
LOW, HIGH = LIMITS.q_min, LIMITS.q_max


@dataclass(frozen=True, kw_only=True)
class Robot:
    """Kind of robot: its columns, how its state follows from commands, and the limits of its commands."""

    fields: tuple[ActionField, ...]
    numbers: Callable[[Command], np.ndarray]
    """Returns the numbers that are compared from command to command."""
    make: Callable[[np.ndarray], Command]
    """Makes a command of such numbers."""
    declared: Callable[[Limits], MotionLimits]
    ends: Callable[[Limits], tuple[np.ndarray, np.ndarray]] | None = None
    is_rate: bool = False
    """The numbers are speeds: their differences are accelerations and jerks."""
    has_curve: bool = False


def _hand_position(command: Command) -> np.ndarray:
    assert isinstance(command.arm, PoseCommand)
    return command.arm.p_BE


def _joints(command: Command) -> np.ndarray:
    assert isinstance(command.arm, JointCommand)
    return command.arm.q


def _width(command: Command) -> np.ndarray:
    assert isinstance(command.gripper, GripperCommand)
    return np.array([command.gripper.width])


def _pose(command: Command) -> np.ndarray:
    assert isinstance(command.base, BasePoseCommand)
    return command.base.x_WB


def _twist(command: Command) -> np.ndarray:
    assert isinstance(command.base, BaseTwistCommand)
    return command.base.V_WB_B


def _need(limits: MotionLimits | None) -> MotionLimits:
    assert limits is not None
    return limits


ROBOTS = {
    "arm": Robot(
        fields=(JointPosition(7), GripperWidth()),
        numbers=_joints,
        make=lambda x: Command(arm=JointCommand(q=x)),
        declared=lambda limits: limits.joints,
        ends=lambda limits: (limits.q_min, limits.q_max),
        has_curve=True,
    ),
    "gripper": Robot(
        fields=(GripperWidth(),),
        numbers=_width,
        make=lambda x: Command(gripper=GripperCommand(width=float(x[0]))),
        declared=lambda limits: _need(limits.gripper),
        ends=lambda limits: (np.array([limits.gripper_min]), np.array([limits.gripper_max])),
    ),
    "hand": Robot(
        fields=(EndEffectorPose(), GripperWidth()),
        numbers=_hand_position,
        make=lambda x: Command(arm=PoseCommand(p_BE=x, quat_BE=np.array([1.0, 0.0, 0.0, 0.0]))),
        declared=lambda limits: _need(limits.arm().hand_translation),
    ),
    "base": Robot(
        fields=(BasePose(),),
        numbers=_pose,
        make=lambda x: Command(base=BasePoseCommand(x_WB=x)),
        declared=lambda limits: _need(limits.base),
    ),
    "base-twist": Robot(
        fields=(BaseTwist(),),
        numbers=_twist,
        make=lambda x: Command(base=BaseTwistCommand(V_WB_B=x)),
        declared=lambda limits: _need(limits.base),
        ends=lambda limits: (-_need(limits.base).speed, _need(limits.base).speed),
        is_rate=True,
    ),
}


def limits_drawn(rng: np.random.Generator) -> Limits:
    """Return the default limits or random ones."""
    if rng.random() < 0.5:
        return LIMITS
    joints, hand, base, gripper = (_motion(rng, n) for n in (7, 3, 3, 1))
    return LIMITS.replace(
        dq_max=joints.speed,
        ddq_max=joints.acceleration,
        dddq_max=joints.jerk,
        dq_curve=None if rng.random() < 0.5 else LIMITS.dq_curve,
        hand_translation=hand,
        base=base,
        gripper=gripper,
        gripper_max=rng.uniform(0.02, 0.3),
        unusual=True,
    )


def _motion(rng: np.random.Generator, n: int) -> MotionLimits:
    acceleration = 10.0 ** rng.uniform(-0.3, 2.3, n)
    jerk = acceleration * 10.0 ** rng.uniform(0.5, 2.7, n)
    return MotionLimits(speed=10.0 ** rng.uniform(-1.0, 0.7, n), acceleration=acceleration, jerk=jerk)


def rows_of(robot: Robot, rng: np.random.Generator) -> np.ndarray:
    """Return absurd rows."""
    columns = []
    for field in robot.fields:
        n = 3 if isinstance(field, EndEffectorPose) else field.dim
        centre = 0.5 * (LOW + HIGH) if isinstance(field, JointPosition) else np.zeros(n)
        kind = rng.integers(6)
        if kind == 0:
            rows = centre + rng.normal(size=(HORIZON, n)) * 10.0 ** rng.uniform(-3, 1)
        elif kind == 1:
            rows = np.tile(centre + rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(0, 8.9), (HORIZON, 1))
        elif kind == 2:
            rows = centre + np.outer(np.arange(HORIZON) % 2 * 2 - 1, rng.uniform(0, 3, n))
        elif kind == 3:
            rows = centre + np.outer(np.arange(HORIZON) * DT_NS / 1e9, rng.uniform(-6, 6, n))
        elif kind == 4:
            rows = centre + np.cumsum(rng.normal(size=(HORIZON, n)) * 0.1, axis=0)
        else:
            rows = np.tile(centre + rng.uniform(-4, 4, n), (HORIZON, 1))
        if isinstance(field, EndEffectorPose):
            turns = [rotation_to_6d(pin.exp3(rng.uniform(-3, 3, 3))) for _ in range(HORIZON)]
            rows = np.column_stack([rows, turns])
        columns.append(rows)
    return np.column_stack(columns)
