"""What a robot looks like, as its file says."""

import pytest

from robot_runtime.errors import InvalidValueError
from robot_runtime.page.robot_model import body_named
from robot_runtime.robot_file import RobotFile
from tests.source_tree import ROOT

IDEAL = '[parts.arm]\ndriver = "ideal-arm"\n'


def model_of(path) -> str | None:
    return RobotFile.load(path)._options().get("model")


def test_a_model_lies_beside_the_robots_file(tmp_path):
    (tmp_path / "mine.urdf").write_text('<robot name="r"><link name="l"/></robot>')
    (tmp_path / "robot.toml").write_text(f'model = "mine.urdf"\n{IDEAL}')
    assert model_of(tmp_path / "robot.toml") == str(tmp_path / "mine.urdf")


@pytest.mark.parametrize(("said", "words"), [('"gone.urdf"', "there is no"), ("3", "model takes a text")])
def test_a_model_that_is_none_is_refused_before_anything_is_connected(said, words, tmp_path):
    (tmp_path / "robot.toml").write_text(f"model = {said}\n{IDEAL}")
    with pytest.raises(InvalidValueError, match=words):
        RobotFile.load(tmp_path / "robot.toml")


def test_one_franka_is_known_and_of_others_nothing_is_assumed():
    assert model_of(ROOT / "examples" / "fr3.toml") == "fr3"
    assert model_of(ROOT / "examples" / "fr3_two_arms.toml") is None
    assert model_of(ROOT / "examples" / "so101.toml") is None


def test_without_a_model_there_is_none():
    assert body_named("", ["arm.joint_1"]) is None
