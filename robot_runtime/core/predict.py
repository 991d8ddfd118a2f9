"""Where the robot will be once it has done what it is committed to."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin

from robot_runtime.core.action import BasePoseCommand, BaseTwistCommand, JointCommand, PoseCommand
from robot_runtime.core.state import RobotState
from robot_runtime.core.timeline import ChunkTimeline
from robot_runtime.core.transforms import integrate_twist


@dataclass(frozen=True, kw_only=True)
class StatePredictor:
    """Rolls a measured state forward through the plan, taking it that the robot follows its commands.

    Joint, hand and base-pose setpoints are where the robot will be; base twists are integrated from the
    measured base pose, each held until the next step (VLASH, arXiv 2512.01031, section 3).
    """

    hand_pose: Callable[[np.ndarray], pin.SE3] | None = None
    """Forward kinematics, joints (N,) to X_BE; without it the hand of a joint plan is left unknown."""
    step_ns: int = 10_000_000
    """Step of the integration of base twists [ns]."""

    def predict(self, state: RobotState, timeline: ChunkTimeline, t_ns: int) -> RobotState:
        """The state expected at `t_ns`, not before the measured one; ValueError if it lies in the past."""
        if t_ns < state.t_ns:
            raise ValueError(f"cannot predict {t_ns}: it lies before the measured state at {state.t_ns}")
        command = timeline.command_at(t_ns)
        out = replace(state, t_ns=t_ns)
        match command.arm:
            case JointCommand(q=q):
                X_BE = None if self.hand_pose is None else self.hand_pose(q)
                out = replace(out, q=q, X_BE=X_BE)
            case PoseCommand() as pose:
                out = replace(out, X_BE=pose.X_BE)
        match command.base:
            case BasePoseCommand(x_WB=x_WB):
                out = replace(out, x_WB=x_WB)
            case BaseTwistCommand(V_WB_B=twist):
                out = replace(out, x_WB=self._drive(state, timeline, t_ns), V_WB_B=twist)
        if command.gripper is not None:
            out = replace(out, gripper_width=command.gripper.width)
        return out

    def _drive(self, state: RobotState, timeline: ChunkTimeline, t_ns: int) -> np.ndarray:
        if state.x_WB is None:
            raise ValueError("rolling a base twist forward needs x_WB in the robot state")
        x_WB, now_ns = state.x_WB, state.t_ns
        while now_ns < t_ns:
            step_ns = min(self.step_ns, t_ns - now_ns)
            base = timeline.command_at(now_ns + step_ns // 2).base
            assert isinstance(base, BaseTwistCommand)
            x_WB = integrate_twist(x_WB, base.V_WB_B, step_ns * 1e-9)
            now_ns += step_ns
        return x_WB
