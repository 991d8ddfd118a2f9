"""How the robot responds to wrong measurements."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.method.table import METHODS
from robot_runtime.core.plan.answers import PartOutcome
from robot_runtime.core.plan.limits import BaseLimits, Limits, MotionLimits
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.state_watch import StateLimits, StateWatch
from robot_runtime.core.values.action import (
    ActionSpec,
    BasePose,
    BasePoseCommand,
    BaseTwistCommand,
    ChunkPart,
    Command,
    EndEffectorPose,
    GripperWidth,
    Reference,
)
from robot_runtime.core.values.state import BaseState, Observation, RobotState
from robot_runtime.core.values.transforms import integrate_twist, rotation_to_6d
from robot_runtime.errors import InvalidValueError
from tests.core.support import MOBILE_LIMITS
from tests.examples import examples

MS = 1_000_000
TICK = 10 * MS
SPEED = np.array([0.4, 0.0, 0.0])
SPEC = ActionSpec(
    fields=(BasePose(Reference.RELATIVE), EndEffectorPose(), GripperWidth()), horizon=32, dt_ns=50 * MS
)
X_BE = pin.SE3(np.eye(3), np.array([0.5, 0.0, 0.6]))


def state(t_ns: int, x_WB, V_WB_B=SPEED, **kwargs) -> RobotState:
    return RobotState(
        t_ns=t_ns,
        q=np.zeros(7),
        dq=np.zeros(7),
        X_BE=X_BE,
        gripper_width=0.04,
        x_WB=np.array(x_WB, dtype=float),
        V_WB_B=V_WB_B,
        **kwargs,
    )


QUICK = replace(
    MOBILE_LIMITS,
    base=MotionLimits(speed=np.full(3, 10.0), acceleration=np.full(3, 1e4), jerk=np.full(3, 1e7)),
    unusual=True,
)
"""A base that follows its commands at once."""


class Driving:
    """A robot that is commanded forwards at 0.4 m/s and follows at once."""

    def __init__(self, method: str = "time-aligned") -> None:
        self.executor = Executor(
            Configuration(action_spec=SPEC, method=METHODS[method], limits=QUICK, control_period_ns=TICK)
        )
        self.now_ns, self.x = 0, np.zeros(3)
        self.executor.reset(self.measured(), 0)
        self.answer(self.executor.make_request(Observation(state=self.measured())))

    def measured(self, **kwargs) -> RobotState:
        return state(self.now_ns, self.x, **kwargs)

    def answer(self, request) -> PartOutcome:
        t = np.arange(32) * 0.05
        row = [*X_BE.translation, *rotation_to_6d(X_BE.rotation), 0.04]
        rows = np.column_stack([np.outer(t, SPEED), np.tile(row, (32, 1))])
        part = ChunkPart(
            request_id=request.request_id, epoch=request.epoch, t_obs_ns=request.observation.t_obs_ns,
            first_row=0, rows=rows, is_last=True,
        )  # fmt: skip
        return self.executor.on_part(part, self.now_ns)

    def tick(self, measured: RobotState | None = None):
        """One tick later, measured as commanded."""
        self.now_ns += TICK
        self.x = integrate_twist(self.x, SPEED, TICK / 1e9)
        return self.executor.tick(self.measured() if measured is None else measured, self.now_ns)

    def drive(self, num_ticks: int) -> None:
        for _ in range(num_ticks):
            assert self.tick().mode is Mode.RUN


def asked_anew(robot: Driving) -> None:
    """It holds where it is, and resumes with the answer to a new observation."""
    for _ in range(30):
        tick = robot.tick(robot.measured(V_WB_B=np.zeros(3)))
    assert tick.mode is Mode.HOLD
    assert robot.executor.wants_request(robot.now_ns)
    request = robot.executor.make_request(Observation(state=robot.measured()))
    assert robot.answer(request) is PartOutcome.RUNS
    tick = robot.tick()
    assert (tick.mode, tick.cause) == (Mode.RUN, Cause.FRESH_CHUNK)


@given(st.floats(-3.0, 3.0), st.floats(0.11, 5.0))
def test_odometry_that_jumps_voids_the_plan_and_what_is_under_way_and_the_base_does_not_chase_it(angle, far):
    robot = Driving()
    robot.drive(10)
    under_way = robot.executor.make_request(Observation(state=robot.measured()))
    robot.x = robot.x + far * np.array([np.cos(angle), np.sin(angle), 0.0])
    tick = robot.tick()
    assert (tick.mode, tick.cause) == (Mode.HOLD, Cause.ODOMETRY_JUMPED)
    assert isinstance(tick.command.base, BasePoseCommand)
    assert np.linalg.norm(tick.command.base.x_WB - robot.x) < 0.02
    assert robot.answer(under_way) is PartOutcome.UNKNOWN
    assert robot.executor.counts.odometry_jumps == 1
    assert any("odometry jumped" in reported for reported in robot.executor.counts.fallbacks())
    robot.x = robot.x - SPEED * TICK / 1e9  # it is stationary now
    asked_anew(robot)


def test_odometry_that_jumps_while_nothing_was_measured_is_not_chased_either():
    robot = Driving()
    robot.drive(100)
    at_rest = np.zeros(3)
    for _ in range(30):  # no new states for 300 ms: it brakes
        silent = robot.tick(state(100 * TICK, robot.x - SPEED * TICK / 1e9, V_WB_B=at_rest))
        robot.x = silent.command.base.x_WB
    assert silent.cause is Cause.STATE_STALE
    moved = robot.x + np.array([0.6, 0.0, 0.0])
    late = robot.tick(state(robot.now_ns - 150_000_000, moved, V_WB_B=at_rest))
    robot.x = moved
    for _ in range(20):
        after = robot.tick(state(robot.now_ns + TICK, moved, V_WB_B=at_rest))
    assert (late.cause, after.mode) == (Cause.STATE_STALE, Mode.HOLD)
    assert np.linalg.norm(after.command.base.x_WB - moved) < 0.02


def test_a_robot_does_not_start_from_where_it_was_long_ago():
    robot = Driving()
    with pytest.raises(ValueError, match="cannot start from a state that is"):
        robot.executor.reset(state(0, np.zeros(3)), 150 * MS)
    robot.executor.reset(state(60 * MS, np.zeros(3)), 150 * MS)


def test_a_base_that_braked_while_nothing_was_measured_has_not_jumped():
    robot = Driving()
    robot.drive(100)
    silent, sent = robot.measured(), []
    for _ in range(60):  # it brakes, from 0.4 m/s; the newest state still has its speed
        sent.append(robot.tick(silent).command.base.x_WB)
    robot.x = sent[-1]
    sent.append(robot.tick(robot.measured(V_WB_B=np.zeros(3))).command.base.x_WB)
    assert np.linalg.norm(robot.x - silent.x_WB) < 0.1 < 0.4 * 60 * TICK / 1e9 - 0.1
    assert robot.executor.counts.odometry_jumps == 0
    assert np.abs(np.diff(sent, axis=0)).max() <= 0.4 * TICK / 1e9 + 1e-9


def test_a_base_whose_neighbour_s_odometry_jumps_brakes_within_its_limits_and_so_does_the_neighbour():
    motion = MotionLimits(speed=np.full(3, 2.0), acceleration=np.full(3, 10.0), jerk=np.full(3, 1e3))
    robot = Executor(
        Configuration(
            action_spec=ActionSpec(
                fields=(BasePose(part="a"), BasePose(part="b")), horizon=40, dt_ns=50_000_000
            ),
            method=METHODS["time-aligned"],
            limits=Limits({"a": BaseLimits(motion=motion), "b": BaseLimits(motion=motion)}),
            control_period_ns=TICK,
        )
    )
    rows = np.zeros((40, 6))
    rows[:, 0] = rows[:, 3] = 0.05 * np.arange(40)
    poses, twists, sent = np.zeros((2, 3)), np.zeros((2, 3)), []
    for k in range(200):
        jump = np.array([[5.0 if k >= 100 else 0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
        bases = zip(("a", "b"), poses + jump, twists, strict=True)
        parts = {name: BaseState(x_WB=x, V_WB_B=twist) for name, x, twist in bases}
        measured = RobotState(t_ns=k * TICK, parts=parts)
        if k == 0:
            robot.reset(measured, 0)
            request = robot.make_request(Observation(state=measured))
            ids = {"request_id": request.request_id, "epoch": request.epoch}
            robot.on_part(ChunkPart(**ids, t_obs_ns=0, first_row=0, rows=rows, is_last=True), 0)
        command = robot.tick(measured, k * TICK).command
        commanded = np.array([command.parts[name].x_WB for name in ("a", "b")]) - jump
        twists, poses = (commanded - poses) / (TICK / 1e9), commanded
        sent.append(commanded[:, 0])
    assert robot.counts.odometry_jumps == 1
    assert np.abs(np.diff(sent, n=2, axis=0)).max() / (TICK / 1e9) ** 2 <= 10.0 + 1e-6


def test_a_turn_without_a_command_is_a_jump_too():
    watch = StateWatch(StateLimits())
    assert watch.look(state(0, [0.0, 0.0, 3.1]), 0) is None
    assert watch.look(state(TICK, [0.004, 0.0, -3.1]), TICK) is None  # 0.08 rad on, across pi
    assert watch.look(state(2 * TICK, [0.008, 0.0, -2.9]), 2 * TICK) is Cause.ODOMETRY_JUMPED


@given(
    st.tuples(*[st.floats(-0.8, 0.8)] * 2, st.floats(-1.6, 1.6)).map(np.array),
    st.integers(1, 45),
    st.integers(0, 100),
)
def test_driving_is_no_jump_whatever_the_speed_and_however_many_ticks_are_missed(twist, missed, seed):
    rng, watch, x = np.random.default_rng(seed), StateWatch(StateLimits()), np.zeros(3)
    watch.look(state(0, x, twist), 0)
    for i in range(1, 20):
        t_ns = i * missed * 2 * MS
        x = integrate_twist(x, twist, missed * 0.002)
        noise = rng.normal(scale=0.002, size=3)
        assert watch.look(state(t_ns, x + noise, twist), t_ns) is None


def test_frozen_odometry_stops_a_moving_robot_and_not_a_stationary_one():
    robot = Driving()
    robot.drive(10)
    frozen = robot.x.copy()
    causes = [robot.tick(state(robot.now_ns + TICK, frozen)).cause for _ in range(60)]
    first = causes.index(Cause.ODOMETRY_FROZEN)
    assert 20 <= first <= 30  # 200 ms, and 8 cm of plan
    assert robot.executor.mode is Mode.STOP
    standing = StateWatch(StateLimits())
    command = Command(base=BasePoseCommand(x_WB=np.zeros(3)))
    for t in range(0, 2000 * MS, TICK):
        assert standing.follows(command, state(t, np.zeros(3)), t) is None


def twist(vx):
    return Command(base=BaseTwistCommand(V_WB_B=np.array([vx, 0.0, 0.0])))


def first_cause(command_at, x_at, *, seconds=3.0):
    """When a base with these commands and measurements is found stationary [s]; None: it is not."""
    watch = StateWatch(StateLimits())
    for t in range(0, round(seconds * 1000) * MS, TICK):
        if watch.follows(command_at(t / 1e9), state(t, x_at(t / 1e9)), t) is Cause.ODOMETRY_FROZEN:
            return t / 1e9
    return None


def test_frozen_odometry_of_a_base_commanded_by_twists_is_noticed_as_of_one_commanded_by_poses():
    still = lambda t: np.zeros(3)  # noqa: E731
    assert first_cause(lambda t: twist(0.4), still) == pytest.approx(0.21, abs=0.02)
    assert first_cause(lambda t: twist(0.1), still) == pytest.approx(0.81, abs=0.02)  # 8 cm
    assert first_cause(lambda t: twist(0.0), still) is None


@examples(12)
@given(st.integers(0, 100), st.floats(0.12, 1.0), st.booleans())
def test_a_base_that_trembles_while_its_command_moves_on_is_stuck(seed, speed, is_by_twist):
    rng = np.random.default_rng(seed)

    def commanded_at(t):
        saw = speed * (t % 0.3) if speed > 0.3 else speed * t  # as plans that begin anew where it is
        pose = Command(base=BasePoseCommand(x_WB=np.array([saw, 0.0, 0.0])))
        return twist(speed) if is_by_twist else pose

    found = first_cause(commanded_at, lambda t: rng.normal(scale=1e-4, size=3))
    assert 0.9 < found < 1.2


@examples(12)
@given(st.floats(0.05, 1.0), st.floats(0.0, 0.5), st.booleans(), st.integers(0, 100))
def test_a_base_that_lags_is_not_stuck_nor_is_one_that_turns_or_is_at_rest(speed, lag_s, turns, seed):
    rng = np.random.default_rng(seed)

    def x_at(t):
        distance = 0.0 if turns else speed * max(0.0, t - lag_s)
        return np.array([distance, 0.0, t]) + rng.normal(scale=1e-4, size=3)

    def commanded_at(t):
        return Command(base=BaseTwistCommand(V_WB_B=np.array([0.0, 0.0, 1.0]))) if turns else twist(speed)

    assert first_cause(commanded_at, x_at) is None
    dithering = lambda t: twist(0.3 * np.sign(np.sin(40.0 * t)))  # noqa: E731
    assert first_cause(dithering, lambda t: rng.normal(scale=1e-4, size=3)) is None


def test_a_base_left_far_behind_stops_the_robot():
    watch = StateWatch(StateLimits())
    command = Command(base=BasePoseCommand(x_WB=np.array([1.1, 0.0, 0.0])))
    assert watch.follows(command, state(0, np.zeros(3)), 0) is Cause.BASE_LOST


@pytest.mark.parametrize("off_ns", [90 * MS, 5_000 * MS])
def test_clocks_that_disagree_hold_the_robot_until_they_agree(off_ns):
    robot = Driving()
    robot.drive(10)
    under_way = robot.executor.make_request(Observation(state=robot.measured()))
    late = replace(robot.measured(), t_ns=robot.now_ns + TICK, t_newest_ns=robot.now_ns + TICK + off_ns)
    tick = robot.tick(late)
    assert (tick.mode, tick.cause) == (Mode.HOLD, Cause.CLOCKS_DISAGREE)
    assert not robot.executor.wants_request(robot.now_ns)
    assert robot.answer(under_way) is PartOutcome.DISTRUSTED
    robot.tick()
    asked_anew(robot)


def test_a_state_from_the_future_is_not_believed():
    robot = Driving()
    robot.drive(3)
    tick = robot.tick(state(robot.now_ns + TICK + 90 * MS, robot.x))
    assert (tick.mode, tick.cause) == (Mode.HOLD, Cause.CLOCKS_DISAGREE)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_odometry_that_is_not_a_number_stops_the_robot_at_its_last_command(number):
    robot = Driving()
    robot.drive(10)
    before = robot.executor.timeline.command_at(robot.now_ns).base
    tick = robot.tick(state(robot.now_ns + TICK, [number, 0.0, 0.0]))
    assert (tick.mode, tick.cause) == (Mode.STOP, Cause.STATE_INVALID)
    assert np.linalg.norm(tick.command.base.x_WB - before.x_WB) < 0.01


def test_a_reset_forgets_where_odometry_was():
    robot = Driving()
    robot.drive(5)
    robot.executor.stop()
    robot.x = robot.x + 3.0
    robot.executor.reset(robot.measured(), robot.now_ns)
    assert robot.tick().cause is Cause.RESET
    assert robot.executor.counts.odometry_jumps == 0


def test_odometry_at_20_hz_beside_a_fast_arm_is_no_fault():
    """Its lag is up to 50 ms, plus its own jitter."""
    watch = StateWatch(StateLimits())
    for i in range(200):
        now_ns = 1_000 * MS + i * 2 * MS
        odometry_ns = now_ns - now_ns % (50 * MS) - 5 * MS
        seen = replace(state(odometry_ns, np.zeros(3)), t_newest_ns=now_ns)
        assert watch.look(seen, now_ns) is None


@pytest.mark.parametrize("number", [np.nan, 0.0, -1.0])
def test_limits_that_would_let_everything_pass_or_nothing_are_refused(number):
    for name in ("max_jump", "max_turn", "frozen_lead", "max_arm_error", "max_base_error"):
        with pytest.raises(InvalidValueError, match=f"{name} takes a number above 0, got"):
            StateLimits(**{name: number})
    with pytest.raises(InvalidValueError, match="max_error_of lift takes a number above 0"):
        StateLimits(max_error_of={"lift": number})
    with pytest.raises(InvalidValueError, match="timeout_ns takes a number above 0, got 0"):
        StateLimits(timeout_ns=0)
