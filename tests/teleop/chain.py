"""A robot led through the whole chain from a device to its drivers: follower, executor, limiter."""

import numpy as np
import pinocchio as pin

from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.plan.limits import JointLimits, Limits, MotionLimits
from robot_runtime.core.teleop import Lead, PartLead
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import NS_PER_S, ActionSpec
from robot_runtime.core.values.command import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    GripperCommand,
    JointCommand,
    PoseCommand,
)
from robot_runtime.core.values.state import ArmState, BaseState, GripperState, RobotState
from robot_runtime.robot.client import method_without_policy
from robot_runtime.teleop.config import TeleopConfig
from robot_runtime.teleop.leading import Leading
from robot_runtime.teleop.parts import followers_for
from sim.scene.kinematics import Q_HOME, Kinematics

KINEMATICS = Kinematics()
HOME = np.array(Q_HOME)


def joint_limits(dq: float, ddq: float, jerk: float, *, reach: float = 3.0, joints: int = 7) -> JointLimits:
    """The same for every joint; the hand, where it is commanded, in the same numbers."""
    hand = MotionLimits(speed=np.full(3, dq), acceleration=np.full(3, ddq), jerk=np.full(3, jerk))
    return JointLimits(
        q_min=np.full(joints, -reach),
        q_max=np.full(joints, reach),
        dq_max=np.full(joints, dq),
        ddq_max=np.full(joints, ddq),
        dddq_max=np.full(joints, jerk),
        hand_translation=hand,
        hand_rotation=hand,
    )


class Chain:
    """A robot without physics: it is where it was commanded to be a tick before."""

    name, why_lost = "leader", ""

    def __init__(
        self,
        spec: ActionSpec,
        limits: Limits,
        start: Command,
        *,
        period_ns: int = 2_000_000,
        forward=KINEMATICS.forward,
        config: TeleopConfig | None = None,
    ) -> None:
        config = config or TeleopConfig()
        self.period_ns, self.dt_s, self.t_ns = period_ns, period_ns / NS_PER_S, 0
        self.forward, self.lead, self.lines, self.ticks = forward, None, [], []
        self._command = start
        self.executor = Executor(
            Configuration(
                action_spec=spec,
                method=method_without_policy(),
                limits=limits,
                control_period_ns=period_ns,
                hand_pose=forward,
            )
        )
        self.executor.reset(self.state(), 0)
        self.leading = Leading(
            self.executor,
            self,
            followers_for(spec, limits, config, hand_pose=forward),
            config,
            period_ns=period_ns,
            say=self.lines.append,
            post=lambda order, by: None,
        )

    def look(self, now_ns: int, stale_ns: int) -> Lead | None:
        return None if self.lead is None or now_ns - self.lead.t_ns > stale_ns else self.lead

    def orders(self) -> list:
        return []

    def is_silent(self, stale_ns: int) -> bool:
        return False

    def state(self) -> RobotState:
        parts, hand = {}, None
        for name, sent in self._command.parts.items():
            match sent:
                case JointCommand(q=q):
                    parts[name] = ArmState(q=q, dq=np.zeros(q.size), X_BE=self.forward(q))
                case PoseCommand():
                    hand = sent.X_BE
                    parts[name] = ArmState(q=HOME, dq=np.zeros(7), X_BE=hand)
                case GripperCommand(width=width):
                    parts[name] = GripperState(width=width)
                case BasePoseCommand(x_WB=x_WB):
                    parts[name] = BaseState(x_WB=x_WB, V_WB_B=np.zeros(3))
                case BaseTwistCommand(V_WB_B=twist):
                    parts[name] = BaseState(x_WB=np.zeros(3), V_WB_B=twist)
        return RobotState(t_ns=self.t_ns, parts=parts)

    def tick(self, wish: PartLead | None = None, *, part: str = "arm", count: int = 1) -> Tick:
        """wish: what the person leads the part with; None: the person has let go."""
        for _ in range(count):
            self.t_ns += self.period_ns
            if wish is not None:
                self.lead = Lead(t_ns=self.t_ns, parts={part: wish}, engaged={part: True})
            else:
                self.lead = Lead(t_ns=self.t_ns, parts={})
            state = self.state()
            self.leading.look(state, self.t_ns)
            tick = self.executor.tick(state, self.t_ns)
            self._command = tick.command
            self.ticks.append(tick)
        return tick

    def sent(self, part: str = "arm") -> list:
        """Every command of a part."""
        return [tick.command.parts[part] for tick in self.ticks]

    def held_back(self) -> float:
        """The most that the limiter has held back in a tick."""
        return max((short.distance for tick in self.ticks for short in tick.clip.parts.values()), default=0.0)


def norms(vectors) -> np.ndarray:
    return np.linalg.norm(np.asarray(vectors), axis=-1)


def turned(a: pin.SE3, b: pin.SE3) -> np.ndarray:
    """Rotation vector from a to b in B [rad]."""
    return pin.log3(b.rotation @ a.rotation.T)
