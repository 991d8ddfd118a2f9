"""The simulated mobile base: what it is told, what it does, and what it says it did."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.plan.whole_body import WholeBody, WholeBodyGains
from robot_runtime.core.values.action import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    JointCommand,
    PoseCommand,
)
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import (
    compose_planar,
    inverse_planar,
    pose_from_planar,
    quaternion_from_rotation,
)
from sim.scene.clock import SimClock
from sim.scene.drivers import SimArm, SimBase
from sim.scene.kinematics import Q_HOME
from sim.scene.mobile_base import ACCELERATION_MAX, P_BA, Odometry, OdometryErrors
from sim.scene.world import World
from tests.examples import examples
from tests.sim.mobile import EmptyFloor

MS = 1_000_000
TICK = 2 * MS


@pytest.fixture(scope="module")
def floor() -> World:
    return World(EmptyFloor())


def drive(world: World, twist, duration_ns: int, *, errors=None, seed: int = 0, step_ns: int = 10 * MS):
    """Poses, twists and what the odometry says, every `step_ns`."""
    world.reset(seed)
    clock = SimClock()
    base = SimBase(world, clock, errors=errors)
    poses, odometry = [world.x_WB], [base.read().x_WB]
    for t in range(0, duration_ns, step_ns):
        clock.sleep_until_ns(t)
        base.write(BaseTwistCommand(V_WB_B=np.array(twist)))
        clock.sleep_until_ns(t + step_ns)
        odometry.append(base.read().x_WB)
        poses.append(world.x_WB)
    return base, clock, np.array(poses), np.array(odometry)


def test_the_hand_stands_where_mujoco_has_it(floor):
    floor.reset(3)
    X_WE = pose_from_planar(floor.x_WB) * floor.kinematics.forward(floor.q)
    site = floor.data.site("end_effector")
    np.testing.assert_allclose(X_WE.translation, site.xpos, atol=1e-9)
    np.testing.assert_allclose(X_WE.rotation, site.xmat.reshape(3, 3), atol=1e-9)
    np.testing.assert_allclose(
        floor.data.body("base").xpos, (pose_from_planar(floor.x_WB).act(np.array(P_BA))), atol=1e-9
    )


@pytest.mark.parametrize("twist", [(0.5, 0.0, 0.0), (0.0, -0.4, 0.0), (0.0, 0.0, 1.0), (0.4, 0.2, 0.8)])
def test_a_twist_is_reached_in_the_bases_own_axes_within_its_acceleration(floor, twist):
    _, _, poses, _ = drive(floor, twist, 1500 * MS)
    np.testing.assert_allclose(floor.V_WB_B, twist, atol=0.02)
    speed = np.linalg.norm(np.diff(poses[:, :2], axis=0), axis=1) / 0.01
    assert np.abs(np.diff(speed)).max() / 0.01 < 1.15 * np.hypot(*ACCELERATION_MAX[:2])


def test_a_setpoint_beyond_the_limits_is_cut_and_said(floor):
    floor.reset(0)
    clock = SimClock()
    base = SimBase(floor, clock)
    for t in range(0, 2000 * MS, 10 * MS):
        clock.sleep_until_ns(t)
        sent = base.write(BaseTwistCommand(V_WB_B=np.array([3.0, 0.0, 0.0])))
    assert isinstance(sent, BaseTwistCommand)
    np.testing.assert_allclose(sent.V_WB_B, [0.8, 0.0, 0.0])
    assert floor.V_WB_B[0] == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("seen_every_ms", [2, 50, 1000])
@pytest.mark.parametrize("twist", [(0.5, 0.0, 0.0), (-0.8, 0.0, 0.0), (0.0, 0.0, 1.6), (0.6, 0.5, 1.0)])
def test_a_base_that_hears_nothing_stands_within_a_quarter_of_a_second(floor, twist, seen_every_ms):
    """However fast it was, and however seldom anybody looks; and it stays there."""
    base, clock, _, _ = drive(floor, twist, 1500 * MS)
    last = clock.now_ns() - 10 * MS
    for t in [*range(clock.now_ns(), last + 250 * MS, seen_every_ms * MS), last + 250 * MS]:
        clock.sleep_until_ns(t)
        base.read()
    assert np.abs(floor.V_WB_B).max() < 0.02
    stood = floor.x_WB
    clock.sleep_until_ns(last + 2000 * MS)
    base.read()
    assert np.abs(floor.x_WB - stood).max() < 0.002


def test_a_base_that_brakes_does_not_roll_back(floor):
    base, clock, _, _ = drive(floor, (0.8, 0.0, 0.0), 1500 * MS)
    base.stop()
    speeds = []
    for t in range(clock.now_ns(), clock.now_ns() + 500 * MS, 2 * MS):
        clock.sleep_until_ns(t)
        base.read()
        speeds.append(floor.V_WB_B[0])
    assert min(speeds) > -0.02
    assert min(np.diff(speeds)) / 0.002 > -8.0  # what 600 N give it; its wheels may slip beyond that


def test_a_pose_setpoint_is_followed(floor):
    floor.reset(1)
    clock = SimClock()
    base, start = SimBase(floor, clock), floor.x_WB
    errors = []
    for t in range(0, 4000 * MS, 10 * MS):
        clock.sleep_until_ns(t)
        s = min(t / 1e9, 3.0)
        target = compose_planar(start, np.array([0.3 * s, 0.1 * s, 0.3 * s]))
        base.write(BasePoseCommand(x_WB=target))
        errors.append(np.abs(compose_planar(inverse_planar(target), floor.x_WB)))
    assert np.max(errors, axis=0)[:2].max() < 0.12
    assert np.max(errors[-1]) < 0.01


def test_how_often_anybody_looks_changes_nothing(floor):
    finals = []
    for looks in (1, 3):
        floor.reset(2)
        clock = SimClock()
        base = SimBase(floor, clock)
        for t in range(0, 600 * MS, 30 * MS):
            clock.sleep_until_ns(t)
            base.write(BaseTwistCommand(V_WB_B=np.array([0.4, 0.1, 0.5])))
            for i in range(1, looks + 1):
                clock.sleep_until_ns(t + i * 30 * MS // looks)
                floor.advance_to(clock.now_ns())
        finals.append(floor.x_WB)
    np.testing.assert_array_equal(*finals)


@examples(20)
@given(st.integers(0, 10_000))
def test_odometry_without_errors_is_the_truth_and_with_them_drifts_the_same_for_a_seed(seed):
    rng = np.random.default_rng(seed)
    poses = [np.zeros(3)]
    for _ in range(200):
        poses.append(compose_planar(poses[-1], rng.normal(size=3) * [0.005, 0.002, 0.01] + [0.01, 0, 0]))
    none = Odometry(OdometryErrors(scale=0.0, yaw_scale=0.0, noise=0.0), seed=seed, x_WB=poses[0])
    twice = [Odometry(OdometryErrors(slip=0.1), seed=seed, x_WB=poses[0]) for _ in range(2)]
    for pose in poses[1:]:
        none.update(pose)
        for odometry in twice:
            odometry.update(pose)
    np.testing.assert_allclose(none.x_WB, poses[-1], atol=1e-9)
    np.testing.assert_array_equal(twice[0].x_WB, twice[1].x_WB)
    assert 1e-4 < np.abs(twice[0].x_WB - poses[-1]).max() < 1.0


def test_odometry_counts_from_where_the_robot_was_switched_on(floor):
    """Forwards and turning: told from the start, wrong by its scales; the true pose stays unknown."""
    floor.reset(3)
    start, clock = floor.x_WB, SimClock()
    base = SimBase(floor, clock, errors=OdometryErrors())
    np.testing.assert_allclose(base.read().x_WB, np.zeros(3), atol=1e-9)
    for t in range(0, 1500 * MS, 10 * MS):
        clock.sleep_until_ns(t)
        base.write(BaseTwistCommand(V_WB_B=np.array([0.4, 0.0, 0.3])))
    moved = compose_planar(inverse_planar(start), floor.x_WB)
    reported = base.read().x_WB
    assert np.abs(reported - moved).max() < 0.05
    assert np.abs(reported - floor.x_WB).max() > 0.1


@pytest.mark.long
def test_the_hand_stands_in_the_world_while_the_base_drives_under_it(floor):
    """Base to and fro at 1 m/s^2, odometry exact: what is left is what servos and measurements lag."""
    floor.reset(0)
    clock = SimClock()
    base, arm = SimBase(floor, clock), SimArm(floor, clock)
    body = WholeBody(
        kinematics=floor.kinematics, limits=FR3_LIMITS, gains=WholeBodyGains(posture=np.array(Q_HOME))
    )
    body.reset(floor.q, 0)
    planned, X_BE = floor.x_WB, floor.kinematics.forward(floor.q)
    held = pose_from_planar(planned) * X_BE
    pose = PoseCommand(p_BE=X_BE.translation, quat_BE=quaternion_from_rotation(X_BE.rotation))
    errors = []
    for i in range(1, 1500):
        t = i * TICK
        clock.sleep_until_ns(t)
        base.write(BaseTwistCommand(V_WB_B=np.array([0.25 * np.sin(4.0 * t / 1e9), 0.0, 0.0])))
        measured, seen = base.read(), arm.read()
        state = RobotState(t_ns=t, q=seen.q, dq=seen.dq, x_WB=measured.x_WB, V_WB_B=measured.V_WB_B)
        out = body.resolve(Command(arm=pose, base=BasePoseCommand(x_WB=planned)), state, t)
        assert isinstance(out.arm, JointCommand)
        arm.write(out.arm)
        X_WE = pose_from_planar(floor.x_WB) * floor.kinematics.forward(floor.q)
        errors.append(np.linalg.norm(X_WE.translation - held.translation))
    assert np.quantile(errors, 0.95) < 0.010
    assert np.ptp(errors) < 0.05


@pytest.mark.parametrize("name", ["chest", "wrist"])
def test_the_hand_is_in_the_picture(floor, name):
    floor.reset(0)
    camera = floor.model.camera(name)
    hand = floor.data.site("end_effector").xpos - floor.data.cam_xpos[camera.id]
    x, y, z = floor.data.cam_xmat[camera.id].reshape(3, 3).T @ hand
    half_picture = -z * np.tan(np.radians(camera.fovy[0]) / 2)
    assert half_picture > 0.0
    assert max(abs(x), abs(y)) < half_picture
