"""What keyboards, gamepads and caps have in common: one hand at a time, its gripper, and the base."""

from collections.abc import Mapping

import numpy as np

from robot_runtime.core.teleop import BaseLead, Frame, GripperLead, Lead, LeadableParts, PartLead, TwistLead
from robot_runtime.errors import InvalidValueError

GRIPPER_SPEED = 1.5
"""Of a gripper that is opened or closed by a button: whole strokes a second [1/s]."""


def check_speeds(device: str, **speeds: float) -> None:
    """InvalidValueError: one of them is no speed."""
    for name, value in speeds.items():
        if not 0.0 < value <= 5.0:
            raise InvalidValueError(f"{device}: {name} is above 0, up to 5, got {value!r:.60}")


def frame_named(device: str, name: str) -> Frame:
    """InvalidValueError: there is none of that name."""
    try:
        return Frame(name)
    except ValueError:
        raise InvalidValueError(
            f"{device}: frame is {' or '.join(each.value for each in Frame)}, got {name!r:.60}"
        ) from None


class OneHand:
    """The arm that is led now, one of those that have a hand to lead; its gripper; the first base."""

    def __init__(self, device: str, arm: str | None = None) -> None:
        """arm: the one to begin with; None: the robot's first."""
        self._device, self._wanted, self._at = device, arm, 0
        self.parts = LeadableParts()
        """What there is."""

    def choose(self, parts: LeadableParts) -> None:
        """What there is. InvalidValueError: nothing that velocities could lead, or not the arm that is
        wanted."""
        self.parts = parts
        if self._wanted is not None:
            if self._wanted not in parts.hands:
                raise InvalidValueError(
                    f"{self._device}: no hand of {self._wanted!r} can be led; hands that can be are "
                    f"{', '.join(parts.hands) or 'none: the robot has no kinematics (hand_pose, whole_body)'}"
                )
            self._at = parts.hands.index(self._wanted)
        if not parts.hands and not parts.bases:
            raise InvalidValueError(f"{self._device} leads a hand or a base by velocities: {_lacks(parts)}")

    def next_arm(self) -> None:
        """The next of several."""
        if self.parts.hands:
            self._at = (self._at + 1) % len(self.parts.hands)

    @property
    def arm(self) -> str | None:
        """The one that is led now."""
        return self.parts.hands[self._at] if self.parts.hands else None

    @property
    def gripper(self) -> str | None:
        """Its."""
        if self.arm is None:
            return self.parts.grippers[0] if self.parts.grippers else None
        return self.parts.gripper_of(self.arm)

    @property
    def base(self) -> str | None:
        """The robot's first."""
        return self.parts.bases[0] if self.parts.bases else None


def _lacks(parts: LeadableParts) -> str:
    if not parts.arms:
        return "this robot has neither"
    return (
        f"this robot has no base, and no kinematics of {', '.join(parts.arms)}: Robot(hand_pose=...), or in "
        f"robot.toml [parts.{parts.arms[0]}.kinematics]; a leader arm can lead its joints"
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
    """Of plain numbers: (v, w) of hands, speeds of grippers, twists of bases, each by its part."""
    parts: dict[str, PartLead] = {
        **{part: TwistLead(v=v, w=w, frame=frame) for part, (v, w) in twists.items()},
        **{part: GripperLead(speed=speed) for part, speed in grippers.items()},
        **{part: BaseLead(V_WB_B=twist) for part, twist in bases.items()},
    }
    return Lead(t_ns=t_ns, parts=parts, engaged=engaged, orders=orders)
