"""Measurements of a robot: `RobotState` of named parts, `Image`, `Observation`.

Arrays and poses that a driver may still write to are copied, and numpy scalars become plain numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType, NoneType
from typing import Any, TypedDict, Unpack

import numpy as np
import pinocchio as pin
from msgspec import Struct, field
from msgspec.structs import force_setattr

from robot_runtime.core.values.shapes import Float, UInt8
from robot_runtime.errors import InvalidValueError, NotShownError

_UINT8 = np.dtype(np.uint8)


def readonly(array: object, *, dtype: type = np.float64) -> np.ndarray:
    """The array as `dtype`, not writeable; copies only if a caller could still write to it."""
    out: np.ndarray = np.asarray(array, dtype=dtype)
    owner: object = out
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            out = out.copy()
            out.flags.writeable = False
            return out
        owner = owner.base
    return out


def numbers(name: str, array: object) -> np.ndarray:
    """As `readonly`; InvalidValueError, with the name: the array does not hold numbers."""
    try:
        return readonly(array)
    except (TypeError, ValueError):
        raise InvalidValueError(f"{name} is an array of numbers, got {array!r:.60}") from None


def _whole_ns(t_ns: object) -> int:
    """A stamp as an int; ValueError if it is not whole."""
    if not isinstance(t_ns, int | np.integer):
        raise ValueError(f"t_ns must be whole nanoseconds, got {t_ns!r:.100}")
    return int(t_ns)


ARM, GRIPPER, BASE = "arm", "gripper", "base"
"""Default names of the parts of a robot with one of each."""
_NO_NUMBERS = readonly(np.zeros(0))


class ArmState(Struct, frozen=True, kw_only=True, eq=False):
    """The measured joints of an arm, or of any other group of joints (head, lift, hand)."""

    q: Float[np.ndarray, " N"]
    """Joint positions (N,) [rad]; of a prismatic joint [m]."""
    dq: Float[np.ndarray, " N"]
    """Joint velocities (N,) [rad/s]."""
    X_BE: pin.SE3 | None = None
    """End effector E in the mobile base B; on a robot without one, in one frame that all its arms share (the
    mount of the only arm). None: the group has no end effector."""
    t_ns: int | None = None
    """Capture time [ns]; None: that of the whole state."""

    def __post_init__(self) -> None:
        force_setattr(self, "q", numbers("q", self.q))
        force_setattr(self, "dq", numbers("dq", self.dq))
        if self.X_BE is not None:
            force_setattr(self, "X_BE", self.X_BE.copy())
        if type(self.t_ns) not in (int, NoneType):
            force_setattr(self, "t_ns", _whole_ns(self.t_ns))


class GripperState(Struct, frozen=True, kw_only=True, eq=False):
    """The measured state of a gripper."""

    width: float
    """Distance between the fingers [m]."""
    t_ns: int | None = None
    """Capture time [ns]; None: that of the whole state."""

    def __post_init__(self) -> None:
        if type(self.width) is not float:
            force_setattr(self, "width", _width(self.width))
        if type(self.t_ns) not in (int, NoneType):
            force_setattr(self, "t_ns", _whole_ns(self.t_ns))


class BaseState(Struct, frozen=True, kw_only=True, eq=False):
    """The measured state of a mobile base; unknown quantities are None."""

    x_WB: Float[np.ndarray, "3"] | None = None
    """Pose in the world/odometry frame (x, y, yaw) [m, m, rad]."""
    V_WB_B: Float[np.ndarray, "3"] | None = None
    """Twist (vx, vy, wz) [m/s, m/s, rad/s], expressed in B."""
    t_ns: int | None = None
    """Capture time [ns]; None: that of the whole state."""

    def __post_init__(self) -> None:
        if self.x_WB is not None:
            force_setattr(self, "x_WB", numbers("x_WB", self.x_WB))
        if self.V_WB_B is not None:
            force_setattr(self, "V_WB_B", numbers("V_WB_B", self.V_WB_B))
        if type(self.t_ns) not in (int, NoneType):
            force_setattr(self, "t_ns", _whole_ns(self.t_ns))


PartState = ArmState | GripperState | BaseState
_NO_ARM, _NO_BASE = ArmState(q=_NO_NUMBERS, dq=_NO_NUMBERS), BaseState()


class _Sensors(dict[str, np.ndarray]):
    def __missing__(self, name: str) -> np.ndarray:
        raise _not_shown("sensor", name, self, f"measured={{{name!r}: 6}}")


class _Images(dict[str, "Image"]):
    def __missing__(self, name: str) -> "Image":
        raise _not_shown("camera", name, self, f"cameras={{{name!r}: (height, width)}}")


def _not_shown(kind: str, name: str, known: Mapping[str, Any], declared: str) -> NotShownError:
    return NotShownError(
        f"no {kind} {name!r} is shown, only {', '.join(known) or 'none'}; a policy declares what it looks "
        f"at: PolicyInfo(schema=Schema.of(action_spec, {declared}))"
    )


_NOTHING: Mapping[str, np.ndarray] = MappingProxyType(_Sensors())


class _OfDefaultParts(TypedDict, total=False):
    """Measurements of a robot with one arm, one gripper and one base."""

    q: Any
    dq: Any
    X_BE: pin.SE3 | None
    gripper_width: Any
    x_WB: Any
    V_WB_B: Any


@dataclass(frozen=True, kw_only=True, eq=False, init=False)
class RobotState:
    """One measured snapshot of all parts of a robot, taken at `t_ns` on the robot's clock.

        RobotState(t_ns=t, parts={"left_arm": ArmState(q=q, dq=dq), "left_gripper": GripperState(width=0.04)})
        RobotState(t_ns=t, q=q, dq=dq, X_BE=X_BE, gripper_width=0.04)      the parts "arm" and "gripper"

    A robot bolted to a table has no base: then B is the mount of its arm, or the frame that its arms share.
    """

    t_ns: int
    """Capture time [ns], robot's monotonic clock; of the part measured first, where parts differ."""
    parts: Mapping[str, PartState]
    """Measured state of each part, by name."""
    measured: Mapping[str, np.ndarray]
    """Further quantities (forces, torques, accelerations) by name, of any shape, SI units."""
    t_newest_ns: int | None
    """Capture time of the part measured last [ns]; None: all at `t_ns`."""

    def __init__(
        self,
        *,
        t_ns: Any,
        parts: Mapping[str, PartState] | None = None,
        measured: Mapping[str, Any] | None = None,
        t_newest_ns: int | None = None,
        **of_default_parts: Unpack[_OfDefaultParts],
    ) -> None:
        """of_default_parts: `q`, `dq`, `X_BE` of the part "arm", `gripper_width` of "gripper", `x_WB` and
        `V_WB_B` of "base"; they override `parts`, and None removes a quantity."""
        mine = {} if parts is None else dict(parts)
        if of_default_parts:
            _set_default_parts(mine, of_default_parts)
        for part in mine.values():
            _check_shapes(part)
        own = self.__dict__
        own["t_ns"] = t_ns if type(t_ns) is int else _whole_ns(t_ns)
        own["parts"] = MappingProxyType(mine)
        own["measured"] = _NOTHING if not measured else _readonly_each(measured)
        own["t_newest_ns"] = t_newest_ns

    @property
    def q(self) -> Float[np.ndarray, " N"]:
        """Joint positions of "arm" [rad]; empty if there is no such part."""
        arm = self.parts.get(ARM)
        return arm.q if isinstance(arm, ArmState) else _NO_NUMBERS

    @property
    def dq(self) -> Float[np.ndarray, " N"]:
        """Joint velocities of "arm" [rad/s]; empty if there is no such part."""
        arm = self.parts.get(ARM)
        return arm.dq if isinstance(arm, ArmState) else _NO_NUMBERS

    @property
    def X_BE(self) -> pin.SE3 | None:
        """End effector of "arm" in the mobile base."""
        return self.hand(ARM)

    @property
    def gripper_width(self) -> float | None:
        """Distance between the fingers of "gripper" [m]."""
        gripper = self.parts.get(GRIPPER)
        return gripper.width if isinstance(gripper, GripperState) else None

    @property
    def x_WB(self) -> Float[np.ndarray, "3"] | None:
        """Pose of "base" in the world/odometry frame (x, y, yaw) [m, m, rad]."""
        return self.base(BASE).x_WB

    @property
    def V_WB_B(self) -> Float[np.ndarray, "3"] | None:
        """Twist of "base" (vx, vy, wz) [m/s, m/s, rad/s], expressed in B."""
        return self.base(BASE).V_WB_B

    def arm(self, part: str) -> ArmState:
        """The joints of a part; ValueError: the state has no joints of that name."""
        arm = self.parts.get(part)
        if not isinstance(arm, ArmState):
            raise ValueError(f"the state has no joints of {part!r}{self._has()}")
        return arm

    def hand(self, part: str) -> pin.SE3 | None:
        """`X_BE` of an arm, or None."""
        arm = self.parts.get(part)
        return arm.X_BE if isinstance(arm, ArmState) else None

    def gripper(self, part: str) -> GripperState:
        """A gripper's state; ValueError: the state has none of that name."""
        gripper = self.parts.get(part)
        if not isinstance(gripper, GripperState):
            raise ValueError(f"the state has no width of {part!r}{self._has()}")
        return gripper

    def base(self, part: str) -> BaseState:
        """The state of a base; all unknown if there is no part of that name."""
        base = self.parts.get(part)
        return base if isinstance(base, BaseState) else _NO_BASE

    def with_parts(self, parts: Mapping[str, PartState], *, t_ns: int | None = None) -> "RobotState":
        """The state with these parts in place of those of the same names."""
        return RobotState(
            t_ns=self.t_ns if t_ns is None else t_ns,
            parts={**self.parts, **parts},
            measured=self.measured,
            t_newest_ns=self.t_newest_ns,
        )

    def replace(
        self, *, t_ns: int | None = None, **of_default_parts: Unpack[_OfDefaultParts]
    ) -> "RobotState":
        """The state with other quantities of its default parts, named as in the constructor."""
        return RobotState(
            t_ns=self.t_ns if t_ns is None else t_ns,
            parts=self.parts,
            measured=self.measured,
            t_newest_ns=self.t_newest_ns,
            **of_default_parts,
        )

    def _has(self) -> str:
        return f"; it has {', '.join(self.parts) or 'no parts'}"

    @cached_property
    def is_finite(self) -> bool:
        """False if any measured number is NaN or infinite. Cached, as it is read several times a tick."""
        numbers: list[float] = []
        for part in self.parts.values():
            if isinstance(part, ArmState):
                numbers += part.q.tolist()
                numbers += part.dq.tolist()
                if part.X_BE is not None:
                    numbers += part.X_BE.homogeneous.ravel().tolist()
            elif isinstance(part, GripperState):
                numbers.append(part.width)
            else:
                for each in (part.x_WB, part.V_WB_B):
                    if each is not None:
                        numbers += each.tolist()
        for value in self.measured.values():
            numbers += value.ravel().tolist()
        return all(map(math.isfinite, numbers))  # plain floats take a quarter of numpy's time


def _set_default_parts(parts: dict[str, PartState], given: Mapping[str, Any]) -> None:
    """Set quantities of the default parts. TypeError: there is none of that name."""
    num_known = 0
    if "q" in given or "dq" in given or "X_BE" in given:
        num_known += ("q" in given) + ("dq" in given) + ("X_BE" in given)
        arm = parts.pop(ARM, None)
        old = arm if isinstance(arm, ArmState) else _NO_ARM
        new = ArmState(q=given.get("q", old.q), dq=given.get("dq", old.dq), X_BE=given.get("X_BE", old.X_BE))
        if new.q.size or new.X_BE is not None:
            parts[ARM] = new
    if "gripper_width" in given:
        num_known += 1
        parts.pop(GRIPPER, None)
        if given["gripper_width"] is not None:
            parts[GRIPPER] = GripperState(width=given["gripper_width"])
    if "x_WB" in given or "V_WB_B" in given:
        num_known += ("x_WB" in given) + ("V_WB_B" in given)
        base = parts.pop(BASE, None)
        was = base if isinstance(base, BaseState) else _NO_BASE
        now = BaseState(x_WB=given.get("x_WB", was.x_WB), V_WB_B=given.get("V_WB_B", was.V_WB_B))
        if now.x_WB is not None or now.V_WB_B is not None:
            parts[BASE] = now
    if num_known < len(given):
        unknown = given.keys() - _OfDefaultParts.__annotations__.keys()
        raise TypeError(f"RobotState has no {', '.join(sorted(unknown))}")


def _readonly_each(measured: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
    return MappingProxyType(_Sensors({name: numbers(name, value) for name, value in measured.items()}))


def _check_shapes(part: PartState) -> None:
    match part:
        case ArmState():
            if part.q.shape != part.dq.shape or part.q.ndim != 1:
                raise ValueError(f"q and dq must both be (N,), got {part.q.shape} and {part.dq.shape}")
        case BaseState():
            for name in ("x_WB", "V_WB_B"):
                value = getattr(part, name)
                if value is not None and value.shape != (3,):
                    raise ValueError(f"{name} must be (3,), got {value.shape}")


def _width(width: object) -> float:
    number = np.asarray(width)
    if number.size != 1 or number.dtype.kind not in "fiu":
        raise ValueError(f"gripper_width must be one number [m], got {width!r:.100}")
    return float(number.item())


class Image(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """One camera frame with its own capture time."""

    t_ns: int
    """Capture time [ns], robot's monotonic clock."""
    pixels: UInt8[np.ndarray, "h w 3"]
    """RGB, row 0 on top."""

    def __post_init__(self) -> None:
        if self.pixels.ndim != 3 or self.pixels.shape[2] != 3 or self.pixels.dtype != _UINT8:
            raise ValueError(f"an image is (h, w, 3) uint8, got {self.pixels.shape} {self.pixels.dtype}")
        if type(self.t_ns) is not int:
            force_setattr(self, "t_ns", _whole_ns(self.t_ns))
        force_setattr(self, "pixels", readonly(self.pixels, dtype=np.uint8))


class Observation(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """The input of a policy: state, images and the task in words.

    image        state                 rows 0, 1, 2 ...         answer
    |------------|-----|-----|-----|-----|-----|-----|-----|-----|
    t_oldest_ns  t_obs_ns: row 0 is due here, and d counts from here
    |<---------------- delay: age of what the robot reacts to ----->|

    name                what                                        shape, unit
    state               measured robot state                        see RobotState
    images              camera name -> frame, each with its time    (h, w, 3) uint8
    environment_state   scene quantities where there are no images  (K,), task's own units
    task                what to do                                  text
    history             earlier observations, oldest first          see `frames`
    """

    state: RobotState
    images: Mapping[str, Image] = field(default_factory=dict)
    environment_state: Float[np.ndarray, " K"] = _NO_NUMBERS
    task: str = ""
    history: tuple["Observation", ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "images", MappingProxyType(_Images(self.images)))
        force_setattr(self, "environment_state", readonly(self.environment_state))

    @property
    def t_obs_ns(self) -> int:
        """Capture time of the state [ns]; row times of the answer are counted from it."""
        return self.state.t_ns

    @property
    def t_oldest_ns(self) -> int:
        """Capture time of its oldest part, state or image [ns]; delay counts from it."""
        return min([self.state.t_ns, *(image.t_ns for image in self.images.values())])

    def frames(self, n_obs_steps: int) -> "tuple[Observation, ...]":
        """The newest n_obs_steps, oldest first, this one last; if there are fewer, the oldest is repeated."""
        if n_obs_steps == 1:
            return (self,)
        known = (*self.history[1 - n_obs_steps :], self)
        return (known[0],) * (n_obs_steps - len(known)) + known
