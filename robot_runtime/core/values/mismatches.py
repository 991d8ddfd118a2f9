"""Whether a policy can drive a robot: `mismatches` says every way in which what they declare differs."""

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
    WorldEndEffectorPose,
)
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, PartSchema, Schema
from robot_runtime.core.values.state import ARM, BASE, GRIPPER
from robot_runtime.errors import InvalidValueError


def mismatches(*, robot: Schema, policy: Schema) -> list[str]:
    """Sentences naming both sides, one per difference; empty if the policy can drive the robot.

    A robot may have more cameras than the policy looks at, and scene quantities that it does without; a
    policy may count positions from elsewhere: rows are turned into absolute commands. All else has to agree.
    """
    ours, theirs = _commands(robot.action_fields), _commands(policy.action_fields)
    out = []
    if sorted(ours) != sorted(theirs):
        have, need = _summary(robot.action_fields), _summary(policy.action_fields)
        out.append(f"actions: the robot has {have}, the policy needs {need}{_differences(ours, theirs)}")
    else:
        out += _kinds_differ(robot.action_fields, policy.action_fields)
    for name in dict.fromkeys([*policy.parts, *robot.parts]):
        out += _part_differs(name, robot.parts.get(name), policy.parts.get(name))
    for name, num in policy.measured.items():
        if robot.measured.get(name) != num:
            have = ", ".join(f"{n} ({k})" for n, k in robot.measured.items()) or "none"
            out.append(f"measured: the policy needs {num} numbers {name}, the robot has {have}")
    scene, needed = robot.environment_state_dim, policy.environment_state_dim
    if needed and scene != needed:
        out.append(f"environment state size: the robot has {scene}, the policy needs {needed}")
    for name, size in policy.cameras.items():
        if name not in robot.cameras:
            have = ", ".join(robot.cameras) or "none"
            out.append(f"camera {name!r}: the policy needs it, the robot has {have}")
        elif robot.cameras[name] != size:
            out.append(f"camera {name!r}: the robot has {robot.cameras[name]}, the policy needs {size}")
    return out


def _kinds_differ(robot: tuple[ActionField, ...], policy: tuple[ActionField, ...]) -> list[str]:
    """Parts whose columns have the same names on both sides and mean something else."""
    theirs, out = {f.part: f for f in policy}, []
    for f in robot:
        need = theirs[f.part]
        if (ours := _summary((f,))) != (asked := _summary((need,))):
            out.append(f"{f.part}: the robot takes {ours}, the policy says {asked}")
        match f, need:
            case WorldEndEffectorPose(base=has), WorldEndEffectorPose(base=needs) if has != needs:
                out.append(f"{f.part}: the robot has it on the base {has!r}, the policy on {needs!r}")
    return out


def _part_differs(name: str, robot: PartSchema | None, policy: PartSchema | None) -> list[str]:
    """What of one part's measurements does not agree."""
    if not (isinstance(robot, ArmSchema) and isinstance(policy, ArmSchema)):
        if type(robot) is type(policy):
            return []
        have = "no such part" if robot is None else _WORDS[type(robot)]
        need = "none" if policy is None else _WORDS[type(policy)]
        return [f"{name}: the robot has {have}, the policy needs {need}"]
    out = []
    if sorted(robot.names) != sorted(policy.names):
        ours, theirs = ([f"{name}.{joint}" for joint in part.names] for part in (robot, policy))
        out.append(
            f"{name} joints: the robot has {robot.num_joints}, the policy needs {policy.num_joints}"
            + _differences(ours, theirs)
        )
    if policy.has_hand and not robot.has_hand:
        out.append(f"{name}: the policy needs the pose of its hand, the robot does not measure one")
    return out


_WORDS = {ArmSchema: "joints", GripperSchema: "a gripper", BaseSchema: "a mobile base"}
_MOST_LISTED = 40


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
    """InvalidValueError if a policy that was trained on some task texts was not on this one.

    tasks: the policy's; empty if any text will do.
    """
    if tasks and task not in tasks:
        valid = ", ".join(map(repr, tasks))
        raise InvalidValueError(f"policy {policy!r} does not know the task {task!r}; valid: {valid}")


def _commands(action_fields: tuple[ActionField, ...]) -> list[str]:
    """What the rows come to for the robot, however they say it."""
    out: list[str] = []
    for f in action_fields:
        match f:
            case GripperFraction():
                out += GripperWidth(f.part).column_names
            case JointVelocity(is_integrated=True):
                out += f.column_names
            case JointVelocity():
                out += (f"{name}.velocity" for name in f.column_names)
            case _:
                out += f.column_names
    return out


def _summary(action_fields: tuple[ActionField, ...]) -> str:
    """The same in words."""
    words = []
    for f in action_fields:
        match f:
            case JointPosition() | JointVelocity(is_integrated=True):
                what, usual = f"{f.dim} joint positions", ARM
            case JointVelocity():
                what, usual = f"{f.dim} joint velocities", ARM
            case EndEffectorPose() | WorldEndEffectorPose():
                what, usual = "hand pose", ARM
            case GripperWidth() | GripperFraction():
                what, usual = "gripper width", GRIPPER
            case BasePose():
                what, usual = "base pose", BASE
            case BaseTwist():
                what, usual = "base twist", BASE
            case Numbers():
                what, usual = f"{f.dim} numbers", "action"
        words.append(what if f.part == usual else f"{what} of {f.part}")
    return ", ".join(sorted(words)) or "none"
