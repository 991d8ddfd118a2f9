"""The file of devices that `capture record` reads: what nothing would read, or cannot be, is refused."""

import pytest

from calibration.commands.capture.rig import load_rig
from robot_runtime.errors import RobotRuntimeError

CHEST = '[chest]\nposes = "tcp://127.0.0.1:5560"\ncamera = {driver = "opencv"}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('axes = "enu"', "unknown axes in"),
        ('gripper = "laser"', "unknown gripper in"),
        ('fps = "fast"', "fps is above 0"),
        ("fps = 0", "fps is above 0"),
        ("fps = nan", "fps is above 0"),
    ],
)
def test_a_device_that_cannot_be_is_refused(tmp_path, text, said):
    (tmp_path / "rig.toml").write_text(CHEST + text + "\n")
    with pytest.raises(RobotRuntimeError, match=said):
        load_rig(tmp_path / "rig.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("chest_heigth_m = 1.3", "did you mean chest_height_m"),
        ("chest_height_m = 130", "a height of 0 to 3 m"),
        ("task = 2026-11-27", "task is text"),
    ],
)
def test_a_key_that_nothing_reads_or_a_word_that_is_none_is_refused(tmp_path, text, said):
    (tmp_path / "rig.toml").write_text(f"{text}\n{CHEST}")
    with pytest.raises(RobotRuntimeError, match=said):
        load_rig(tmp_path / "rig.toml")


def test_the_board_lies_beside_the_rig(tmp_path):
    (tmp_path / "rig.toml").write_text(f'board = "board.json"\n{CHEST}')
    assert load_rig(tmp_path / "rig.toml").more["board"] == str(tmp_path / "board.json")
