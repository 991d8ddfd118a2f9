"""LeRobot's devices in processes of their own, the SO-101 behind its real wire protocol."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

import robot_runtime as rr
from drivers.lerobot import LeRobotCamera, LeRobotDevice
from drivers.lerobot.leading import LeRobotLeader
from robot_runtime import JointPosition, Limits, Robot
from robot_runtime.core.robot import Arm, Camera, Gripper, MobileBase
from robot_runtime.core.teleop import LeadableParts
from robot_runtime.core.values.command import (
    BaseTwistCommand,
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
)
from robot_runtime.errors import DriverError, InvalidValueError
from robot_runtime.robot_file import open_robot
from tests.process.feetech_bus import GOAL, SO101, TORQUE, FeetechBus
from tests.process.test_franka import is_alive
from tests.process.toy import serving
from tests.process.waiting import wait_until
from tests.source_tree import ROOT

DEADLINE_S = 60.0
PLUGIN = "tests.process.lerobot_rover"
PATIENT = ["tests.process.patient_feetech"]
LONG_S = 2.0
"""A busy machine may keep a process waiting for longer than a real robot may be silent."""


@pytest.fixture(scope="module")
def so101(tmp_path_factory):
    """A bus of six servos, and LeRobot's SO-101 on it. One does not answer at first, as on a busy machine."""
    folder, bus = tmp_path_factory.mktemp("calibration"), FeetechBus()
    bus.lost_pings = 1
    bus.calibrate(folder, "mine")
    config = {"port": bus.port, "id": "mine", "calibration_dir": str(folder)}
    device = LeRobotDevice(
        "so101_follower", config=config, plugins=PATIENT, stroke_m=0.07, state_timeout_s=LONG_S
    )
    yield bus, device
    device.close()
    device.close()
    assert not any(servo.registers[TORQUE] for servo in bus.servos.values())  # disconnected
    bus.close()


@pytest.mark.long
def test_one_lost_answer_of_a_servo_is_no_silent_robot(so101):
    """It is asked again; nothing latches."""
    bus, device = so101
    bus.lost_reads = 1
    wait_until(lambda: bus.lost_reads == 0)
    before_ns = time.monotonic_ns()
    wait_until(lambda: device.arm.read().t_ns > before_ns)


def rover(folder, **options):
    return LeRobotDevice(
        "tests_rover",
        **{
            "config": {"folder": str(folder)},
            "plugins": [PLUGIN],
            "joint_unit": "deg",
            "stroke_m": 0.1,
            "state_timeout_s": LONG_S,
            "parts": {
                "lift": {"joints": ["arm_lift"], "names": ["height"], "unit": "deg"},
                "gripper": {"gripper": "arm_gripper", "stroke_m": 0.1},
                "base": {"base": ["x.vel", "y.vel", "theta.vel"], "angle_unit": "deg"},
            },
        }
        | options,
    )


def sent(folder):
    return json.loads((folder / "sent.json").read_text())


def test_an_so101_goes_where_it_is_told_in_radians_and_metres_and_holds_when_told_to_stop(so101):
    _, device = so101
    assert isinstance(device.arm, Arm)
    assert isinstance(device.gripper, Gripper)
    assert device.arm.joint_names == (
        "shoulder_pan",
        "shoulder_lift",
        "elbow_flex",
        "wrist_flex",
        "wrist_roll",
    )
    device.stop()
    device.stop()
    aim = device.arm.read().q + np.array([0.4, -0.2, 0.1, 0.0, 0.0])
    device.arm.write(JointCommand(q=aim))
    device.gripper.write(GripperCommand(width=0.05))
    wait_until(lambda: np.abs(device.arm.read().q - aim).max() < 0.003)  # a step is 0.0015 rad
    wait_until(lambda: abs(device.gripper.read().width - 0.05) < 1e-4)
    device.arm.write(JointCommand(q=aim - 1.0))
    wait_until(lambda: device.arm.read().q[0] < aim[0] - 0.1)
    assert device.arm.read().dq[0] < -0.5
    device.arm.stop()
    wait_until(lambda: np.abs(device.arm.read().dq).max() == 0.0)
    assert device.arm.read().q[0] > aim[0] - 0.95


def test_commands_that_are_none_are_refused_and_a_gripper_stays_between_closed_and_open(so101):
    _, device = so101
    for wrong in (JointCommand(q=np.zeros(6)), JointCommand(q=np.full(5, np.nan))):
        with pytest.raises(DriverError, match="arm of LeRobot's so101_follower: expected 5 finite numbers"):
            device.arm.write(wrong)
    with pytest.raises(DriverError, match="JointVelocityCommand"):
        device.arm.write(JointVelocityCommand(dq=np.zeros(5)))
    with pytest.raises(DriverError, match="finite width"):
        device.gripper.write(GripperCommand(width=np.nan))
    assert device.gripper.write(GripperCommand(width=0.2)).width == 0.07
    with pytest.raises(AttributeError, match="no 'left_arm'; it has"):
        _ = device.left_arm


@pytest.mark.real_time
def test_a_port_that_is_not_there_is_told_at_once_and_numbers_that_make_no_sense_too():
    start_s = time.monotonic()
    with pytest.raises(DriverError, match=r"no /dev/ttyNONE; serial ports here: .*lerobot-find-port"):
        LeRobotDevice("so101_follower", config={"port": "/dev/ttyNONE"})
    with pytest.raises(InvalidValueError, match="rate_hz is above 0"):
        LeRobotDevice("so101_follower", rate_hz=0.0)
    with pytest.raises(InvalidValueError, match=r"part arm: .*ranges"):
        LeRobotDevice("x", parts={"arm": {"joints": ["a"], "unit": "percent"}})
    assert time.monotonic() - start_s < 2.0


@pytest.mark.long
def test_a_plug_in_with_a_base_drives_in_metres_stands_when_nothing_is_said_and_its_end_is_told(tmp_path):
    device = rover(tmp_path)
    robot = Robot(device.parts, cameras=device.cameras, actions=device.actions, limits=Limits({}))
    assert isinstance(device.base, MobileBase)
    state = robot.read()
    assert state.parts["gripper"].width == pytest.approx(0.05)
    device.lift.write(JointCommand(q=np.array([0.5])))
    device.base.write(BaseTwistCommand(V_WB_B=np.array([0.2, 0.0, np.pi])))
    wait_until(
        lambda: (tmp_path / "sent.json").exists() and sent(tmp_path)["theta.vel"] == pytest.approx(180.0)
    )
    assert sent(tmp_path)["arm_lift.pos"] == pytest.approx(np.degrees(0.5))
    assert sent(tmp_path)["arm_gripper.pos"] == 50.0  # was told nothing, so is held
    wait_until(lambda: device.base.read().x_WB[2] > 0.1)
    wait_until(lambda: sent(tmp_path)["theta.vel"] == 0.0)  # silence
    assert sent(tmp_path)["arm_lift.pos"] == pytest.approx(np.degrees(0.5))
    front = device.cameras["front"]
    assert isinstance(front, Camera)
    pictures = [front.read() for _ in range(4)]
    assert front.size == (48, 64) == pictures[0].pixels.shape[:2]
    shades = [int(picture.pixels[0, 0, 0]) for picture in pictures]
    assert len(set(shades)) == 4  # what is repeated is not shown again
    os.kill(device.pid, signal.SIGKILL)
    with pytest.raises(DriverError, match=r"tests_rover: no state for .*its process has ended"):
        wait_until(lambda: device.lift.read() is None)
    with pytest.raises(DriverError, match="its process has ended"):
        wait_until(lambda: front.read() is None)
    device.stop()
    device.close()


OWNER = f"""
import sys, time
import numpy as np
from drivers.lerobot import LeRobotDevice
from robot_runtime.core.values.command import BaseTwistCommand
device = LeRobotDevice(
    "tests_rover", config={{"folder": sys.argv[1]}}, plugins=["{PLUGIN}"], silence_s=10.0,
    parts={{"lift": {{"joints": ["arm_lift"], "unit": "deg"}},
           "gripper": {{"gripper": "arm_gripper", "stroke_m": 0.1}},
           "base": {{"base": ["x.vel", "y.vel", "theta.vel"], "angle_unit": "deg"}}}})
device.base.write(BaseTwistCommand(V_WB_B=np.array([0.2, 0.0, 0.0])))
print([name for name in ("torch", "lerobot", "draccus") if name in sys.modules], device.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.long
def test_the_control_process_imports_no_torch_and_its_death_stops_the_base_and_ends_the_devices_own(tmp_path):
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, env=env)
    loaded, pid = owner.stdout.readline().decode().rsplit(" ", 1)
    assert loaded == "[]"
    wait_until(lambda: (tmp_path / "sent.json").exists() and sent(tmp_path)["x.vel"] == 0.2)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    wait_until(lambda: not is_alive(int(pid)))
    assert sent(tmp_path)["x.vel"] == 0.0
    assert (tmp_path / "disconnected").exists()


@pytest.mark.long
def test_a_camera_gives_every_picture_once_with_the_time_that_lerobot_stamped_less_its_latency(tmp_path):
    options = {"plugins": [PLUGIN], "config": {"folder": str(tmp_path), "height": 48, "width": 64, "fps": 30}}
    camera = LeRobotCamera("tests_camera", latency_s=0.02, **options)
    pictures = [camera.read() for _ in range(4)]
    assert camera.size == (48, 64) == pictures[0].pixels.shape[:2]
    shades = [int(picture.pixels[0, 0, 0]) for picture in pictures]
    assert shades == sorted(set(shades))
    age_s = (time.monotonic_ns() - pictures[-1].t_ns) / 1e9
    assert 0.02 <= age_s < 0.02 + LONG_S
    camera.close()
    camera.close()
    with pytest.raises(DriverError, match="was closed"):
        camera.read()


@pytest.mark.long
def test_a_teleoperator_says_where_its_hand_is_by_the_names_of_columns():
    leading = LeRobotLeader(
        "tests_leader",
        plugins=[PLUGIN],
        parts={
            "arm": {"joints": ["lift"], "unit": "deg"},
            "gripper": {"gripper": "gripper", "stroke_m": 0.08},
            "base": {"base": ["x.vel", "y.vel", "theta.vel"], "angle_unit": "deg"},
        },
        state_timeout_s=LONG_S,
    )
    leader = leading.device
    target = leader.read()
    assert tuple(target.values) == leader.names
    expected = {
        "arm.lift": np.pi / 2,
        "gripper.width": 0.02,
        "base.vx": 0.1,
        "base.vy": 0.0,
        "base.wz": np.pi,
    }
    assert dict(target.values) == pytest.approx(expected)
    robot = LeadableParts(arms=("arm",), grippers=("gripper",), bases=("base",))
    leading.open(robot)
    lead = leading.read()
    assert lead.engaged == {"arm": True, "gripper": True, "base": True}
    assert lead.parts["arm"].q == pytest.approx([np.pi / 2])
    assert lead.parts["gripper"].opening == pytest.approx(0.25)
    assert pytest.approx([0.1, 0.0, np.pi]) == lead.parts["base"].V_WB_B
    with pytest.raises(InvalidValueError, match=r"drives base, and the robot's parts .* are arm, gripper"):
        leading.open(replace(robot, bases=()))
    leading.close()


@pytest.mark.long
def test_the_example_file_swings_an_so101_by_a_policy_that_knows_its_joints_by_name(tmp_path):
    bus = FeetechBus()
    bus.calibrate(tmp_path, "mine")
    folder, joints = str(tmp_path), JointPosition(5, names=tuple(SO101[:5]))
    settings = [
        f"devices.so101.config.port={bus.port}",
        f"devices.so101.config.calibration_dir={folder}",
        f"devices.so101.state_timeout_s={LONG_S}",
        f"devices.so101.plugins={PATIENT}",
    ]
    spec = rr.ActionSpec(fields=(joints,), horizon=16, dt_ns=50_000_000)

    @rr.policy(rr.PolicyInfo(name="up", action_spec=spec))
    def up(observation):
        return np.tile([0.0, 0.2, 0.0, 0.0, 0.1], (16, 1))

    with (
        serving(up, heartbeat_ns=2_000_000_000) as server,
        open_robot(str(ROOT / "examples" / "so101.toml"), settings) as opened,
    ):
        arm = opened.robot.parts["arm"]
        with rr.Session(opened.robot, policy=server.address, task="", **opened.options) as session:
            for _ in session:
                if arm.read().q[1] > 0.15:
                    session.stop()
        assert session.record.fault == ""
        assert arm.read().q[4] > 0.05
        time.sleep(0.1)
        steps = [servo.word(GOAL) for servo in bus.servos.values()]
        assert steps[1] == pytest.approx(2047.5 + arm.read().q[1] / np.pi * 2047.5, abs=20)
        assert steps[5] == 2048  # the policy does not move it
    assert all(servo.registers[TORQUE] for servo in bus.servos.values())  # it stays up
    bus.close()
