"""Base and hand put together: what counts is the hand in the world."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.method.table import METHODS
from robot_runtime.core.plan.whole_body import (
    WholeBody,
    WholeBodyGains,
    bodies_for,
    bounded_velocity,
    log_manipulability_gradient,
)
from robot_runtime.core.safety import Mode
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import (
    ActionSpec,
    BasePose,
    BasePoseCommand,
    ChunkPart,
    Command,
    EndEffectorPose,
    GripperCommand,
    GripperWidth,
    JointCommand,
    JointPosition,
    PoseCommand,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.core.values.transforms import (
    integrate_twist,
    pose_from_planar,
    quaternion_from_rotation,
    rotation_to_6d,
)
from robot_runtime.errors import InvalidValueError
from sim.scene.kinematics import Q_HOME, R_DOWN, Kinematics
from tests.core.support import FEW, MOBILE_LIMITS

TICK = 2_000_000
MS = 1_000_000
FR3 = Kinematics()
X_BE_HOME = FR3.forward(np.array(Q_HOME))
planar = st.tuples(st.floats(-3.0, 3.0), st.floats(-3.0, 3.0), st.floats(-3.1, 3.1)).map(np.array)
small = st.tuples(*[st.floats(-0.1, 0.1)] * 3).map(np.array)


def controller(q=Q_HOME, **gains) -> WholeBody:
    out = WholeBody(
        kinematics=FR3, limits=FR3_LIMITS, gains=WholeBodyGains(posture=np.array(Q_HOME), **gains)
    )
    out.reset(np.array(q), 0)
    return out


def state(x_WB=None, *, t_ns: int = 0, V_WB_B=None) -> RobotState:
    return RobotState(t_ns=t_ns, q=np.array(Q_HOME), dq=np.zeros(7), x_WB=x_WB, V_WB_B=V_WB_B)


def command(X_BE: pin.SE3, x_WB=None) -> Command:
    arm = PoseCommand(p_BE=X_BE.translation, quat_BE=quaternion_from_rotation(X_BE.rotation))
    return Command(arm=arm, base=None if x_WB is None else BasePoseCommand(x_WB=x_WB))


def settle(robot: WholeBody, wanted: Command, measured: RobotState, *, ticks: int = 200) -> np.ndarray:
    for t in range(TICK, (ticks + 1) * TICK, TICK):
        out = robot.resolve(wanted, measured, t)
    assert isinstance(out.arm, JointCommand)
    return out.arm.q


@FEW
@given(planar, small, st.tuples(*[st.floats(-0.12, 0.12)] * 3).map(np.array))
def test_the_hand_is_where_the_plan_has_it_in_the_world_wherever_the_base_is(planned, base_error, offset):
    X_BE = pin.SE3(R_DOWN, X_BE_HOME.translation + offset)
    measured = planned + base_error
    q = settle(controller(), command(X_BE, planned), state(measured))
    X_WE = pose_from_planar(measured) * FR3.forward(q)
    wanted = pose_from_planar(planned) * X_BE
    np.testing.assert_allclose(X_WE.homogeneous, wanted.homogeneous, atol=1e-6)


@FEW
@given(
    st.tuples(*[st.floats(-2.0, 2.0)] * 3).map(np.array),
    st.tuples(*[st.floats(-3.0, 3.0)] * 3).map(np.array),
    st.integers(0, 1000),
)
def test_no_target_drives_a_joint_beyond_its_limits(position, turn, seed):
    """Out of reach, behind the arm, inside it, through singular postures."""
    rng = np.random.default_rng(seed)
    q = rng.uniform(FR3_LIMITS.q_min, FR3_LIMITS.q_max)
    robot = controller(q)
    wanted = command(pin.SE3(pin.exp3(turn), position))
    for t in range(5 * TICK, 300 * TICK, 5 * TICK):
        out = robot.resolve(wanted, state(), t)
        assert np.isfinite(out.arm.q).all()
        assert (out.arm.q >= FR3_LIMITS.q_min - 1e-9).all()
        assert (out.arm.q <= FR3_LIMITS.q_max + 1e-9).all()
        assert (np.abs(out.arm.q - q) <= FR3_LIMITS.dq_max * 5 * TICK / 1e9 + 1e-9).all()
        q = out.arm.q


@pytest.mark.parametrize("direction", [(1.0, 0.0, 0.0), (0.6, 0.8, 0.0), (0.8, 0.0, 0.6)])
def test_a_target_out_of_reach_is_approached_and_then_stood_before(direction):
    robot = controller()
    far = np.array([0.0, 0.0, 0.333]) + 1.5 * np.array(direction)
    wanted = command(pin.SE3(R_DOWN, far))
    settle(robot, wanted, state(), ticks=1500)
    before, error = robot._q.copy(), robot.error
    q = robot.resolve(wanted, state(), 1501 * TICK).arm.q
    assert np.abs(q - before).max() < 2e-3
    assert error.position < 0.95
    assert error.position == pytest.approx(float(np.linalg.norm(FR3.forward(before).translation - far)))


def test_the_hand_stands_in_the_world_while_the_base_drives():
    """The arm follows its setpoint 30 ms late; the base speeds up at 1 m/s^2 and is measured exactly."""
    robot, lag_s = controller(arm_lag_s=0.03), 0.03
    x, v, q_arm, dt = np.zeros(3), np.zeros(3), np.array(Q_HOME), TICK / 1e9
    planned = np.zeros(3)
    errors = []
    for i in range(1, 300):
        v = np.array([min(1.0 * i * dt, 0.25), 0.0, 0.0])
        x = integrate_twist(x, v, dt)
        out = robot.resolve(command(X_BE_HOME, planned), state(x, t_ns=i * TICK, V_WB_B=v), i * TICK)
        q_arm = q_arm + (out.arm.q - q_arm) * (1.0 - np.exp(-dt / lag_s))
        X_WE = pose_from_planar(x) * FR3.forward(q_arm)
        errors.append(np.linalg.norm(X_WE.translation - X_BE_HOME.translation))
    assert np.quantile(errors, 0.95) < 2e-3
    assert x[0] > 0.1


def test_what_the_hand_leaves_free_does_not_move_it():
    robot = controller(q=np.array(Q_HOME) + np.array([0.3, 0.0, -0.3, 0.0, 0.0, 0.0, 0.0]))
    X_BE = FR3.forward(robot._q)
    apart = np.abs(robot._q - Q_HOME).max()
    for t in range(TICK, 1000 * TICK, TICK):
        robot.resolve(command(X_BE), state(), t)
        assert robot.error.position < 1e-5
    assert np.abs(robot._q - Q_HOME).max() < 0.5 * apart


def test_looking_at_the_posture_every_few_ticks_leads_the_same_way():
    q = np.array(Q_HOME) + np.array([0.3, 0.2, -0.3, 0.1, 0.4, 0.0, 0.0])
    often, seldom = controller(q, posture_period_ns=0), controller(q)
    for i in range(1, 1000):
        X_BE = FR3.forward(q)
        X_BE.translation += 0.15 * np.array([np.sin(0.01 * i), np.cos(0.01 * i) - 1.0, 0.0])
        for robot in (often, seldom):
            robot.resolve(command(X_BE), state(), i * TICK)
            assert robot.error.position < 1e-4
        np.testing.assert_allclose(seldom._q, often._q, atol=5e-3)
    assert np.abs(seldom._q - often._q).max() > 0.0


def test_the_gradient_of_manipulability_is_the_one_of_finite_differences():
    rng = np.random.default_rng(3)
    for _ in range(5):
        q = rng.uniform(FR3_LIMITS.q_min, FR3_LIMITS.q_max)
        step = 1e-6
        for j in range(7):
            ahead = q.copy()
            ahead[j] += step
            difference = (log_w(ahead) - log_w(q)) / step
            assert log_manipulability_gradient(FR3.jacobian(q))[j] == pytest.approx(
                difference, rel=2e-2, abs=2e-2
            )


def log_w(q: np.ndarray) -> float:
    J = FR3.jacobian(q)
    return 0.5 * float(np.log(np.linalg.det(J @ J.T)))


@given(st.integers(0, 10_000), st.floats(0.05, 1.0))
def test_a_bounded_velocity_keeps_the_twist_while_one_joint_is_held(seed, bound):
    rng = np.random.default_rng(seed)
    J = FR3.jacobian(np.array(Q_HOME) + rng.uniform(-0.2, 0.2, 7))
    twist = 0.05 * rng.normal(size=6)
    free = bounded_velocity(J, twist, np.zeros(7), np.full(7, -9.0), np.full(7, 9.0), 0.0)
    worst = int(np.argmax(np.abs(free)))
    upper = np.full(7, 9.0)
    upper[worst] = bound * abs(free[worst])
    held = bounded_velocity(J, twist, np.zeros(7), -upper, upper, 0.0)
    assert (np.abs(held) <= upper + 1e-12).all()
    if np.linalg.cond(np.delete(J, worst, axis=1)) < 50:
        np.testing.assert_allclose(J @ held, twist, atol=1e-6)


def test_commands_without_a_hand_pose_pass_untouched():
    joints = Command(arm=JointCommand(q=np.zeros(7)), gripper=GripperCommand(width=0.02))
    assert controller().resolve(joints, state(), TICK) is joints


def test_a_led_base_that_is_not_measured_is_refused():
    with pytest.raises(ValueError, match="needs its measured pose x_WB"):
        controller().resolve(command(X_BE_HOME, np.zeros(3)), state(None), TICK)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_broken_odometry_leaves_the_joints_where_they_are(number):
    robot = controller()
    settle(robot, command(X_BE_HOME, np.zeros(3)), state(np.zeros(3)), ticks=5)
    before = robot._q.copy()
    broken = state(np.array([number, 0.0, 0.0]))
    out = robot.resolve(command(X_BE_HOME, np.zeros(3)), broken, 6 * TICK)
    np.testing.assert_array_equal(out.arm.q, before)


def led(offset: float) -> tuple[Executor, Tick]:
    """A robot whose base is `offset` from its plan along x [m], after 300 ms."""
    spec = ActionSpec(fields=(BasePose(), EndEffectorPose(), GripperWidth()), horizon=8, dt_ns=50 * MS)
    robot = Executor(
        Configuration(
            action_spec=spec,
            method=METHODS["time-aligned"],
            limits=MOBILE_LIMITS,
            control_period_ns=TICK,
            whole_body=controller(),
        )
    )
    measured = state(np.array([offset, 0.0, 0.0]), V_WB_B=np.zeros(3))
    measured = replace(measured, X_BE=X_BE_HOME, gripper_width=0.04)
    robot.reset(measured, 0)
    row = np.concatenate([np.zeros(3), X_BE_HOME.translation, rotation_to_6d(X_BE_HOME.rotation), [0.04]])
    request = robot.make_request(Observation(state=measured))
    part = ChunkPart(
        request_id=request.request_id, epoch=robot.epoch, t_obs_ns=0, first_row=0, rows=np.tile(row, (8, 1)),
        is_last=True,
    )  # fmt: skip
    robot.on_part(part, 0)
    for t in range(0, 300 * MS, TICK):
        tick = robot.tick(replace(measured, t_ns=t), t)
    return robot, tick


def test_the_executor_sends_joints_that_keep_the_hand_in_the_world():
    """The base is 5 cm behind its plan: the arm reaches 5 cm further."""
    _, tick = led(-0.05)
    assert isinstance(tick.command.arm, JointCommand)
    assert tick.clip.arm is None
    reach = FR3.forward(tick.command.arm.q).translation - X_BE_HOME.translation
    np.testing.assert_allclose(reach, [0.05, 0.0, 0.0], atol=1e-5)


def test_a_hand_that_does_not_get_to_its_plan_is_counted_and_said():
    robot, _ = led(-0.9)
    assert robot.counts.unreached_ticks > 100
    assert any(
        "the hand is sent short of where the plan has it" in reported for reported in robot.counts.fallbacks()
    )


def test_a_robot_that_could_resolve_its_hand_goes_on_after_a_hold_under_a_policy_of_joints():
    spec = ActionSpec(fields=(JointPosition(7),), horizon=16, dt_ns=50 * MS)
    robot = Executor(
        Configuration(
            action_spec=spec,
            method=METHODS["time-aligned"],
            limits=FR3_LIMITS,
            control_period_ns=TICK,
            whole_body=controller(),
        )
    )
    q, modes = np.array(Q_HOME), []
    goal = q + 0.05
    for k in range(600):
        t_ns = k * TICK if not 100 <= k < 200 else 100 * TICK  # nothing is measured for a while
        measured = RobotState(t_ns=t_ns, q=q, dq=np.zeros(7), X_BE=FR3.forward(q))
        if k == 0:
            robot.reset(measured, 0)
        if robot.wants_request(k * TICK):
            request = robot.make_request(Observation(state=measured))
            ids = {"request_id": request.request_id, "epoch": request.epoch, "t_obs_ns": t_ns}
            part = ChunkPart(**ids, first_row=0, rows=np.tile(goal, (16, 1)), is_last=True)
            robot.on_part(part, k * TICK)
        tick = robot.tick(measured, k * TICK)
        q = tick.command.arm.q
        modes.append(tick.mode)
    assert [modes[99], modes[190], modes[-1]] == [Mode.RUN, Mode.HOLD, Mode.RUN]
    np.testing.assert_allclose(q, goal, atol=1e-6)


def test_what_resolves_hands_is_matched_to_the_arms_and_bases_of_the_policy():
    body = controller()
    hand = ActionSpec(fields=(EndEffectorPose(part="left"),), horizon=8, dt_ns=50 * MS)
    with pytest.raises(InvalidValueError, match="WholeBody\\(part='left'\\)"):
        bodies_for(hand, {"left": body})
    assert bodies_for(hand, {"arm": body}) == {}
    world = ActionSpec(fields=(WorldEndEffectorPose(base="cart"),), horizon=8, dt_ns=50 * MS)
    with pytest.raises(InvalidValueError, match="on the base 'cart', the robot on 'base'"):
        bodies_for(world, body)
