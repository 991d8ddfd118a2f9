"""Pictures that are stamped by another clock than poses are found by a board that is seen while moving."""

import numpy as np
import pinocchio as pin
import pytest

from calibration.board import Board
from calibration.camera import Pinhole
from calibration.capture.values import BoardCorners
from calibration.image_clock import image_clock, looks
from calibration.trajectory import Trajectory
from robot_runtime.errors import InvalidValueError

BOARD = Board(columns=8, rows=5, square_m=0.05, marker_m=0.037)
CAMERA = Pinhole(size=(960, 1280), fx=640.0, fy=640.0, cx=640.0, cy=480.0)
MS = 1_000_000
X_WB = pin.SE3(np.diag([1.0, -1.0, -1.0]), np.array([-0.2, 0.1, 0.0]))  # flat on the floor, seen from above


def poses(*, size: float = 1.0) -> Trajectory:
    """A camera above it, tilted, swinging."""
    t_s = np.arange(0.0, 4.0, 0.01)
    out = []
    for t in t_s:
        R = pin.rpy.rpyToMatrix(
            np.pi + 0.5 + size * 0.15 * np.sin(3 * t), size * 0.2 * np.sin(2 * t + 1), 0.3
        )
        out.append(pin.SE3(R, np.array([0.0, 0.35 + size * 0.05 * np.cos(2 * t), 0.7])))
    return Trajectory.of(np.rint(t_s * 1e9).astype(np.int64), out)


def seen(path: Trajectory, *, late_ms: float, noise_px: float = 0.2) -> BoardCorners:
    """Its corners in 30 pictures a second, stamped late."""
    rng = np.random.default_rng(0)
    rows = []
    for i, t_ns in enumerate(range(300 * MS, 3700 * MS, 33 * MS)):
        p_C = (path.at(t_ns).inverse() * X_WB).homogeneous @ np.column_stack(
            [BOARD.corners_B, np.ones(BOARD.num_corners)]
        ).T
        uv = CAMERA.project(p_C[:3].T) + rng.normal(0.0, noise_px, (BOARD.num_corners, 2))
        rows += [(t_ns + round(late_ms * MS), i, k, *each) for k, each in enumerate(uv)]
    columns = list(zip(*rows, strict=True))
    t_ns, index, corner = (np.array(each, dtype=np.int64) for each in columns[:3])
    return BoardCorners(t_ns=t_ns, index=index, corner=corner, uv=np.array(columns[3:]).T)


@pytest.mark.parametrize("late_ms", [0.0, 30.0, -22.5])
def test_how_late_pictures_are_stamped_is_found_to_a_millisecond(late_ms):
    path = poses()
    found = image_clock(BOARD, CAMERA, seen(path, late_ms=late_ms), path)
    assert abs(found.late_ns / 1e6 + late_ms) < 1.0
    assert (found.reason is None) == (late_ms == 0.0)
    assert found.rms_px < 0.3


@pytest.mark.long
@pytest.mark.parametrize("late_ms", [119.5, 150.0, -150.0, 400.0])
def test_pictures_far_off_the_poses_are_found_within_the_stated_uncertainty(late_ms):
    path = poses()
    found = image_clock(BOARD, CAMERA, seen(path, late_ms=late_ms), path)
    assert abs(found.late_ns / 1e6 + late_ms) < 3.0 * found.sigma_ns / 1e6
    assert f"{found.late_ns / 1e6:+.0f} ms apart" in str(found.reason)


@pytest.mark.long
def test_pictures_farther_off_than_is_searched_get_no_figure_and_no_uncertainty():
    path = poses()
    found = image_clock(BOARD, CAMERA, seen(path, late_ms=600.0), path)
    assert found.is_beyond
    assert "no shift of up to 500 ms explains them" in str(found.reason)
    assert "sigma" not in str(found.reason)


def test_a_camera_that_stands_still_says_nothing_of_time():
    path = poses(size=0.0)
    with pytest.raises(InvalidValueError, match="standing still"):
        image_clock(BOARD, CAMERA, seen(path, late_ms=30.0), path)


def test_each_look_at_the_board_stands_alone():
    both = looks(seen(poses(), late_ms=0.0), [(0, 1000 * MS), (1000 * MS, 1500 * MS), (8000 * MS, 9000 * MS)])
    assert [len(np.unique(each.t_ns)) for each in both] == [22, 15]
