"""An operator takes over the base, or the arm on it, of a robot whose policy commands poses in the world."""

import numpy as np
import pytest

from robot_runtime.core.authority import Authority
from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.method.table import method_named
from robot_runtime.core.plan.whole_body import WholeBody, WholeBodyGains
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.values.action import ActionSpec, BasePose, EndEffectorPose
from robot_runtime.core.values.command import BasePoseCommand, PoseCommand
from robot_runtime.core.values.state import ArmState, BaseState, Observation, RobotState
from robot_runtime.core.values.transforms import quaternion_from_rotation, rotation_to_6d
from sim.scene.kinematics import Q_HOME, Kinematics
from tests.core.support import MOBILE_LIMITS

MS = 1_000_000
DT, TICK = 50 * MS, 10 * MS
SPEC = ActionSpec(fields=(BasePose(), EndEffectorPose()), horizon=24, dt_ns=DT)
FR3 = Kinematics()
AWAY = np.array([-0.3, 0.4, 0.5])
X_BE_HOME = FR3.forward(np.array(Q_HOME))


class MobileRobot:
    """Follows its commands at once; its policy drives the base forward, the end effector in front."""

    def __init__(self, speed: float = 0.2, delay_ns: int = 50 * MS) -> None:
        self.executor = Executor(
            Configuration(
                action_spec=SPEC,
                method=method_named("time-aligned", execution_horizon=4),
                limits=MOBILE_LIMITS,
                control_period_ns=TICK,
                state_limits=StateLimits(max_arm_error=10.0),
                whole_body=WholeBody(
                    kinematics=FR3,
                    limits=MOBILE_LIMITS,
                    gains=WholeBodyGains(posture=np.array(Q_HOME), arm_lag_s=0.0),
                ),
            )
        )
        self.speed, self.delay_ns = speed, delay_ns
        self.q, self.x_WB, self.V = np.array(Q_HOME), np.zeros(3), np.zeros(3)
        self.ticks, self.requests, self._coming = [], [], []
        self.executor.reset(self.state(0), 0)

    def state(self, t: int) -> RobotState:
        arm = ArmState(q=self.q, dq=np.zeros(7), X_BE=FR3.forward(self.q))
        base = BaseState(x_WB=self.x_WB, V_WB_B=self.V)
        return RobotState(t_ns=t, parts={"arm": arm, "base": base})

    def run(self, end: int, lead=None) -> None:
        for t in range(len(self.ticks) * TICK, end, TICK):
            state = self.state(t)
            if self.executor.wants_request(t):
                request = self.executor.make_request(Observation(state=state))
                self.requests.append((t, request))
                ahead = np.arange(SPEC.horizon) * DT / 1e9 * self.speed
                hand = [*X_BE_HOME.translation, *rotation_to_6d(X_BE_HOME.rotation)]
                rows = np.array([[self.x_WB[0] + d, self.x_WB[1], self.x_WB[2], *hand] for d in ahead])
                self._coming.append((t + self.delay_ns, request, rows))
            if lead is not None:
                self.executor.lead(lead(t), t)
            for due, request, rows in [each for each in self._coming if each[0] <= t]:
                self._coming.remove((due, request, rows))
                self.executor.on_part(request.part(rows), t)
            tick = self.executor.tick(state, t)
            moved = tick.command.base.x_WB - self.x_WB
            self.q, self.x_WB, self.V = tick.command.arm.q, tick.command.base.x_WB, moved / (TICK / 1e9)
            self.ticks.append(tick)

    def joint_steps(self, first: int) -> float:
        q = np.array([tick.command.arm.q for tick in self.ticks[first - 1 :]])
        return float(np.abs(np.diff(q, axis=0)).max())


def test_the_base_is_driven_by_hand_and_the_arm_stays_with_it():
    robot = MobileRobot()
    robot.run(1000 * MS)
    assert robot.x_WB[0] > 0.05
    start = robot.x_WB.copy()
    robot.executor.take_over(("base",), 1000 * MS)
    robot.run(3000 * MS, lambda t: {"base": BasePoseCommand(x_WB=start + AWAY)})
    assert np.allclose(robot.x_WB, start + AWAY, atol=1e-3)
    assert robot.ticks[-1].authority == {"base": Authority.HUMAN, "arm": Authority.POLICY}
    assert np.linalg.norm(FR3.forward(robot.q).translation - X_BE_HOME.translation) < 0.03
    assert robot.ticks[-1].policy_command.base.x_WB[0] > robot.x_WB[0], "it would drive on from there"
    robot.executor.hand_back((), 3000 * MS)
    robot.run(3100 * MS)
    before = robot.x_WB.copy()
    robot.run(4500 * MS)
    assert robot.x_WB[0] > before[0] + 0.05
    assert abs(robot.x_WB[1] - before[1]) < 0.03
    assert robot.joint_steps(100) <= MOBILE_LIMITS.dq_max.max() * TICK / 1e9


def test_the_arm_follows_poses_and_the_plan_takes_its_joints_up_from_there():
    robot = MobileRobot(speed=0.0)
    robot.run(1000 * MS)
    robot.executor.take_over(("arm",), 1000 * MS)
    target = X_BE_HOME.copy()
    target.translation = target.translation + np.array([0.05, 0.1, -0.1])
    wish = PoseCommand(p_BE=target.translation, quat_BE=quaternion_from_rotation(target.rotation))
    robot.run(3000 * MS, lambda t: {"arm": wish})
    assert np.linalg.norm(FR3.forward(robot.q).translation - target.translation) < 5e-3
    robot.executor.hand_back((), 3000 * MS)
    robot.run(3030 * MS)
    before = FR3.forward(robot.q).translation
    robot.run(3080 * MS)
    assert np.linalg.norm(FR3.forward(robot.q).translation - before) < 1e-3, "it waits for fresh rows"
    robot.run(5000 * MS)
    assert np.linalg.norm(FR3.forward(robot.q).translation - X_BE_HOME.translation) < 5e-3
    assert robot.joint_steps(100) <= MOBILE_LIMITS.dq_max.max() * TICK / 1e9


@pytest.mark.parametrize("part", ["arm", "base"])
def test_odometry_that_jumps_brakes_an_operator_s_part_too(part):
    robot = MobileRobot()
    robot.run(1000 * MS)
    robot.executor.take_over((part,), 1000 * MS)
    robot.run(1500 * MS)
    robot.x_WB = robot.x_WB + np.array([5.0, 0.0, 0.0])
    robot.run(1510 * MS)
    assert set(robot.ticks[-1].authority.values()) == {Authority.SAFETY}
    robot.run(2500 * MS)
    assert abs(robot.x_WB[0] - 5.2) < 0.6
    assert robot.ticks[-1].authority[part] is Authority.HOLD, "it is still the operator's, without a target"
