"""What a robot may be told: `Limits`, for every part that is commanded. `limiter` keeps them."""

import math
from dataclasses import dataclass

import numpy as np

from robot_runtime.core.values.action import (
    ActionSpec,
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
    Numbers,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import readonly
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class MotionLimits:
    """How fast something may be led, for each of n axes; all positive and finite."""

    speed: Float[np.ndarray, " n"]
    """[rad/s] or [m/s]"""
    acceleration: Float[np.ndarray, " n"]
    """[rad/s²] or [m/s²]"""
    jerk: Float[np.ndarray, " n"]
    """[rad/s³] or [m/s³]"""

    def __post_init__(self) -> None:
        shape = np.shape(self.speed)
        for name in ("speed", "acceleration", "jerk"):
            value = readonly(np.asarray(getattr(self, name), dtype=float))
            if value.ndim != 1 or value.shape != shape:
                raise InvalidValueError(f"{name} needs one number an axis, {shape}, got shape {value.shape}")
            if not (np.isfinite(value).all() and (value > 0.0).all()):
                raise InvalidValueError(f"{name} has to be positive and finite, got {value.tolist()}")
            object.__setattr__(self, name, value)

    @classmethod
    def of_norm(cls, *, speed: float, acceleration: float, jerk: float, num_axes: int = 3) -> "MotionLimits":
        """Limits of a vector's length, kept by keeping each of its components to the share 1 / sqrt(n)."""
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
            object.__setattr__(self, name, readonly(np.asarray(getattr(self, name), dtype=float)))


@dataclass(frozen=True, kw_only=True, eq=False)
class NumbersLimits:
    """Of plain numbers, in their own units; they may jump within their range."""

    low: Float[np.ndarray, " K"]
    """-inf: no end."""
    high: Float[np.ndarray, " K"]

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, readonly(np.asarray(getattr(self, name), dtype=float)))
        if self.low.shape != self.high.shape or self.low.ndim != 1 or not (self.low <= self.high).all():
            raise InvalidValueError(f"numbers need low <= high, got {self.low} and {self.high}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Limits:
    """What the robot may be told. A part without limits cannot be commanded: the robot does not have it."""

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
    """Joint speeds by position, where the robot has them."""
    gripper_min: float = 0.0
    """Finger distance [m]."""
    gripper_max: float = 0.08
    gripper: MotionLimits | None = None
    """Of the finger distance, one axis [m/s, m/s², m/s³]."""
    hand_translation: MotionLimits | None = None
    """Of the hand where it is commanded as a pose, along the axes of B [m/s, m/s², m/s³]."""
    hand_rotation: MotionLimits | None = None
    """About the axes of B [rad/s, rad/s², rad/s³]."""
    base: MotionLimits | None = None
    """(vx, vy, wz) in the base's own axes [m/s, m/s, rad/s] and so on."""
    numbers: NumbersLimits | None = None
    """Of plain numbers."""

    def __post_init__(self) -> None:
        for name in ("q_min", "q_max", "dq_max", "ddq_max", "dddq_max"):
            value = np.asarray(getattr(self, name), dtype=float)
            if not np.isfinite(value).all():
                raise InvalidValueError(f"{name} has to be finite, got {value.tolist()}")
            object.__setattr__(self, name, readonly(value))
        if not (self.q_min < self.q_max).all():
            raise InvalidValueError(f"limits need q_min < q_max, got {self.q_min} and {self.q_max}")
        if not self.gripper_min <= self.gripper_max:
            raise InvalidValueError(f"a gripper from {self.gripper_min} to {self.gripper_max} m has no range")
        _ = self.joints

    @property
    def joints(self) -> MotionLimits:
        """The joints' own."""
        return MotionLimits(speed=self.dq_max, acceleration=self.ddq_max, jerk=self.dddq_max)

    def check(self, spec: ActionSpec, *, resolves_hand: bool) -> None:
        """InvalidValueError if the policy commands what has no limits.

        resolves_hand: whether hand poses become joints before they are limited.
        """
        missing = []
        for f in spec.fields:
            match f:
                case JointPosition(num_joints=n) if n != len(self.q_min):
                    raise InvalidValueError(
                        f"the policy moves {n} joints, limits are declared for {len(self.q_min)}"
                    )
                case GripperWidth() if self.gripper is None:
                    missing.append("gripper")
                case EndEffectorPose() | WorldEndEffectorPose() if not resolves_hand:
                    missing += [n for n in ("hand_translation", "hand_rotation") if getattr(self, n) is None]
                case BasePose() | BaseTwist() if self.base is None:
                    missing.append("base")
                case Numbers() if self.numbers is None:
                    missing.append("numbers")
        if missing:
            raise InvalidValueError(
                "the policy commands parts for which no limits are declared: "
                f"Limits({'=..., '.join(missing)}=...) is needed"
            )
