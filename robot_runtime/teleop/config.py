"""How what a person does becomes what the robot does: `TeleopConfig`."""

import math
from dataclasses import dataclass
from enum import Enum

from robot_runtime.core.values.action import NS_PER_MS
from robot_runtime.errors import InvalidValueError


class OnRelease(Enum):
    """What becomes of a part whose clutch is let go."""

    HAND_BACK = "hand_back"
    """The policy has it again."""
    HOLD = "hold"
    """It stands, until it is led again or handed back by an order."""


@dataclass(frozen=True, kw_only=True)
class TeleopConfig:
    """Scales, speeds and frames; the robot's own limits hold beyond them."""

    translation_scale: float = 1.0
    """Metres of the robot's hand for each metre of the leader's."""
    rotation_scale: float = 1.0
    """Radians for each radian; 0 leaves the hand's orientation alone."""
    yaw_deg: float = 0.0
    """Turn of the leader's frame about the vertical: 180 for a person who faces the robot."""
    hand_speed_max: float = 0.6
    """[m/s]; a leader that is quicker is followed later."""
    hand_rotation_max: float = 2.0
    """[rad/s]"""
    joint_share: float = 0.5
    """Of the speed that the limits allow each joint."""
    follow_rate: float = 20.0
    """How quickly the gap to the leader closes at most: share of it a second [1/s]. Smooths what a device
    reads 60 times a second."""
    align_rad_s: float = 0.0
    """Speed with which a leader arm's offset to the robot shrinks while it leads [rad/s]; 0 keeps it."""
    on_release: OnRelease = OnRelease.HAND_BACK
    stale_ns: int = 250 * NS_PER_MS
    """A lead that is older is no wish any more: the parts are released [ns]."""

    def __post_init__(self) -> None:
        for name in ("translation_scale", "hand_speed_max", "hand_rotation_max", "follow_rate"):
            _check(name, getattr(self, name), lowest=1e-3, highest=1e3)
        _check("rotation_scale", self.rotation_scale, lowest=0.0, highest=10.0)
        _check("joint_share", self.joint_share, lowest=1e-3, highest=1.0)
        _check("align_rad_s", self.align_rad_s, lowest=0.0, highest=2.0)
        _check("yaw_deg", self.yaw_deg, lowest=-360.0, highest=360.0)
        _check("stale_ns", self.stale_ns, lowest=10 * NS_PER_MS, highest=1000 * NS_PER_MS)

    def share(self, dt_s: float) -> float:
        """Of the gap to the leader, the most that closes in one tick."""
        return min(self.follow_rate * dt_s, 1.0)

    @property
    def yaw(self) -> float:
        """[rad]"""
        return math.radians(self.yaw_deg)


def _check(name: str, value: float, *, lowest: float, highest: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        raise InvalidValueError(f"teleop: {name} is from {lowest:g} to {highest:g}, got {value!r:.60}")
