"""Limits of commands: `Limits`, for every part that is commanded. `limiter` enforces them.

The constructors refuse limits in degrees or millimetres: a number beyond that of any such machine
(`USUAL_JOINT`, `_FINGERS` and so on) needs `unusual=True` beside it.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

import numpy as np

from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.fields import (
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
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import ARM, BASE, GRIPPER, numbers
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class MotionLimits:
    """Limits of speed, acceleration and jerk for each of n axes; all positive and finite."""

    speed: Float[np.ndarray, " n"]
    """[rad/s] or [m/s]; 0 only for the sideways axis of a differential base, see `BaseLimits`."""
    acceleration: Float[np.ndarray, " n"]
    """[rad/s²] or [m/s²]"""
    jerk: Float[np.ndarray, " n"]
    """[rad/s³] or [m/s³]"""

    def __post_init__(self) -> None:
        shape = np.shape(self.speed)
        for name in ("speed", "acceleration", "jerk"):
            value = numbers(name, getattr(self, name))
            if value.ndim != 1 or value.shape != shape:
                like = f", {shape} as speed has them" if len(shape) == 1 and name != "speed" else ""
                raise InvalidValueError(
                    f"{name} needs one number an axis, an array (n,){like}; got shape {value.shape}"
                )
            is_large_enough = value >= 0.0 if name == "speed" else value > 0.0
            if not (np.isfinite(value).all() and is_large_enough.all()):
                raise InvalidValueError(f"{name} has to be positive and finite, got {value.tolist()}")
            object.__setattr__(self, name, value)

    @classmethod
    def of_norm(cls, *, speed: float, acceleration: float, jerk: float, num_axes: int = 3) -> "MotionLimits":
        """Limits of a vector's length, enforced by limiting each component to the share 1 / sqrt(n)."""
        each = np.full(num_axes, 1.0 / math.sqrt(num_axes))
        return cls(speed=speed * each, acceleration=acceleration * each, jerk=jerk * each)


@dataclass(frozen=True, kw_only=True, eq=False)
class SpeedCurve:
    """Speeds that shrink towards the ends of a joint's range (N joints):

        dq <=  -offset + sqrt(gain (high - q)),   dq >= offset - sqrt(gain (q - low)),   0 beyond

    Source: Franka Robotics, "Limits for Franka Research 3", position-dependent joint velocity limits.
    """

    low: Float[np.ndarray, " N"]
    """[rad]"""
    high: Float[np.ndarray, " N"]
    gain: Float[np.ndarray, " N"]
    """[rad/s²]"""
    offset: Float[np.ndarray, " N"]
    """[rad/s]"""

    def __post_init__(self) -> None:
        for name in ("low", "high", "gain", "offset"):
            object.__setattr__(self, name, numbers(name, getattr(self, name)))


Most = Mapping[str, tuple[float, str]]
"""Quantity -> the largest number of any such machine, and its unit."""
_ANGULAR = {"speed": (75.0, "rad/s"), "acceleration": (250.0, "rad/s²"), "jerk": (1e5, "rad/s³")}
"""An industrial wrist turns at 4,000 degrees/s, a SCARA's joint at 2,600."""
_LINEAR = {"speed": (20.0, "m/s"), "acceleration": (250.0, "m/s²"), "jerk": (1e5, "m/s³")}
"""A delta robot moves at 10 m/s with 15 g."""
USUAL_JOINT: Most = {
    **dict.fromkeys(("q_min", "q_max"), (16.0 * math.pi, "rad")),
    **{f"{d}q_max": most for d, most in zip(("d", "dd", "ddd"), _ANGULAR.values(), strict=True)},
}
"""Eight turns to each side."""
_WIDTH: Most = dict.fromkeys(("low", "high"), (0.5, "m"))
_FINGERS: Most = {"speed": (5.0, "m/s"), "acceleration": (1000.0, "m/s²"), "jerk": (1e5, "m/s³")}
_YAW: Most = {"speed": (20.0, "rad/s"), "acceleration": (250.0, "rad/s²"), "jerk": (1e5, "rad/s³")}


def refuse_units(where: str, value: object, most: tuple[float, str]) -> None:
    """Raise InvalidValueError for a number beyond any such machine's, as one in degrees or millimetres is.

    most: the largest, and the unit, as in `Most`.
    """
    largest, unit = most
    far = max(np.asarray(value, dtype=float).ravel().tolist(), key=abs, default=0.0)
    if abs(far) > largest:
        other = unit.replace("rad", "degrees") if "rad" in unit else unit.replace("m", "mm", 1)
        raise InvalidValueError(
            f"{where} is {far:g} {unit}, beyond the {largest:g} of any such machine: is that in {other}? "
            "If it is meant, declare unusual=True (unusual = true in a file)"
        )


def _refuse_units_of(
    limits: "PartLimits | MotionLimits | None", most: Most, *, prefix: str = "", axes: slice = slice(None)
) -> None:
    if limits is None:
        return
    for name, largest in most.items():
        refuse_units(f"{prefix}{name}", np.atleast_1d(getattr(limits, name))[axes], largest)


_LAST_RATE = 5.0
"""How fast the last bit of a range may be closed: share of it per second [1/s]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JointLimits:
    """Limits of the joints of an arm or another group, and of its end effector; N joints."""

    q_min: Float[np.ndarray, " N"]
    """Joint positions (N,) [rad]."""
    q_max: Float[np.ndarray, " N"]
    dq_max: Float[np.ndarray, " N"]
    """Joint speeds (N,) [rad/s]."""
    ddq_max: Float[np.ndarray, " N"]
    """Joint accelerations (N,) [rad/s²]."""
    dddq_max: Float[np.ndarray, " N"]
    """Joint jerks (N,) [rad/s³]."""
    dq_curve: SpeedCurve | None = None
    """Joint speed limits by position, where the robot has them."""
    hand_translation: MotionLimits | None = None
    """Limits of an end effector commanded by pose, along the axes of B [m/s, m/s², m/s³]."""
    hand_rotation: MotionLimits | None = None
    """The same about the axes of B [rad/s, rad/s², rad/s³]."""
    unusual: bool = False
    """Whether numbers beyond those of any such machine are intended: a joint without ends, a simulation."""

    def __post_init__(self) -> None:
        for name in ("q_min", "q_max", "dq_max", "ddq_max", "dddq_max"):
            value = numbers(name, getattr(self, name))
            if value.ndim != 1 or value.shape != self.q_min.shape:
                like = f" as q_min has them, {self.q_min.shape}" if name != "q_min" else ""
                raise InvalidValueError(
                    f"{name} needs one number a joint, an array (N,){like}; got shape {value.shape}"
                )
            if not np.isfinite(value).all():
                raise InvalidValueError(f"{name} has to be finite, got {value.tolist()}")
            object.__setattr__(self, name, value)
        if not (self.q_min < self.q_max).all():
            raise InvalidValueError(f"limits need q_min < q_max, got {self.q_min} and {self.q_max}")
        for name in ("joints", "hand_translation", "hand_rotation"):
            _refuse_zero_speed(name, getattr(self, name))
        if self.unusual:
            return
        _refuse_units_of(self, USUAL_JOINT)
        _refuse_units_of(self.hand_translation, _LINEAR, prefix="hand_translation.")
        _refuse_units_of(self.hand_rotation, _ANGULAR, prefix="hand_rotation.")

    @property
    def joints(self) -> MotionLimits:
        """Speed, acceleration and jerk of the joints."""
        return MotionLimits(speed=self.dq_max, acceleration=self.ddq_max, jerk=self.dddq_max)

    def slowed(self, dq: Float[np.ndarray, " N"], q: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Velocities from which joints measured at q stop before an end of their range, with half of their
        acceleration: a velocity command has no position limits of its own."""
        above, below = np.maximum(self.q_max - q, 0.0), np.maximum(q - self.q_min, 0.0)
        up = np.minimum(np.sqrt(self.ddq_max * above), _LAST_RATE * above)
        down = np.minimum(np.sqrt(self.ddq_max * below), _LAST_RATE * below)
        return np.minimum(np.maximum(dq, -down), up)


@dataclass(frozen=True, kw_only=True, eq=False)
class GripperLimits:
    """Limits of the distance of a gripper's fingers."""

    low: float = 0.0
    """[m]"""
    high: float = 0.08
    motion: MotionLimits | None = None
    """One axis [m/s, m/s², m/s³]; None: it cannot be commanded."""
    unusual: bool = False
    """As in `JointLimits`."""

    def __post_init__(self) -> None:
        ends = (self.low, self.high)
        if not all(isinstance(each, int | float | np.number) for each in ends):
            raise InvalidValueError(
                f"a gripper has its range in numbers [m], got {self.low!r} to {self.high!r}"
            )
        if self.motion is not None and self.motion.speed.shape != (1,):
            raise InvalidValueError(f"a gripper has one axis, its motion has {len(self.motion.speed)}")
        if not -np.inf < self.low <= self.high < np.inf:
            raise InvalidValueError(f"a gripper from {self.low} to {self.high} m has no range")
        _refuse_zero_speed("gripper", self.motion)
        if not self.unusual:
            _refuse_units_of(self, _WIDTH, prefix="the gripper's ")
            _refuse_units_of(self.motion, _FINGERS, prefix="the gripper's ")


@dataclass(frozen=True, kw_only=True, eq=False)
class BaseLimits:
    """Limits of a mobile base."""

    motion: MotionLimits
    """(vx, vy, wz) in the base's own axes [m/s, m/s, rad/s] and so on. A speed of 0 along y declares a
    differential base: sideways velocities are sent as 0, and a policy that commands poses is refused."""
    unusual: bool = False
    """As in `JointLimits`."""

    def __post_init__(self) -> None:
        speed = self.motion.speed
        if speed.shape != (3,) or not (speed[[0, 2]] > 0.0).all():
            raise InvalidValueError(
                "a base needs speeds (vx, vy, wz), positive but for the vy of a differential base, got "
                f"{speed.tolist()}"
            )
        if not self.unusual:
            _refuse_units_of(self.motion, _LINEAR, prefix="the base's ", axes=slice(2))
            _refuse_units_of(self.motion, _YAW, prefix="the base's ", axes=slice(2, None))

    @property
    def is_differential(self) -> bool:
        """Whether the base drives ahead and turns, but not sideways."""
        return bool(self.motion.speed[1] == 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class NumbersLimits:
    """Limits of plain numbers, in their own units; they may jump within their range if `motion` is None."""

    low: Float[np.ndarray, " K"]
    """-inf: no lower limit."""
    high: Float[np.ndarray, " K"]
    motion: MotionLimits | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, numbers(name, getattr(self, name)))
        if self.low.shape != self.high.shape or self.low.ndim != 1 or not (self.low <= self.high).all():
            raise InvalidValueError(f"numbers need low <= high, got {self.low} and {self.high}")
        _refuse_zero_speed("numbers", self.motion)


def _refuse_zero_speed(name: str, motion: MotionLimits | None) -> None:
    if motion is not None and not (motion.speed > 0.0).all():
        raise InvalidValueError(f"{name}: speeds have to be positive, got {motion.speed.tolist()}")


PartLimits = JointLimits | GripperLimits | BaseLimits | NumbersLimits


class _OfDefaultParts(TypedDict, total=False):
    q_min: Any
    q_max: Any
    dq_max: Any
    ddq_max: Any
    dddq_max: Any
    dq_curve: SpeedCurve | None
    hand_translation: MotionLimits | None
    hand_rotation: MotionLimits | None
    gripper_min: float
    gripper_max: float
    gripper: MotionLimits | None
    base: MotionLimits | None
    unusual: bool


@dataclass(frozen=True, eq=False, init=False)
class Limits:
    """The limits of all commands, by part. A part without limits cannot be commanded: the robot has none.

    Limits({"left_arm": JointLimits(q_min=...), "left_gripper": GripperLimits(motion=...)})
    Limits(q_min=..., q_max=..., dq_max=..., ddq_max=..., dddq_max=..., gripper=...)    the default parts
    """

    parts: Mapping[str, PartLimits]

    def __init__(
        self, parts: Mapping[str, PartLimits] | None = None, **of_default_parts: Unpack[_OfDefaultParts]
    ) -> None:
        """of_default_parts: fields of `JointLimits` for "arm"; `gripper_min`, `gripper_max` and `gripper`,
        its motion; `base`, its motion; `unusual`, for those given here. They override `parts`.

        InvalidValueError: a limit is impossible, or is in degrees or millimetres.
        """
        mine = {} if parts is None else dict(parts)
        if of_default_parts:
            _set_default_parts(mine, of_default_parts)
        self.__dict__["parts"] = MappingProxyType(mine)

    def replace(self, **of_default_parts: Unpack[_OfDefaultParts]) -> "Limits":
        """The limits with others for the default parts, named as in the constructor."""
        return Limits(self.parts, **of_default_parts)

    def arm(self, part: str = ARM) -> JointLimits:
        """The joint limits of a part; InvalidValueError: none are declared for it."""
        limits = self.parts.get(part)
        if not isinstance(limits, JointLimits):
            raise InvalidValueError(f"{part} is commanded, but the robot's limits declare no joints for it")
        return limits

    @property
    def q_min(self) -> Float[np.ndarray, " N"]:
        """Lower joint limits of "arm"; the properties below are of "arm", too."""
        return self.arm().q_min

    @property
    def q_max(self) -> Float[np.ndarray, " N"]:
        return self.arm().q_max

    @property
    def dq_max(self) -> Float[np.ndarray, " N"]:
        return self.arm().dq_max

    @property
    def ddq_max(self) -> Float[np.ndarray, " N"]:
        return self.arm().ddq_max

    @property
    def dddq_max(self) -> Float[np.ndarray, " N"]:
        return self.arm().dddq_max

    @property
    def dq_curve(self) -> SpeedCurve | None:
        return self.arm().dq_curve

    @property
    def joints(self) -> MotionLimits:
        return self.arm().joints

    @property
    def gripper(self) -> MotionLimits | None:
        """Motion limits of "gripper"."""
        limits = self.parts.get(GRIPPER)
        return limits.motion if isinstance(limits, GripperLimits) else None

    @property
    def gripper_min(self) -> float:
        """[m]"""
        limits = self.parts.get(GRIPPER)
        return limits.low if isinstance(limits, GripperLimits) else 0.0

    @property
    def gripper_max(self) -> float:
        """[m]"""
        limits = self.parts.get(GRIPPER)
        return limits.high if isinstance(limits, GripperLimits) else 0.0

    @property
    def base(self) -> MotionLimits | None:
        """Motion limits of "base"."""
        limits = self.parts.get(BASE)
        return limits.motion if isinstance(limits, BaseLimits) else None

    @property
    def gripper_ranges(self) -> dict[str, tuple[float, float]]:
        """Smallest and largest width of every gripper [m]."""
        grippers = {name: each for name, each in self.parts.items() if isinstance(each, GripperLimits)}
        return {name: (each.low, each.high) for name, each in grippers.items() if each.low < each.high}

    def check(self, spec: ActionSpec, *, resolves_hand: bool | Collection[str] = False) -> None:
        """Raise InvalidValueError if the policy commands a part without limits.

        resolves_hand: whether end-effector poses become joints before they are limited; or which arms' do.
        """
        hands = [f.part for f in spec.fields if isinstance(f, EndEffectorPose | WorldEndEffectorPose)]
        resolved = hands if resolves_hand is True else resolves_hand or ()
        missing: dict[str, str] = {}
        for f in spec.fields:
            limits = self.parts.get(f.part)
            match f:
                case JointPosition() | JointVelocity():
                    if not isinstance(limits, JointLimits):
                        missing[f.part] = _JOINTS
                    elif f.dim != len(limits.q_min):
                        raise InvalidValueError(
                            f"the policy moves {f.dim} joints of {f.part}, limits are declared for "
                            f"{len(limits.q_min)}"
                        )
                case GripperWidth() | GripperFraction():
                    if not isinstance(limits, GripperLimits) or limits.motion is None:
                        missing[f.part] = "GripperLimits(motion=...)"
                case EndEffectorPose() | WorldEndEffectorPose() if f.part not in resolved:
                    names = ("hand_translation", "hand_rotation")
                    absent = [f"{name}=..." for name in names if getattr(limits, name, None) is None]
                    if absent:
                        missing[f.part] = f"JointLimits({', '.join(absent)})"
                case BasePose() | BaseTwist() if not isinstance(limits, BaseLimits):
                    missing[f.part] = "BaseLimits(motion=...)"
                case BasePose() if isinstance(limits, BaseLimits) and limits.is_differential:
                    raise InvalidValueError(
                        f"the policy commands poses of {f.part!r}, which takes sideways motion, and its "
                        "limits declare a differential base (vy = 0); take a policy that commands BaseTwist"
                    )
                case Numbers():
                    if not isinstance(limits, NumbersLimits):
                        missing[f.part] = "NumbersLimits(low=..., high=...)"
                    elif f.dim != len(limits.low):
                        raise InvalidValueError(
                            f"the policy commands {f.dim} numbers of {f.part}, limits are declared for "
                            f"{len(limits.low)}"
                        )
        if missing:
            raise InvalidValueError(
                "the policy commands parts for which no limits are declared: "
                f"{_as_written(missing)} is needed"
            )


_JOINTS = "JointLimits(q_min=..., q_max=..., dq_max=..., ddq_max=..., dddq_max=...)"


def _as_written(missing: Mapping[str, str]) -> str:
    """Limits of these parts, as a user writes them in code."""
    short = {name: text for name, limits in missing.items() if (text := _short(name, limits))}
    others = ", ".join(f"{name!r}: {limits}" for name, limits in missing.items() if name not in short)
    return f"Limits({', '.join([*([f'{{{others}}}'] if others else []), *short.values()])})"


def _short(part: str, limits: str) -> str:
    """The short form for a default part; empty for any other."""
    match part, limits.partition("(")[0]:
        case "arm", "JointLimits":
            return limits.removeprefix("JointLimits(").removesuffix(")")
        case "gripper", "GripperLimits":
            return "gripper=..."
        case "base", "BaseLimits":
            return "base=..."
    return ""


_JOINT_LIMITS = tuple(each.name for each in fields(JointLimits))


def _set_default_parts(parts: dict[str, PartLimits], given: Mapping[str, Any]) -> None:
    """Set the given limits of "arm", "gripper" and "base"."""
    if unknown := given.keys() - _OfDefaultParts.__annotations__.keys():
        one = sorted(unknown)[0]
        raise TypeError(
            f"Limits has no {', '.join(sorted(unknown))}; limits of parts with names of their own are "
            f'Limits({{"{one}": JointLimits(...)}}), or GripperLimits or BaseLimits'
        )
    declared: dict[str, Any] = {"unusual": given["unusual"]} if "unusual" in given else {}
    if joints := {name: given[name] for name in _JOINT_LIMITS if name in given and name != "unusual"}:
        joints, old = joints | declared, parts.get(ARM)
        parts[ARM] = replace(old, **joints) if isinstance(old, JointLimits) else JointLimits(**joints)
    gripper = {"gripper_min": "low", "gripper_max": "high", "gripper": "motion"}
    if fingers := {theirs: given[ours] for ours, theirs in gripper.items() if ours in given}:
        fingers, was = fingers | declared, parts.get(GRIPPER)
        parts[GRIPPER] = replace(was if isinstance(was, GripperLimits) else GripperLimits(), **fingers)
    if "base" in given:
        before = parts.pop(BASE, None)
        if given["base"] is not None:
            declared = {"unusual": getattr(before, "unusual", False)} | declared
            parts[BASE] = BaseLimits(motion=given["base"], **declared)
