import numpy as np
import pinocchio as pin
import pytest

from robot_runtime.core.action import BaseTwistCommand, Command, JointCommand
from robot_runtime.core.latency import LatencyEstimator
from robot_runtime.core.predict import StatePredictor
from robot_runtime.core.state import RobotState
from robot_runtime.core.timeline import ChunkTimeline, Source
from robot_runtime.core.transforms import integrate_twist
from robot_runtime.core.waypoints import Waypoints

DT = 50_000_000
SOURCE = Source(request_id=0, t_obs_ns=0)


def test_joints_are_predicted_where_the_plan_puts_them_and_the_hand_follows():
    plan = ChunkTimeline(coast_ns=2 * DT)
    plan.rest_at(Command(arm=JointCommand(q=np.zeros(1))), 0)
    plan.splice(Waypoints(q=np.array([[0.0], [1.0], [2.0]])), t0_ns=0, dt_ns=DT, source=SOURCE)
    state = RobotState(t_ns=0, q=np.zeros(1), dq=np.zeros(1), X_BE=pin.SE3.Identity())
    predictor = StatePredictor(hand_pose=lambda q: pin.SE3(np.eye(3), np.array([q[0], 0.0, 0.0])))
    ahead = predictor.predict(state, plan, 3 * DT // 2)
    assert ahead.q[0] == pytest.approx(1.5)
    assert ahead.X_BE.translation[0] == pytest.approx(1.5)
    assert ahead.t_ns == 3 * DT // 2


def test_base_twists_are_integrated_from_the_measured_pose():
    twist = np.array([0.4, 0.1, 0.8])
    plan = ChunkTimeline(coast_ns=2 * DT)
    plan.rest_at(Command(base=BaseTwistCommand(V_WB_B=twist)), 0)
    plan.splice(Waypoints(V_WB_B=np.tile(twist, (8, 1))), t0_ns=0, dt_ns=DT, source=SOURCE)
    x_WB = np.array([1.0, 2.0, 0.5])
    state = RobotState(t_ns=0, q=np.zeros(0), dq=np.zeros(0), x_WB=x_WB)
    ahead = StatePredictor().predict(state, plan, 6 * DT)
    np.testing.assert_allclose(ahead.x_WB, integrate_twist(x_WB, twist, 0.3), atol=1e-9)


def test_the_past_is_not_predicted():
    plan = ChunkTimeline(coast_ns=DT)
    plan.rest_at(Command(arm=JointCommand(q=np.zeros(1))), 0)
    with pytest.raises(ValueError, match="before the measured state"):
        StatePredictor().predict(RobotState(t_ns=5, q=np.zeros(1), dq=np.zeros(1)), plan, 4)


def test_the_latency_estimate_leaves_out_the_cold_start_and_forgets_spikes():
    estimator = LatencyEstimator(quantile=1.0, window=3)
    assert estimator.num_rows(DT) == 0
    estimator.add(9_000_000_000)
    assert estimator.latency_ns() is None
    estimator.add(600_000_000)
    for _ in range(3):
        estimator.add(100_000_000)
    assert estimator.latency_ns() == 100_000_000
    assert estimator.num_rows(DT) == 3  # rows due at 0, 50 and 100 ms
    estimator.restart()
    assert estimator.latency_ns() is None
