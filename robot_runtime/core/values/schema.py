"""Schemas: what a robot offers and a policy needs, compared before anything moves."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, TypedDict, Unpack

from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.fields import (
    MAX_JOINTS,
    MAX_PARTS,
    ActionField,
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperFraction,
    GripperWidth,
    JointPosition,
    JointVelocity,
    WorldEndEffectorPose,
    check_part,
    fields_from_dicts,
    fields_to_dicts,
    joint_names,
    whole,
)
from robot_runtime.core.values.state import ARM, BASE, GRIPPER
from robot_runtime.errors import InvalidValueError

MAX_SCENE, MAX_CAMERAS, MAX_SIDE = 65_536, 16, 8_192
"""Most numbers of a scene, cameras, and pixels of an image's side."""


@dataclass(frozen=True)
class ArmSchema:
    """Number and names of the joints of an arm or of any other group: `ArmSchema(7)`."""

    num_joints: int
    names: tuple[str, ...] = ()
    """By default joint_1, joint_2, ..."""
    has_hand: bool = True
    """Whether the pose of its end effector is measured, or needed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", JointPosition(self.num_joints, names=self.names).names)


@dataclass(frozen=True)
class GripperSchema:
    """A gripper with a measured width."""

    names: ClassVar[tuple[str, ...]] = ("width",)


@dataclass(frozen=True)
class BaseSchema:
    """A mobile base with a measured pose and twist."""

    names: ClassVar[tuple[str, ...]] = ("x", "y", "yaw")


PartSchema = ArmSchema | GripperSchema | BaseSchema
_KIND_OF: dict[str, type[PartSchema]] = {"arm": ArmSchema, "gripper": GripperSchema, "base": BaseSchema}
_NAME_OF = {kind: name for name, kind in _KIND_OF.items()}


class _OfDefaultParts(TypedDict, total=False):
    num_joints: int
    has_gripper: bool
    has_base: bool


@dataclass(frozen=True, kw_only=True, init=False)
class Schema:
    """The interface between one robot and one policy.

        Schema(action_fields=fields, num_joints=7, has_gripper=True, has_base=False)
        Schema(action_fields=fields, parts={"left_arm": ArmSchema(7), "left_gripper": GripperSchema(), ...})

    A robot declares what it has, a policy what it needs; `mismatches` lists every difference.
    """

    action_fields: tuple[ActionField, ...]
    """Columns of an action row, in order; the policy chooses horizon and row spacing."""
    parts: Mapping[str, PartSchema]
    """Measurements by part."""
    measured: Mapping[str, int]
    """Further quantities (forces, torques, accelerations) by name, with their sizes."""
    environment_state_dim: int
    environment_state_names: tuple[str, ...]
    """Names of the scene quantities; empty: unknown, and only their number has to agree."""
    cameras: Mapping[str, tuple[int, int]]
    """Camera name -> (height, width) [pixels]."""

    def __init__(
        self,
        *,
        action_fields: tuple[ActionField, ...] = (),
        parts: Mapping[str, PartSchema] | None = None,
        measured: Mapping[str, int] | None = None,
        environment_state_dim: int = 0,
        environment_state_names: tuple[str, ...] = (),
        cameras: Mapping[str, tuple[int, int]] | None = None,
        **of_default_parts: Unpack[_OfDefaultParts],
    ) -> None:
        """of_default_parts: `num_joints` of "arm", `has_gripper`, `has_base`; they override `parts`.

        InvalidValueError: more of something than any robot has, or an invalid name.
        """
        mine = {} if parts is None else dict(parts)
        _set_default_parts(mine, of_default_parts)
        own = self.__dict__
        own["action_fields"], own["parts"] = tuple(action_fields), MappingProxyType(mine)
        own["measured"] = MappingProxyType({} if measured is None else dict(measured))
        own["environment_state_dim"] = environment_state_dim
        own["environment_state_names"] = tuple(environment_state_names) if environment_state_dim else ()
        own["cameras"] = MappingProxyType({} if cameras is None else dict(cameras))
        self._check()

    def _check(self) -> None:
        for name in (*self.parts, *self.measured):
            check_part(name)
        self._check_fields()
        if self.parts.keys() & self.measured.keys():
            raise InvalidValueError(
                f"parts and other quantities need names of their own, got {self.measured}"
            )
        sizes = self.measured.values()
        if (
            len(self.parts) > MAX_PARTS
            or len(self.measured) > MAX_PARTS
            or not all(1 <= size <= MAX_SCENE for size in sizes)
        ):
            raise InvalidValueError(
                f"a schema has up to {MAX_PARTS} parts and as many quantities of 1 to {MAX_SCENE} numbers"
            )
        if not 0 <= self.environment_state_dim <= MAX_SCENE:
            raise InvalidValueError(
                f"a schema has up to {MAX_JOINTS} joints and {MAX_SCENE} scene numbers, "
                f"got {self.num_joints} and {self.environment_state_dim}"
            )
        names, num = self.environment_state_names, self.environment_state_dim
        if names and not len(set(names)) == len(names) == num:
            raise InvalidValueError(
                f"expected {num} different names of environment state, got {names!r:.200}"
            )
        if len(self.cameras) > MAX_CAMERAS or any(
            not 1 <= side <= MAX_SIDE for size in self.cameras.values() for side in size
        ):
            raise InvalidValueError(
                f"a schema has up to {MAX_CAMERAS} cameras of 1 to {MAX_SIDE} pixels a side, "
                f"got {dict(self.cameras)!r:.200}"
            )

    def _check_fields(self) -> None:
        """Require one action field per part, with joints in the order in which they are measured."""
        moved = [f.part for f in self.action_fields]
        if len(set(moved)) < len(moved):
            raise InvalidValueError(f"at most one action field for a part of the robot, got {moved}")
        for f in self.action_fields:
            part = self.parts.get(f.part)
            if not isinstance(f, JointPosition | JointVelocity) or not isinstance(part, ArmSchema):
                continue
            if f.names != part.names and sorted(f.names) == sorted(part.names):
                raise InvalidValueError(
                    f"the joints of {f.part} are commanded and measured in one order, "
                    f"got {list(f.names)} and {list(part.names)}"
                )

    def __hash__(self) -> int:
        return hash((self.action_fields, tuple(self.parts.items()), tuple(self.cameras.items())))

    @property
    def num_joints(self) -> int:
        """Number of joints of the part "arm"."""
        arm = self.parts.get(ARM)
        return arm.num_joints if isinstance(arm, ArmSchema) else 0

    @property
    def has_gripper(self) -> bool:
        """Whether there is a part "gripper"."""
        return isinstance(self.parts.get(GRIPPER), GripperSchema)

    @property
    def has_base(self) -> bool:
        """Whether there is a part "base"."""
        return isinstance(self.parts.get(BASE), BaseSchema)

    def needs_hand(self, part: str) -> bool:
        """Whether an arm's end-effector pose is measured, or needed, e.g. by rows that command it."""
        arm = self.parts.get(part)
        moves = (EndEffectorPose, WorldEndEffectorPose)
        return (isinstance(arm, ArmSchema) and arm.has_hand) or any(
            isinstance(f, moves) and f.part == part for f in self.action_fields
        )

    def without_hands(self) -> "Schema":
        """The schema of a policy that needs no measured end-effector pose."""
        parts = {
            name: replace(part, has_hand=False) if isinstance(part, ArmSchema) else part
            for name, part in self.parts.items()
        }
        return replace(self, parts=parts)

    @property
    def arms(self) -> dict[str, ArmSchema]:
        """All groups of joints, by name."""
        return {name: part for name, part in self.parts.items() if isinstance(part, ArmSchema)}

    @property
    def grippers(self) -> list[str]:
        return [name for name, part in self.parts.items() if isinstance(part, GripperSchema)]

    @property
    def bases(self) -> list[str]:
        return [name for name, part in self.parts.items() if isinstance(part, BaseSchema)]

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the measured positions: `left_arm.joint_3`, `gripper.width`, ..."""
        return tuple(f"{name}.{column}" for name, part in self.parts.items() for column in part.names)

    @classmethod
    def of(
        cls,
        spec: ActionSpec,
        *,
        cameras: Mapping[str, tuple[int, int]] | None = None,
        measured: Mapping[str, int] | None = None,
        environment_state_dim: int = 0,
        environment_state_names: tuple[str, ...] = (),
    ) -> "Schema":
        """The schema of a policy that needs only the parts that its rows move.

        measured: the sensors that it uses, with their sizes.
        environment_state_names: names of the scene quantities, by which they are matched.
        cameras: name -> (height, width) of the images that it uses [pixels].
        InvalidValueError: it commands end-effector poses, so the number of joints has to be declared.
        """
        parts: dict[str, PartSchema] = {}
        for f in spec.fields:
            match f:
                case JointPosition() | JointVelocity():
                    parts[f.part] = ArmSchema(f.dim, f.names, has_hand=False)
                case GripperWidth() | GripperFraction():
                    parts[f.part] = GripperSchema()
                case BasePose() | BaseTwist():
                    parts[f.part] = BaseSchema()
                case EndEffectorPose() | WorldEndEffectorPose():
                    raise InvalidValueError(
                        "a policy of end-effector poses has to declare how many joints the arm has: "
                        "schema=Schema(num_joints=...)"
                    )
        return cls(
            action_fields=spec.fields,
            parts=parts,
            measured=measured,
            environment_state_dim=environment_state_dim,
            environment_state_names=environment_state_names,
            cameras=cameras,
        )

    def to_dict(self) -> dict:
        """Plain values for the wire and for files."""
        out: dict = {"action_fields": fields_to_dicts(self.action_fields)}
        out["parts"] = {name: _part_to_dict(part) for name, part in self.parts.items()}
        if self.measured:
            out["measured"] = dict(self.measured)
        if self.environment_state_names:
            out["environment_state_names"] = list(self.environment_state_names)
        return out | {
            "environment_state_dim": self.environment_state_dim,
            "cameras": {name: list(size) for name, size in self.cameras.items()},
        }

    @classmethod
    def from_dict(cls, data: dict) -> "Schema":
        """Inverse of `to_dict`; also reads the format for one-armed robots from before parts had names.

        ValueError, KeyError or TypeError on anything else.
        """
        if "parts" in data:
            parts = {
                check_part(name): _part_from_dict(part)
                for name, part in _object(data["parts"], "parts").items()
            }
        else:
            parts = _default_parts(
                whole(data["num_joints"], "num_joints"),
                _flag(data["has_gripper"], "has_gripper"),
                _flag(data["has_base"], "has_base"),
            )
        return cls(
            action_fields=fields_from_dicts(data["action_fields"]),
            parts=parts,
            measured={
                check_part(name): whole(size, name)
                for name, size in _object(data.get("measured", {}), "measured").items()
            },
            environment_state_dim=whole(data["environment_state_dim"], "environment_state_dim"),
            environment_state_names=tuple(map(_text, data.get("environment_state_names", ()))),
            cameras={
                _text(name, "a camera's name"): (whole(h, "height"), whole(w, "width"))
                for name, (h, w) in _object(data["cameras"], "cameras").items()
            },
        )


def _default_parts(num_joints: int, has_gripper: bool, has_base: bool) -> dict[str, PartSchema]:
    """The parts of a robot with at most one arm, gripper and base. InvalidValueError: num_joints."""
    out: dict[str, PartSchema] = {}
    if not 0 <= num_joints <= MAX_JOINTS:
        raise InvalidValueError(f"a schema has up to {MAX_JOINTS} joints, got {num_joints}")
    if num_joints:
        out[ARM] = ArmSchema(num_joints)
    if has_gripper:
        out[GRIPPER] = GripperSchema()
    if has_base:
        out[BASE] = BaseSchema()
    return out


def _set_default_parts(parts: dict[str, PartSchema], given: Mapping[str, Any]) -> None:
    if unknown := given.keys() - _OfDefaultParts.__annotations__.keys():
        raise TypeError(f"Schema has no {', '.join(sorted(unknown))}")
    for name, key in ((ARM, "num_joints"), (GRIPPER, "has_gripper"), (BASE, "has_base")):
        if key in given:
            parts.pop(name, None)
    parts |= _default_parts(
        given.get("num_joints", 0), given.get("has_gripper", False), given.get("has_base", False)
    )


def _part_to_dict(part: PartSchema) -> dict:
    out: dict = {"kind": _NAME_OF[type(part)]}
    if isinstance(part, ArmSchema):
        out |= {"num_joints": part.num_joints, "has_hand": part.has_hand}
        if part.names != joint_names(part.num_joints):
            out["names"] = list(part.names)
    return out


def _part_from_dict(data: object) -> PartSchema:
    entry = _object(data, "a part")
    kind = _KIND_OF.get(entry["kind"])
    if kind is None:
        raise ValueError(f"unknown part {entry['kind']!r:.100}; valid: {', '.join(_KIND_OF)}")
    if kind is not ArmSchema:
        return kind()  # type: ignore[call-arg]
    names = entry.get("names", [])
    if not isinstance(names, list) or len(names) > MAX_JOINTS:
        raise ValueError(f"names of joints are a list, got {names!r:.100}")
    return ArmSchema(
        whole(entry["num_joints"], "num_joints"), tuple(names), _flag(entry["has_hand"], "has_hand")
    )


def _object(value: object, name: str) -> dict:
    if not isinstance(value, dict):
        raise ValueError(f"{name} are an object of names, got {value!r:.100}")
    return value


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is true or false, got {value!r:.100}")
    return value


def _text(value: object, what: str = "a name") -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 256 or not value.isprintable():
        raise ValueError(f"{what} is 1 to 256 printable characters, got {value!r:.100}")
    return value
