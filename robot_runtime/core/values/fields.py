"""Columns of an action row: fields, each of which commands one named part of the robot.

    JointPosition(7, part="left_arm")   left_arm.joint_1 ... left_arm.joint_7
    GripperWidth("left_gripper")        left_gripper.width
    BaseTwist()                         base.vx  base.vy  base.wz

Every column has a name, `part.quantity`; two sides are matched by these names, never by position (`schema`,
`alignment`).
"""

from dataclasses import dataclass, field, fields, replace
from enum import Enum
from math import inf, isfinite
from typing import Any

from robot_runtime.core.values.state import ARM, BASE, GRIPPER
from robot_runtime.errors import InvalidValueError

MAX_JOINTS, MAX_PARTS, MAX_NAME = 128, 64, 64
"""Upper bounds beyond any robot: a larger value from a file or a peer is a mistake, or an attack."""


class Reference(Enum):
    """The reference of a position in a row."""

    ABSOLUTE = "absolute"
    """The robot's own frame (joint zero, B for the end effector, W for the base)."""
    RELATIVE = "relative"
    """The value at the observation: `X_B,row = X_BE_obs * row`."""
    DELTA = "delta"
    """The row before it; row 0 counts from the value at the observation."""


class Rotation(Enum):
    """Encoding of an end effector's rotation in a row."""

    COLUMNS = "columns"
    """The first two columns of R: 6 numbers, r1 ... r6 (Zhou et al. 2019)."""
    VECTOR = "vector"
    """The axis times the angle: 3 numbers, rx ry rz [rad]; axis-angle of robosuite, LIBERO and UMI."""


_ROTATION_NAMES = {
    Rotation.COLUMNS: ("r1", "r2", "r3", "r4", "r5", "r6"),
    Rotation.VECTOR: ("rx", "ry", "rz"),
}


def _always(*names: str) -> Any:
    """A field default for column names that the kind decides."""
    return field(default=names, init=False, repr=False, compare=False)


class _Field:
    """Base of all kinds of fields."""

    part: str
    names: tuple[str, ...]

    @property
    def dim(self) -> int:
        """Number of columns."""
        return len(self.names)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(f"{self.part}.{name}" for name in self.names)


@dataclass(frozen=True)
class JointPosition(_Field):
    """Joints of an arm, or of any other group (head, lift, hand): `num_joints` columns [rad], or [m] if
    prismatic."""

    num_joints: int
    reference: Reference = Reference.ABSOLUTE
    part: str = ARM
    names: tuple[str, ...] = ()
    """The policy's names of its joints, in its own order; by default joint_1, joint_2, ..."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _joint_names(self.num_joints, self.names))
        check_part(self.part)


@dataclass(frozen=True)
class JointVelocity(_Field):
    """Velocities of joints: `num_joints` columns [rad/s].

    Integrated, they are positions, each counted from the row before: row k is reached with velocity k, row -1
    is the joints' position at the observation. Otherwise the driver receives velocities.
    """

    num_joints: int
    is_integrated: bool = False
    part: str = ARM
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _joint_names(self.num_joints, self.names))
        check_part(self.part)


@dataclass(frozen=True)
class EndEffectorPose(_Field):
    """End effector in the mobile base, `X_BE`: position (3) [m], then R_BE by `rotation`: 9 columns, or 6."""

    reference: Reference = Reference.ABSOLUTE
    part: str = ARM
    rotation: Rotation = Rotation.COLUMNS
    names: tuple[str, ...] = _always("x", "y", "z", "r1", "r2", "r3", "r4", "r5", "r6")

    def __post_init__(self) -> None:
        check_part(self.part)
        object.__setattr__(self, "names", ("x", "y", "z", *_ROTATION_NAMES[self.rotation]))


@dataclass(frozen=True)
class WorldEndEffectorPose(_Field):
    """End effector in the world, `X_WE`: columns as of `EndEffectorPose`, absolute.

    The arm's target follows from the base pose of the same row, `X_BE = X_WB^-1 * X_WE`, or from that at the
    observation if no field commands base poses.
    """

    part: str = ARM
    base: str = BASE
    """The part that carries the arm."""
    rotation: Rotation = Rotation.COLUMNS
    names: tuple[str, ...] = _always("x", "y", "z", "r1", "r2", "r3", "r4", "r5", "r6")

    def __post_init__(self) -> None:
        check_part(self.part)
        check_part(self.base)
        object.__setattr__(self, "names", ("x", "y", "z", *_ROTATION_NAMES[self.rotation]))


@dataclass(frozen=True)
class GripperWidth(_Field):
    """Distance between the fingers: 1 column [m], held from row to row and never interpolated."""

    part: str = GRIPPER
    names: tuple[str, ...] = _always("width")

    def __post_init__(self) -> None:
        check_part(self.part)


@dataclass(frozen=True)
class GripperFraction(_Field):
    """Opening, or closing, of a gripper as a share: 1 column, 0 to 1, held from row to row.

    The robot declares the range of widths: `ActionSpec.with_gripper_ranges`.
    """

    part: str = GRIPPER
    one_is_open: bool = True
    """Whether 1 is open; otherwise it is closed."""
    low: float = 0.0
    """Width when closed [m]."""
    high: float = 1.0
    """Width when open [m]."""

    def __post_init__(self) -> None:
        check_part(self.part)
        if not -inf < self.low < self.high < inf:
            raise InvalidValueError(f"a gripper from {self.low} to {self.high} m has no range")

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("opening",) if self.one_is_open else ("closing",)

    def width(self, share: Any) -> Any:
        """The width of a share, or of an array of shares [m]; the limiter clips those beyond 0 to 1."""
        share = share if self.one_is_open else 1.0 - share
        return self.low + (self.high - self.low) * share

    def share(self, width: Any) -> Any:
        """Inverse of `width`."""
        share = (width - self.low) / (self.high - self.low)
        return share if self.one_is_open else 1.0 - share


@dataclass(frozen=True)
class BasePose(_Field):
    """Mobile base in the world, `x_WB`: 3 columns (x, y, yaw) [m, m, rad]."""

    reference: Reference = Reference.ABSOLUTE
    part: str = BASE
    names: tuple[str, ...] = _always("x", "y", "yaw")

    def __post_init__(self) -> None:
        check_part(self.part)


@dataclass(frozen=True)
class BaseTwist(_Field):
    """Velocity of the mobile base expressed in B: 3 columns (vx, vy, wz) [m/s, m/s, rad/s]."""

    part: str = BASE
    names: tuple[str, ...] = _always("vx", "vy", "wz")

    def __post_init__(self) -> None:
        check_part(self.part)


@dataclass(frozen=True)
class Numbers(_Field):
    """Plain numbers, such as a simulator's action vector: they are sent unchanged, in their own units."""

    names: tuple[str, ...]
    part: str = "action"
    is_held: bool = True
    """Whether each holds until the next row is due; otherwise they are interpolated, as positions are."""
    scale: float = 1.0
    """Unit of distances between them: distances are shares of it."""
    at_rest: tuple[float | None, ...] = ()
    """Values that keep everything as it is, whatever the state: 0 for velocities and steps. They are sent
    before the first row and once a plan has ended. None, the default, is for a position: it stays at the last
    row's value, and before the first row at the measured one, or 0."""

    def __post_init__(self) -> None:
        check_part(self.part)
        object.__setattr__(self, "names", _unique(tuple(self.names)))
        rest = tuple(None if x is None else float(x) for x in self.at_rest)
        are_finite = all(x is None or isfinite(x) for x in rest)
        if (rest and len(rest) != len(self.names)) or not are_finite or not 0.0 < self.scale < inf:
            raise InvalidValueError(
                f"{len(self.names)} numbers rest at as many, finite, on a scale above 0, got {rest}, "
                f"{self.scale}"
            )
        object.__setattr__(self, "at_rest", () if set(rest) == {None} else rest)


ActionField = (
    JointPosition
    | JointVelocity
    | EndEffectorPose
    | WorldEndEffectorPose
    | GripperWidth
    | GripperFraction
    | BasePose
    | BaseTwist
    | Numbers
)
_FIELD_KINDS: dict[str, type[ActionField]] = {
    "joint_position": JointPosition,
    "joint_velocity": JointVelocity,
    "end_effector_pose": EndEffectorPose,
    "world_end_effector_pose": WorldEndEffectorPose,
    "gripper_width": GripperWidth,
    "gripper_fraction": GripperFraction,
    "base_pose": BasePose,
    "base_twist": BaseTwist,
    "numbers": Numbers,
}
_KIND_NAMES = {kind: name for name, kind in _FIELD_KINDS.items()}


def fields_to_dicts(action_fields: tuple[ActionField, ...]) -> list[dict]:
    """Action fields as plain values; defaults are left out."""
    out = []
    for f in action_fields:
        entry: dict = {"kind": _KIND_NAMES[type(f)], "dim": f.dim}
        for each in fields(f):
            value = getattr(f, each.name)
            if each.name == "num_joints" or not each.init:
                continue
            if each.name == "names" and not isinstance(f, Numbers) and value == joint_names(f.dim):
                continue
            if each.name != "reference" and value == each.default:
                continue
            if isinstance(value, Reference | Rotation):
                value = value.value
            entry[each.name] = list(value) if isinstance(value, tuple) else value
        out.append(entry)
    return out


def fields_from_dicts(entries: list[dict]) -> tuple[ActionField, ...]:
    """Inverse of `fields_to_dicts`; ValueError, KeyError or TypeError on anything else."""
    if len(entries) > MAX_PARTS:
        raise ValueError(f"a row has up to {MAX_PARTS} fields, got {len(entries)}")
    return tuple(map(_field_from_dict, entries))


def _field_from_dict(entry: dict) -> ActionField:
    kind = _FIELD_KINDS.get(entry["kind"])
    if kind is None:
        raise ValueError(f"unknown action field {entry['kind']!r}; valid: {', '.join(_FIELD_KINDS)}")
    dim = whole(entry["dim"], "dim")
    known = {each.name for each in fields(kind) if each.init} - {"num_joints"}
    given = {name: value for name, value in entry.items() if name not in ("kind", "dim")}
    if unknown := given.keys() - known:
        raise ValueError(f"{entry['kind']} has no {', '.join(sorted(map(str, unknown)))}")
    for name, value in given.items():
        given[name] = _value_from_dict(name, value)
    if kind in (JointPosition, JointVelocity):
        given["num_joints"] = dim
    out: ActionField = kind(**given)
    if out.dim != dim:
        raise ValueError(f"{entry['kind']} has {out.dim} columns, got {dim}")
    return out


def _value_from_dict(name: str, value: Any) -> Any:
    match name:
        case "reference":
            return Reference(value)
        case "rotation":
            return Rotation(value)
        case "at_rest":
            if not isinstance(value, list | tuple) or not all(x is None or _is_number(x) for x in value):
                raise ValueError(f"at_rest is a list of numbers and nulls, got {value!r:.100}")
            return tuple(value)
        case "names":
            if not isinstance(value, list | tuple) or len(value) > MAX_JOINTS:
                raise ValueError(f"{name} is a list of up to {MAX_JOINTS}, got {value!r:.100}")
            return tuple(value)
        case "part" | "base":
            return check_part(value)
        case "scale" | "low" | "high":
            if not _is_number(value):
                raise ValueError(f"{name} is a number, got {value!r:.100}")
            return float(value)
        case _:
            if not isinstance(value, bool):
                raise ValueError(f"{name} is true or false, got {value!r:.100}")
            return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def whole(value: object, name: str) -> int:
    """A whole number from a file or a peer; ValueError: it is not one."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is a whole number, got {value!r:.100}")
    return value


def check_part(name: object) -> str:
    """The name of a part; InvalidValueError: it is invalid."""
    if not isinstance(name, str) or not name.isidentifier() or len(name) > MAX_NAME:
        raise InvalidValueError(
            f"a part is called by up to {MAX_NAME} letters, digits and underscores, got {name!r:.100}"
        )
    return name


def joint_names(num_joints: int) -> tuple[str, ...]:
    """Default names of joints: joint_1, joint_2, ..."""
    return tuple(f"joint_{i + 1}" for i in range(num_joints))


def _joint_names(num_joints: int, names: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(num_joints, int) or not 1 <= num_joints <= MAX_JOINTS:
        raise InvalidValueError(f"an arm has 1 to {MAX_JOINTS} joints, got {num_joints!r:.100}")
    out = _unique(tuple(names)) if names else joint_names(num_joints)
    if len(out) != num_joints:
        raise InvalidValueError(f"{num_joints} joints need as many names, got {list(out)}")
    return out


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of columns; InvalidValueError: one is invalid, or occurs twice."""
    for name in names:
        if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name) <= MAX_NAME:
            raise InvalidValueError(
                f"a column's name is 1 to {MAX_NAME} printable characters, got {name!r:.100}"
            )
    if not names or len(names) > MAX_JOINTS or len(set(names)) < len(names):
        raise InvalidValueError(
            f"columns need 1 to {MAX_JOINTS} names, each for one of them, got {list(names)!r:.200}"
        )
    return names


def absolute(f: ActionField) -> ActionField:
    """The same field with absolute positions."""
    if isinstance(f, JointPosition | EndEffectorPose | BasePose):
        return replace(f, reference=Reference.ABSOLUTE)
    return f
