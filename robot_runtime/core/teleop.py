"""The seam to whatever a person leads a robot with: `Teleoperator`, and what it reads, a `Lead`.

    keys, sticks, a cap, a leader arm, a phone ─► Lead ─► clutch (teleop/clutch.py) ─► PartCommand ─► Executor

A lead is what the person's hand does, in the device's own terms; what the robot is told follows from it and
from where the robot was commanded to be when the person engaged. So a device needs no calibration against the
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
"""So far from orthogonal a matrix is no rotation."""


class Frame(Enum):
    """What the twist of a hand is expressed in."""

    BASE = "base"
    """The mobile base B; the arm's mount where there is none. x forward, y left, z up."""
    HAND = "hand"
    """The end effector E itself: z out of the hand."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JointLead:
    """Where a leader arm is: it has as many joints as the arm that it leads, and turns them the same way."""

    q: Float[np.ndarray, " N"]
    """(N,) [rad]"""

    def __post_init__(self) -> None:
        _own_numbers(self, "q", None)


@dataclass(frozen=True, kw_only=True, eq=False)
class PoseLead:
    """Where a controller, a phone or a tracked hand is, in a frame L of its own: x forward, y left, z up."""

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
    """How fast the hand is to go; with zeros it stays."""

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
    """How far open the leader's own gripper or trigger is, or how fast a gripper is to open: one of them."""

    opening: float | None = None
    """0 closed, 1 open; of the range of the gripper that is led."""
    speed: float | None = None
    """Positive opens [1/s]: share of that range a second."""

    def __post_init__(self) -> None:
        given = [each for each in (self.opening, self.speed) if each is not None]
        if len(given) != 1 or not np.isfinite(given[0]):
            raise InvalidValueError(
                f"a GripperLead has an opening or a speed, got opening={self.opening}, speed={self.speed}"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class BaseLead:
    """How fast a mobile base is to go, expressed in B."""

    V_WB_B: Float[np.ndarray, "3"]
    """(vx, vy, wz) [m/s, m/s, rad/s]"""

    def __post_init__(self) -> None:
        _own_numbers(self, "V_WB_B", 3)


@dataclass(frozen=True, kw_only=True)
class LedRun:
    """How the run goes that a person leads, for a teleoperator that can show it."""

    mode: Mode
    cause: str
    """Why, in words."""
    led: tuple[str, ...]
    """Parts that follow her now."""
    episode: str
    """How far it is: "recording 3 s", "kept, success", "discarded"; empty: none was begun."""
    refused: str
    """Why her last order was not done; empty: it was, or that is a while ago."""


PartLead = JointLead | PoseLead | TwistLead | GripperLead | BaseLead


@dataclass(frozen=True, kw_only=True, eq=False)
class Lead:
    """What a person wants at one moment: of each part that she leads, and what she asked for by buttons."""

    t_ns: int
    """When the device said so, on the robot's monotonic clock. Older than 250 ms, it is no wish any more."""
    parts: Mapping[str, PartLead]
    """By the robot's names of its parts."""
    engaged: Mapping[str, bool] = field(default_factory=dict)
    """Of each part whether she leads it now (a clutch that is held, a stick that is deflected). A part that
    is not named is not."""
    orders: tuple[Order, ...] = ()
    """What her buttons asked for since the read before."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "t_ns", int(self.t_ns))
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))
        object.__setattr__(self, "engaged", MappingProxyType(dict(self.engaged)))
        if unled := [part for part, on in self.engaged.items() if on and part not in self.parts]:
            raise InvalidValueError(f"engaged, but not led: {', '.join(unled)}")


@dataclass(frozen=True, kw_only=True)
class LeadableParts:
    """What there is to lead on a robot, in its own order."""

    arms: tuple[str, ...] = ()
    """Groups of joints."""
    hands: tuple[str, ...] = ()
    """Those of them whose hand can be led, by `PoseLead` and `TwistLead`: the policy moves it, or the robot's
    kinematics are known."""
    grippers: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.arms, *self.grippers, *self.bases)

    def gripper_of(self, arm: str) -> str | None:
        """Of an arm: `left_gripper` with `left_arm`; the only one with the only arm."""
        wanted = arm.removesuffix(ARM) + GRIPPER
        if wanted in self.grippers:
            return wanted
        return self.grippers[0] if len(self.grippers) == len(self.arms) == 1 else None


@runtime_checkable
class Teleoperator(Protocol):
    """What a person leads a robot with. Read in a thread of its own, some 200 times a second.

    It may have a `name`, which is said to the person; an `open(parts: LeadableParts)`, called before it is
    read, InvalidValueError: the robot has nothing that it could lead; a `help`, lines that tell its keys;
    `buttons`, how she arms and how she resets the robot with it: ("press Enter", "press R"); a
    `told(run: LedRun)`, called in the thread of `read` a few times a second.
    """

    def read(self) -> Lead:
        """The newest; never waits. Any error: it is gone for good, and nobody leads any more."""
        ...

    def close(self) -> None:
        """Give it back; may be called twice."""
        ...


def _own_numbers(of: object, name: str, size: int | None) -> None:
    numbers = readonly(getattr(of, name))
    if numbers.ndim != 1 or (size is not None and numbers.size != size) or not np.isfinite(numbers).all():
        want = "finite numbers (N,)" if size is None else f"{size} finite numbers"
        raise InvalidValueError(f"{name} of a {type(of).__name__} is {want}, got {numbers!r:.100}")
    object.__setattr__(of, name, numbers)
