"""A recording that is killed, in the middle of everything, is read up to there; an import leaves nothing."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from calibration.capture.check import check_capture
from calibration.capture.raw import CaptureWriter, RawCapture
from calibration.capture.values import DeviceInfo, Setup

WRITES = """
import sys
from pathlib import Path
import numpy as np, pinocchio as pin
from calibration.capture.raw import CaptureWriter
from calibration.capture.values import DeviceInfo, Setup
info = DeviceInfo(kind="simulated", size=(48, 64), fps=30.0)
setup = Setup(devices={"chest": info, "hand": info})
writer = CaptureWriter(Path(sys.argv[1]), setup, is_whole="whole" in sys.argv)
writer.mark(0, "begin", "key")
for i in range(100_000):
    picture = np.random.default_rng(i).integers(0, 255, (48, 64, 3)).astype(np.uint8)
    for role in ("chest", "hand"):
        writer.picture(role, i * 33_000_000, picture)
        writer.pose(role, i * 33_000_000, pin.SE3(np.eye(3), np.array([0.0, 0.0, 1e-3 * i])), 2)
    if i == 60:
        print("60", flush=True)
"""


def kill_in_the_middle(folder: Path, *others: str) -> None:
    command = [sys.executable, "-c", WRITES, str(folder), *others]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"60\n"
        process.send_signal(signal.SIGKILL)


def test_a_killed_recording_is_read_up_to_the_last_half_second_and_goes_on_as_a_new_part(tmp_path):
    folder = tmp_path / "capture"
    kill_in_the_middle(folder)
    capture = RawCapture.open(folder)
    assert not capture.is_closed
    for device in capture.devices.values():
        assert len(device.poses) >= 61
        assert len(device.frames) >= 61 - 15
        shown = list(device.pictures())
        assert len(shown) == len(device.frames)
    assert "cut" in check_capture(capture).verdict.names
    with CaptureWriter(folder, capture.setup) as later:
        assert later.path == folder / "part-2"


@pytest.mark.long
def test_the_next_import_of_a_name_removes_what_a_killed_one_left_of_it(tmp_path):
    kill_in_the_middle(tmp_path / "monday", "whole")
    kill_in_the_middle(tmp_path / "tuesday", "whole")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == 2
    info = DeviceInfo(kind="simulated", size=(48, 64), fps=30.0)
    with CaptureWriter(tmp_path / "monday", Setup(devices={"chest": info}), is_whole=True):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [left[1], "monday"]
