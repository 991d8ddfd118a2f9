"""The loop that a user owns: however she leaves it, the robot comes to rest and its drivers are stopped."""

import inspect
import time
from dataclasses import fields, replace

import numpy as np
import pytest

import robot_runtime as rr
from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from policies.scripted import FRANKA, HoldPolicy, SinePolicy
from robot_runtime.clock import MonotonicClock
from robot_runtime.commands.run import Run, refuse_fault
from robot_runtime.core.executor import Phase
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.values.action import BaseTwist, EndEffectorPose, GripperWidth, JointCommand
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import DriverError, InvalidValueError, RobotStoppedError, SchemaMismatchError
from tests.process.toy import serving

pytestmark = pytest.mark.usefixtures("patient_time")

PATIENT_NS = 2_000_000_000


class NotedArm(IdealArm):
    """Knows when it was stopped, and by what it was moved before."""

    moved_last = 0.0
    num_stops = 0

    def write(self, command):
        self.moved_last = float(np.abs(command.q - self.q).max())
        return super().write(command)

    def stop(self):
        self.num_stops += 1


class CoarseArm(NotedArm):
    """Its hardware knows steps of 0.01 rad, and it says so."""

    def write(self, command):
        return super().write(JointCommand(q=command.q.round(2)))


class BreakingArm(NotedArm):
    """Its cable comes out."""

    reads = 0

    def read(self):
        self.reads += 1
        if self.reads > 100:
            raise OSError("the cable is out")
        return super().read()


class NotedGripper(IdealGripper):
    num_stops = 0

    def stop(self):
        self.num_stops += 1


class FussyPolicy(SinePolicy):
    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.info = replace(self.info, tasks=("swing",))


@pytest.fixture(scope="module")
def address():
    with serving(SinePolicy(amplitude=0.3), heartbeat_ns=PATIENT_NS) as server:
        yield server.address


def robot_with(arm_class=NotedArm) -> rr.Robot:
    return rr.Robot(arm=arm_class(clock=MonotonicClock()), gripper=NotedGripper(), limits=FR3_LIMITS)


def assert_rests(robot: rr.Robot, record):
    assert record.ticks[-1].mode is Mode.STOP
    assert record.ticks[-1].phase is Phase.REST
    assert robot.arm.moved_last < 1e-5
    assert robot.arm.num_stops >= 1


def test_each_step_of_the_loop_is_a_control_tick_and_it_ends_at_rest(address):
    robot = robot_with()
    with rr.Session(robot, policy=address, control_hz=200.0, duration_s=1.0) as session:
        ticks = list(session)
    assert 150 <= len(ticks) <= 260
    assert ticks == list(session.record.ticks)
    assert any(tick.mode is Mode.RUN for tick in ticks)
    assert session.record.fault == ""
    assert_rests(robot, session.record)


def test_run_is_that_loop(address):
    robot = robot_with()
    record = rr.run(
        robot, policy=address, task="swing", method="time-aligned", control_hz=200.0, duration_s=0.6
    )
    assert record.num_splices >= 1
    assert_rests(robot, record)


def test_joints_are_matched_by_name_between_a_robot_and_a_server_that_order_them_differently():
    """What the policy is shown, and what becomes of its rows."""
    start, names = np.array([0.1, 0.2, 0.3]), ("shoulder", "elbow", "wrist")
    theirs = rr.ActionSpec(
        fields=(rr.JointPosition(3, names=("wrist", "shoulder", "elbow")),), horizon=16, dt_ns=50_000_000
    )
    shown = []

    @rr.policy(rr.PolicyInfo(name="shuffled", action_spec=theirs))
    def shuffled(observation):
        shown.append(observation.state.q)
        return np.tile([0.6, 0.4, 0.5], (theirs.horizon, 1))

    n = np.ones(3)
    robot = rr.Robot(
        arm=IdealArm(clock=MonotonicClock(), q=start),
        limits=rr.Limits(q_min=-n, q_max=n, dq_max=n, ddq_max=10 * n, dddq_max=1000 * n),
        actions=(rr.JointPosition(3, names=names),),
    )
    with serving(shuffled, heartbeat_ns=PATIENT_NS) as server:
        shown.clear()  # what it was shown to warm up
        rr.run(robot, policy=server.address, control_hz=200.0, duration_s=1.5)
    np.testing.assert_allclose(shown[0], [0.3, 0.1, 0.2])
    np.testing.assert_allclose(robot.arm.q, [0.4, 0.5, 0.6], atol=1e-3)


def test_a_loop_that_is_left_in_mid_motion_brings_the_robot_to_rest(address):
    robot = robot_with()
    with rr.Session(robot, policy=address, control_hz=200.0) as session:
        for tick in session:
            if tick.mode is Mode.RUN and session.record.num_ticks > 100:
                break
        assert robot.arm.moved_last > 0.0
    assert_rests(robot, session.record)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_error_of_the_user_goes_out_once_the_robot_stands(address, kind):
    robot = robot_with()
    session = rr.Session(robot, policy=address, control_hz=200.0)

    def drive():
        with session:
            for _ in session:
                if session.record.num_ticks > 100:
                    raise kind("mine")

    with pytest.raises(kind, match="mine"):
        drive()
    assert_rests(robot, session.record)
    assert any(f"comes to rest: {kind.__name__}: mine" in text for _, text in session.record.log)


def test_an_error_of_a_driver_goes_out_at_once_and_all_drivers_are_stopped(address):
    robot = robot_with(BreakingArm)
    session = rr.Session(robot, policy=address, control_hz=200.0)
    with pytest.raises(OSError, match="the cable is out"), session:
        list(session)
    assert robot.arm.reads == 101
    assert robot.arm.num_stops >= 1
    assert robot.gripper.num_stops >= 1


def test_what_the_drivers_made_of_a_command_is_kept_beside_what_was_asked(address):
    record = rr.run(robot_with(CoarseArm), policy=address, control_hz=200.0, duration_s=1.0, keep_ticks=None)
    asked, sent = record.commands(), record.sent()
    assert asked.shape == sent.shape
    assert np.array_equal(sent[:, 1:8], asked[:, 1:8].round(2))
    assert not np.array_equal(sent[:, 1:8], asked[:, 1:8])
    assert np.array_equal(sent[:, [0, 8]], asked[:, [0, 8]])


def test_a_stop_before_the_first_tick_is_kept_and_the_robot_does_not_move(address):
    robot = robot_with()
    with rr.Session(robot, policy=address, control_hz=200.0, duration_s=1.0) as session:
        session.stop()
        ticks = list(session)
    assert not any(tick.mode is Mode.RUN for tick in ticks)
    assert session.runner.executor.mode is Mode.STOP
    assert session.runner.executor.cause is Cause.STOP_REQUESTED


def test_a_session_that_is_told_to_stop_goes_on_until_the_robot_stands(address):
    robot = robot_with()
    with rr.Session(robot, policy=address, control_hz=200.0) as session:
        for _ in session:
            if session.record.num_ticks == 120:
                session.stop()
    assert session.record.num_ticks > 120
    assert_rests(robot, session.record)


def test_a_session_is_entered_first_and_run_once(address):
    session = rr.Session(robot_with(), policy=address, control_hz=200.0, duration_s=0.1)
    with pytest.raises(RuntimeError, match="is entered first"):
        iter(session)
    with session:
        for _ in session:
            pass
        with pytest.raises(RuntimeError, match="one run"):
            iter(session)


def test_a_session_that_is_never_iterated_over_moves_nothing(address):
    robot = robot_with()
    with rr.Session(robot, policy=address) as session:
        assert session.welcome.info.name == "sine"
    assert robot.arm.moved_last == 0.0


def test_a_policy_is_named_behind_its_address_and_the_task_has_to_be_one_of_its_own():
    with serving(FussyPolicy(), heartbeat_ns=PATIENT_NS) as server:
        bare = server.address.removeprefix("tcp://")
        record = rr.run(robot_with(), policy=f"{bare}/sine", task="swing", duration_s=0.3)
        assert record.fault == ""
        with pytest.raises(InvalidValueError, match="does not know the task 'jump'; valid: 'swing'"):
            rr.run(robot_with(), policy=server.address, task="jump", duration_s=0.3)


def test_a_policy_that_declares_no_tasks_and_is_given_none_gets_a_line(address):
    for task, is_told in (("", True), ("swing", False)):
        lines: list[str] = []
        with rr.Session(robot_with(), policy=address, task=task, say=lines.append):
            pass
        assert any("no task is given and policy 'sine' declares none" in line for line in lines) is is_told


def test_parts_that_the_policy_does_not_have_are_named(address):
    robot = rr.Robot(arm=NotedArm(clock=MonotonicClock()), limits=FR3_LIMITS)
    with pytest.raises(
        SchemaMismatchError,
        match=r"does not fit policy 'sine': gripper: the robot has no such part, the policy needs a gripper$",
    ):
        rr.run(robot, policy=address, duration_s=1.0)


def test_a_policy_that_moves_the_hand_asks_for_a_hand_pose_and_one_of_joints_does_not(address):
    actions = (EndEffectorPose(), GripperWidth())
    policy = HoldPolicy(replace(FRANKA, action_fields=actions))
    robot = replace(robot_with(), actions=actions)
    with (
        serving(policy, heartbeat_ns=PATIENT_NS) as server,
        pytest.raises(
            SchemaMismatchError, match="arm: the policy needs the pose of its hand, the robot measures none"
        ),
    ):
        rr.run(robot, policy=server.address, duration_s=1.0)


class IdealBase:
    """Drives as it is told to."""

    silence_s, twist, num_stops = 0.25, np.zeros(3), 0

    def read(self):
        return rr.BaseState(t_ns=MonotonicClock().now_ns(), x_WB=np.zeros(3), V_WB_B=self.twist)

    def write(self, command):
        self.twist = command.V_WB_B

    def stop(self):
        self.twist, self.num_stops = np.zeros(3), self.num_stops + 1


def test_a_robot_may_be_a_base_alone():
    policy = HoldPolicy(Schema(action_fields=(BaseTwist(),), num_joints=0, has_gripper=False, has_base=True))
    none, three = np.zeros(0), np.ones(3)
    limits = rr.Limits(
        q_min=none,
        q_max=none,
        dq_max=none,
        ddq_max=none,
        dddq_max=none,
        base=rr.MotionLimits(speed=three, acceleration=three, jerk=10 * three),
    )
    robot = rr.Robot(base=IdealBase(), limits=limits)
    with serving(policy, heartbeat_ns=PATIENT_NS) as server:
        record = rr.run(robot, policy=server.address, control_hz=200.0, duration_s=0.5)
    assert record.fault == ""
    assert robot.base.num_stops >= 1


def test_the_options_of_a_run_are_those_of_a_session_and_declared_once():
    options = list(inspect.signature(rr.run).parameters)
    assert options == list(inspect.signature(rr.Session).parameters)
    assert options == [field.name for field in fields(rr.RunConfig)]
    own = {
        "correction",
        "picture_size",
        "json",
        "yes",
        "home",
        "set",
        "orders",
        "no_policy",
        "no_log",
        "keep",
        "page",
    }
    typed = {field.name for field in fields(Run)} - own
    assert typed <= set(options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"control_hz": 0.0}, "control_hz takes a number above 0"),
        ({"control_hz": float("nan")}, "control_hz takes a number above 0"),
        ({"duration_s": -1.0}, "duration_s takes a number above 0, or None"),
        ({"method": "magic"}, "unknown method 'magic'"),
    ],
)
def test_options_that_mean_nothing_are_refused_before_anything_is_connected(options, words):
    with pytest.raises(Exception, match=words):
        rr.Session(robot_with(), policy="tcp://127.0.0.1:1", **options)


def test_a_policy_that_no_server_serves_is_refused_with_what_serves_it():
    with pytest.raises(InvalidValueError, match=r"tcp://HOST:PORT, got function; robot_runtime\.serve"):
        rr.run(robot_with(), policy=lambda observation: observation)


def test_what_is_no_robot_is_refused():
    with pytest.raises(DriverError, match=r"expected a robot_runtime\.Robot, got a dict"):
        rr.run({"arm": 1}, policy="tcp://127.0.0.1:1")


def test_an_arm_that_stands_outside_its_limits_is_not_run():
    arm = NotedArm(clock=MonotonicClock())
    arm.q = arm.q + np.array([0, 0, 0, 0, 3.0, 0, 0])
    with (
        serving(HoldPolicy()) as server,
        pytest.raises(DriverError, match=r"joint 5 of arm is at 3\.000 rad, outside its limits"),
        rr.Session(rr.Robot(arm=arm, gripper=IdealGripper(), limits=FR3_LIMITS), policy=server.address),
    ):
        pass
    assert arm.moved_last == 0.0


def test_a_policy_that_answers_in_degrees_moves_nothing_and_the_run_ends_with_a_fault():
    class InDegrees(SinePolicy):
        def infer(self, request):
            for rows in super().infer(request):
                yield np.column_stack([np.degrees(rows[:, :7]), rows[:, 7:]])

    robot = robot_with()
    start = np.array(robot.arm.q)
    with serving(InDegrees(amplitude=0.3), heartbeat_ns=PATIENT_NS) as server:
        record = rr.run(robot, policy=server.address, control_hz=200.0, duration_s=0.5)
    assert np.array_equal(robot.arm.q, start)
    assert "are the policy's rows in degrees?" in record.fault
    with pytest.raises(RobotStoppedError, match="far outside the robot's ranges"):
        refuse_fault(record)


def test_an_arm_that_ignores_every_command_fails_a_short_run(address):
    class DeafArm(NotedArm):
        def write(self, command):
            return command

    record = rr.run(robot_with(DeafArm), policy=address, control_hz=200.0, duration_s=1.0)
    assert record.fault.startswith("the robot did not move: arm was commanded over 0.")
    assert any("is it enabled" in text for _, text in record.log)
    with pytest.raises(RobotStoppedError, match="did not move"):
        refuse_fault(record)


def test_a_run_whose_time_is_over_says_so_and_no_stop_that_nobody_asked_for(address):
    record = rr.run(robot_with(), policy=address, control_hz=200.0, duration_s=0.4)
    assert record.ticks[-1].cause.value == "the time of the run is over"
    assert not any("a stop was asked for" in text for _, text in record.log)
    refuse_fault(record)


def test_a_read_that_waits_for_the_device_is_named_at_the_end(address):
    class SlowArm(NotedArm):
        def read(self):
            time.sleep(0.02)
            return super().read()

    record = rr.run(robot_with(SlowArm), policy=address, control_hz=200.0, duration_s=0.5)
    assert any("reading the robot takes" in text and "not wait" in text for _, text in record.log)
