"""The seam to hardware, and the same seam to simulation: `Arm`, `Gripper`, `MobileBase`, `Camera`.

A driver is any object with these members; it need not derive from anything. It is owned by one thread. `read`
gives the newest measurement and never waits longer than one device cycle (a camera waits for its next frame);
`write` returns what was really sent, after the device's own limits, or None for what it was given; `stop`
makes the device safe and may be called twice. Times are of the machine's monotonic clock,
`time.monotonic_ns()`.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.action import ArmCommand, BaseCommand, GripperCommand
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import Image


@dataclass(frozen=True, kw_only=True, eq=False)
class ArmState:
    """One measurement of an arm."""

    t_ns: int
    q: Float[np.ndarray, " N"]
    """(N,) [rad]"""
    dq: Float[np.ndarray, " N"]
    """(N,) [rad/s]"""
    X_BE: pin.SE3 | None = None
    """End effector in the mobile base, or in the arm mount where there is no mobile base. None: it is not
    measured; policies that speak of the hand need it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BaseState:
    """One measurement of a mobile base."""

    t_ns: int
    x_WB: Float[np.ndarray, "3"]
    """(x, y, yaw) in the odometry frame [m, m, rad]."""
    V_WB_B: Float[np.ndarray, "3"]
    """(vx, vy, wz) expressed in B [m/s, m/s, rad/s]."""


@runtime_checkable
class Arm(Protocol):
    """A serial arm that follows joint or hand setpoints."""

    @property
    def num_joints(self) -> int: ...

    def read(self) -> ArmState: ...

    def write(self, command: ArmCommand) -> ArmCommand | None: ...

    def stop(self) -> None: ...


@runtime_checkable
class Gripper(Protocol):
    """A parallel gripper commanded by width."""

    def read(self) -> float:
        """Distance between the fingers [m]."""
        ...

    def write(self, command: GripperCommand) -> GripperCommand | None: ...

    def stop(self) -> None: ...


@runtime_checkable
class MobileBase(Protocol):
    """A base that follows twist or pose setpoints and stops by itself when they stop coming."""

    def read(self) -> BaseState: ...

    def write(self, command: BaseCommand) -> BaseCommand | None: ...

    def stop(self) -> None: ...


@runtime_checkable
class Camera(Protocol):
    """A colour camera; `Robot.cameras` names it."""

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) [pixels]"""
        ...

    def read(self) -> Image:
        """Wait for the next frame, stamped when it was captured.

        ValueError: what came is no picture, another one may. Any other error: there will be none any more.
        """
        ...

    def close(self) -> None: ...
