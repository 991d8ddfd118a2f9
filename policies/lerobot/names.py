"""Interprets a dataset's names: `explained` translates them to ours, `fields_of` and `parts_of` to a robot.

shoulder_pan.pos        arm.shoulder_pan         LeRobot's motors, with their own names
gripper.pos             gripper.width
left_waist              left_arm.waist           ALOHA's, and all of LeRobot's robots with two arms
right_gripper           right_gripper.width
joint_0, gripper_width  arm.joint_1, gripper.width    older recordings, without names of parts
"""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from robot_runtime.core.values.action import (
    ActionField,
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
    JointVelocity,
)
from robot_runtime.core.values.columns import HAND, POSE, TWIST, VELOCITY, present_name
from robot_runtime.core.values.fields import Rotation
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, PartSchema
from robot_runtime.core.values.state import ARM, GRIPPER
from robot_runtime.errors import InvalidValueError

WIDTH = GripperSchema.names[0]
_SIDES, _MOTOR, _SPEED = ("left", "right"), ".pos", ".vel"
_OURS = re.compile(r"\w+\.(joint_\d+(\.velocity)?|[xyz]|r[1-6]|width|v[xy]|wz|yaw)")
HINT = (
    "List the robot's joints, in its order, with --joint-names, and the grippers with --gripper-name; for a "
    "robot with two arms their names begin with left_ and right_"
)


def declared_names(joints: Sequence[str], grippers: Sequence[str]) -> dict[str, str]:
    """Our names for declared joints, in the robot's order, and grippers."""
    out: dict[str, str] = {}
    for name in joints:
        arm = _part(name, ARM)
        out[name] = f"{arm}.joint_{1 + sum(ours.startswith(f'{arm}.') for ours in out.values())}"
    return out | {name: f"{_part(name, GRIPPER)}.{WIDTH}" for name in grippers}


def explained(names: Sequence[str], declared: Mapping[str, str]) -> dict[str, str]:
    """Our name for each one that is declared, already ours, or named like a motor of LeRobot's robots.

    Others are left out.
    """
    out = {}
    for name in names:
        ours = declared.get(name) or _ours(name) or _of_motor(name)
        if ours is not None:
            out[name] = ours
    return out


def _ours(name: str) -> str | None:
    now = present_name(name)
    part, _, column = now.partition(".")
    is_motor = f".{column}" in (_MOTOR, _SPEED) or column.endswith((_MOTOR, _SPEED))
    return now if part.isidentifier() and column and not is_motor else None


def is_ours(name: str) -> bool:
    """Whether a name occurs in our recordings only, so that its unit is known."""
    return _OURS.fullmatch(present_name(name)) is not None


def _of_motor(name: str) -> str | None:
    motor = name.removesuffix(_MOTOR).removesuffix(_SPEED)
    side = _side(motor)
    if motor == name and not side:
        return None
    if "." in motor:  # left_arm.joint_1.pos
        return motor + VELOCITY * name.endswith(_SPEED)
    motor = motor.removeprefix(f"{side}_")
    if motor == GRIPPER:
        return None if name.endswith(_SPEED) else f"{_part(name, GRIPPER)}.{WIDTH}"
    return f"{_part(name, ARM)}.{motor}{VELOCITY if name.endswith(_SPEED) else ''}"


def _side(name: str) -> str:
    return next((side for side in _SIDES if name.startswith(f"{side}_")), "")


def _part(name: str, kind: str) -> str:
    return "_".join(filter(None, (_side(name), kind)))


def fields_of(names: Sequence[str], path: Path) -> tuple[ActionField, ...]:
    """The fields of an action with these columns. InvalidValueError: no field has some of them."""
    fields: list[ActionField] = []
    for (part, _), group in groupby(names, _kind):
        columns = tuple(name.partition(".")[2] for name in group)
        match columns:
            case _ if columns == HAND:
                fields.append(EndEffectorPose(part=part))
            case _ if columns == (vector := EndEffectorPose(part=part, rotation=Rotation.VECTOR)).names:
                fields.append(vector)
            case (one,) if one == WIDTH:
                fields.append(GripperWidth(part=part))
            case _ if columns == POSE:
                fields.append(BasePose(part=part))
            case _ if columns == TWIST:
                fields.append(BaseTwist(part=part))
            case _ if not set(columns) & {*HAND, *POSE, *TWIST, WIDTH}:
                joints = tuple(column.removesuffix(VELOCITY) for column in columns)
                kind = JointVelocity if columns[0].endswith(VELOCITY) else JointPosition
                fields.append(kind(len(joints), part=part, names=joints))
            case _:
                raise InvalidValueError(
                    f"{path}: no action has columns {', '.join(f'{part}.{c}' for c in columns)} in that "
                    f"order; all are {', '.join(names)}"
                )
    parts = [f.part for f in fields]
    if twice := sorted({part for part in parts if parts.count(part) > 1}):
        raise InvalidValueError(
            f"{path}: the actions of {', '.join(twice)} are not contiguous, or are of two kinds: "
            f"{', '.join(names)}"
        )
    return tuple(fields)


def _kind(name: str) -> tuple[str, str]:
    """The part of a column, and its kind: base.x and base.vx differ in kind."""
    part, _, column = name.partition(".")
    return part, "twist" if column in TWIST else "speed" if column.endswith(VELOCITY) else "position"


def parts_of(fields: Sequence[ActionField], state_names: Sequence[str]) -> dict[str, PartSchema]:
    """The parts that a robot needs for these actions and this state."""
    out: dict[str, PartSchema] = {}
    of_parts: dict[str, list[str]] = {f.part: [] for f in fields}
    for name in state_names:
        part, _, column = name.partition(".")
        of_parts.setdefault(part, []).append(column)
    moved = {f.part: f for f in fields}
    for part, columns in of_parts.items():
        f = moved.get(part)
        if isinstance(f, GripperWidth) or WIDTH in columns:
            out[part] = GripperSchema()
        elif isinstance(f, BasePose | BaseTwist) or set(columns) & set(TWIST):
            out[part] = BaseSchema()
        else:
            joints = [*f.names] if isinstance(f, JointPosition | JointVelocity) else []
            joints += [c.removesuffix(VELOCITY) for c in columns if c not in HAND]
            names = tuple(dict.fromkeys(joints))
            has_hand = isinstance(f, EndEffectorPose) or bool(set(columns) & set(HAND))
            if not names:
                raise InvalidValueError(
                    f"the actions move the end effector of {part!r}, whose joints are undeclared: the "
                    "dataset's state names none"
                )
            out[part] = ArmSchema(len(names), names, has_hand=has_hand)
    return out
