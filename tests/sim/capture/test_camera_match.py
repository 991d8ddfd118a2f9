"""Rendered images of a robot's camera, warped by a match, are those rendered from the captured camera."""

import cv2
import numpy as np
import pinocchio as pin
import pytest

from calibration.camera import CameraModel, KannalaBrandt, Pinhole
from calibration.camera_match import WRIST, MountedCamera, match_cameras
from calibration.matched_camera import Warp
from sim.capture.camera_images import Painter
from sim.capture.scene import BOARD
from tests.sim.capture.test_pictures import EYE, X_WB, rooms  # noqa: F401

CAPTURED = Pinhole(size=(360, 480), fx=330.0, fy=332.0, cx=243.0, cy=176.0, k1=-0.05)
ROBOT = KannalaBrandt(size=(720, 960), fx=480.0, fy=480.0, cx=482.0, cy=361.0, k1=0.02, k2=-0.01)
DEPTH_M = float((EYE.inverse() * X_WB).act(BOARD.centre_B)[2])


def corners(picture: np.ndarray) -> dict[int, np.ndarray]:
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    uv, ids, _, _ = cv2.aruco.CharucoDetector(BOARD.charuco).detectBoard(grey)
    return {} if ids is None else dict(zip(ids.ravel().tolist(), uv.reshape(-1, 2), strict=True))


def apart(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Displacement of every corner of the board that both images show [pixels]."""
    a, b = corners(one), corners(other)
    both = sorted({*a} & {*b})
    assert len(both) > 15
    return np.linalg.norm([a[i] - b[i] for i in both], axis=1)


def warped(scene, X_HC: pin.SE3, captured: CameraModel = CAPTURED) -> tuple[np.ndarray, np.ndarray]:
    """Rendered from the captured camera; and from the robot's, elsewhere by X_HC, warped."""
    model, snapshot = scene
    with Painter(model, captured) as painter:
        wanted = painter.draw(snapshot, EYE)
    with Painter(model, ROBOT) as painter:
        seen = painter.draw(snapshot, EYE * X_HC)
    one, two = MountedCamera(lens=captured, X_MC=EYE), MountedCamera(lens=ROBOT, X_MC=EYE * X_HC)
    match = match_cameras("wrist", WRIST, one, two, distance_m=DEPTH_M)
    assert match.verdict.ok, match.verdict
    return wanted, Warp(match)(seen)


def turn(deg: float, *p: float) -> pin.SE3:
    return pin.SE3(pin.exp3(np.deg2rad(deg) * np.array([0.48, 0.6, 0.64])), np.array(p))


@pytest.mark.long
def test_a_turned_camera_with_another_lens_shows_the_board_where_the_captured_one_does(rooms) -> None:  # noqa: F811
    wanted, found = warped(rooms, turn(8.0, 0.0, 0.0, 0.0))
    off = apart(wanted, found)
    assert off.max() < 1.0
    assert np.median(off) < 0.3
    assert np.abs(wanted.astype(float) - found)[4:-4, 4:-4].mean() < 3.0


@pytest.mark.long
def test_a_camera_moved_by_two_centimetres_and_five_degrees_is_off_by_the_parallax_alone(rooms) -> None:  # noqa: F811
    wanted, found = warped(rooms, turn(5.0, 0.02, 0.0, 0.0))
    off = apart(wanted, found)
    depths = np.array([(EYE.inverse() * X_WB).act(p)[2] for p in BOARD.corners_B])
    parallax = CAPTURED.fx * 0.02 * np.abs(1.0 / depths - 1.0 / DEPTH_M).max()
    assert off.max() < parallax + 1.0
    assert np.median(off) < 0.5 * CAPTURED.fx * 0.02 / DEPTH_M


@pytest.mark.long
def test_a_shrunk_image_is_as_smooth_as_one_that_was_recorded_and_shrunk(rooms) -> None:  # noqa: F811
    model, snapshot = rooms
    small = CAPTURED.stretched((96, 128))
    with Painter(model, CAPTURED) as painter:
        recorded = painter.draw(snapshot, EYE)
    wanted = cv2.resize(recorded, small.size[::-1], interpolation=cv2.INTER_AREA).astype(float)
    _, found = warped(rooms, turn(5.0, 0.0, 0.0, 0.0), small)
    off = np.abs(wanted - found)[2:-2, 2:-2].mean()
    assert off < 3.0  # grey levels; without averaging, 5
