"""A robot without physics, which is always where it is commanded. For benchmarks and tests of other parts.

What stops it. It holds its last command; there is nothing to stop.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from robot_runtime.clock import Clock, MonotonicClock
from robot_runtime.core.robot import ArmState
from robot_runtime.core.values.action import ArmCommand, GripperCommand, JointCommand
from robot_runtime.errors import DriverError, InvalidValueError

Q_HOME = np.array([0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785])
"""Home position of an FR3 [rad]."""


@dataclass(kw_only=True, eq=False)
class IdealArm:
    """Joints that are at their commanded positions; seven by default."""

    clock: Clock = field(default_factory=MonotonicClock)
    q: np.ndarray = field(default_factory=lambda: Q_HOME)
    """(N,) [rad]"""

    def __post_init__(self) -> None:
        self.q = np.array(self.q, dtype=float)
        if self.q.ndim != 1 or not self.q.size or not np.isfinite(self.q).all():
            raise InvalidValueError(f"q is the positions of its joints [rad], got {self.q.tolist()!r:.60}")

    @property
    def num_joints(self) -> int:
        return len(self.q)

    def read(self) -> ArmState:
        return ArmState(t_ns=self.clock.now_ns(), q=self.q, dq=np.zeros(len(self.q)))

    def write(self, command: ArmCommand) -> ArmCommand:
        if isinstance(command, JointCommand):
            if not np.isfinite(command.q).all():
                raise DriverError(f"expected finite positions of an arm, got {command.q}")
            self.q = command.q
        return command

    def stop(self) -> None:
        pass


@dataclass(kw_only=True)
class IdealGripper:
    """Fingers that are at their commanded width."""

    width: float = 0.04
    """[m]"""

    def __post_init__(self) -> None:
        if isinstance(self.width, bool) or not math.isfinite(self.width):
            raise InvalidValueError(f"width is the distance of its fingers [m], got {self.width!r:.60}")

    def read(self) -> float:
        return self.width

    def write(self, command: GripperCommand) -> GripperCommand:
        if not math.isfinite(command.width):
            raise DriverError(f"expected a finite width of a gripper, got {command.width}")
        self.width = command.width
        return command

    def stop(self) -> None:
        pass
