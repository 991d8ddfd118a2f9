"""Drawn pictures: the board is found where the lens has it, by either kind of lens; shutters mix instants."""

from dataclasses import replace

import cv2
import mujoco
import numpy as np
import pinocchio as pin
import pytest

from calibration.camera import CameraModel, KannalaBrandt, Pinhole
from robot_runtime.errors import InvalidValueError
from sim.capture.camera_images import Painter, shutter, snapshot_at
from sim.capture.drills import lean_take, looking
from sim.capture.rig import CLEAN, NOISY
from sim.capture.scene import BOARD, build_scene, cube, tag_picture
from sim.capture.takes import record
from sim.tasks import make_task

X_WB = pin.SE3(np.diag([1.0, -1.0, -1.0]), np.array([0.2, 0.5, 0.7]))
EYE = pin.SE3(looking((-0.3, -0.1, -0.6)), np.array([0.7, 0.45, 1.22]))


@pytest.fixture(scope="module")
def rooms() -> tuple[mujoco.MjModel, np.ndarray]:
    model = build_scene(make_task("fetch"), has_board=True, prints=True)
    data = mujoco.MjData(model)
    i = model.body("board").mocapid[0]
    data.mocap_pos[i] = X_WB.translation
    data.mocap_quat[i] = pin.Quaternion(X_WB.rotation).coeffs()[[3, 0, 1, 2]]
    return model, np.concatenate([data.qpos, np.hstack([data.mocap_pos, data.mocap_quat]).ravel()])


@pytest.mark.long
@pytest.mark.parametrize(
    "lens",
    [
        Pinhole(size=(360, 480), fx=330.0, fy=332.0, cx=243.0, cy=176.0),
        KannalaBrandt(size=(360, 480), fx=260.0, fy=260.0, cx=241.0, cy=178.0, k1=0.02, k2=-0.01),
    ],
)
def test_the_board_is_drawn_where_the_lens_has_it(
    rooms: tuple[mujoco.MjModel, np.ndarray], lens: CameraModel
) -> None:
    model, snapshot = rooms
    with Painter(model, lens) as painter:
        grey = cv2.cvtColor(painter.draw(snapshot, EYE), cv2.COLOR_RGB2GRAY)
    uv, ids, _, _ = cv2.aruco.CharucoDetector(BOARD.charuco).detectBoard(grey)
    assert ids is not None
    assert len(ids) > 20
    X_CB = EYE.inverse() * X_WB
    wanted = lens.project(np.array([X_CB.act(p) for p in BOARD.corners_B[ids.ravel()]]))
    off = uv.reshape(-1, 2) - 0.5 - wanted
    assert np.sqrt((off**2).mean()) < 0.25


def test_tags_of_the_cube_are_read_as_their_numbers() -> None:
    detector = cv2.aruco.ArucoDetector(cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_4X4_50))
    for tag in cube():
        _, ids, _ = detector.detectMarkers(
            cv2.copyMakeBorder(tag_picture(tag), *(20,) * 4, cv2.BORDER_CONSTANT, value=255)
        )
        assert ids.ravel().tolist() == [tag.number]


def test_a_rolling_shutter_shows_its_first_row_before_its_last() -> None:
    camera = NOISY.cameras()["chest"]
    offsets, weights = shutter(camera)
    seen_ns = weights @ offsets
    assert seen_ns[0] == pytest.approx(-camera.readout_ns / 2, abs=2e6)
    assert seen_ns[-1] == pytest.approx(camera.readout_ns / 2, abs=2e6)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-6)
    assert len(shutter(CLEAN.cameras()["chest"])[0]) == 1
    blurred = shutter(replace(camera, readout_ns=0, exposure_ns=30_000_000))[1]
    assert np.ptp(blurred, axis=0).max() == 0.0


def test_what_was_not_filmed_is_not_drawn() -> None:
    recording = record([lean_take(np.random.default_rng(0))])
    with pytest.raises(InvalidValueError, match="was not filmed"):
        snapshot_at(recording, 10**9)
