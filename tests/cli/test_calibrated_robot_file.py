"""A robot's file that reads delays of parts and places of cameras from files of `calibrate`."""

from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

from calibration.board import Board
from calibration.hand_eye import HandEye
from calibration.latency import Latencies, Latency
from calibration.store import save
from calibration.verdict import Reason, Verdict
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot_file import RobotFile, open_robot

TEXT = """
[parts.arm]
driver = "ideal-arm"
latency_s = "latency.json"

[cameras.wrist]
driver = "my_camera.py:MyCamera"
calibration = "wrist.json"
"""
CAMERA = """
class MyCamera:
    size = (4, 6)
    def read(self): raise OSError("nothing is connected")
    def close(self): pass
"""
FOUND = Latency(delay_s=0.083, gain=0.97, correlation=0.99, peak_ratio=3.0)
X_EC = pin.SE3(np.eye(3), np.array([0.06, 0.0, -0.08]))
PLACE = HandEye(X_EC=X_EC, X_AB=X_EC, covariance=np.eye(6) * 1e-8, num_views=20)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "my_camera.py").write_text(CAMERA)
    (tmp_path / "robot.toml").write_text(TEXT)
    save(tmp_path / "latency.json", Latencies.of({"arm": FOUND}))
    save(tmp_path / "wrist.json", PLACE)
    return tmp_path / "robot.toml"


def test_a_measured_delay_and_a_camera_s_place_are_read_from_their_files(file: Path) -> None:
    with open_robot(str(file)) as opened:
        assert opened.robot.latency_s == {"arm": 0.083}
        assert opened.calibrations["wrist"].X_EC.isApprox(X_EC)


def test_a_file_that_is_missing_refused_changed_or_of_another_kind_is_named(file: Path) -> None:
    folder = file.parent
    save(folder / "latency.json", Latencies.of({"gripper": FOUND}))
    with pytest.raises(InvalidValueError, match="delays of gripper, none of arm"):
        RobotFile.load(file)
    save(
        folder / "latency.json",
        Latencies.of({"arm": Latency(delay_s=0.1, gain=1.0, correlation=0.2, peak_ratio=1.0)}),
    )
    with pytest.raises(InvalidValueError, match="refused when it was made"):
        RobotFile.load(file)
    (folder / "latency.json").unlink()
    with pytest.raises(InvalidValueError, match=r"parts.arm.latency_s.*no such file"):
        RobotFile.load(file)
    without = ("parts.arm.latency_s=0.1",)
    bad = Verdict.of([Reason(name="few-views", what="few.", do="More.")])
    for value, says in (
        (HandEye(X_EC=X_EC, X_AB=X_EC, covariance=np.eye(6), num_views=3, verdict=bad), "few-views|refused"),
        (Board(columns=7, rows=5, square_m=0.03, marker_m=0.02), "of kind board"),
    ):
        save(folder / "wrist.json", value)
        with pytest.raises(InvalidValueError, match=says):
            RobotFile.load(file, without)
    save(folder / "wrist.json", PLACE)
    (folder / "wrist.json").write_text((folder / "wrist.json").read_text().replace("0.06", "0.07"))
    with pytest.raises(InvalidValueError, match="changed by hand"):
        RobotFile.load(file, without)
