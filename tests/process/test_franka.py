"""The Franka driver against a simulated FR3 that speaks the real FCI protocol, by the robot's own time."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

import robot_runtime as rr
from drivers.fr3 import FR3_LIMITS
from drivers.franka import FrankaArm, FrankaGripper
from robot_runtime import Limits, Robot
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.robot import Arm, Gripper
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import (
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
    PoseCommand,
)
from robot_runtime.core.values.fields import JointPosition, JointVelocity, Reference
from robot_runtime.core.values.transforms import quaternion_from_rotation
from robot_runtime.errors import DriverError, InvalidValueError
from robot_runtime.robot.check import check_robot
from robot_runtime.robot_file import open_robot
from sim.devices.franka import FrankaRobot
from tests.process.toy import serving
from tests.process.waiting import wait_until
from tests.source_tree import ROOT

pytestmark = pytest.mark.real_time  # its control loop, its physics and ours: three of a robot's own rate
PATIENT_S = 2.0
"""A simulated robot on a busy machine is silent for longer than a real one."""
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def robots(tmp_path_factory):
    robots = [FrankaRobot(tmp_path_factory.mktemp("robots")) for _ in range(2)]
    yield [robot.wait() for robot in robots]
    for robot in robots:
        robot.kill()


def connect(robot, **options):
    return FrankaArm(robot.host, **{"needs_real_time": False, "state_timeout_s": PATIENT_S} | options)


@pytest.fixture
def arm(robots, tmp_path):
    arm = connect(robots[0], log_folder=tmp_path)
    yield arm
    arm.close()


def robot_time(arm, duration_s):
    """Moments of the robot's time, as they come: seconds since the first."""
    start_ns, deadline_s = arm.robot_time_ns, time.monotonic() + DEADLINE_S
    while (t_s := (arm.robot_time_ns - start_ns) / NS_PER_S) < duration_s:
        yield t_s
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


def hold(arm, q, duration_s):
    """Ask for one place for a while: the greatest speed meanwhile."""
    fastest = 0.0
    for _ in robot_time(arm, duration_s):
        arm.write(JointCommand(q=q))
        fastest = max(fastest, float(np.abs(arm.read().dq).max()))
    return fastest


@pytest.mark.long
def test_an_arm_follows_a_sine_of_20_hz_targets_within_a_hundredth_of_a_radian_and_stops(arm):
    assert isinstance(arm, Arm)
    start, due_s, worst = arm.read().q, 0.0, 0.0
    for t_s in robot_time(arm, 2.5):
        sine = 0.15 * np.sin(2.0 * np.pi * 0.25 * t_s)
        if t_s >= due_s:
            arm.write(JointCommand(q=start + np.array([sine, 0, 0, 0, 0, 0, 0])))
            due_s += 0.05
        if t_s > 1.0:
            worst = max(worst, abs(arm.read().q[0] - start[0] - sine))
    assert worst <= 0.01
    arm.stop()
    arm.stop()
    before = arm.read().q
    for _ in robot_time(arm, 0.5):
        pass
    assert np.abs(arm.read().dq).max() < 0.01
    assert np.abs(arm.read().q - before).max() < 0.08  # 0.2 rad/s, damped


def test_a_step_is_taken_within_the_speeds_of_the_data_sheet_and_silence_holds_the_arm(arm):
    start = arm.read().q
    aim = start + np.array([0.4, 0, 0, 0, 0, 0, 0])
    assert hold(arm, aim, 1.0) < FR3_LIMITS.dq_max[0]
    np.testing.assert_allclose(arm.read().q, aim, atol=0.01)
    arm.write(JointCommand(q=start))  # once, and nothing more
    for _ in robot_time(arm, 0.6):
        pass
    assert not arm.fault
    assert np.abs(arm.read().dq).max() < 0.01
    assert arm.read().q[0] - start[0] > 0.1  # it did not go all the way
    arm.go_home(start, speed=1.0)
    np.testing.assert_allclose(arm.read().q, start, atol=0.021)


def test_a_hand_pose_is_reached(arm):
    X_BE = arm.read().X_BE
    p = X_BE.translation + np.array([0.02, 0.0, -0.03])
    for _ in robot_time(arm, 1.5):
        arm.write(PoseCommand(p_BE=p, quat_BE=quaternion_from_rotation(X_BE.rotation)))
    np.testing.assert_allclose(arm.read().X_BE.translation, p, atol=0.004)


def test_a_robot_that_was_silent_is_a_fault_until_the_operator_recovers_it_and_goes_on_where_it_is(
    robots, tmp_path
):
    with closing(connect(robots[0], log_folder=tmp_path, state_timeout_s=0.4)) as arm:
        hold(arm, arm.read().q, 0.1)
        robots[0].freeze()
        began_s = time.monotonic()
        with pytest.raises(DriverError, match=f"{robots[0].host}: no state for 0.4"):
            wait_until(lambda: arm.read() is None)
        assert 0.3 < time.monotonic() - began_s < 0.9
        robots[0].thaw()
        wait_until(lambda: "recover()" in arm.fault)
        (log,) = tmp_path.glob("franka-*.csv")
        assert len(log.read_text().splitlines()) > 50
        with pytest.raises(DriverError, match="no state"):
            arm.write(JointCommand(q=np.zeros(7)))
        arm.recover()
        measured = arm.read().q
        assert hold(arm, measured, 0.2) < 0.05
        np.testing.assert_allclose(arm.read().q, measured, atol=0.005)


def test_a_reflex_is_a_fault_with_its_name_until_the_operator_recovers_even_in_a_new_program(robots, arm):
    robots[0].fall_into_reflex()
    wait_until(lambda: arm.fault)
    with pytest.raises(DriverError, match=r"joint_reflex.*recover"):
        arm.read()
    arm.close()
    with closing(connect(robots[0])) as arm:
        wait_until(lambda: "joint_reflex" in arm.fault)
        with pytest.raises(DriverError, match="reflex"):
            arm.write(JointCommand(q=np.zeros(7)))
        arm.recover()
        assert hold(arm, arm.read().q, 0.1) < 0.05


def test_a_hand_opens_and_closes_while_nobody_waits_for_it(robots):
    hand = FrankaGripper(robots[0].host)
    assert isinstance(hand, Gripper)
    start_s = time.monotonic()
    for width in (0.07, 0.01, 0.05):
        hand.write(GripperCommand(width=width))
        hand.read()
    assert time.monotonic() - start_s < 0.5  # a move takes one and more
    wait_until(lambda: abs(hand.read().width - 0.05) < 0.004)
    hand.write(GripperCommand(width=0.0))
    wait_until(lambda: hand.read().width < 0.04)
    hand.write(GripperCommand(width=0.08))  # it turns round
    wait_until(lambda: hand.read().width > 0.07)
    hand.stop()
    hand.stop()
    hand.close()


def test_commands_that_are_none_for_an_arm_are_refused_and_what_is_out_of_range_is_cut(arm):
    for wrong in (JointCommand(q=np.zeros(6)), JointCommand(q=np.full(7, np.nan))):
        with pytest.raises(DriverError, match="7 finite positions"):
            arm.write(wrong)
    with pytest.raises(DriverError, match="JointVelocityCommand"):
        arm.write(JointVelocityCommand(dq=np.zeros(7)))
    sent = arm.write(JointCommand(q=np.full(7, 9.0)))
    np.testing.assert_array_equal(sent.q, FR3_LIMITS.q_max)
    with pytest.raises(InvalidValueError, match="stiffness takes 7"):
        FrankaArm("127.0.0.1", stiffness=(1.0,))


def test_two_arms_at_two_addresses_are_one_robot(robots):
    arms = {name: connect(each) for name, each in zip(("left", "right"), robots, strict=True)}
    robot = Robot(dict(arms), limits=Limits({name: FR3_LIMITS.arm() for name in arms}))
    assert set(robot.parts) == set(arms)
    starts = {name: part.read().q for name, part in arms.items()}
    for _ in robot_time(arms["right"], 0.6):
        arms["left"].write(JointCommand(q=starts["left"] + 0.05))
        arms["right"].write(JointCommand(q=starts["right"] - 0.05))
    assert arms["left"].read().q[0] > starts["left"][0] + 0.03
    assert arms["right"].read().q[0] < starts["right"][0] - 0.03
    for each in arms.values():
        each.close()


@pytest.mark.parametrize(
    ("file", "prefixes"), [("fr3.toml", [""]), ("fr3_two_arms.toml", ["left_", "right_"])]
)
def test_the_example_files_move_their_arms_and_leave_them_at_rest(robots, file, prefixes):
    """Each arm's first joint goes on by a little from wherever it is measured."""
    settings = [f"state_limits.{name}={PATIENT_S}" for name in ("timeout_s", "max_gap_s")]
    for robot, prefix in zip(robots, prefixes, strict=False):
        arm = f"parts.{prefix}arm"
        settings += [f"{arm}.host={robot.host}", f"parts.{prefix}gripper.host={robot.host}"]
        settings += [f"{arm}.needs_real_time=false", f"{arm}.state_timeout_s={PATIENT_S}"]
    fields = tuple(JointPosition(7, reference=Reference.RELATIVE, part=f"{prefix}arm") for prefix in prefixes)
    spec = rr.ActionSpec(fields=fields, horizon=16, dt_ns=50_000_000)
    onward = np.zeros((16, 7 * len(prefixes)))
    onward[:, ::7] = 0.005 * np.arange(16)[:, None]

    @rr.policy(rr.PolicyInfo(name="onward", action_spec=spec))
    def policy(observation):
        return onward

    with (
        serving(policy, heartbeat_ns=2_000_000_000) as server,
        open_robot(str(ROOT / "examples" / file), settings) as opened,
    ):
        arms = [opened.robot.parts[f"{prefix}arm"] for prefix in prefixes]
        starts = [arm.read().q[0] for arm in arms]
        deadline_s = time.monotonic() + DEADLINE_S
        with rr.Session(opened.robot, policy=server.address, **opened.options) as session:
            for _ in session:
                ways = [arm.read().q[0] - start for arm, start in zip(arms, starts, strict=True)]
                if min(ways) > 0.02 or time.monotonic() > deadline_s:
                    session.stop()
        assert session.record.fault == ""
        assert min(ways) > 0.02
        wait_until(lambda: all(np.abs(arm.read().dq).max() < 0.02 for arm in arms))


def test_limits_beyond_the_data_sheet_and_plain_velocities_are_refused_before_anything_moves(robots):
    sheet = FR3_LIMITS.arm()
    higher = replace(sheet, q_max=sheet.q_max + np.eye(7)[3], dq_max=sheet.dq_max + 0.1 * np.eye(7)[6])
    said = r"q_max of joint 4 is 0.8482, beyond the -0.1518 of an FR3; dq_max of joint 7 is 5.36, beyond"
    with pytest.raises(InvalidValueError, match=said):
        FrankaArm("127.0.0.1", limits=higher)
    with pytest.raises(InvalidValueError, match="an FR3 has 7 joints, the limits are for 2"):
        FrankaArm(
            "127.0.0.1",
            limits=replace(sheet, **{k: v[:2] for k, v in sheet.__dict__.items() if k in _JOINTS}),
        )
    with closing(connect(robots[0])) as arm:
        velocities = Robot(arm=arm, limits=Limits({"arm": sheet}), actions=(JointVelocity(7),))
        with pytest.raises(DriverError, match=r"JointVelocity for arm, which takes .*is_integrated=True"):
            check_robot(velocities, MonotonicClock())
        with pytest.raises(
            DriverError, match=r"limits of arm: q_max of joint 4 is 0.8482, beyond the -0.1518"
        ):
            check_robot(Robot(arm=arm, limits=Limits({"arm": higher})), MonotonicClock())
        places = Robot(
            arm=arm, limits=Limits({"arm": sheet}), actions=(JointVelocity(7, is_integrated=True),)
        )
        assert check_robot(places, MonotonicClock()).q.shape == (7,)


_JOINTS = ("q_min", "q_max", "dq_max", "ddq_max", "dddq_max")


def test_an_address_where_nobody_answers_is_told_within_two_seconds_with_what_was_tried():
    start_s = time.monotonic()
    for make, port in ((FrankaArm, 1337), (FrankaGripper, 1338)):
        with pytest.raises(DriverError, match=rf"127\.255\.255\.1, TCP port {port}.*FCI activated"):
            make("127.255.255.1")
    assert time.monotonic() - start_s < 2.0


def test_a_robot_of_another_firmware_is_told_with_the_line_that_installs_its_wheel(tmp_path):
    robot = FrankaRobot(tmp_path, wrong_version=7).wait()
    with pytest.raises(DriverError, match=r"server version 7.*pip install .*franky-control .*/7/"):
        connect(robot)
    robot.kill()


def test_a_kernel_that_is_not_real_time_is_refused_unless_that_is_asked_for(robots):
    if "PREEMPT_RT" in os.uname().version:
        connect(robots[0], needs_real_time=True).close()
    else:
        with pytest.raises(DriverError, match=r"PREEMPT_RT.*needs_real_time=False"):
            connect(robots[0], needs_real_time=True)


OWNER = """
import sys, time
from drivers.franka import FrankaArm
from robot_runtime.core.values.command import JointCommand
assert "franky" not in sys.modules
arm = FrankaArm(sys.argv[1], needs_real_time=False, state_timeout_s=2.0)
assert "franky" not in sys.modules
q = arm.read().q
print(arm.pid, flush=True)
while True:
    q[0] += 0.001
    arm.write(JointCommand(q=q))
    time.sleep(0.01)
"""


def test_the_death_of_the_process_that_drives_an_arm_stops_it_and_ends_the_drivers_own(robots):
    command = [sys.executable, "-c", OWNER, robots[1].host]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, env=env)
    pid = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    wait_until(lambda: not is_alive(pid))
    with closing(connect(robots[1])) as arm:
        assert np.abs(arm.read().dq).max() < 0.01
        os.kill(arm.pid, signal.SIGTERM)
        with pytest.raises(DriverError, match="its process has ended"):
            wait_until(lambda: arm.read() is None)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
