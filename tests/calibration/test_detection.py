"""Corners are found where they are, and a board that is another one is named."""

from dataclasses import replace

import cv2
import numpy as np
import pinocchio as pin
import pytest

from calibration.board import Board
from calibration.board_pose import pose_of
from calibration.board_sheet import BOARDS
from calibration.camera import Pinhole
from calibration.detection import detect, layout_of, wrong_board
from robot_runtime.errors import InvalidValueError
from sim.capture.board_scene import draw_board
from tests.calibration.board_views import BOARD, FISHEYE, PINHOLE, corners_from, seen_from

CAMERAS = pytest.mark.parametrize("camera", [PINHOLE, FISHEYE], ids=lambda camera: camera.MODEL)


@pytest.fixture(scope="module")
def pictures():
    rng = np.random.default_rng(0)
    poses = [seen_from(PINHOLE, BOARD, rng, distance_m=0.45, tilt=0.5) for _ in range(2)]
    return [draw_board(BOARD, PINHOLE, X_CB) for X_CB in poses]


@CAMERAS
def test_corners_lie_where_they_were_drawn_without_the_half_pixel_of_charuco(camera):
    rng = np.random.default_rng(3)
    far = 0.4 if camera is PINHOLE else 0.2
    X_CB = seen_from(camera, BOARD, rng, distance_m=far, tilt=0.4)
    corners = detect(BOARD, draw_board(BOARD, camera, X_CB))
    p = BOARD.corners_B[corners.ids] @ X_CB.rotation.T + X_CB.translation
    off = corners.uv - camera.project(p)
    assert len(corners) > 0.9 * BOARD.num_corners
    assert np.abs(off.mean(axis=0)).max() < 0.03  # pixels; the half would be 0.5
    assert np.sqrt((off**2).mean()) < 0.1
    assert 0.3 < corners.blur_px < 0.9


def test_a_moving_board_is_seen_to_be_blurred(pictures):
    X_CB = seen_from(PINHOLE, BOARD, np.random.default_rng(1), distance_m=0.45, tilt=0.4)
    moving = [pin.SE3(np.eye(3), np.array([x, 0.0, 0.0])) * X_CB for x in np.linspace(0, 0.004, 3)]
    blurred = detect(BOARD, draw_board(BOARD, PINHOLE, moving))
    assert blurred.blur_px > 2 * detect(BOARD, pictures[0]).blur_px


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (replace(BOARD, columns=7, rows=9), "9 columns and 7 rows (columns and rows are swapped)"),
        (replace(BOARD, dictionary="6X6_100"), "markers of 5X5_"),
    ],
)
def test_another_board_than_the_printed_one_is_named(pictures, told, says):
    reason = wrong_board(told, pictures[:1])
    assert reason is not None
    assert says in reason.what


@pytest.mark.long
@pytest.mark.parametrize(("columns", "rows"), [(5, 5), (7, 9), (8, 6), (12, 9), (9, 9)], ids=str)
@CAMERAS
def test_columns_and_rows_of_another_board_are_read_off_it(camera, columns, rows):
    side = 0.2 / max(columns, rows)
    shown = Board(columns=columns, rows=rows, square_m=side, marker_m=0.7 * side)
    rng = np.random.default_rng(columns)
    far = 0.36 if camera is PINHOLE else 0.16
    X_CB = seen_from(camera, shown, rng, distance_m=far, tilt=0.4)
    picture = draw_board(shown, camera, X_CB)
    found = layout_of(shown.dictionary, [picture])
    assert found is not None
    assert (found.columns, found.rows, found.begins_white) == (columns, rows, False)
    reason = wrong_board(BOARD, [picture])
    assert reason is not None
    assert f"{columns} columns and {rows} rows" in reason.what
    assert ("swapped" in reason.what) == ((columns, rows) == (BOARD.rows, BOARD.columns))


@pytest.mark.parametrize(("shown", "told"), [("a3", "a4"), ("a4", "a3")])
def test_the_board_of_another_paper_is_not_called_swapped(shown, told):
    board = BOARDS[shown]
    X_CB = seen_from(PINHOLE, board, np.random.default_rng(0), distance_m=1.7 * board.size_m[0], tilt=0.4)
    reason = wrong_board(BOARDS[told], [draw_board(board, PINHOLE, X_CB)])
    assert reason is not None
    assert f"{board.columns} columns and {board.rows} rows" in reason.what
    assert "swapped" not in reason.what
    assert "another board than the one given" in reason.what


def test_markers_of_one_row_say_nothing_of_columns(pictures):
    grey = pictures[0].copy()
    assert layout_of(BOARD.dictionary, [grey]) is not None
    assert layout_of(BOARD.dictionary, [np.full((200, 300), 90, dtype=np.uint8)]) is None
    row = Board(columns=15, rows=3, square_m=0.02, marker_m=0.014).picture(40)[40:80]
    assert layout_of(BOARD.dictionary, [np.pad(row, 40, constant_values=255)]) is None


def test_a_legacy_layout_is_named():
    board = replace(BOARD, rows=6)
    X_CB = seen_from(PINHOLE, board, np.random.default_rng(1), distance_m=0.45, tilt=0.4)
    picture = draw_board(replace(board, legacy=True), PINHOLE, X_CB)
    reason = wrong_board(board, [picture])
    assert reason is not None
    assert "legacy" in reason.what


def test_nothing_is_wrong_with_the_right_board_or_with_no_board(pictures):
    assert wrong_board(BOARD, pictures) is None
    empty = np.full((200, 300), 90, dtype=np.uint8)
    assert wrong_board(BOARD, [empty]) is None
    assert len(detect(BOARD, empty)) == 0


@CAMERAS
def test_a_pose_is_found_again_and_as_sure_as_it_says(camera):
    rng = np.random.default_rng(5)
    errors = []
    for _ in range(20):
        X_CB = seen_from(camera, BOARD, rng, distance_m=0.5 if camera is PINHOLE else 0.25, tilt=0.6)
        corners = corners_from(camera, BOARD, X_CB, rng, noise_px=0.2)
        found = pose_of(BOARD, corners, camera)
        middle = BOARD.corners_B[corners.ids].mean(axis=0)
        dp = X_CB.act(middle) - found.X_CB.act(middle)
        w = pin.log3(X_CB.rotation @ found.X_CB.rotation.T)
        e = np.concatenate([dp, w])
        errors.append(e @ np.linalg.solve(0.2**2 * found.covariance, e) / 6)
        assert np.linalg.norm(w) < np.deg2rad(1.0)
        assert found.tilt == pytest.approx(0.6, abs=0.1)
    assert 0.5 < np.mean(errors) < 2.0  # NEES over its degrees of freedom


def test_a_far_board_has_two_poses_and_says_so():
    rng = np.random.default_rng(2)
    X_CB = seen_from(PINHOLE, BOARD, rng, distance_m=3.5, tilt=0.35)
    pose = pose_of(BOARD, corners_from(PINHOLE, BOARD, X_CB, rng, noise_px=0.2), PINHOLE)
    assert pose.is_ambiguous
    assert pose.other_X_CB is not None
    near = [pin.log3(each.rotation.T @ X_CB.rotation) for each in (pose.X_CB, pose.other_X_CB)]
    assert min(np.linalg.norm(each) for each in near) < 0.1  # one of the two is right


def test_a_picture_of_another_size_than_the_camera_is_refused(pictures):
    corners = detect(BOARD, cv2.resize(pictures[0], (400, 300)))
    with pytest.raises(InvalidValueError, match="calibrated at 480x360 pixels, and the image has 400x300"):
        pose_of(BOARD, corners, PINHOLE)


def test_a_board_that_is_too_small_to_read_is_not_taken_for_another():
    camera = Pinhole(size=(360, 640), fx=350.0, fy=350.0, cx=319.5, cy=179.5)
    board = Board(columns=9, rows=7, square_m=0.05, marker_m=0.037)
    rng = np.random.default_rng(0)
    views = [seen_from(camera, board, rng, distance_m=1.7, tilt=0.6) for _ in range(2)]
    pictures = [draw_board(board, camera, X_CB) for X_CB in views]
    assert not any(len(detect(board, picture)) for picture in pictures)
    assert wrong_board(board, pictures) is None
