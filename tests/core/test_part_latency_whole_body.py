"""A hand that stays where it is in the world on a base that drives, both late, each by its own time."""

import numpy as np
import pytest

from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.method.table import method_named
from robot_runtime.core.plan.whole_body import WholeBody, WholeBodyGains
from robot_runtime.core.values.action import ActionSpec, BasePose, EndEffectorPose
from robot_runtime.core.values.state import ArmState, BaseState, Observation, RobotState
from robot_runtime.core.values.transforms import pose_from_planar, rotation_to_6d
from sim.scene.kinematics import Q_HOME, Kinematics
from tests.core.support import MOBILE_LIMITS

MS = 1_000_000
DT, TICK = 50 * MS, 10 * MS
SPEC = ActionSpec(fields=(BasePose(), EndEffectorPose()), horizon=24, dt_ns=DT)
FR3 = Kinematics()
X_WE = FR3.forward(np.array(Q_HOME))


def base_pose(t_ns: int) -> np.ndarray:
    """Where the base is to be: it drives to and fro at 0.2 m/s at most [m, m, rad]."""
    return np.array([0.1 * (1.0 - np.cos(2.0 * t_ns / 1e9)), 0.0, 0.0])


def rows_from(t_obs_ns: int) -> np.ndarray:
    rows = []
    for t in range(t_obs_ns, t_obs_ns + SPEC.horizon * DT, DT):
        X_BE = pose_from_planar(base_pose(t)).actInv(X_WE)
        rows.append([*base_pose(t), *X_BE.translation, *rotation_to_6d(X_BE.rotation)])
    return np.array(rows)


def hand_errors(late: dict[str, int], declared: dict[str, int]) -> list[float]:
    """How far the end effector is from its position in the world while the base drives [m]."""
    gains = WholeBodyGains(posture=np.array(Q_HOME), arm_lag_s=0.0)
    robot = Executor(
        Configuration(
            action_spec=SPEC,
            method=method_named("time-aligned", execution_horizon=3),
            limits=MOBILE_LIMITS,
            control_period_ns=TICK,
            whole_body=WholeBody(kinematics=FR3, limits=MOBILE_LIMITS, gains=gains),
            part_latency_ns=declared,
        )
    )
    sent: dict[int, object] = {}

    def state(t: int) -> RobotState:
        arm, base, before = (
            sent.get(at) for at in (t - late["arm"], t - late["base"], t - late["base"] - TICK)
        )
        q = np.array(Q_HOME) if arm is None else arm.arm.q
        x_WB = base_pose(0) if base is None else base.base.x_WB
        V_WB_B = np.zeros(3) if before is None else (x_WB - before.base.x_WB) / (TICK / 1e9)
        parts = {
            "arm": ArmState(q=q, dq=np.zeros(7), X_BE=FR3.forward(q)),
            "base": BaseState(x_WB=x_WB, V_WB_B=V_WB_B),
        }
        return RobotState(t_ns=t, parts=parts)

    robot.reset(state(0), 0)
    errors = []
    for t in range(0, 3000 * MS, TICK):
        now = state(t)
        if robot.wants_request(t):
            request = robot.make_request(Observation(state=now))
            robot.on_part(request.part(rows_from(request.observation.t_obs_ns)), t)
        sent[t] = robot.tick(now, t).command
        hand = pose_from_planar(now.x_WB) * now.hand("arm")
        errors.append(float(np.linalg.norm(hand.translation - X_WE.translation)))
    return errors[100:]


@pytest.mark.parametrize(("arm_ms", "base_ms"), [(100, 200), (200, 100), (50, 150)])
def test_the_hand_stays_in_its_place_though_arm_and_base_are_late_by_times_of_their_own(arm_ms, base_ms):
    late = {"arm": arm_ms * MS, "base": base_ms * MS}
    assert max(hand_errors(late, late)) < 2e-3


def test_a_hand_whose_arm_is_late_and_nobody_knows_is_left_behind():
    late = {"arm": 100 * MS, "base": 200 * MS}
    assert max(hand_errors(late, {})) > 5e-3
