"""`calibrate intrinsics` on drawn pictures: good ones are kept; what their views cannot tell is refused."""

import re
from pathlib import Path

import cv2
import numpy as np
import pinocchio as pin
import pytest

from calibration.board import Board
from calibration.camera import CameraModel, Intrinsics, KannalaBrandt, Pinhole
from calibration.store import load, save
from robot_runtime.cli import main
from robot_runtime.errors import InvalidValueError
from sim.capture.board_scene import draw_board
from tests.calibration.board_views import seen_from

BOARD = Board(columns=7, rows=5, square_m=0.04, marker_m=0.029)
PINHOLE = Pinhole(size=(240, 320), fx=300.0, fy=300.0, cx=161.0, cy=118.0, k1=-0.08)
FISHEYE = KannalaBrandt(size=(240, 320), fx=160.0, fy=160.0, cx=161.0, cy=118.0, k1=0.01)


def kept(folder: Path, camera: CameraModel, far_m: tuple[float, float], *, is_frontal: bool = False) -> Path:
    """Sixteen pictures."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    save(folder / "board.json", BOARD)
    for k in range(16):
        X_CB = seen_from(
            camera,
            BOARD,
            rng,
            distance_m=rng.uniform(*far_m),
            tilt=rng.uniform(0.2, 0.8),
            places=(0.15, 0.85),
        )
        if is_frontal:
            R = pin.exp3(np.array([rng.normal(0, 0.03), rng.normal(0, 0.03), rng.uniform(-0.5, 0.5)]))
            X_CB = pin.SE3(R, X_CB.act(BOARD.centre_B) - R @ BOARD.centre_B)
        cv2.imwrite(str(folder / f"{k:03d}.png"), draw_board(BOARD, camera, X_CB))
    return folder


def calibrate(folder: Path) -> int:
    files = ["--board", str(folder / "board.json"), "--output", str(folder / "camera.json")]
    return main(["calibrate", "intrinsics", str(folder), *files])


@pytest.mark.long
def test_pictures_from_all_sides_give_a_camera_that_is_kept(tmp_path, capsys):
    folder = kept(tmp_path / "good", PINHOLE, (0.3, 0.5))
    assert calibrate(folder) == 0, capsys.readouterr().out
    assert load(folder / "camera.json", Intrinsics).camera.fx == pytest.approx(300.0, rel=0.003)


@pytest.mark.long
def test_pictures_of_two_cameras_are_called_so(tmp_path, capsys):
    folder = kept(tmp_path / "first", PINHOLE, (0.3, 0.5))
    other = kept(
        tmp_path / "second", Pinhole(size=PINHOLE.size, fx=360.0, fy=360.0, cx=158.0, cy=121.0), (0.35, 0.6)
    )
    for path in other.glob("*.png"):
        path.rename(folder / f"second_{path.name}")
    assert calibrate(folder) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"mixed-cameras|of two cameras", said)
    assert "rolling" not in said
    assert "stretched" not in said


def test_mirrored_pictures_are_called_so(tmp_path, capsys):
    folder = kept(tmp_path / "selfie", PINHOLE, (0.3, 0.5))
    for path in folder.glob("*.png"):
        cv2.imwrite(str(path), cv2.imread(str(path))[:, ::-1])
    assert calibrate(folder) == 1
    assert "The images are mirrored" in capsys.readouterr().err


@pytest.mark.long
def test_pictures_from_the_front_are_refused_with_their_true_tilt(tmp_path, capsys):
    folder = kept(tmp_path / "front", PINHOLE, (0.3, 0.5), is_frontal=True)
    assert calibrate(folder) == 1
    said = capsys.readouterr().out
    assert "NOT USABLE" in said
    assert "frontal-views" in said
    assert "separate a longer focal length from a board farther away" in " ".join(said.split())
    (tilt,) = re.findall(r"tilt median.*?([0-9.]+) degrees", said)
    assert float(tilt) < 6
    with pytest.raises(InvalidValueError, match="refused when it was made"):
        load(folder / "camera.json", Intrinsics)


@pytest.mark.long
def test_a_fisheye_calibrated_as_a_pinhole_is_refused_with_the_right_model(tmp_path, capsys):
    folder = kept(tmp_path / "fisheye", FISHEYE, (0.2, 0.35))
    assert calibrate(folder) == 1
    assert "--model fisheye" in capsys.readouterr().out
