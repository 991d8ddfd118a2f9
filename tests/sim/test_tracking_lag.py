"""How far the simulated arm runs behind its setpoints, and that `TrackingLag` predicts it."""

import numpy as np
import pytest

from robot_runtime.core.method.request_parts import LastTarget, TrackingLag
from robot_runtime.core.plan.predict import StatePredictor, fit_time_constant
from robot_runtime.core.plan.timeline import ChunkTimeline, Source
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.waypoints import Waypoints
from sim.scene.model import DT_NS, SERVO_LAG_S
from sim.scene.world import World
from sim.tasks import make_task

ROW_NS = 50_000_000


def sway(q_start: np.ndarray) -> ChunkTimeline:
    """Two seconds of a plan that moves every joint, each at its own speed."""
    t_s = np.arange(41)[:, None] * 0.05
    rows = Waypoints(q=q_start + 0.2 * (1.0 - np.cos(np.array([3.0, 4.0, 2.5, 3.5, 5.0, 4.5, 5.5]) * t_s)))
    plan = ChunkTimeline(coast_ns=2 * ROW_NS)
    plan.rest_at(rows.row(0), 0)
    plan.splice(rows, t0_ns=0, dt_ns=ROW_NS, source=Source(request_id=0, t_obs_ns=0))
    return plan


@pytest.fixture(scope="module")
def run():
    """(plan, setpoints (T, 7), measured states, forward kinematics) of an arm in physics."""
    world = World(make_task("track"), seed=0)
    plan, setpoints, states = sway(world.q), [], []
    for now_ns in range(0, 40 * ROW_NS, DT_NS):
        world.advance_to(now_ns)
        setpoints.append(plan.command_at(now_ns).arm.q)
        states.append(world.observe().state)
        world.set_joint_target(setpoints[-1])
    return plan, np.array(setpoints), states, world.kinematics.forward


def fitted(setpoints: np.ndarray, states: list[RobotState]) -> float:
    times = np.array([state.t_ns for state in states])
    return fit_time_constant(times, setpoints, np.array([state.q for state in states]))


def test_the_fitted_lag_is_the_servos(run):
    _, setpoints, states, _ = run
    assert fitted(setpoints, states) == pytest.approx(SERVO_LAG_S, rel=0.05)


def test_the_lag_predicts_the_arm_ten_times_better_than_the_last_target(run):
    plan, setpoints, states, hand_pose = run
    ahead = 6 * ROW_NS // DT_NS  # 300 ms
    worst, worst_hand = {}, {}
    for model in (LastTarget(), TrackingLag(time_constant_s=fitted(setpoints, states))):
        predictor = StatePredictor(model=model, hand_pose=hand_pose)
        pairs = [
            (predictor.predict(states[i], plan, states[i + ahead].t_ns), states[i + ahead])
            for i in range(0, 800, 40)
        ]
        worst[type(model)] = max(float(np.abs(a.q - b.q).max()) for a, b in pairs)
        hands = [np.linalg.norm(a.X_BE.translation - b.X_BE.translation) for a, b in pairs]
        worst_hand[type(model)] = max(hands)
    assert worst[TrackingLag] * 10 < worst[LastTarget]
    assert worst_hand[TrackingLag] * 10 < worst_hand[LastTarget]
