"""Tables of parts: the meaning of a LeRobot device's numbers, and their conversion to SI units. Pure.

A LeRobot robot reads and takes a flat dictionary, `{"shoulder_pan.pos": 12.5, "gripper.pos": 40.0}`, and
does not declare their units. So they are declared, part by part, or follow from its type:

    {"arm": {"joints": ["shoulder_pan", "elbow"], "unit": "deg"},
     "gripper": {"gripper": "gripper", "closed": 0, "open": 100, "stroke_m": 0.07},
     "base": {"base": ["x.vel", "y.vel", "theta.vel"], "angle_unit": "deg"}}
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import Struct

from robot_runtime.core.values.conventions import AS_IT_IS, RAD_PER_DEGREE, GripperNumber, Linear
from robot_runtime.core.values.fields import JointPosition, check_part
from robot_runtime.errors import InvalidValueError

Unit = Literal["deg", "rad", "percent"]
Numbers = list[float]
"""Numbers of one part, in SI units: positions of joints, the width of a gripper, the twist of a base."""


class Joints(Struct, frozen=True, kw_only=True, tag="joints", forbid_unknown_fields=True):
    """An arm, or any other group of joints."""

    joints: list[str]
    """Names in LeRobot, with or without `.pos`."""
    names: list[str] = []
    """Names for policies; none: as in LeRobot."""
    unit: Unit
    ranges: list[tuple[float, float]] = []
    """Angles of -100 % and 100 % of each joint [rad]."""

    def __post_init__(self) -> None:
        JointPosition(len(self.joints), names=tuple(self.names))
        if self.names and len(self.names) != len(self.joints):
            raise ValueError(f"{len(self.joints)} joints need as many names, got {self.names}")
        if self.unit == "percent" and len(self.ranges) != len(self.joints):
            raise ValueError(
                "joints in percent need `ranges`, where -100 % and 100 % of each of them are [rad], got "
                f"{len(self.ranges)} for {len(self.joints)} joints"
            )
        if self.unit != "percent" and self.ranges:
            raise ValueError(f"`ranges` are for joints in percent, and these are in {self.unit}")
        self.to_rad()

    def to_rad(self) -> list[Linear]:
        """Return the conversion of each joint's number to rad."""
        match self.unit:
            case "deg":
                return [Linear(scale=RAD_PER_DEGREE)] * len(self.joints)
            case "rad":
                return [AS_IT_IS] * len(self.joints)
        return [Linear(scale=(high - low) / 200.0, offset=(high + low) / 2.0) for low, high in self.ranges]


class Gripper(Struct, frozen=True, kw_only=True, tag="gripper", forbid_unknown_fields=True):
    """A gripper: its number when it is closed and when it is open."""

    gripper: str
    """Name in LeRobot, with or without `.pos`."""
    action: str = ""
    """Name of its command, if that differs."""
    closed: float = 0.0
    open: float = 100.0
    action_closed: float | None = None
    """Closed value of the command; None: as measured."""
    action_open: float | None = None
    stroke_m: float
    """Distance between the fingers when it is open [m]."""

    def __post_init__(self) -> None:
        self.to_width("closed", "open")
        self.to_width("action_closed", "action_open")

    def to_width(self, closed: str, open_: str) -> Linear:
        """Return the conversion of its number to the gripper width [m]."""
        ends = [getattr(self, closed), getattr(self, open_)]
        if ends[0] is None or ends[1] is None:
            ends = [self.closed, self.open]
        if not all(map(math.isfinite, ends)) or abs(ends[1] - ends[0]) < 1e-6:
            raise ValueError(f"a gripper's number differs between closed and open, got {ends}")
        return GripperNumber(closed=ends[0], open=ends[1]).to_width(self.stroke_m)


class Base(Struct, frozen=True, kw_only=True, tag="base", forbid_unknown_fields=True):
    """A mobile base that measures and takes twists; its pose is the sum of the measured ones."""

    base: tuple[str, str, str]
    """vx, vy, wz, names in LeRobot; ahead and to the left in m/s."""
    angle_unit: Literal["deg", "rad"]

    def to_si(self) -> list[Linear]:
        turn = AS_IT_IS if self.angle_unit == "rad" else Linear(scale=RAD_PER_DEGREE)
        return [AS_IT_IS, AS_IT_IS, turn]


Table = Joints | Gripper | Base
_KINDS: dict[str, type[Table]] = {"joints": Joints, "gripper": Gripper, "base": Base}


def tables_from_plain(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Table]:
    """Read the parts of a file; InvalidValueError: a part is invalid."""
    out: dict[str, Table] = {}
    for name, plain in parts.items():
        check_part(name)
        kinds = [kind for kind in _KINDS if kind in plain]
        if len(kinds) != 1:
            raise InvalidValueError(
                f"part {name} has one of `joints`, `gripper` and `base`, got {', '.join(plain) or 'nothing'}"
            )
        try:
            out[name] = msgspec.convert({"type": kinds[0], **plain}, _KINDS[kinds[0]])
        except (msgspec.ValidationError, ValueError) as error:
            raise InvalidValueError(f"part {name}: {error}") from None
    return out


@dataclass(frozen=True, kw_only=True)
class Known:
    """What type, configuration and user declare about a device's units; None: unknown."""

    unit: Unit | None
    ranges: Mapping[str, tuple[float, float]]
    """Joint name -> angles of -100 % and 100 % [rad]."""
    stroke_m: float | None
    angle_unit: Literal["deg", "rad"] | None


def tables_from_features(features: Iterable[str], known: Known) -> dict[str, Table]:
    """Make parts by the usual names: `left_` and `right_` are two arms, names with gripper are grippers,
    x.vel y.vel theta.vel are a base. ValueError: something has to be declared; the message names it."""
    joints: dict[str, list[str]] = {}
    out: dict[str, Table] = {}
    all_features = list(features)
    for feature in all_features:
        if not feature.endswith(".pos"):
            continue
        motor = feature.removesuffix(".pos")
        side = next((side for side in ("left_", "right_") if motor.startswith(side)), "")
        if "gripper" in motor:
            if known.stroke_m is None:
                raise ValueError(f"declare how far {motor} opens: stroke_m=0.07, or declare its part")
            out[f"{side}gripper"] = Gripper(gripper=motor, stroke_m=known.stroke_m)
        else:
            joints.setdefault(f"{side}arm", []).append(motor)
    for part, motors in joints.items():
        out[part] = _joints(part, motors, known)
    twist = ("x.vel", "y.vel", "theta.vel")
    if set(twist) <= set(all_features):
        if known.angle_unit is None:
            raise ValueError('declare its base: parts={"base": {"base": [...], "angle_unit": "deg"}}')
        out["base"] = Base(base=twist, angle_unit=known.angle_unit)
    if not out:
        raise ValueError(f"declare its parts; it takes {', '.join(all_features) or 'nothing'}")
    return out


def _joints(part: str, motors: list[str], known: Known) -> Joints:
    side = part.removesuffix("arm")
    names = [motor.removeprefix(side).removeprefix("arm_") for motor in motors]
    ranges: list[tuple[float, float]] = []
    if known.unit is None:
        raise ValueError(f'declare the unit of {", ".join(motors)}: joint_unit="deg", "rad" or "percent"')
    if known.unit == "percent":
        missing = [motor for motor in motors if motor not in known.ranges]
        if missing:
            raise ValueError(
                f"{', '.join(missing)} are in per cent of an undeclared range: declare it, "
                f"joint_ranges={{{missing[0]!r}: [-1.9, 1.9], ...}} [rad], or set its use_degrees"
            )
        ranges = [known.ranges[motor] for motor in motors]
    return Joints(joints=motors, names=names, unit=known.unit, ranges=ranges)
