"""Interface to teleoperation devices: `Teleoperator`, and what it reads, a `Lead`.

    keys, sticks, a cap, a leader arm, a phone ─► Lead ─► clutch (teleop/clutch.py) ─► PartCommand ─► Executor

A lead is the motion of the operator's hand in the device's own terms; the command follows from it and from
where the robot was commanded to be when the operator engaged. So a device needs no calibration against the
robot, and its pose at that moment does not matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Protocol, runtime_checkable

import numpy as np
import pinocchio as pin

from robot_runtime.core.orders import Order
from robot_runtime.core.safety import Mode
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import ARM, GRIPPER, readonly
from robot_runtime.errors import InvalidValueError

_NO_ROTATION = 1e-3
"""A matrix farther from orthogonal than this is not a rotation."""


class Frame(Enum):
    """The frame in which an end effector's twist is expressed."""

    BASE = "base"
    """The mobile base B; the arm's mount where there is none. x forward, y left, z up."""
    HAND = "hand"
    """The end effector E itself: z out of the hand."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JointLead:
    """Joint positions of a leader arm, which has the joints and directions of the arm that follows it."""

    q: Float[np.ndarray, " N"]
    """(N,) [rad]"""

    def __post_init__(self) -> None:
        _own_numbers(self, "q", None)


@dataclass(frozen=True, kw_only=True, eq=False)
class PoseLead:
    """Pose of a controller, a phone or a tracked hand in a frame L of its own: x forward, y left, z up."""

    X_LH: pin.SE3

    def __post_init__(self) -> None:
        if not isinstance(self.X_LH, pin.SE3) or not np.isfinite(self.X_LH.homogeneous).all():
            raise InvalidValueError(f"X_LH of a PoseLead is a finite pin.SE3, got {self.X_LH!r:.100}")
        R_LH = self.X_LH.rotation
        if np.abs(R_LH @ R_LH.T - np.eye(3)).max() > _NO_ROTATION or np.linalg.det(R_LH) < 0.0:
            raise InvalidValueError(f"X_LH of a PoseLead has a rotation, got {R_LH.tolist()!r:.150}")
        object.__setattr__(self, "X_LH", self.X_LH.copy())


@dataclass(frozen=True, kw_only=True, eq=False)
class TwistLead:
    """Target velocity of the end effector; with zeros it holds."""

    v: Float[np.ndarray, "3"]
    """[m/s]"""
    w: Float[np.ndarray, "3"] = field(default_factory=lambda: np.zeros(3))
    """[rad/s]"""
    frame: Frame = Frame.BASE

    def __post_init__(self) -> None:
        _own_numbers(self, "v", 3)
        _own_numbers(self, "w", 3)


@dataclass(frozen=True, kw_only=True)
class GripperLead:
    """Opening of the leader's own gripper or trigger, or the speed at which to open: one of them."""

    opening: float | None = None
    """0 closed, 1 open; share of the range of the gripper that follows."""
    speed: float | None = None
    """Positive opens [1/s]: share of that range per second."""

    def __post_init__(self) -> None:
        given = [each for each in (self.opening, self.speed) if each is not None]
        if len(given) != 1 or not np.isfinite(given[0]):
            raise InvalidValueError(
                f"a GripperLead has an opening or a speed, got opening={self.opening}, speed={self.speed}"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class BaseLead:
    """Target twist of a mobile base, expressed in B."""

    V_WB_B: Float[np.ndarray, "3"]
    """(vx, vy, wz) [m/s, m/s, rad/s]"""

    def __post_init__(self) -> None:
        _own_numbers(self, "V_WB_B", 3)


@dataclass(frozen=True, kw_only=True)
class LedRun:
    """Status of the run that the operator drives, for a teleoperator that can show it."""

    mode: Mode
    cause: str
    """Why, in words."""
    led: tuple[str, ...]
    """Parts that follow the operator now."""
    episode: str
    """Its state: "recording 3 s", "kept, success", "discarded"; empty: none was begun."""
    refused: str
    """Why the last operator command was refused; empty: it was not, or that is a while ago."""


PartLead = JointLead | PoseLead | TwistLead | GripperLead | BaseLead


@dataclass(frozen=True, kw_only=True, eq=False)
class Lead:
    """The operator's input at one moment: targets of the parts that follow, and button commands."""

    t_ns: int
    """When the device measured it, on the robot's monotonic clock. Older than 250 ms, it is ignored."""
    parts: Mapping[str, PartLead]
    """By the robot's names of its parts."""
    engaged: Mapping[str, bool] = field(default_factory=dict)
    """Whether each part follows the operator now (a clutch that is held, a stick that is deflected). A part
    that is not named does not."""
    orders: tuple[Order, ...] = ()
    """Operator commands from buttons since the previous read."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "t_ns", int(self.t_ns))
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))
        object.__setattr__(self, "engaged", MappingProxyType(dict(self.engaged)))
        if unled := [part for part, on in self.engaged.items() if on and part not in self.parts]:
            raise InvalidValueError(f"engaged, but not led: {', '.join(unled)}")


@dataclass(frozen=True, kw_only=True)
class LeadableParts:
    """The parts of a robot that can be teleoperated, in its own order."""

    arms: tuple[str, ...] = ()
    """Groups of joints."""
    hands: tuple[str, ...] = ()
    """The arms whose end effectors can follow a `PoseLead` or `TwistLead`: the policy moves them, or the
    robot's kinematics are known."""
    grippers: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all parts."""
        return (*self.arms, *self.grippers, *self.bases)

    def gripper_of(self, arm: str) -> str | None:
        """The gripper of an arm: `left_gripper` with `left_arm`; the only one with the only arm."""
        wanted = arm.removesuffix(ARM) + GRIPPER
        if wanted in self.grippers:
            return wanted
        return self.grippers[0] if len(self.grippers) == len(self.arms) == 1 else None


@runtime_checkable
class Teleoperator(Protocol):
    """A device that drives a robot. Read in a thread of its own, some 200 times a second.

    It may have a `name`, which is shown to the operator; an `open(parts: LeadableParts)`, called before it is
    read, InvalidValueError: the robot has nothing that it could drive; a `help`, lines that list its keys;
    `buttons`, how the operator arms and resets the robot with it: ("press Enter", "press R"); a
    `show_run(run: LedRun)`, called in the thread of `read` a few times a second.
    """

    def read(self) -> Lead:
        """The newest input; never waits. Any error: the device is gone for good, and teleoperation ends."""
        ...

    def close(self) -> None:
        """Release the device; may be called twice."""
        ...


def _own_numbers(of: object, name: str, size: int | None) -> None:
    numbers = readonly(getattr(of, name))
    if numbers.ndim != 1 or (size is not None and numbers.size != size) or not np.isfinite(numbers).all():
        want = "finite numbers (N,)" if size is None else f"{size} finite numbers"
        raise InvalidValueError(f"{name} of a {type(of).__name__} is {want}, got {numbers!r:.100}")
    object.__setattr__(of, name, numbers)
