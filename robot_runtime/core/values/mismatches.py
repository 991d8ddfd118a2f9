"""Checks whether a policy can drive a robot: `mismatches` lists every difference of their schemas."""

from collections.abc import Sequence
from dataclasses import replace

from robot_runtime.core.values.fields import (
    ActionField,
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperFraction,
    GripperWidth,
    JointPosition,
    JointVelocity,
    Numbers,
    Rotation,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, PartSchema, Schema
from robot_runtime.errors import InvalidValueError


def mismatches(*, robot: Schema, policy: Schema) -> list[str]:
    """Sentences naming both sides, one per difference; empty if the policy can drive the robot.

    A robot may have more parts than the policy moves, which are held still, more cameras than it uses, and
    scene quantities that it does not need; a policy may count positions from another reference: rows become
    absolute commands. All else has to agree.
    """
    of_parts = {
        name: _part_differs(name, robot.parts.get(name), part, needs_hand=policy.needs_hand(name))
        for name, part in policy.parts.items()
    }
    out = [sentence for sentences in of_parts.values() for sentence in sentences]
    out += _actions_differ(robot, policy, known={name for name, sentences in of_parts.items() if sentences})
    for name, num in policy.measured.items():
        if robot.measured.get(name) != num:
            have = ", ".join(f"{n} ({k})" for n, k in robot.measured.items()) or "none"
            out.append(f"measured: the policy needs {num} numbers {name}, the robot has {have}")
    scene, needed = robot.environment_state_dim, policy.environment_state_dim
    if needed and scene != needed:
        out.append(f"environment state size: the robot has {scene}, the policy needs {needed}")
    ours, theirs = robot.environment_state_names, policy.environment_state_names
    if scene == needed and ours and theirs and set(ours) != set(theirs):
        out.append(f"environment state: the names differ{_differences([*ours], [*theirs])}")
    for name, size in policy.cameras.items():
        if name not in robot.cameras:
            have = ", ".join(robot.cameras) or "none"
            out.append(f"camera {name!r}: the policy needs it, the robot has {have}")
        elif robot.cameras[name] != size:
            out.append(f"camera {name!r}: the robot has {robot.cameras[name]}, the policy needs {size}")
    return out


def unmoved_fields(
    robot: tuple[ActionField, ...], policy: tuple[ActionField, ...]
) -> tuple[ActionField, ...]:
    """The robot's action fields for parts that a policy does not move."""
    moved = {f.part for f in policy}
    return tuple(f for f in robot if f.part not in moved)


def _actions_differ(robot: Schema, policy: Schema, *, known: set[str]) -> list[str]:
    """Differences of the commands, except for parts whose differences are known already.

    Plain numbers cannot be held still: a robot that takes some needs all of them.
    """
    out = []
    unmoved = unmoved_fields(robot.action_fields, policy.action_fields)
    needed = [f.part for f in (*policy.action_fields, *(f for f in unmoved if isinstance(f, Numbers)))]
    for part in dict.fromkeys(needed):
        ours, theirs = (
            [f for f in fields if f.part == part] for fields in (robot.action_fields, policy.action_fields)
        )
        if part in known:
            continue
        have, need = _commands(ours), _commands(theirs)
        if sorted(have) != sorted(need) or _summary(ours) != _summary(theirs):
            names = _differences(have, need) if _kinds(ours) == _kinds(theirs) else ""
            out.append(
                f"{part}: the robot takes {_summary(ours)}, the policy gives {_summary(theirs)}{names}"
            )
        match ours, theirs:
            case [WorldEndEffectorPose(base=has)], [WorldEndEffectorPose(base=needs)] if has != needs:
                out.append(f"{part}: the robot has it on the base {has!r}, the policy on {needs!r}")
    return out


def _part_differs(name: str, robot: PartSchema | None, policy: PartSchema, *, needs_hand: bool) -> list[str]:
    """Differences of one part."""
    if not (isinstance(robot, ArmSchema) and isinstance(policy, ArmSchema)):
        if type(robot) is type(policy):
            return []
        have = "no such part" if robot is None else _WORDS[type(robot)]
        return [f"{name}: the robot has {have}, the policy needs {_WORDS[type(policy)]}"]
    out = []
    if sorted(robot.names) != sorted(policy.names):
        ours, theirs = ([f"{name}.{joint}" for joint in part.names] for part in (robot, policy))
        out.append(
            f"{name} joints: the robot has {robot.num_joints}, the policy needs {policy.num_joints}"
            + _differences(ours, theirs)
            + (_OWN_NAMES if robot.names == ArmSchema(policy.num_joints).names else "")
        )
    if needs_hand and not robot.has_hand:
        out.append(
            f"{name}: the policy needs the pose of its hand, the robot measures none "
            "(ArmState(X_BE=...), or Robot(hand_pose=...))"
        )
    return out


_WORDS = {ArmSchema: "joints", GripperSchema: "a gripper", BaseSchema: "a mobile base"}
_MOST_LISTED = 40
_OWN_NAMES = "; what a Robot calls its joints: actions=(JointPosition(N, names=(...), part=...),)"


def _differences(robot: list[str], policy: list[str]) -> str:
    """The names that only one side has."""
    missing = [name for name in policy if name not in robot]
    left_over = [name for name in robot if name not in policy]
    out = ""
    for what, names in (("missing", missing), ("left over", left_over)):
        if names:
            more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
            out += f"; {what}: {', '.join(names[:_MOST_LISTED])}{more}"
    return out


def check_task(task: str, *, policy: str, tasks: tuple[str, ...]) -> None:
    """Raise InvalidValueError if the policy was trained on other task texts only.

    tasks: the policy's; empty if any text will do.
    """
    if tasks and task not in tasks:
        valid = ", ".join(map(repr, tasks))
        raise InvalidValueError(f"policy {policy!r} does not know the task {task!r}; valid: {valid}")


def _kinds(action_fields: Sequence[ActionField]) -> set[type]:
    return {type(f) for f in action_fields}


def _commands(action_fields: Sequence[ActionField]) -> list[str]:
    """Names of the commands that the rows become, whatever their encoding."""
    out: list[str] = []
    for f in action_fields:
        match f:
            case GripperFraction():
                out += GripperWidth(f.part).column_names
            case JointVelocity(is_integrated=True):
                out += f.column_names
            case JointVelocity():
                out += (f"{name}.velocity" for name in f.column_names)
            case EndEffectorPose() | WorldEndEffectorPose():
                out += replace(f, rotation=Rotation.COLUMNS).column_names
            case _:
                out += f.column_names
    return out


def _summary(action_fields: Sequence[ActionField]) -> str:
    """The commands of one part, in words."""
    words = []
    for f in action_fields:
        match f:
            case JointPosition() | JointVelocity(is_integrated=True):
                words.append(f"{f.dim} joint positions")
            case JointVelocity():
                words.append(f"{f.dim} joint velocities")
            case EndEffectorPose() | WorldEndEffectorPose():
                words.append("hand poses")
            case GripperWidth() | GripperFraction():
                words.append("widths")
            case BasePose():
                words.append("base poses")
            case BaseTwist():
                words.append("base twists")
            case Numbers():
                words.append(f"{f.dim} numbers")
    return " and ".join(words) or "nothing"
