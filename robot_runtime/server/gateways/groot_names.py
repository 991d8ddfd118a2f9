"""GR00T's names for the numbers of a robot and of its actions."""

from typing import Any

from robot_runtime.core.values.action import (
    ActionField,
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperFraction,
    GripperWidth,
    JointPosition,
    JointVelocity,
    Numbers,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, PartSchema, Schema
from robot_runtime.core.values.state import ARM, BASE, GRIPPER
from robot_runtime.server.gateways.key_map import Entry, KeyMap, has_named_parts
from robot_runtime.server.gateways.part_entries import PartEntries

_KEYS = {
    JointPosition: "joint_position",
    JointVelocity: "joint_velocity",
    GripperWidth: "gripper_position",
    GripperFraction: "gripper_position",
    EndEffectorPose: "hand_pose",
    WorldEndEffectorPose: "hand_pose",
    BasePose: "base_pose",
    BaseTwist: "base_twist",
    Numbers: "numbers",
}


def key_of(field: ActionField) -> str:
    """Name of an action field: by what it is, or by the part if that has a name of its own."""
    return _KEYS[type(field)] if field.part in (ARM, GRIPPER, BASE) else field.part


def names_of(schema: Schema) -> KeyMap:
    """Names for a robot by what things are; those of a named part by its name."""
    common: dict[str, Any] = {
        "measured": {name: Entry(key=f"state/{name}") for name in schema.measured},
        "environment_state": Entry(key="state/environment_state") if schema.environment_state_dim else None,
        "cameras": {name: f"video/{name}" for name in schema.cameras},
        "task": "language/task",
    }
    if has_named_parts(schema):
        return KeyMap(parts={name: _entries(name, part) for name, part in schema.parts.items()}, **common)
    return KeyMap(
        q=Entry(key="state/joint_position"),
        dq=Entry(key="state/joint_velocity"),
        gripper_width=Entry(key="state/gripper_position") if schema.has_gripper else None,
        hand_pose=Entry(key="state/hand_pose"),
        **common,
    )


def _entries(name: str, part: PartSchema) -> PartEntries:
    key = f"state/{name}"
    match part:
        case ArmSchema():
            return PartEntries(
                q=Entry(key=key), dq=Entry(key=f"{key}_velocity"), hand_pose=Entry(key=f"{key}_hand_pose")
            )
        case GripperSchema():
            return PartEntries(width=Entry(key=key))
        case BaseSchema():
            return PartEntries(pose=Entry(key=f"{key}_pose"), twist=Entry(key=f"{key}_twist"))
