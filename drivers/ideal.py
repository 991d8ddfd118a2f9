"""A robot without physics: it is where it was told to be. For benchmarks and tests of what is around it."""

from dataclasses import dataclass, field

import numpy as np

from robot_runtime.clock import Clock
from robot_runtime.core.robot import ArmState
from robot_runtime.core.values.action import ArmCommand, GripperCommand, JointCommand

Q_HOME = np.array([0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785])
"""Where an FR3 waits [rad]."""


@dataclass(kw_only=True, eq=False)
class IdealArm:
    """Joints that are where they were told to be; seven, if nothing is said."""

    clock: Clock
    q: np.ndarray = field(default_factory=lambda: Q_HOME)
    """(N,) [rad]"""

    @property
    def num_joints(self) -> int:
        return len(self.q)

    def read(self) -> ArmState:
        return ArmState(t_ns=self.clock.now_ns(), q=self.q, dq=np.zeros(len(self.q)))

    def write(self, command: ArmCommand) -> ArmCommand:
        if isinstance(command, JointCommand):
            self.q = command.q
        return command

    def stop(self) -> None:
        pass


@dataclass(kw_only=True)
class IdealGripper:
    """Fingers that are where they were told to be."""

    width: float = 0.04

    def read(self) -> float:
        return self.width

    def write(self, command: GripperCommand) -> GripperCommand:
        self.width = command.width
        return command

    def stop(self) -> None:
        pass
