"""Leads by hand, a robot that is where it was commanded to be, and who was led."""

import numpy as np

from robot_runtime.core.safety import Mode
from robot_runtime.core.values.command import (
    BasePoseCommand,
    Command,
    GripperCommand,
    JointCommand,
    PartCommand,
)
from robot_runtime.core.values.state import ArmState, BaseState, GripperState, RobotState
from sim.scene.kinematics import Q_HOME, Kinematics

TICK = 2_000_000


class LedRobot:
    """As an executor is led, without limits: what is led is commanded, what is not stays."""

    def __init__(self, **parts: PartCommand) -> None:
        self.commanded = Command(
            parts or {"arm": JointCommand(q=np.array(Q_HOME)), "gripper": GripperCommand(width=0.04)}
        )
        self.mode = Mode.HOLD
        self.authority = {}
        self.taken_over: tuple[str, ...] = ()
        self.said: list[tuple[str, tuple[str, ...]]] = []
        self.kinematics = Kinematics()

    def take_over(self, parts, now_ns):
        self.said.append(("take over", parts))
        self.taken_over += parts

    def hand_back(self, parts, now_ns):
        self.said.append(("hand back", parts))
        self.taken_over = tuple(part for part in self.taken_over if part not in parts)

    def lead(self, commands, now_ns):
        self.commanded = self.commanded.with_parts(commands)

    def state(self, t_ns: int) -> RobotState:
        parts = {}
        for name, told in self.commanded.parts.items():
            match told:
                case JointCommand(q=q):
                    parts[name] = ArmState(q=q, dq=np.zeros(q.size), X_BE=self.kinematics.forward(q))
                case GripperCommand(width=width):
                    parts[name] = GripperState(width=width)
                case BasePoseCommand(x_WB=x_WB):
                    parts[name] = BaseState(x_WB=x_WB, V_WB_B=np.zeros(3))
        return RobotState(t_ns=t_ns, parts=parts)
