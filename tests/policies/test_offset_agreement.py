"""What a policy is shown at run time is what the recipe Offset has shown it in training."""

import numpy as np
import pinocchio as pin
import pytest

from policies.flow.dataset import roll_forward
from policies.flow.recipes import Offset, Recipe
from policies.flow.support import supported_samplers, trained_roll_forward
from robot_runtime.core.method.capabilities import Capabilities, resolve_method
from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.method.table import METHODS
from robot_runtime.core.plan.request_planner import RequestPlanner
from robot_runtime.core.plan.timeline import ChunkTimeline, Source
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.core.values.waypoints import Waypoints
from sim.scene.kinematics import Q_HOME

DT = 50_000_000
SPEC = ActionSpec(fields=(JointPosition(7), GripperWidth()), horizon=16, dt_ns=DT)
START_NS = 3 * DT


def hand_pose(q: np.ndarray) -> pin.SE3:
    return pin.SE3(pin.exp3(q[:3]), q[3:6])


def capabilities(recipe: Recipe) -> Capabilities:
    return Capabilities(
        samplers=supported_samplers(recipe),
        max_inference_delay=recipe.max_delay,
        recipe="offset",
        roll_forward=trained_roll_forward(recipe),
    )


@pytest.mark.parametrize("lag_s", [0.03, 0.1, 0.0])
@pytest.mark.parametrize("d", [1, 5, 12])
def test_the_state_shown_at_run_time_is_the_one_the_recipe_makes_from_the_same_plan(d, lag_s):
    rng = np.random.default_rng(d)
    rows = np.column_stack(
        [np.array(Q_HOME) + np.cumsum(rng.normal(0.0, 0.03, (16, 7)), axis=0), np.repeat([0.08, 0.0], 8)]
    )
    q = rows[0, :7] + rng.normal(0.0, 0.02, 7)
    state = RobotState(
        t_ns=START_NS, q=q, dq=rng.normal(size=7), X_BE=hand_pose(q), gripper_width=0.041
    )  # behind its setpoint, the fingers on an object
    recipe = Offset(tracking_lag_s=lag_s)
    wanted = roll_forward(
        state, rows, SPEC, num_rows=recipe.max_delay, tracking_lag_s=lag_s, hand_pose=hand_pose
    )[d]

    plan = ChunkTimeline(coast_ns=2 * DT)
    waypoints = Waypoints(q=rows[:, :7], gripper=rows[:, 7])
    plan.rest_at(waypoints.row(0), 0)
    plan.splice(waypoints, t0_ns=START_NS, dt_ns=DT, source=Source(request_id=0, t_obs_ns=0))
    latency = LatencyEstimator()
    for _ in range(2):
        latency.add(d * DT - 1)
    can = capabilities(recipe)
    planner = RequestPlanner(
        part=resolve_method(METHODS["vlash"], can, policy="toy").request,
        action_spec=SPEC,
        max_inference_delay=can.trained_delay(METHODS["vlash"]),
        hand_pose=hand_pose,
    )
    shown = planner.completed(
        ChunkRequest(observation=Observation(state=state)), plan, latency
    ).observation.state

    assert shown.t_ns == wanted.t_ns == START_NS + d * DT
    np.testing.assert_allclose(shown.q, wanted.q, atol=1e-6)
    np.testing.assert_allclose(shown.dq, wanted.dq, atol=1e-6)
    assert shown.X_BE.isApprox(wanted.X_BE, 1e-6)
    assert shown.gripper_width == pytest.approx(wanted.gripper_width, abs=1e-6)
