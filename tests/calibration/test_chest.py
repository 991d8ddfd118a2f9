"""The chest camera in the base: what driving shows of it, what has to be measured, and how it should sit."""

import numpy as np
import pinocchio as pin
import pytest

from calibration.board import Board
from calibration.camera import Pinhole
from calibration.chain import ArmView, arm_view
from calibration.chest import ChestCamera, Mount, advice, from_base_motion, from_places
from calibration.detection import Corners
from calibration.store import load, save
from robot_runtime.core.values.transforms import pose_from_planar
from robot_runtime.errors import InvalidValueError

CAMERA = Pinhole(size=(720, 1280), fx=700.0, fy=700.0, cx=639.5, cy=359.5)
BOARD = Board(columns=9, rows=7, square_m=0.05, marker_m=0.037)
X_WB = pin.SE3(np.diag([1.0, -1.0, -1.0]) @ pin.exp3(np.array([0.0, 0.0, 0.4])), np.array([0.1, 0.1, 0.004]))


def camera_in_base(pitch_deg: float = 40.0, height_m: float = 1.2) -> pin.SE3:
    forward, right = np.array([1.0, 0.0, 0.0]), np.array([0.0, -1.0, 0.0])
    R = np.column_stack([right, np.array([0.0, 0.0, -1.0]), forward])
    return pin.SE3(
        R @ pin.exp3(np.array([-np.deg2rad(pitch_deg), 0.0, 0.0])), np.array([0.12, 0.02, height_m])
    )


X_GC = camera_in_base()


def drive(
    seed: int, num: int, *, turn: float = 0.35, way: float = 0.25, corner_px: float = 0.0
) -> tuple[list[pin.SE3], list[ArmView]]:
    """A base before a board on the floor: its poses in the world, and what it sees."""
    rng = np.random.default_rng(seed)
    poses: list[pin.SE3] = []
    seen: list[ArmView] = []
    while len(seen) < num:
        x = np.array([-1.2, 0.0, 0.0]) + rng.uniform(-1, 1, 3) * np.array([way, way, turn])
        X_WG = pose_from_planar(x)
        X_CB = (X_WG * X_GC).inverse() * X_WB
        uv = CAMERA.project(BOARD.corners_B @ X_CB.rotation.T + X_CB.translation)
        if CAMERA.sees(uv, margin=5.0).all():
            noisy = uv + rng.normal(0.0, corner_px, uv.shape)
            corners = Corners(ids=np.arange(len(uv)), uv=noisy, size=CAMERA.size)
            poses.append(X_WG)
            seen.append(arm_view(BOARD, corners, CAMERA, X_WG))
    return poses, seen


HEIGHT_M = float(X_WB.act(BOARD.corners_B.mean(axis=0))[2])


def test_driving_before_a_board_shows_all_but_the_height_which_the_board_s_gives():
    poses, seen = drive(0, 12)
    found = from_base_motion(poses, seen, CAMERA, board_height_m=HEIGHT_M, lies_flat=True)
    assert found.verdict.ok
    np.testing.assert_allclose(found.X_GC.homogeneous, X_GC.homogeneous, atol=1e-5)
    higher = from_base_motion(poses, seen, CAMERA, board_height_m=HEIGHT_M + 0.1)
    np.testing.assert_allclose(higher.X_GC.translation - X_GC.translation, [0.0, 0.0, 0.1], atol=1e-5)
    assert higher.residuals["rms_px"] == pytest.approx(found.residuals["rms_px"], abs=1e-6)


def test_noise_leaves_it_within_its_covariance(tmp_path):
    poses, seen = drive(1, 15, corner_px=0.2)
    found = from_base_motion(poses, seen, CAMERA, board_height_m=HEIGHT_M)
    off = np.concatenate(
        [found.X_GC.translation - X_GC.translation, pin.log3(found.X_GC.rotation @ X_GC.rotation.T)]
    )
    assert np.linalg.norm(off[:3]) < 0.01
    assert np.rad2deg(np.linalg.norm(off[3:])) < 0.5
    assert off @ np.linalg.solve(found.covariance, off) < 20.0
    save(tmp_path / "chest.json", found)
    assert load(tmp_path / "chest.json", ChestCamera).X_GC.isApprox(found.X_GC, 1e-9)


@pytest.mark.parametrize(("turn", "way", "says"), [(0.0, 0.2, "did not turn"), (0.3, 0.0, "did not drive")])
def test_a_base_that_only_turns_or_only_drives_does_not_show_it(turn: float, way: float, says: str) -> None:
    poses, seen = drive(2, 8, turn=turn, way=way)
    with pytest.raises(InvalidValueError, match=says):
        from_base_motion(poses, seen, CAMERA, board_height_m=HEIGHT_M)


def test_a_board_that_does_not_lie_flat_is_seen():
    poses, seen = drive(3, 10)
    tilted = pin.SE3(pin.exp3(np.array([0.1, 0.0, 0.0])), np.zeros(3))
    moved = [
        arm_view(
            BOARD,
            Corners(
                ids=np.arange(BOARD.num_corners),
                uv=CAMERA.project(
                    BOARD.corners_B @ (X := (P * X_GC).inverse() * X_WB * tilted).rotation.T + X.translation
                ),
                size=CAMERA.size,
            ),
            CAMERA,
            P,
        )
        for P in poses
    ]
    assert len(seen) == len(moved)
    found = from_base_motion(poses, moved, CAMERA, board_height_m=HEIGHT_M, lies_flat=True)
    assert "board-not-flat" in found.verdict.names


def test_a_board_at_measured_places_is_enough_without_any_motion():
    poses, seen = drive(4, 4, corner_px=0.1)
    found = from_places([X.inverse() * X_WB for X in poses], seen, CAMERA)
    assert found.verdict.ok
    assert np.linalg.norm(found.X_GC.translation - X_GC.translation) < 0.003
    with pytest.raises(InvalidValueError, match="none of 0 images"):
        from_places([], [], CAMERA)


def test_how_the_robot_s_camera_has_to_move_to_see_as_the_wearer_s_is_said():
    robot, wearer = Mount.of(camera_in_base(30.0, 1.10)), Mount.of(camera_in_base(42.0, 1.25))
    up, tilt = advice(robot, wearer)
    assert "up by 15.0 cm" in up
    assert "down by 12.0 degrees" in tilt
    assert not advice(wearer, wearer)
    stands = [
        pose_from_planar(np.array([0.3, 0.1, yaw])) * camera_in_base(42.0, 1.25) for yaw in (0.0, 1.0, 2.0)
    ]
    of_wearer = Mount.of_wearer(stands, floor_z=0.0)
    assert of_wearer.height_m == pytest.approx(1.25)
    assert np.rad2deg(of_wearer.pitch) == pytest.approx(42.0)
    assert of_wearer.roll == pytest.approx(0.0, abs=1e-9)
