"""Common parts of keyboards, gamepads and 3D mice: one end effector at a time, its gripper, and the base."""

from collections.abc import Mapping

import numpy as np

from robot_runtime.core.teleop import BaseLead, Frame, GripperLead, Lead, LeadableParts, PartLead, TwistLead
from robot_runtime.errors import InvalidValueError

GRIPPER_SPEED = 1.5
"""Speed of a gripper that a button opens or closes: full strokes per second [1/s]."""


def check_speeds(device: str, **speeds: float) -> None:
    """InvalidValueError: one of them is out of range."""
    for name, value in speeds.items():
        if not 0.0 < value <= 5.0:
            raise InvalidValueError(f"{device}: {name} is above 0, up to 5, got {value!r:.60}")


def frame_named(device: str, name: str) -> Frame:
    """Return the frame of that name; InvalidValueError: there is none."""
    try:
        return Frame(name)
    except ValueError:
        raise InvalidValueError(
            f"{device}: frame is {' or '.join(each.value for each in Frame)}, got {name!r:.60}"
        ) from None


class OneHand:
    """The arm that is driven now, of those with kinematics; its gripper; the first base."""

    def __init__(self, device: str, arm: str | None = None) -> None:
        """arm: the first to drive; None: the robot's first."""
        self._device, self._wanted, self._at = device, arm, 0
        self.parts = LeadableParts()
        """The robot's parts."""

    def choose(self, parts: LeadableParts) -> None:
        """Take the robot's parts. InvalidValueError: velocities can drive none of them, or not the requested
        arm."""
        self.parts = parts
        if self._wanted is not None:
            if self._wanted not in parts.hands:
                raise InvalidValueError(
                    f"{self._device}: {self._wanted!r} cannot be driven by velocities; arms that can be are "
                    f"{', '.join(parts.hands) or 'none: the robot has no kinematics (hand_pose, whole_body)'}"
                )
            self._at = parts.hands.index(self._wanted)
        if not parts.hands and not parts.bases:
            raise InvalidValueError(
                f"{self._device} drives an end effector or a base by velocities: {_lacks(parts)}"
            )

    def next_arm(self) -> None:
        """Switch to the next arm."""
        if self.parts.hands:
            self._at = (self._at + 1) % len(self.parts.hands)

    @property
    def arm(self) -> str | None:
        """The arm that is driven now."""
        return self.parts.hands[self._at] if self.parts.hands else None

    @property
    def gripper(self) -> str | None:
        """The gripper of that arm."""
        if self.arm is None:
            return self.parts.grippers[0] if self.parts.grippers else None
        return self.parts.gripper_of(self.arm)

    @property
    def base(self) -> str | None:
        """The robot's first base."""
        return self.parts.bases[0] if self.parts.bases else None


def _lacks(parts: LeadableParts) -> str:
    if not parts.arms:
        return "this robot has neither"
    return (
        f"this robot has no base, and no kinematics of {', '.join(parts.arms)}: Robot(hand_pose=...), or in "
        f"robot.toml [parts.{parts.arms[0]}.kinematics]; a leader arm can drive its joints"
    )


def lead_of(
    t_ns: int,
    *,
    twists: Mapping[str, tuple[np.ndarray, np.ndarray]],
    frame: Frame,
    grippers: Mapping[str, float],
    bases: Mapping[str, np.ndarray],
    engaged: Mapping[str, bool],
    orders: tuple = (),
) -> Lead:
    """Make a lead from (v, w) of end effectors, speeds of grippers and twists of bases, each by part."""
    parts: dict[str, PartLead] = {
        **{part: TwistLead(v=v, w=w, frame=frame) for part, (v, w) in twists.items()},
        **{part: GripperLead(speed=speed) for part, speed in grippers.items()},
        **{part: BaseLead(V_WB_B=twist) for part, twist in bases.items()},
    }
    return Lead(t_ns=t_ns, parts=parts, engaged=engaged, orders=orders)
