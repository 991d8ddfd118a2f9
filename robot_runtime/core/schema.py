"""What a robot offers and a policy needs, compared before anything moves."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from robot_runtime.core.action import (
    MAX_COLUMNS,
    ActionField,
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
    WorldEndEffectorPose,
    fields_from_dicts,
    fields_to_dicts,
)
from robot_runtime.errors import InvalidValueError

MAX_STATE, MAX_CAMERAS, MAX_PIXELS = 100_000, 16, 8192
"""Beyond these a schema that comes from elsewhere is a mistake."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The shape of the conversation between one robot and one policy.

    A robot states what it has, a policy what it needs; `mismatches` lists every way in which the two differ.
    """

    action_fields: tuple[ActionField, ...]
    """Columns of an action row, in order; horizon and row spacing are the policy's to choose."""
    num_joints: int
    has_gripper: bool
    has_base: bool
    environment_state_dim: int = 0
    cameras: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Camera name -> (height, width) [pixels]."""

    def to_dict(self) -> dict:
        """Plain values for the wire and for files."""
        return {
            "action_fields": fields_to_dicts(self.action_fields),
            "num_joints": self.num_joints,
            "has_gripper": self.has_gripper,
            "has_base": self.has_base,
            "environment_state_dim": self.environment_state_dim,
            "cameras": {name: list(size) for name, size in self.cameras.items()},
        }

    @classmethod
    def from_dict(cls, data: dict) -> "Schema":
        """Inverse of `to_dict`; ValueError, KeyError or TypeError on anything else."""
        schema = cls(
            action_fields=fields_from_dicts(data["action_fields"]),
            num_joints=int(data["num_joints"]),
            has_gripper=bool(data["has_gripper"]),
            has_base=bool(data["has_base"]),
            environment_state_dim=int(data["environment_state_dim"]),
            cameras={str(name): (int(h), int(w)) for name, (h, w) in data["cameras"].items()},
        )
        if not 0 <= schema.num_joints <= MAX_COLUMNS or not 0 <= schema.environment_state_dim <= MAX_STATE:
            raise ValueError(
                f"a robot has 0 to {MAX_COLUMNS} arm joints and 0 to {MAX_STATE} numbers of environment "
                f"state, got {schema.num_joints} and {schema.environment_state_dim}"
            )
        if len(schema.cameras) > MAX_CAMERAS:
            raise ValueError(f"a robot has at most {MAX_CAMERAS} cameras, got {len(schema.cameras)}")
        for name, size in schema.cameras.items():
            if not name.isprintable() or not all(1 <= pixels <= MAX_PIXELS for pixels in size):
                raise ValueError(
                    f"a camera has a name and 1 to {MAX_PIXELS} pixels each way, got {name!r} of {size}"
                )
        return schema


def mismatches(*, robot: Schema, policy: Schema) -> list[str]:
    """Sentences naming both sides, one per difference; empty if the policy can drive the robot.

    A robot may have more cameras than the policy looks at, and scene quantities that it does without; a
    policy may count positions from elsewhere: rows are turned into absolute commands. All else has to agree.
    """
    out = []
    pairs = [
        ("actions", _commands(robot.action_fields), _commands(policy.action_fields)),
        ("arm joints", robot.num_joints, policy.num_joints),
        ("gripper", robot.has_gripper, policy.has_gripper),
        ("mobile base", robot.has_base, policy.has_base),
    ]
    if policy.environment_state_dim:
        pairs.append(("environment state size", robot.environment_state_dim, policy.environment_state_dim))
    for what, ours, theirs in pairs:
        if ours != theirs:
            out.append(f"{what}: the robot has {ours}, the policy needs {theirs}")
    for name, size in policy.cameras.items():
        if name not in robot.cameras:
            have = ", ".join(robot.cameras) or "none"
            out.append(f"camera {name!r}: the policy needs it, the robot has {have}")
        elif robot.cameras[name] != size:
            out.append(f"camera {name!r}: the robot has {robot.cameras[name]}, the policy needs {size}")
    return out


def check_task(task: str, *, policy: str, tasks: tuple[str, ...]) -> None:
    """InvalidValueError if a policy that was trained on some task texts was not on this one.

    tasks: the policy's; empty if any text will do.
    """
    if tasks and task not in tasks:
        valid = ", ".join(map(repr, tasks))
        raise InvalidValueError(f"policy {policy!r} does not know the task {task!r}; valid: {valid}")


def _commands(fields: tuple[ActionField, ...]) -> str:
    """What the rows come to for the robot."""
    names = []
    for f in fields:
        match f:
            case JointPosition(num_joints=n):
                names.append(f"{n} joint positions")
            case EndEffectorPose() | WorldEndEffectorPose():
                names.append("hand pose")
            case GripperWidth():
                names.append("gripper width")
            case BasePose():
                names.append("base pose")
            case BaseTwist():
                names.append("base twist")
    return ", ".join(sorted(names))
