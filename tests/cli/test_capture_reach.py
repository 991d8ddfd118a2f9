"""Robots that labels are made for, by their files: what of them is asked."""

from pathlib import Path

import numpy as np
import pytest

from calibration.commands.capture.reach import Target, of_file
from robot_runtime.cli import main
from tests.source_tree import ROOT

FILE = f"""
[parts.arm]
driver = "ideal-arm"
limits = {{ of = "fr3" }}
kinematics = {{ urdf = "{ROOT / "examples" / "fr3_arm.urdf"}", frame = "hand" }}

[parts.gripper]
driver = "ideal-gripper"
limits = {{ of = "fr3", high = 0.05 }}

[devices.bridge]
driver = "rosbridge"
url = "ws://127.0.0.1:9090"

[parts.base]
driver = "ros-base"
bridge = "@bridge"
limits = {{ speed = [0.8, 0.01, 1.6], acceleration = [1.0, 0.02, 2.5], jerk = [9.0, 9.0, 9.0] }}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "robot.toml").write_text(FILE)
    return tmp_path / "robot.toml"


def speeds(target: Target) -> tuple[float, float]:
    assert target.pace is not None
    return target.pace.speed, target.pace.acceleration


def test_a_base_that_cannot_go_sideways_is_as_fast_as_it_is_ahead(path):
    assert speeds(of_file(path)) == (0.01, 0.02)
    target = of_file(path, is_holonomic=False)
    assert (speeds(target), target.is_holonomic) == ((0.8, 1.0), False)


def test_a_gripper_opens_as_far_as_its_limits_say(path):
    assert of_file(path).most_width_m == 0.05
    path.write_text(FILE + '[parts.other]\ndriver = "ideal-gripper"\nlimits = { of = "fr3" }\n')
    assert of_file(path).most_width_m is None  # whose it is the file does not say


def test_an_arm_finds_its_way_to_hands_that_it_reaches_and_gives_up_early_on_others(path):
    reach, rng = of_file(path).reach, np.random.default_rng(0)
    q = reach.q_home
    for _ in range(20):
        q = q + rng.normal(0.0, 0.05, reach.num_joints)
        there = reach._kinematics.forward(q)
        found, is_there = reach.solve(there, reach.q_home)
        assert is_there
        np.testing.assert_allclose(reach._kinematics.forward(found).translation, there.translation, atol=1e-3)
        there.translation += np.array([2.0, 0.0, 0.0])
        assert not reach.solve(there, reach.q_home)[1]


def test_no_sideways_is_said_of_a_robot_s_file_alone(tmp_path, capsys):
    assert main(["capture", "label", str(tmp_path), "--task", "fetch", "--no-sideways"]) == 1
    assert "--no-sideways is for your own robot, with --robot" in capsys.readouterr().err
