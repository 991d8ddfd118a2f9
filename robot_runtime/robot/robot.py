"""A robot is the drivers it has: `Robot` reads them into one state and writes one command to all of them."""

from dataclasses import dataclass

import numpy as np

from robot_runtime.core.robot import Arm, Gripper, MobileBase
from robot_runtime.core.values.action import Command
from robot_runtime.core.values.state import RobotState


@dataclass(frozen=True, kw_only=True, eq=False)
class Robot:
    """Arm, gripper and mobile base, each optional; owned by the control thread."""

    arm: Arm | None = None
    gripper: Gripper | None = None
    base: MobileBase | None = None

    def read(self) -> RobotState:
        """The state now; stamped with the oldest of its measurements."""
        arm = None if self.arm is None else self.arm.read()
        base = None if self.base is None else self.base.read()
        times = [part.t_ns for part in (arm, base) if part is not None]
        if not times:
            raise ValueError("a robot needs an arm or a mobile base")
        return RobotState(
            t_ns=min(times),
            t_newest_ns=max(times),
            q=np.zeros(0) if arm is None else arm.q,
            dq=np.zeros(0) if arm is None else arm.dq,
            X_BE=None if arm is None else arm.X_BE,
            gripper_width=None if self.gripper is None else self.gripper.read(),
            x_WB=None if base is None else base.x_WB,
            V_WB_B=None if base is None else base.V_WB_B,
        )

    def write(self, command: Command) -> Command:
        """Send the command to every part it speaks of; returns what the drivers really sent."""
        arm, gripper, base = command.arm, command.gripper, command.base
        if arm is not None and self.arm is not None:
            arm = self.arm.write(arm)
        if gripper is not None and self.gripper is not None:
            gripper = self.gripper.write(gripper)
        if base is not None and self.base is not None:
            base = self.base.write(base)
        return Command(arm=arm, gripper=gripper, base=base)

    def stop(self) -> None:
        """Make every part safe."""
        for part in (self.base, self.arm, self.gripper):
            if part is not None:
                part.stop()
