"""Names of the numbers of states and commands in files: `state_numbers`, `command_numbers`.

    left_arm.joint_3             position of a joint, measured or commanded [rad]
    left_arm.joint_3.velocity    its velocity, measured or commanded [rad/s]
    left_arm.x ... left_arm.r6   end effector in the mobile base: position [m], two columns of the rotation
    left_gripper.width           distance between the fingers [m]
    base.x  base.y  base.yaw     a mobile base in the world [m, m, rad]
    base.vx base.vy base.wz      its twist, expressed in B [m/s, m/s, rad/s]
    wrist_force.1                a number of a further quantity

They are the names of `Schema.state_names` and of `ActionSpec.names`, and further ones in the same style.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.command import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
    NumbersCommand,
    PartCommand,
    PoseCommand,
)
from robot_runtime.core.values.fields import (
    ActionField,
    BaseTwist,
    EndEffectorPose,
    GripperFraction,
    JointVelocity,
    Numbers,
    joint_names,
)
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, PartSchema, Schema
from robot_runtime.core.values.state import ARM, BASE, GRIPPER, ArmState, BaseState, GripperState, RobotState
from robot_runtime.core.values.transforms import rotation_to_6d

HAND: tuple[str, ...] = EndEffectorPose().names
TWIST: tuple[str, ...] = BaseTwist().names
POSE: tuple[str, ...] = BaseSchema.names
VELOCITY = ".velocity"


def state_columns(schema: Schema) -> tuple[str, ...]:
    """Columns of a robot's `observation.state`, in order: all measurements of its parts except the pose of a
    base in the world (`pose_columns`), on which no policy should depend by accident."""
    return tuple(f"{name}.{column}" for name, part in schema.parts.items() for column in _columns_of(part))


def _columns_of(part: PartSchema) -> tuple[str, ...]:
    match part:
        case ArmSchema(names=joints, has_hand=has_hand):
            return (*joints, *(joint + VELOCITY for joint in joints), *(HAND if has_hand else ()))
        case GripperSchema():
            return GripperSchema.names
        case BaseSchema():
            return TWIST


def pose_columns(schema: Schema) -> tuple[str, ...]:
    """Columns of the poses of all bases in the world."""
    return tuple(f"{name}.{column}" for name in schema.bases for column in POSE)


def quantity_columns(name: str, size: int, schema: Schema | None = None) -> tuple[str, ...]:
    """Columns of one of `Schema.measured`; quantities commanded by plain numbers have the commands' names."""
    for f in () if schema is None else schema.action_fields:
        if isinstance(f, Numbers) and f.part == name and f.dim == size:
            return f.column_names
    return tuple(f"{name}.{i + 1}" for i in range(size))


def command_columns(f: ActionField) -> tuple[str, ...]:
    """Names of the commands that a field's columns become."""
    match f:
        case GripperFraction():
            return tuple(f"{f.part}.{name}" for name in GripperSchema.names)
        case JointVelocity(is_integrated=False):
            return tuple(name + VELOCITY for name in f.column_names)
        case _:
            return f.column_names


def state_numbers(state: RobotState, schema: Schema) -> dict[str, float]:
    """Every number of a state by name; quantities that were not measured are left out.

    schema: has the names of joints. ValueError: a group has another number of them.
    """
    out: dict[str, float] = {}
    for name, part in state.parts.items():
        match part:
            case ArmState(q=q, dq=dq, X_BE=X_BE):
                joints = _joints(schema, name, q.size)
                _put(out, name, joints, q)
                _put(out, name, [joint + VELOCITY for joint in joints], dq)
                if X_BE is not None:
                    _put(out, name, HAND, hand_numbers(X_BE))
            case GripperState(width=width):
                _put(out, name, GripperSchema.names, (width,))
            case BaseState(x_WB=x_WB, V_WB_B=V_WB_B):
                _put(out, name, POSE, () if x_WB is None else x_WB)
                _put(out, name, TWIST, () if V_WB_B is None else V_WB_B)
    for name, values in state.measured.items():
        columns = quantity_columns(name, values.size, schema)
        out |= zip(columns, map(float, values.ravel()), strict=True)
    return out


def command_numbers(command: Command, schema: Schema) -> dict[str, float]:
    """Every number of a command by name, in the order of its parts.

    schema: has the names of joints and plain numbers. ValueError: a part has another number of them.
    """
    out: dict[str, float] = {}
    for name, part in command.parts.items():
        _put(out, name, *_commanded(name, part, schema))
    return out


def _commanded(name: str, part: PartCommand, schema: Schema) -> tuple[Iterable[str], Iterable[float]]:
    match part:
        case JointCommand(q=q):
            return _joints(schema, name, q.size), q
        case JointVelocityCommand(dq=dq):
            return [joint + VELOCITY for joint in _joints(schema, name, dq.size)], dq
        case PoseCommand():
            return HAND, hand_numbers(part.X_BE)
        case GripperCommand(width=width):
            return GripperSchema.names, (width,)
        case BasePoseCommand(x_WB=x_WB):
            return POSE, x_WB
        case BaseTwistCommand(V_WB_B=V_WB_B):
            return TWIST, V_WB_B
        case NumbersCommand(values=values):
            declared = [f.names for f in schema.action_fields if isinstance(f, Numbers) and f.part == name]
            names = declared[0] if declared else tuple(str(i + 1) for i in range(values.size))
            if len(names) != values.size:
                raise ValueError(f"{name!r} has {values.size} numbers, the schema names {len(names)}")
            return names, values


def hand_numbers(X_BE: pin.SE3) -> np.ndarray:
    """Position, and the first two columns of the rotation."""
    return np.concatenate([X_BE.translation, rotation_to_6d(X_BE.rotation)])


def _joints(schema: Schema, name: str, num: int) -> tuple[str, ...]:
    part = schema.parts.get(name)
    names = part.names if isinstance(part, ArmSchema) else joint_names(num)
    if len(names) != num:
        raise ValueError(f"{name!r} has {num} joints, the schema declares {len(names)}: {', '.join(names)}")
    return names


def _put(out: dict[str, float], part: str, names: Iterable[str], values: Iterable[float]) -> None:
    for name, value in zip(names, values, strict=False):
        out[f"{part}.{name}"] = float(value)


# ---- names from before parts had names -------------------------------------------------------------------

_OLDER: Mapping[str, str] = {
    "gripper_width": f"{GRIPPER}.width",
    **{f"hand_{name}": f"{ARM}.{name}" for name in "xyz"},
    **{f"hand_rotation_{i}": f"{ARM}.r{i + 1}" for i in range(6)},
    **{f"base_{name}": f"{BASE}.{name}" for name in (*TWIST, *POSE)},
}


def present_name(name: str) -> str:
    """The present name for joint_0, gripper_width, hand_x, base_vx and other names of older files and
    datasets; any other name is returned as it is."""
    if name in _OLDER:
        return _OLDER[name]
    for prefix, suffix in (("joint_velocity_", VELOCITY), ("joint_", "")):
        number = name.removeprefix(prefix)
        if number != name and number.isascii() and number.isdigit():
            return f"{ARM}.joint_{int(number) + 1}{suffix}"
    return name
