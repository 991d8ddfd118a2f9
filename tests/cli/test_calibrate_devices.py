"""`calibrate chest`, `gripper` and `camera-imu` as a person runs them, on what a simulated rig recorded."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pinocchio as pin
import pytest

from calibration.board import DICTIONARIES, Board
from calibration.camera import Intrinsics, Pinhole
from calibration.camera_imu import CameraImu
from calibration.chest import ChestCamera
from calibration.commands.calibrate.shots import Shot, ShotsFolder
from calibration.gripper import GripperTags
from calibration.store import load, save
from robot_runtime.cli import main
from robot_runtime.core.values.transforms import pose_from_planar
from sim.capture.board_scene import draw_board
from sim.capture.cameras import Camera
from sim.capture.drills import sync_take, walk_take
from sim.capture.rig import NOISY, RigConfig
from sim.capture.session import simulate_session

LENS = Pinhole(size=(360, 640), fx=350.0, fy=350.0, cx=319.5, cy=179.5)
CHEST = Pinhole(size=(480, 640), fx=500.0, fy=500.0, cx=319.5, cy=239.5)
BOARD = Board(columns=7, rows=5, square_m=0.1, marker_m=0.074)


@pytest.fixture(scope="module")
def shaken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A noisy capture in which both devices are turned about all axes for eight seconds."""
    folder = tmp_path_factory.mktemp("shaken")
    config = RigConfig(noise=NOISY, seed=1, glimpses=False, tags=False)
    simulate_session([sync_take(np.random.default_rng(0))], config, folder)
    return folder / "capture"


@pytest.mark.parametrize("role", ["hand", "chest"])
def test_an_imu_is_found_where_its_camera_is(shaken, tmp_path, capsys, role):
    output = tmp_path / "imu.json"
    assert main(["calibrate", "camera-imu", str(shaken), "--role", role, "--output", str(output)]) == 0
    assert "usable" in capsys.readouterr().out
    found = load(output, CameraImu)
    assert np.rad2deg(np.linalg.norm(pin.log3(found.R_CI))) < 1.0
    assert abs(found.lag_s) < 0.003


def test_a_device_or_an_imu_that_is_not_there_is_said(shaken, tmp_path, capsys):
    output = ["--output", str(tmp_path / "imu.json")]
    assert main(["calibrate", "camera-imu", str(shaken), "--role", "left_hand", *output]) == 1
    assert "valid: chest, hand" in capsys.readouterr().err
    assert main(["calibrate", "camera-imu", str(tmp_path), *output]) == 1
    assert "is no capture" in capsys.readouterr().err


def gripping(folder: Path) -> Path:
    """A capture whose gripper closes and opens three times, with the tags of its fingers in the video."""
    dictionary = cv2.aruco.getPredefinedDictionary(DICTIONARIES["4X4_50"])
    side = round(LENS.fx * 0.016 / 0.072)
    tags = [cv2.aruco.generateImageMarker(dictionary, number, side) for number in (0, 1)]

    def pictures(device, recording) -> Iterator[np.ndarray]:
        times = device.frames[device.kept]
        for width in np.interp(times, recording.X_WE.t_ns, recording.width):
            picture = np.full((*LENS.size, 3), 235, np.uint8)
            if device.role == "hand":
                for tag, sign in zip(tags, (-1, 1), strict=True):
                    x = round(LENS.cx + sign * 0.5 * (0.03 + width) * LENS.fx / 0.072 - side / 2)
                    picture[220 : 220 + side, x : x + side] = tag[..., None]
            yield picture

    take = walk_take(np.random.default_rng(0), metres=0.5)
    share = np.clip(0.5 - 0.8 * np.cos(np.linspace(0.0, 6 * np.pi, len(take.width))), 0.0, 1.0)
    camera = Camera(lens=LENS, rate_hz=15.0)
    config = RigConfig(seed=1, glimpses=False, imu=False, cameras={"chest": camera, "hand": camera})
    simulate_session([replace(take, width=0.05 * share)], config, folder, pictures=pictures)
    return folder / "capture"


def test_the_width_of_a_gripper_is_found_in_a_capture_s_video(tmp_path, capsys):
    save(tmp_path / "hand.json", Intrinsics(camera=LENS))
    capture, output = gripping(tmp_path / "session"), tmp_path / "gripper.json"
    command = ["calibrate", "gripper", str(capture), "--intrinsics", str(tmp_path / "hand.json")]
    assert main([*command, "--open-m", "0.05", "--output", str(output)]) == 0
    assert "usable" in capsys.readouterr().out
    found = load(output, GripperTags)
    assert found.slope == pytest.approx(1.0, abs=0.03)
    assert found.z_m == pytest.approx(0.072, abs=0.002)
    assert main([*command, "--open-m", "0.05", "--role", "chest", "--output", str(tmp_path / "x.json")]) == 1
    assert "tags" in capsys.readouterr().err


def test_the_chest_camera_is_found_by_driving_and_held_against_a_wearer_s(shaken, tmp_path, capsys):
    forward, right = np.array([1.0, 0.0, 0.0]), np.array([0.0, -1.0, 0.0])
    R = np.column_stack([right, np.array([0.0, 0.0, -1.0]), forward]) @ pin.exp3(np.array([-0.7, 0.0, 0.0]))
    X_GC = pin.SE3(R, np.array([0.12, 0.02, 1.2]))
    X_WB = pin.SE3(
        np.diag([1.0, -1.0, -1.0]) @ pin.exp3(np.array([0.0, 0.0, 0.4])), np.array([0.1, 0.1, 0.004])
    )
    rng, kept = np.random.default_rng(0), ShotsFolder(tmp_path / "drive")
    for number in range(14):
        x = np.array([-1.2, 0.0, 0.0]) + rng.uniform(-1, 1, 3) * np.array([0.2, 0.2, 0.3])
        X_WG = pose_from_planar(x)
        grey = draw_board(BOARD, CHEST, (X_WG * X_GC).inverse() * X_WB)
        kept.add(Shot(name=str(number), picture=np.repeat(grey[..., None], 3, axis=2), X_AE=X_WG))
    save(tmp_path / "board.json", BOARD)
    save(tmp_path / "lens.json", Intrinsics(camera=CHEST))
    output = tmp_path / "chest.json"
    command = ["calibrate", "chest", str(tmp_path / "drive"), "--board", str(tmp_path / "board.json")]
    command += ["--intrinsics", str(tmp_path / "lens.json"), "--output", str(output)]
    assert main(command) == 1
    assert "needs --board-height-m" in capsys.readouterr().err
    command += ["--board-height-m", "0.004", "--lies-flat"]
    assert main(command) == 0
    found = load(output, ChestCamera)
    assert np.linalg.norm(found.X_GC.translation - X_GC.translation) < 0.02
    assert np.rad2deg(np.linalg.norm(pin.log3(found.X_GC.rotation.T @ X_GC.rotation))) < 1.0
    assert main([*command, "--wearer", str(shaken)]) == 1
    assert "--wearer-height-m" in capsys.readouterr().err
    assert main([*command, "--wearer", str(shaken), "--wearer-height-m", "1.25"]) == 0
    said = capsys.readouterr().out
    assert "the wearer's looks" in said
    assert "next: " in said
