"""What a person leads with, by a word on the command line or a table in a robot's file."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from drivers.keyboard import KeyboardTeleoperator
from robot_runtime.core.teleop import Lead
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot_file import open_robot
from robot_runtime.robot_file.teleop import open_teleop, teleop_table
from robot_runtime.teleop.config import OnRelease, TeleopConfig
from sim.scene.kinematics import Q_HOME, Kinematics
from tests.source_tree import ROOT

EXAMPLE = str(ROOT / "examples/teleop.toml")


class Mine:
    def __init__(self, port: int = 0):
        self.port = port

    def read(self):
        return Lead(t_ns=0, parts={})

    def close(self):
        pass


def opened(text):
    with ExitStack() as held:
        return open_teleop(text, held)


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("keyboard", {"driver": "keyboard"}),
        ("gamepad:speed=0.3,frame=hand", {"driver": "gamepad", "speed": 0.3, "frame": "hand"}),
        ("mine.py:Mine", {"driver": "mine.py:Mine"}),
        ("mine.py:Mine:port=3", {"driver": "mine.py:Mine", "port": 3}),
        (
            'lerobot:type=so101_leader,config.port="/dev/ttyACM1",parts={arm={joints=["a","b"]}}',
            {
                "driver": "lerobot",
                "type": "so101_leader",
                "config": {"port": "/dev/ttyACM1"},
                "parts": {"arm": {"joints": ["a", "b"]}},
            },
        ),
    ],
)
def test_a_line_is_a_table_of_a_driver_and_its_options(text, table):
    assert teleop_table(text) == table


def test_options_of_any_device_stand_beside_those_of_this_one():
    found = opened(f"{__file__}:Mine:port=7,yaw_deg=180,on_release=hold,stale_s=0.1")
    assert found["teleop"].port == 7
    assert found["teleop_config"] == TeleopConfig(
        yaw_deg=180, on_release=OnRelease.HOLD, stale_ns=100_000_000
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("keybord", "unknown driver 'keybord'.*did you mean keyboard"),
        ("keyboard:speed", "NAME:key=value"),
        ("keyboard:sped=1", "unknown key 'sped'.*did you mean speed"),
        ("keyboard:speed=fast", "speed takes a finite number"),
        ("keyboard:on_release=fall", "on_release is hand_back or hold, got 'fall'"),
        ("keyboard:yaw_deg=1e9", "yaw_deg is from -360 to 360"),
        ("keyboard:stale_s=9", "stale_s is from 0.01 to 1 s"),
        (f"{Path(__file__)}:ROOT", "is no driver's class"),
        ("key", "unknown driver 'key'"),
    ],
)
def test_what_is_no_teleoperator_or_no_option_of_it_is_refused_in_a_sentence(text, words):
    with pytest.raises(InvalidValueError, match=words):
        opened(text)


def test_a_robots_file_says_what_leads_it_and_where_its_hand_is():
    with open_robot(EXAMPLE) as found:
        assert isinstance(found.options["teleop"], KeyboardTeleoperator)
        assert isinstance(found.options["teleop_config"], TeleopConfig)
        hand_pose = found.robot.hand_pose["arm"](np.array(Q_HOME))
        expected = Kinematics().forward(np.array(Q_HOME))
        np.testing.assert_allclose(hand_pose.homogeneous, expected.homogeneous, atol=1e-6)
        np.testing.assert_allclose(found.robot.read().hand("arm").homogeneous[2, 3], 0.4875, atol=0.1)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("parts.arm.kinematics.urdf=none.urdf", r"kinematics\.urdf: there is no file"),
        ("parts.arm.kinematics.frame=paw", "the model has no frame 'paw'; it has .*hand"),
        ('parts.arm.kinematics.joints=["joint_1"]', "has 1 joints, joint_1, IdealArm has 7"),
        ('parts.arm.kinematics.joints=["elbow"]', r"has joint_1, .*, got \['elbow'\]"),
        ("parts.arm.kinematics.urdf=teleop.toml", "is no URDF"),
        ("parts.arm.kinematics.hand=3", "unknown key 'hand'"),
        ("operator.teleop.driver=key", "unknown driver 'key'.*known are keyboard"),
    ],
)
def test_what_a_file_says_wrongly_of_it_is_named_with_its_place(setting, words):
    with pytest.raises(InvalidValueError, match=words), open_robot(EXAMPLE, [setting]):
        pass


def test_joints_in_another_order_than_the_files_are_the_same_arm():
    names = [f"joint_{i}" for i in (7, 1, 2, 3, 4, 5, 6)]
    with open_robot(EXAMPLE, [f"parts.arm.kinematics.joints={names}"]) as found:
        q = np.array(Q_HOME)
        turned = np.array([q[6], *q[:6]])
        X_BE = found.robot.hand_pose["arm"](turned)
    np.testing.assert_allclose(X_BE.homogeneous, Kinematics().forward(q).homogeneous, atol=1e-6)
