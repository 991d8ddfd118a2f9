"""Driver interfaces, real or simulated: `Arm`, `Gripper`, `MobileBase`, `Sensor`, `Camera`, `Switch`.

A driver is any object with these members; it need not derive from anything. One thread owns it. `read`
returns the newest measurement and never waits longer than one device cycle (a camera waits for its next
frame); `write` returns what was really sent, after the device's own limits, or None if it was the command
itself; `stop` makes the device safe and may be called twice. Times are on the machine's monotonic clock,
`time.monotonic_ns()`.

A driver may identify its device in `address` (a text): no two sessions on one machine drive the same one.
"""

from typing import Protocol, runtime_checkable

import numpy as np

from robot_runtime.core.values.command import ArmCommand, BaseCommand, GripperCommand
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import ArmState, BaseState, GripperState, Image

__all__ = [
    "Arm",
    "ArmState",
    "BaseState",
    "Camera",
    "Gripper",
    "GripperState",
    "MobileBase",
    "Sensor",
    "Switch",
]


@runtime_checkable
class Arm(Protocol):
    """A serial arm that follows joint or end-effector setpoints; or another group of joints (head, lift)."""

    @property
    def num_joints(self) -> int: ...

    def read(self) -> ArmState: ...

    def write(self, command: ArmCommand) -> ArmCommand | None: ...

    def stop(self) -> None: ...


@runtime_checkable
class Gripper(Protocol):
    """A parallel gripper commanded by width."""

    def read(self) -> float | GripperState:
        """Distance between the fingers [m]."""
        ...

    def write(self, command: GripperCommand) -> GripperCommand | None: ...

    def stop(self) -> None: ...


@runtime_checkable
class MobileBase(Protocol):
    """A base that follows twist or pose setpoints.

    One driven by velocity has `silence_s`: it stops by itself after so long without a command [s], even if
    the process that drives it has died. So have joints that are driven by velocity.
    """

    def read(self) -> BaseState: ...

    def write(self, command: BaseCommand) -> BaseCommand | None: ...

    def stop(self) -> None: ...


@runtime_checkable
class Sensor(Protocol):
    """Any other sensor: force, torques, accelerations. `Robot(wrist_force=MySensor())` names it, and a policy
    finds it in `RobotState.measured` under that name."""

    @property
    def num_values(self) -> int: ...

    def read(self) -> Float[np.ndarray, " K"] | float:
        """The newest num_values numbers, SI units; a single one may be a float."""
        ...


@runtime_checkable
class Camera(Protocol):
    """A colour camera; `Robot.cameras` names it.

    One that may give the same image twice, to the last bit, as videos and simulations of a still scene do,
    has `has_noise = False` as well; see `CameraLimits`.
    """

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) [pixels]"""
        ...

    def read(self) -> Image:
        """Wait for the next frame, stamped when it was captured.

        ValueError: this frame is invalid, the next may be good. Any other error: the camera has failed.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class Switch(Protocol):
    """A key, a pedal or a button. Read in a thread of its own every millisecond.

    It may have a `name`, which is shown to the operator; an `open()`, called before it is read; a `fileno()`,
    if it is a file whose `read` never waits: the control thread reads it itself, at every tick. One that
    sees key strokes and no releases (a terminal's key) has `tells_release = False`.
    """

    def read(self) -> bool:
        """Whether it is pressed now; one released since the last read reports that once. Never waits.

        Any error: the device is gone for good.
        """
        ...

    def close(self) -> None:
        """Release the device; may be called twice."""
        ...
