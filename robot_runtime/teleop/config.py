"""How a person's motion becomes the robot's: `TeleopConfig`."""

import math
from dataclasses import dataclass
from enum import Enum

from robot_runtime.core.values.action import NS_PER_MS
from robot_runtime.errors import InvalidValueError


class OnRelease(Enum):
    """What happens to a part whose clutch is released."""

    HAND_BACK = "hand_back"
    """The policy moves it again."""
    HOLD = "hold"
    """It holds, until it is driven again or handed back by an operator command."""


@dataclass(frozen=True, kw_only=True)
class TeleopConfig:
    """Scales, speeds and frames; the robot's own limits still apply."""

    translation_scale: float = 1.0
    """Metres of the robot's end effector for each metre of the leader."""
    rotation_scale: float = 1.0
    """Radians for each radian; 0 keeps the end effector's orientation."""
    yaw_deg: float = 0.0
    """Rotation of the leader's frame about the vertical: 180 for a person who faces the robot."""
    hand_speed_max: float = 0.6
    """[m/s]; a faster leader is followed with a delay."""
    hand_rotation_max: float = 2.0
    """[rad/s]"""
    joint_share: float = 0.5
    """Share of the speed that the limits allow each joint."""
    follow_rate: float = 20.0
    """Highest rate at which the gap to the leader closes: share of it per second [1/s]. Smooths a device
    that is read 60 times a second."""
    align_rad_s: float = 0.0
    """Speed with which a leader arm's offset to the robot shrinks while it drives [rad/s]; 0 keeps it."""
    on_release: OnRelease = OnRelease.HAND_BACK
    stale_ns: int = 250 * NS_PER_MS
    """A lead that is older no longer counts: the parts are released [ns]."""

    def __post_init__(self) -> None:
        for name in ("translation_scale", "hand_speed_max", "hand_rotation_max", "follow_rate"):
            _check(name, getattr(self, name), lowest=1e-3, highest=1e3)
        _check("rotation_scale", self.rotation_scale, lowest=0.0, highest=10.0)
        _check("joint_share", self.joint_share, lowest=1e-3, highest=1.0)
        _check("align_rad_s", self.align_rad_s, lowest=0.0, highest=2.0)
        _check("yaw_deg", self.yaw_deg, lowest=-360.0, highest=360.0)
        _check("stale_ns", self.stale_ns, lowest=10 * NS_PER_MS, highest=1000 * NS_PER_MS)

    def share(self, dt_s: float) -> float:
        """Return the largest share of the gap to the leader that closes in one tick."""
        return min(self.follow_rate * dt_s, 1.0)

    @property
    def yaw(self) -> float:
        """[rad]"""
        return math.radians(self.yaw_deg)


def _check(name: str, value: float, *, lowest: float, highest: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        raise InvalidValueError(f"teleop: {name} is from {lowest:g} to {highest:g}, got {value!r:.60}")
