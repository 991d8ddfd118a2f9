"""A camera on an arm or beside it: found to what the views allow, and refused where they do not."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from calibration.camera import Pinhole
from calibration.chain import ArmView, arm_view, moved
from calibration.chain_verdict import lacking
from calibration.detection import Corners
from calibration.hand_eye import HandEye, RobotWorld, solve_hand_eye, solve_robot_world
from calibration.readings import explains
from calibration.store import load, save
from robot_runtime.core.values.transforms import pose_from_quaternion, quaternion_from_rotation
from robot_runtime.errors import InvalidValueError
from tests.calibration.arm_scene import BOARD, CAMERA, X_AB, X_EC, beside, views


def gap(found: pin.SE3, true: pin.SE3) -> np.ndarray:
    """[m, rad]"""
    return np.concatenate([found.translation - true.translation, pin.log3(found.rotation @ true.rotation.T)])


def test_without_errors_camera_and_board_are_found_exactly():
    seen = views(0, 12)
    found = solve_hand_eye(seen, CAMERA)
    np.testing.assert_allclose(gap(found.X_EC, X_EC), 0.0, atol=1e-6)
    np.testing.assert_allclose(gap(found.X_AB, X_AB), 0.0, atol=1e-6)
    assert found.verdict.ok
    assert found.num_views == 12
    other = solve_robot_world(beside(seen), CAMERA)
    np.testing.assert_allclose(gap(other.X_AC, X_EC), 0.0, atol=1e-6)
    np.testing.assert_allclose(gap(other.X_EB, X_AB), 0.0, atol=1e-6)


@pytest.mark.parametrize("solve", [solve_hand_eye, solve_robot_world])
def test_an_arm_that_errs_is_told_from_corners_that_do_and_the_covariance_is_honest(solve: Callable) -> None:
    squares, corner_px, hand_mm = [], [], []
    for seed in range(3):
        seen = views(seed, 15, corner_px=0.2, hand_m=4e-4, hand_rad=5e-4)
        found = solve(seen if solve is solve_hand_eye else beside(seen), CAMERA)
        X = found.X_EC if isinstance(found, HandEye) else found.X_AC
        e = gap(X, X_EC)
        assert np.linalg.norm(e[:3]) < 0.003
        assert np.rad2deg(np.linalg.norm(e[3:])) < 0.3
        squares.append(e @ np.linalg.solve(found.covariance, e) / 6)
        corner_px.append(found.residuals["corner_px"])
        hand_mm.append(found.residuals["hand_mm"])
    assert 0.3 < np.mean(squares) < 3.0
    assert np.mean(corner_px) == pytest.approx(0.2, rel=0.1)
    assert np.mean(hand_mm) == pytest.approx(0.4, rel=0.5)


def test_a_board_seen_the_wrong_way_round_is_turned_by_the_other_views():
    seen = views(3, 12, corner_px=0.1)
    flipped = [
        replace(view, X_CB=view.other_X_CB, other_X_CB=view.X_CB, is_ambiguous=True)
        if i % 3 == 0 and view.other_X_CB is not None
        else view
        for i, view in enumerate(seen)
    ]
    found = solve_hand_eye(flipped, CAMERA)
    assert found.verdict.ok
    assert np.linalg.norm(gap(found.X_EC, X_EC)[:3]) < 5e-4


def test_a_view_taken_while_the_arm_moved_is_left_out_and_named():
    seen = views(4, 14, corner_px=0.1)
    seen[5] = replace(seen[5], X_AE=moved(seen[5].X_AE, np.array([0.03, 0.0, 0.0, 0.0, 0.1, 0.0])))
    found = solve_hand_eye(seen, CAMERA)
    assert found.verdict.ok
    assert found.num_views == 13
    assert "005.png" in str(found.verdict)


def other_order(X: pin.SE3) -> pin.SE3:
    w, x, y, z = quaternion_from_rotation(X.rotation)
    return pose_from_quaternion(X.translation, np.array([x, y, z, w]))


MIRROR = np.diag([1.0, 1.0, -1.0])


@pytest.mark.parametrize(
    ("misread", "name"),
    [
        (other_order, "quaternion-order"),
        (lambda X: X.inverse(), "inverse-poses"),
        (lambda X: pin.SE3(X.rotation, 1e3 * X.translation), "millimetres"),
        (lambda X: pin.SE3(MIRROR @ X.rotation @ MIRROR, MIRROR @ X.translation), "left-handed"),
    ],
)
def test_poses_that_were_misread_are_named(misread, name):
    seen = [replace(view, X_AE=misread(view.X_AE)) for view in views(5, 12, corner_px=0.1, hand_m=3e-4)]
    verdict = solve_hand_eye(seen, CAMERA).verdict
    assert not verdict.ok
    assert name in verdict.names


def seen_by(camera: Pinhole, seen: list[ArmView]) -> list[ArmView]:
    """The same corners, read with another camera's intrinsics."""
    return [
        arm_view(BOARD, Corners(ids=np.arange(len(v.uv)), uv=v.uv, size=camera.size), camera, v.X_AE)
        for v in seen
    ]


@pytest.mark.parametrize("share", [540 / 612, 612 / 540, 0.95, 1.05])
def test_intrinsics_of_another_camera_are_refused(share):
    camera = replace(CAMERA, fx=share * CAMERA.fx, fy=share * CAMERA.fy)
    seen = seen_by(camera, views(0, 12, corner_px=0.2, hand_m=3e-4, hand_rad=5e-4))
    for solve in (solve_hand_eye, solve_robot_world):
        verdict = solve(seen if solve is solve_hand_eye else beside(seen), camera).verdict
        assert not verdict.ok
        assert "intrinsics-off" in verdict.names


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"cx": CAMERA.cx + 20.0}, "principal-point-off"),
        ({"cy": CAMERA.cy - 12.0}, "principal-point-off"),
        ({"k1": CAMERA.k1 + 0.12}, "distortion-off"),
        ({"k1": CAMERA.k1 - 0.12}, "distortion-off"),
    ],
)
def test_another_principal_point_or_distortion_is_refused_and_spoils_no_pose(changes, name):
    camera = replace(CAMERA, **changes)
    seen = seen_by(camera, views(3, 20, corner_px=0.2, hand_m=3e-4, hand_rad=5e-4))
    for solve in (solve_hand_eye, solve_robot_world):
        found = solve(seen if solve is solve_hand_eye else beside(seen), camera)
        assert not found.verdict.ok
        assert name in found.verdict.names
        if solve is solve_hand_eye:
            assert np.linalg.norm(gap(found.X_EC, X_EC)[:3]) < 4 * found.residuals["sigma_mm"] * 1e-3


def test_a_focal_length_that_shows_half_as_a_board_of_another_size_is_refused():
    camera = replace(CAMERA, fx=0.97 * CAMERA.fx, fy=0.97 * CAMERA.fy)
    found = solve_hand_eye(seen_by(camera, views(14, 12, corner_px=0.2, hand_m=3e-4, hand_rad=5e-4)), camera)
    assert np.linalg.norm(gap(found.X_EC, X_EC)[:3]) > 3 * found.residuals["sigma_mm"] * 1e-3
    assert not found.verdict.ok
    assert "intrinsics-off" in found.verdict.names


@pytest.mark.parametrize("share", [0.9, 0.97, 1.03, 1.1])
def test_a_board_of_another_size_than_its_file_says_is_refused(share):
    seen = [
        replace(v, p_B=share * v.p_B, X_CB=pin.SE3(v.X_CB.rotation, share * v.X_CB.translation))
        for v in views(0, 12, corner_px=0.2, hand_m=3e-4, hand_rad=5e-4)
    ]
    for solve in (solve_hand_eye, solve_robot_world):
        found = solve(seen if solve is solve_hand_eye else beside(seen), CAMERA)
        assert not found.verdict.ok
        assert "board-scale" in found.verdict.names
        assert found.residuals["board_percent"] == pytest.approx(100 * (1 - share), abs=1.5)


@pytest.mark.parametrize("seed", range(8))
def test_a_good_arm_with_usual_errors_is_not_refused(seed):
    seen = views(20 + seed, 12, corner_px=0.3, hand_m=4e-4, hand_rad=5e-4)
    off = 1.0 + 0.002 * (-1) ** seed
    camera = replace(CAMERA, fx=off * CAMERA.fx, fy=off * CAMERA.fy, cx=CAMERA.cx + 1.0)
    verdict = solve_hand_eye(seen_by(camera, seen), camera).verdict
    assert verdict.ok, str(verdict)


def test_pictures_that_belong_to_other_poses_do_not_fit():
    seen = views(6, 12)
    poses = [view.X_AE for view in seen]
    shifted = [replace(view, X_AE=X) for view, X in zip(seen, [*poses[1:], poses[0]], strict=True)]
    assert "does-not-fit" in solve_hand_eye(shifted, CAMERA).verdict.names


def test_a_reading_of_poses_counts_only_if_it_fits_within_a_few_pixels():
    assert explains(1.2, 180.0, 640)
    assert not explains(1414.0, 9000.0, 640)
    assert not explains(1.2, 2.0, 640)


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (views(0, 2), "at least 3 views"),
        (views(0, 10, axis=2), "same direction"),
        ([replace(view, is_ambiguous=True) for view in views(0, 10)], "ambiguous"),
    ],
)
def test_what_cannot_be_found_is_refused(seen: list[ArmView], says: str) -> None:
    for solve in (solve_hand_eye, solve_robot_world):
        with pytest.raises(InvalidValueError, match=says):
            solve(seen, CAMERA)


def test_few_views_give_no_good_verdict_and_it_is_said_what_is_lacking():
    seen = views(7, 5, corner_px=0.1)
    assert "few-views" in solve_hand_eye(seen, CAMERA).verdict.names
    about_x = [view.X_AE for view in views(7, 12, axis=0)]
    (advice,) = lacking(about_x)
    assert "y axis" in advice or "z axis" in advice
    assert not lacking([view.X_AE for view in views(7, 30)])


def test_it_is_stored_and_read_back(tmp_path):
    seen = views(8, 12, corner_px=0.1)
    on_arm, apart = solve_hand_eye(seen, CAMERA), solve_robot_world(beside(seen), CAMERA)
    save(tmp_path / "on_arm.json", on_arm)
    save(tmp_path / "apart.json", apart)
    assert load(tmp_path / "on_arm.json", HandEye).X_EC.isApprox(on_arm.X_EC, 1e-12)
    assert load(tmp_path / "apart.json", RobotWorld).X_EB.isApprox(apart.X_EB, 1e-12)
    assert load(tmp_path / "apart.json", RobotWorld).verdict == apart.verdict
