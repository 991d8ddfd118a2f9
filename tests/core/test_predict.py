import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.method.request_parts import IntegratedDeltas, LastTarget, TrackingLag
from robot_runtime.core.plan.predict import StatePredictor, fit_time_constant
from robot_runtime.core.plan.timeline import ChunkTimeline, Source
from robot_runtime.core.values.action import BaseTwistCommand, Command, JointCommand, PoseCommand
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import integrate_twist
from robot_runtime.core.values.waypoints import Waypoints
from tests.core.support import FEW

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
    state = RobotState(t_ns=DT, q=np.zeros(0), dq=np.zeros(0), x_WB=x_WB)
    ahead = StatePredictor().predict(state, plan, 7 * DT)
    np.testing.assert_allclose(ahead.x_WB, integrate_twist(x_WB, twist, 0.3), atol=1e-9)


def test_the_past_is_not_predicted():
    plan = ChunkTimeline(coast_ns=DT)
    plan.rest_at(Command(arm=JointCommand(q=np.zeros(1))), 0)
    with pytest.raises(ValueError, match="before the measured state"):
        StatePredictor().predict(RobotState(t_ns=5, q=np.zeros(1), dq=np.zeros(1)), plan, 4)


def test_the_latency_estimate_leaves_out_the_cold_start_and_forgets_spikes():
    estimator = LatencyEstimator(window=3)
    assert estimator.num_rows(DT) == 0
    estimator.add(9_000_000_000)
    assert estimator.latency_ns() is None
    estimator.add(600_000_000)
    for _ in range(3):
        estimator.add(100_000_000)
    assert estimator.latency_ns() == 100_000_000
    assert estimator.num_rows(DT, 1.0) == 2  # rows due at 0 and 50 ms; the one at 100 ms can still be changed
    estimator.add(100_000_001)
    assert estimator.num_rows(DT, 1.0) == 3
    estimator.restart()
    assert estimator.latency_ns() is None


def joint_plan(rows, step_ns=DT) -> ChunkTimeline:
    plan = ChunkTimeline(coast_ns=2 * DT)
    plan.rest_at(Command(arm=JointCommand(q=np.array(rows[0]))), 0)
    plan.splice(Waypoints(q=np.array(rows)), t0_ns=0, dt_ns=step_ns, source=SOURCE)
    return plan


def test_the_last_target_is_the_last_row_even_when_the_plan_ends_before():
    plan = joint_plan([[0.0], [1.0], [2.0]])
    state = RobotState(t_ns=0, q=np.array([-0.3]), dq=np.zeros(1))
    assert StatePredictor(model=LastTarget()).predict(state, plan, 5 * DT).q[0] == 2.0


def test_integrated_deltas_keep_the_measured_distance_to_the_setpoint():
    plan = joint_plan([[0.0], [1.0], [2.0], [2.5]])
    state = RobotState(t_ns=DT, q=np.array([0.9]), dq=np.zeros(1))
    ahead = StatePredictor(model=IntegratedDeltas()).predict(state, plan, 3 * DT)
    assert ahead.q[0] == pytest.approx(0.9 + (2.5 - 1.0))
    assert ahead.dq[0] == pytest.approx(0.5 / 0.05)


def test_integrated_deltas_compose_hand_poses_in_their_own_frames():
    def pose(x, yaw):
        quat = np.array([np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)])
        return Command(arm=PoseCommand(p_BE=np.array([x, 0.0, 0.0]), quat_BE=quat))

    plan = ChunkTimeline(coast_ns=2 * DT)
    plan.rest_at(pose(0.0, 0.0), 0)
    rows = Waypoints.from_commands([pose(0.1 * i, 0.0) for i in range(4)])
    plan.splice(rows, t0_ns=0, dt_ns=DT, source=SOURCE)
    turned = pin.SE3(pin.exp3(np.array([0.0, 0.0, np.pi / 2])), np.array([1.0, 0.0, 0.0]))
    state = RobotState(t_ns=0, q=np.zeros(0), dq=np.zeros(0), X_BE=turned)
    ahead = StatePredictor(model=IntegratedDeltas()).predict(state, plan, 2 * DT)
    np.testing.assert_allclose(ahead.X_BE.translation, [1.0, 0.2, 0.0], atol=1e-9)


def test_a_lagging_arm_runs_the_time_constant_behind_a_steady_setpoint():
    rows = [[0.1 * i] for i in range(16)]  # 2 rad/s
    state = RobotState(t_ns=0, q=np.zeros(1), dq=np.zeros(1))
    ahead = StatePredictor(model=TrackingLag(time_constant_s=0.03)).predict(state, joint_plan(rows), 12 * DT)
    assert ahead.q[0] == pytest.approx(1.2 - 0.06, abs=1e-6)
    assert ahead.dq[0] == pytest.approx(2.0, abs=1e-6)


@FEW
@given(st.lists(st.floats(-1, 1), min_size=3, max_size=8), st.floats(0.01, 0.3), st.floats(-1, 1))
def test_the_lag_is_integrated_as_exactly_as_small_steps_do(targets, tau, start):
    plan = joint_plan([[target] for target in targets])
    state = RobotState(t_ns=0, q=np.array([start]), dq=np.zeros(1))
    end_ns = (len(targets) - 1) * DT
    x, step_s = start, 1e-5
    knots = np.arange(len(targets)) * DT * 1e-9
    decay = np.exp(-step_s / tau)
    for t in np.arange(0.0, end_ns * 1e-9 - step_s / 2, step_s):
        setpoint = np.interp(t + step_s / 2, knots, targets)
        x = setpoint + (x - setpoint) * decay
    ahead = StatePredictor(model=TrackingLag(time_constant_s=tau)).predict(state, plan, end_ns)
    assert ahead.q[0] == pytest.approx(x, abs=1e-5)


def test_only_added_up_deltas_keep_the_width_of_an_object_that_fingers_hold():
    plan = ChunkTimeline(coast_ns=2 * DT)
    rows = Waypoints(q=np.zeros((6, 1)), gripper=np.array([0.0, 0.0, 0.0, 0.08, 0.08, 0.08]))
    plan.rest_at(rows.row(0), 0)
    plan.splice(rows, t0_ns=0, dt_ns=DT, source=SOURCE)
    state = RobotState(t_ns=0, q=np.zeros(1), dq=np.zeros(1), gripper_width=0.041)
    for model, held in ((IntegratedDeltas(), 0.041), (TrackingLag(time_constant_s=0.03), 0.0)):
        predictor = StatePredictor(model=model)
        assert predictor.predict(state, plan, 2 * DT).gripper_width == held
        assert predictor.predict(state, plan, 4 * DT).gripper_width == 0.08


def lagging_log(tau: float, noise: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two seconds at 500 Hz of an arm that follows its held setpoints with exactly this lag."""
    rng = np.random.default_rng(3)
    t_ns = np.arange(1000) * 2_000_000
    setpoints = np.column_stack([np.sin(t_ns * 3e-9), 0.5 * np.cos(t_ns * 5e-9)])
    x, measured = setpoints[0].copy(), []
    for setpoint in setpoints:
        measured.append(x)
        x = setpoint + (x - setpoint) * np.exp(-0.002 / tau)
    return t_ns, setpoints, np.array(measured) + noise * rng.normal(size=setpoints.shape)


@pytest.mark.parametrize("tau", [0.02, 0.03, 0.1])
def test_the_time_constant_of_a_log_is_found_and_noise_hardly_matters(tau):
    assert fit_time_constant(*lagging_log(tau)) == pytest.approx(tau, rel=0.01)
    assert fit_time_constant(*lagging_log(tau, noise=1e-3)) == pytest.approx(tau, rel=0.05)


def test_a_log_without_motion_or_too_short_is_refused():
    t_ns, setpoints, measured = lagging_log(0.03)
    with pytest.raises(ValueError, match="no motion"):
        fit_time_constant(t_ns, np.zeros_like(setpoints), np.zeros_like(measured))
    with pytest.raises(ValueError, match=r"T >= 3 .* got 2 times and logs of shapes \(2, 2\) and \(2, 2\)"):
        fit_time_constant(t_ns[:2], setpoints[:2], measured[:2])
