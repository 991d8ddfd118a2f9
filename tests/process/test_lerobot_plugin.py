"""Our robots behind LeRobot's own `Robot` class and commands: names, units, limits on the way, the end."""

import logging
import runpy
import time
import tomllib
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("lerobot")

from lerobot.robots import RobotConfig, make_robot_from_config
from lerobot.scripts import lerobot_record

import robot_runtime as rr
from drivers.ideal import IdealArm, IdealGripper
from drivers.lerobot_plugin import RobotRuntimeConfig
from drivers.lerobot_plugin.features import tables_of
from drivers.lerobot_plugin.follower import Follower
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.robot import BaseState
from robot_runtime.errors import DriverError, InvalidValueError
from tests.process.lerobot_rover import LeaderConfig
from tests.process.waiting import wait_until
from tests.source_tree import ROOT

FILE = """
import numpy as np
import robot_runtime as rr
from drivers.ideal import IdealArm, IdealGripper
from robot_runtime.clock import MonotonicClock

one = np.ones(1)
MOTION = rr.MotionLimits(speed=one, acceleration=10 * one, jerk=100 * one)
LIMITS = rr.Limits({
    "arm": rr.JointLimits(
        q_min=-3 * one, q_max=3 * one, dq_max=2 * one, ddq_max=20 * one, dddq_max=400 * one
    ),
    "gripper": rr.GripperLimits(high=0.08, motion=MOTION),
})
arm = IdealArm(clock=MonotonicClock(), q=np.zeros(1))


def robot():
    actions = (rr.JointPosition(1, names=("lift",)),)
    return rr.Robot(arm=arm, gripper=IdealGripper(), limits=LIMITS, actions=actions)


def unlimited():
    return rr.Robot(arm=arm, limits=rr.Limits({}))
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / f"robot_{time.monotonic_ns()}.py"
    path.write_text(FILE)
    return path


def plugged_in(file, name="robot", **said):
    config = RobotRuntimeConfig(
        robot=f"{file}:{name}", calibration_dir=file.parent, **{"control_hz": 100.0} | said
    )
    return make_robot_from_config(config)


def test_a_robot_is_found_by_its_type_and_goes_in_degrees_and_per_cent_within_its_limits(file):
    assert "robot_runtime" in RobotConfig.get_known_choices()
    robot = plugged_in(file)
    assert robot.action_features == robot.observation_features == {"lift.pos": float, "gripper.pos": float}
    with pytest.raises(DriverError, match="not connected"):
        robot.get_observation()
    robot.connect()
    assert robot.get_observation() == {"lift.pos": 0.0, "gripper.pos": 50.0}
    seen = []

    def arrives():
        robot.send_action({"lift.pos": 57.2957795, "gripper.pos": 100.0, "else": 3.0})
        seen.append((time.monotonic(), robot.get_observation()["lift.pos"]))
        return abs(seen[-1][1] - 57.2957795) < 1e-3

    wait_until(arrives)
    assert seen[-1][0] - seen[0][0] > 0.4  # 1 rad at 2 rad/s
    wait_until(lambda: abs(robot.get_observation()["gripper.pos"] - 100.0) < 1e-6)
    with pytest.raises(DriverError, match="finite"):
        robot.send_action({"lift.pos": float("nan"), "gripper.pos": 0.0})
    robot.disconnect()
    robot.disconnect()
    assert not robot.is_connected


def test_silence_brakes_a_robot_on_its_way(file):
    robot = plugged_in(file, silence_s=0.1, names="columns")
    robot.connect()
    robot.send_action({"arm.lift": 2.0, "gripper.width": 0.04})
    time.sleep(0.1)
    before = -1.0
    while (q := robot.get_observation()["arm.lift"]) != before:
        before = q
        time.sleep(0.05)
    assert 0.0 < q < 1.0
    robot.disconnect()


def test_robots_that_cannot_be_led_are_refused_with_the_reason(file):
    for said, words in (({"names": "x"}, "names are motors or columns"), ({"joint_unit": "%"}, "deg or rad")):
        with pytest.raises(ValueError, match=words):
            plugged_in(file, **said)
    with pytest.raises(ValueError, match="expected a robot"):
        RobotRuntimeConfig()
    with pytest.raises(ValueError, match="no such file"):
        plugged_in(file.parent / "other.py")
    with pytest.raises(ValueError, match="arm"):
        plugged_in(file, "unlimited").connect()


def test_an_action_of_another_leader_is_refused_with_the_names_of_both(file):
    robot = plugged_in(file)
    robot.connect()
    try:
        with pytest.raises(
            InvalidValueError, match=r"lacks lift.pos, gripper.pos.*gives elbow.pos; .* needs lift.pos"
        ):
            robot.send_action({"elbow.pos": 1.0})
    finally:
        robot.disconnect()


class Failing(IdealArm):
    is_broken = False
    num_stops = 0

    def read(self):
        if self.is_broken:
            raise OSError("cable pulled")
        return super().read()

    def stop(self):
        self.num_stops += 1


def test_a_driver_that_fails_stops_the_robot_and_is_told():
    one = np.ones(1)
    clock = MonotonicClock()
    arm = Failing(clock=clock, q=np.zeros(1))
    limits = rr.JointLimits(q_min=-one, q_max=one, dq_max=one, ddq_max=one, dddq_max=one)
    robot = rr.Robot(arm=arm, limits=rr.Limits({"arm": limits}))
    with pytest.raises(InvalidValueError, match="control_hz"):
        Follower(robot, clock, control_hz=0.0, silence_s=1.0)
    follower = Follower(robot, clock, control_hz=100.0, silence_s=1.0)
    follower.start()
    follower.tell({"arm": [0.5]})
    arm.is_broken = True
    with pytest.raises(DriverError, match="the robot has stopped: cable pulled"):
        wait_until(lambda: follower.state() is None)
    with pytest.raises(DriverError, match="cable pulled"):
        follower.tell({"arm": [0.5]})
    assert arm.num_stops == 1
    follower.end()


class Written(IdealArm):
    """Keeps what it was commanded."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.commands: list[float] = []

    def write(self, command):
        self.commands.append(float(command.q[0]))
        return super().write(command)


def test_a_robot_does_not_pass_the_last_of_a_stream_of_targets():
    one, clock = np.ones(1), MonotonicClock()
    arm = Written(clock=clock, q=np.zeros(1))
    limits = rr.JointLimits(q_min=-3 * one, q_max=3 * one, dq_max=2 * one, ddq_max=2 * one, dddq_max=50 * one)
    robot = rr.Robot(arm=arm, limits=rr.Limits({"arm": limits}))
    follower = Follower(robot, clock, control_hz=100.0, silence_s=30.0)
    follower.start()
    for k in range(15):
        follower.tell({"arm": [min(0.5, k / 30)]})
        time.sleep(1 / 30)
    follower.tell({"arm": [0.5]})
    wait_until(lambda: abs(arm.commands[-1] - 0.5) < 1e-3)
    time.sleep(0.5)
    follower.end()
    assert max(arm.commands) <= 0.5 + 1e-6
    assert arm.commands[-1] == pytest.approx(0.5, abs=1e-6)


class StandingBase:
    silence_s = 0.25

    def read(self):
        return BaseState(t_ns=time.monotonic_ns(), x_WB=np.zeros(3), V_WB_B=np.zeros(3))

    def write(self, command):
        return command

    def stop(self):
        pass


def test_parts_are_called_as_lerobots_robots_call_theirs_or_as_our_columns():
    clock, grippers = MonotonicClock(), {f"{side}_gripper": IdealGripper() for side in ("left", "right")}
    arms = {name: IdealArm(clock=clock, q=np.zeros(1)) for name in ("left_arm", "right_arm", "head")}
    limits = rr.Limits({name: rr.GripperLimits(high=0.1) for name in grippers})
    robot = rr.Robot({**arms, **grippers, "base": StandingBase()}, limits=limits)
    motors = tables_of(robot, robot.read(), names="motors", joint_unit="deg")
    assert [motors[name].joints for name in arms] == [
        ["left_joint_1.pos"],
        ["right_joint_1.pos"],
        ["head_joint_1.pos"],
    ]
    assert motors["left_gripper"].gripper == "left_gripper.pos"
    assert motors["base"].base == ("x.vel", "y.vel", "theta.vel")
    columns = tables_of(robot, robot.read(), names="columns", joint_unit="deg")
    assert columns["head"].joints == ["head.joint_1"]
    assert columns["left_gripper"].gripper == "left_gripper.width"
    assert columns["base"].base == ("base.vx", "base.vy", "base.wz")
    bare = rr.Robot(arm=arms["head"], gripper=IdealGripper())
    with pytest.raises(InvalidValueError, match="expected limits of gripper"):
        tables_of(bare, bare.read(), names="motors", joint_unit="deg")


def test_the_distribution_is_called_as_lerobot_looks_for_and_has_the_module_of_that_name():
    folder = ROOT / "drivers" / "lerobot_plugin" / "distribution"
    name = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"]
    assert name.startswith("lerobot_robot_")
    module = runpy.run_path(str(folder / f"{name}.py"))
    assert module["RobotRuntimeConfig"] is RobotRuntimeConfig


@pytest.fixture
def root_logger_given_back() -> Iterator[None]:
    """LeRobot's commands set it up for a process of their own."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.mark.usefixtures("root_logger_given_back")
def test_lerobot_record_writes_a_dataset_of_it(file, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = lerobot_record.RecordConfig(
        robot=RobotRuntimeConfig(robot=f"{file}:robot", calibration_dir=tmp_path, control_hz=100.0),
        teleop=LeaderConfig(calibration_dir=tmp_path),
        dataset=lerobot_record.DatasetRecordConfig(
            repo_id="local/lift",
            single_task="lift",
            root=str(tmp_path / "dataset"),
            fps=20,
            episode_time_s=1,
            num_episodes=1,
            push_to_hub=False,
            video=False,
        ),
        play_sounds=False,
    )
    dataset = lerobot_record.record(config)
    assert dataset.num_episodes == 1
    features = dataset.meta.features
    assert (
        features["action"]["names"] == features["observation.state"]["names"] == ["lift.pos", "gripper.pos"]
    )
    first, last = dataset.hf_dataset[0], dataset.hf_dataset[len(dataset.hf_dataset) - 1]
    assert first["action"].tolist() == [90.0, 25.0]
    assert first["observation.state"].tolist() == [0.0, 50.0]
    assert last["observation.state"][0] > 30.0
