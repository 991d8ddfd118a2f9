"""Cameras see as OpenCV's do, and look back along the rays by which they see."""

import cv2
import numpy as np
import pytest

from calibration.camera import CameraModel, Intrinsics, KannalaBrandt, Pinhole
from calibration.store import fingerprint, load, load_stored, save
from calibration.verdict import Reason, Verdict
from robot_runtime.errors import InvalidValueError, RobotRuntimeError

PINHOLE = Pinhole(
    size=(480, 640), fx=610.0, fy=608.0, cx=321.3, cy=238.1, k1=-0.12, k2=0.05, p1=1e-3, p2=-8e-4, k3=-0.01
)
FISHEYE = KannalaBrandt(
    size=(960, 1280), fx=390.0, fy=391.0, cx=640.2, cy=479.0, k1=0.03, k2=-0.008, k3=1e-3, k4=-1e-4
)
CAMERAS = pytest.mark.parametrize("camera", [PINHOLE, FISHEYE], ids=lambda camera: camera.MODEL)


def points(camera: CameraModel, num: int = 200) -> np.ndarray:
    rng = np.random.default_rng(1)
    angle = 0.5 if isinstance(camera, Pinhole) else 1.3
    theta, phi, r = rng.uniform(0, angle, num), rng.uniform(-np.pi, np.pi, num), rng.uniform(0.2, 3, num)
    rays = [np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)]
    return np.stack(rays, axis=1) * r[:, None]


def test_a_pinhole_sees_what_opencv_says():
    p = points(PINHOLE)
    uv, _ = cv2.projectPoints(p, np.zeros(3), np.zeros(3), PINHOLE.matrix, PINHOLE.distortion)
    np.testing.assert_allclose(PINHOLE.project(p), uv[:, 0], atol=1e-9)  # pixels


def test_a_fisheye_sees_what_opencv_says():
    p = points(FISHEYE)
    uv, _ = cv2.fisheye.projectPoints(
        p[:, None], np.zeros(3), np.zeros(3), FISHEYE.matrix, FISHEYE.distortion
    )
    np.testing.assert_allclose(FISHEYE.project(p), uv[:, 0], atol=1e-9)


@CAMERAS
def test_a_pixel_looks_along_the_ray_by_which_it_is_seen(camera):
    p = points(camera)
    rays = camera.unproject(camera.project(p))
    np.testing.assert_allclose(rays, p / np.linalg.norm(p, axis=1, keepdims=True), atol=1e-9)


def test_what_is_behind_a_pinhole_is_not_seen_and_a_fisheye_sees_beside_itself():
    assert np.isnan(PINHOLE.project(np.array([[0.1, 0.2, -1.0], [0.1, 0.2, 0.0]]))).all()
    assert np.isfinite(FISHEYE.project(np.array([[1.0, 0.0, -0.1]]))).all()
    assert np.isnan(FISHEYE.unproject(np.array([[1e6, 0.0]]))).all()


def test_the_middle_of_a_picture_stays_in_the_middle_when_it_is_scaled():
    camera = Pinhole(size=(480, 640), fx=600, fy=600, cx=319.5, cy=239.5)
    half = camera.resized((240, 320))
    assert (half.cx, half.cy, half.fx) == (159.5, 119.5, 300.0)
    with pytest.raises(InvalidValueError, match="another shape is a crop"):
        camera.resized((360, 640))


@CAMERAS
def test_a_camera_is_the_same_after_its_file(camera, tmp_path):
    file = tmp_path / "camera.json"
    digest = save(file, Intrinsics(camera=camera, residuals={"rms_px": 0.1}))
    stored = load_stored(file, Intrinsics)
    assert stored.value.camera == camera
    assert stored.sha256 == digest == fingerprint(stored.value)


def test_a_file_that_was_changed_by_hand_is_refused(tmp_path):
    file = tmp_path / "camera.json"
    save(file, Intrinsics(camera=PINHOLE))
    file.write_text(file.read_text().replace("610.0", "612.0"))
    with pytest.raises(InvalidValueError, match="changed by hand"):
        load(file, Intrinsics)


def test_a_file_of_a_refused_result_is_read_only_when_asked_for(tmp_path):
    reason = Reason(name="frontal-views", what="All views are frontal.", do="Tilt the board.")
    file = tmp_path / "camera.json"
    save(file, Intrinsics(camera=PINHOLE, verdict=Verdict.of([reason])))
    with pytest.raises(InvalidValueError, match=r"refused when it was made: All views are frontal\. Tilt"):
        load(file, Intrinsics)
    assert load(file, Intrinsics, even_refused=True).verdict.names == ("frontal-views",)


def test_another_kind_version_or_no_json_is_said(tmp_path):
    from calibration.board import Board

    file = tmp_path / "board.json"
    board = Board(columns=9, rows=7, square_m=0.03, marker_m=0.022)
    save(file, board)
    assert load(file, Board) == board
    with pytest.raises(InvalidValueError, match="expected a file of kind 'camera', got 'board'"):
        load(file, Intrinsics)
    file.write_text(file.read_text().replace('"version": 1', '"version": 7'))
    with pytest.raises(InvalidValueError, match="a newer robot-runtime"):
        load(file, Board)
    file.write_text("{")
    with pytest.raises(InvalidValueError, match="expected JSON"):
        load(file, Board)


@pytest.mark.parametrize(("name", "value"), [("dictionary", 5), ("legacy", "x"), ("columns", 9.5)])
def test_a_board_that_a_file_says_in_other_types_is_refused(name, value):
    from calibration.board import Board

    said = Board(columns=9, rows=7, square_m=0.03, marker_m=0.022).to_dict() | {name: value}
    with pytest.raises(RobotRuntimeError) as refused:
        Board.from_dict(said)
    assert "unknown dictionary '5'" in str(refused.value) or "whole numbers of squares" in str(refused.value)


def test_a_print_that_was_measured_keeps_its_scale_and_is_measured_anew_from_the_drawing():
    from calibration.board import Board

    board = Board(columns=9, rows=7, square_m=0.03, marker_m=0.024).measured(0.098, 0.1)
    assert board.square_m == pytest.approx(0.0294)
    assert board.measured(0.101, 0.1).square_m == pytest.approx(0.0303)


def test_a_file_with_numbers_that_are_none_or_without_a_verdict_s_parts_is_said(tmp_path):
    file = tmp_path / "camera.json"
    save(file, Intrinsics(camera=PINHOLE))
    whole = file.read_text()
    for text in (whole.replace('"fx": ', '"fx": NaN, "fx": '), "[" * 100_000, whole.replace("{", "[", 1)):
        file.write_text(text)
        with pytest.raises(InvalidValueError, match="expected JSON"):
            load(file, Intrinsics)
