"""What a robot offers and a policy needs, compared before anything moves."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from robot_runtime.core.values.action import (
    MAX_JOINTS,
    ActionField,
    ActionSpec,
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
    Numbers,
    WorldEndEffectorPose,
    fields_from_dicts,
    fields_to_dicts,
    whole,
)
from robot_runtime.errors import InvalidValueError

MAX_SCENE, MAX_CAMERAS, MAX_SIDE = 65_536, 16, 8_192
"""Numbers of a scene, cameras, and pixels of a picture's side."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The shape of the conversation between one robot and one policy.

    A robot states what it has, a policy what it needs; `mismatches` lists every way in which the two differ.
    """

    action_fields: tuple[ActionField, ...] = ()
    """Columns of an action row, in order; horizon and row spacing are the policy's to choose."""
    num_joints: int = 0
    has_gripper: bool = False
    has_base: bool = False
    environment_state_dim: int = 0
    cameras: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Camera name -> (height, width) [pixels]."""

    def __post_init__(self) -> None:
        if not 0 <= self.num_joints <= MAX_JOINTS or not 0 <= self.environment_state_dim <= MAX_SCENE:
            raise InvalidValueError(
                f"a schema has up to {MAX_JOINTS} joints and {MAX_SCENE} scene numbers, "
                f"got {self.num_joints} and {self.environment_state_dim}"
            )
        if len(self.cameras) > MAX_CAMERAS or any(
            not 1 <= side <= MAX_SIDE for size in self.cameras.values() for side in size
        ):
            raise InvalidValueError(
                f"a schema has up to {MAX_CAMERAS} cameras of 1 to {MAX_SIDE} pixels a side, "
                f"got {dict(self.cameras)!r:.200}"
            )

    @classmethod
    def of(
        cls,
        spec: ActionSpec,
        *,
        cameras: Mapping[str, tuple[int, int]] | None = None,
        environment_state_dim: int = 0,
    ) -> "Schema":
        """Of a policy that needs no other parts than those that its rows move.

        cameras: name -> (height, width) of the pictures it looks at [pixels].
        InvalidValueError: it moves the hand, so only its author knows how many joints the arm has.
        """
        joints = [f.num_joints for f in spec.fields if isinstance(f, JointPosition)]
        if not joints and any(isinstance(f, EndEffectorPose | WorldEndEffectorPose) for f in spec.fields):
            raise InvalidValueError(
                "a policy that moves the hand says how many joints the arm has: schema=Schema(num_joints=...)"
            )
        return cls(
            action_fields=spec.fields,
            num_joints=sum(joints),
            has_gripper=any(isinstance(f, GripperWidth) for f in spec.fields),
            has_base=any(isinstance(f, BasePose | BaseTwist) for f in spec.fields),
            environment_state_dim=environment_state_dim,
            cameras=cameras or {},
        )

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
        return cls(
            action_fields=fields_from_dicts(data["action_fields"]),
            num_joints=whole(data["num_joints"], "num_joints"),
            has_gripper=_flag(data["has_gripper"], "has_gripper"),
            has_base=_flag(data["has_base"], "has_base"),
            environment_state_dim=whole(data["environment_state_dim"], "environment_state_dim"),
            cameras={
                _text(name): (whole(h, "height"), whole(w, "width"))
                for name, (h, w) in _cameras(data["cameras"]).items()
            },
        )


def _cameras(value: object) -> dict:
    if not isinstance(value, dict):
        raise ValueError(f"cameras are an object of names and sizes, got {value!r:.100}")
    return value


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is true or false, got {value!r:.100}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 256 or not value.isprintable():
        raise ValueError(f"a camera's name is 1 to 256 printable characters, got {value!r:.100}")
    return value


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
            case Numbers(names=each):
                names.append(f"numbers {', '.join(each)}")
    return ", ".join(sorted(names))
