"""The tip, the width and the IMU of a hand-held gripper."""

import cv2
import numpy as np
import pinocchio as pin
import pytest

from calibration.board import DICTIONARIES
from calibration.camera import Pinhole
from calibration.camera_imu import CameraImu, angular_velocity, join_camera_imu
from calibration.gripper import GripperTags, Tag, calibrate, find_tags
from calibration.store import load, save
from calibration.tcp import UMI_GRIPPER, Tcp, from_tags, solve_pivot
from robot_runtime.cli import main
from robot_runtime.errors import InvalidValueError

P_HE = np.array([0.01, 0.08, 0.2])


def leant(
    seed: int, num: int, *, most: float = 0.6, noise_m: float = 0.0, axis: int | None = None
) -> list[pin.SE3]:
    """Poses of a camera whose tip stands in one point."""
    rng, out = np.random.default_rng(seed), []
    for _ in range(num):
        turn = rng.uniform(-most, most, 3)
        if axis is not None:
            turn = turn[axis] * np.eye(3)[axis]
        R = pin.exp3(turn)
        out.append(pin.SE3(R, np.array([0.4, 0.1, 0.7]) - R @ P_HE + rng.normal(0.0, noise_m, 3)))
    return out


def test_a_tip_that_stands_in_one_point_is_found(tmp_path):
    found = solve_pivot(leant(0, 30, noise_m=0.001))
    assert found.verdict.ok
    assert np.linalg.norm(found.X_HE.translation - P_HE) < 0.002
    assert (np.abs(found.X_HE.translation - P_HE) < 4 * np.array(found.sigma_m)).all()
    save(tmp_path / "tcp.json", found)
    assert load(tmp_path / "tcp.json", Tcp).X_HE.isApprox(found.X_HE)


def test_a_tip_that_slipped_or_hardly_turned_is_refused():
    slipped = leant(1, 20)
    slipped[4].translation = slipped[4].translation + np.array([0.05, 0.0, 0.0])
    found = solve_pivot(slipped)
    assert found.verdict.ok
    assert found.verdict.names == ("poses-left-out",)
    assert "tip-slipped" in solve_pivot(leant(2, 20, noise_m=0.006)).verdict.names
    assert "little-rotation" in solve_pivot(leant(3, 20, most=0.15)).verdict.names
    with pytest.raises(InvalidValueError, match="about one direction only"):
        solve_pivot(leant(4, 20, axis=0))
    with pytest.raises(InvalidValueError, match="needs 4 poses"):
        solve_pivot(leant(5, 3))


def test_a_tag_at_the_tip_and_a_preset_give_it_as_well():
    rng = np.random.default_rng(0)
    X_HT, X_TE = (
        pin.SE3(pin.exp3(np.array([0.1, 0.0, 0.0])), P_HE),
        pin.SE3(np.eye(3), np.array([0, 0, 0.01])),
    )
    seen = [pin.SE3(X_HT.rotation, P_HE + rng.normal(0.0, 3e-4, 3)) for _ in range(20)]
    found = from_tags(seen, X_TE)
    assert found.verdict.ok
    assert np.linalg.norm(found.X_HE.translation - (X_HT * X_TE).translation) < 3e-4
    assert UMI_GRIPPER.X_HE.translation[2] == pytest.approx(0.21965)
    with pytest.raises(InvalidValueError, match="not seen"):
        from_tags([], X_TE)


def clip(
    seed: int, num: int = 300, *, slope: float = 1.0, lost: float = 0.02, travel: float = 0.08
) -> tuple[list[list[Tag]], np.ndarray]:
    """A gripper that closes and opens three times, and its true width at each picture."""
    rng = np.random.default_rng(seed)
    phase = np.clip(0.5 + 0.8 * np.cos(np.linspace(0.0, 6 * np.pi, num)), 0.0, 1.0)
    out, width = [], travel * phase
    for w in width:
        half = 0.5 * (0.05 + w / slope)
        tags = [
            Tag(number=n, p_H=(0.002 + side * half + rng.normal(0, 2e-4), 0.03, 0.072 + rng.normal(0, 1e-3)))
            for n, side in ((0, -1), (1, 1))
            if rng.random() > lost
        ]
        out.append([*tags, Tag(number=7, p_H=(0.1, 0.0, 0.5))])
    return out, width


def fit(tags: list[list[Tag]], **others: float) -> GripperTags:
    return calibrate(
        tags, left=0, right=1, tag_m=0.016, dictionary="4X4_50", **{"width_open_m": 0.08, **others}
    )


def test_the_width_follows_from_two_tags_and_from_one(tmp_path):
    tags, _ = clip(0)
    found = fit(tags)
    assert found.verdict.ok
    again, width = clip(1)
    seen = np.array([found.width_of(each) for each in again])
    assert np.nanmax(np.abs(seen - width)) < 0.002
    alone = [found.width_of([tag for tag in each if tag.number == 1]) for each in again]
    assert np.nanmedian(np.abs(np.array(alone) - width)) < 0.001
    mirrored = [Tag(number=tag.number, p_H=(*tag.p_H[:2], 0.12)) for tag in again[0]]
    assert np.isnan(found.width_of(mirrored))
    save(tmp_path / "gripper.json", found)
    assert load(tmp_path / "gripper.json", GripperTags) == found


def test_a_gripper_clip_that_cannot_be_trusted_is_named():
    assert "little-travel" in fit(clip(2, travel=0.01)[0]).verdict.names
    assert "wrong-size" in fit(clip(3, slope=1.3)[0]).verdict.names
    half_opened = fit(clip(3, travel=0.04)[0]).verdict
    assert "wrong-size" in half_opened.names
    assert not half_opened.ok
    assert "few-sightings" in fit(clip(4, 20)[0]).verdict.names
    assert "tags-often-lost" in fit(clip(5, lost=0.2)[0]).verdict.names
    swapped = [[Tag(number=1 - t.number, p_H=t.p_H) for t in each if t.number < 2] for each in clip(6)[0]]
    found = fit(swapped)
    assert found.verdict.names == ("left-right-swapped",)
    assert (found.left, found.right) == (1, 0)
    with pytest.raises(InvalidValueError, match="seen are \\[7\\]"):
        fit(clip(7, lost=1.0)[0])
    with pytest.raises(InvalidValueError, match="wider than a closed one"):
        fit(clip(8)[0], width_open_m=0.0)


def test_tags_are_found_where_they_are_in_a_picture():
    camera = Pinhole(size=(480, 640), fx=400.0, fy=400.0, cx=319.5, cy=239.5)
    picture = np.full((480, 640), 255, np.uint8)
    marker = cv2.aruco.generateImageMarker(cv2.aruco.getPredefinedDictionary(DICTIONARIES["4X4_50"]), 3, 90)
    picture[200:290, 400:490] = marker
    (tag,) = find_tags(picture, camera, dictionary="4X4_50", tag_m=0.016)
    z = 0.016 * 400.0 / 90.0
    assert tag.number == 3
    np.testing.assert_allclose(tag.p_H, [(444.5 - 319.5) / 400 * z, (244.5 - 239.5) / 400 * z, z], atol=3e-4)
    with pytest.raises(InvalidValueError, match="images are"):
        find_tags(picture[:100], camera, dictionary="4X4_50", tag_m=0.016)


def turning(seed: int, *, axes: int = 3):
    """A device that turns: stamps and orientations of its camera, stamps and rates of its gyro."""
    rng = np.random.default_rng(seed)
    hz, phase = rng.uniform(0.2, 1.2, (2, 4, axes)) * np.array([1.0, 5.0])[:, None, None]
    size = rng.uniform(0.1, 0.3, (4, axes))

    def rotation(t: float) -> np.ndarray:
        vector = np.zeros(3)
        vector[:axes] = (size * np.sin(2 * np.pi * hz * t + phase)).sum(axis=0)
        return np.asarray(pin.exp3(vector))

    def rate(t: float) -> np.ndarray:
        return np.asarray(pin.log3(rotation(t - 5e-4).T @ rotation(t + 5e-4)) / 1e-3)

    return rotation, rate


@pytest.mark.parametrize("lag_s", [-0.04, 0.013])
def test_an_imu_is_joined_to_its_camera(lag_s: float, tmp_path) -> None:
    rotation, rate = turning(0)
    R_CI, bias = pin.exp3(np.array([0.3, -1.2, 2.0])), np.array([0.02, -0.01, 0.03])
    rng = np.random.default_rng(1)
    t_I, t_C = np.arange(0.0, 12.0, 0.005), np.arange(0.1, 11.9, 1 / 30)
    w_I = np.array([R_CI.T @ rate(t) + bias for t in t_I]) + rng.normal(0.0, 0.01, (len(t_I), 3))
    seen_ns, w_C = angular_velocity(
        np.round(1e9 * (t_C + lag_s)).astype(np.int64), np.array([rotation(t) for t in t_C])
    )
    found = join_camera_imu(seen_ns, w_C, np.round(1e9 * t_I).astype(np.int64), w_I)
    assert found.verdict.ok
    assert found.lag_s == pytest.approx(lag_s, abs=1e-3)
    assert np.rad2deg(np.linalg.norm(pin.log3(found.R_CI.T @ R_CI))) < 0.2
    np.testing.assert_allclose(found.bias, bias, atol=0.005)
    save(tmp_path / "imu.json", found)
    np.testing.assert_allclose(load(tmp_path / "imu.json", CameraImu).R_CI, found.R_CI, atol=1e-12)


def test_an_imu_that_turned_about_one_axis_or_is_another_s_is_refused():
    _, rate = turning(2, axes=1)
    t = np.arange(0.0, 10.0, 0.01)
    t_ns = np.round(1e9 * t).astype(np.int64)
    w = np.array([rate(each) for each in t])
    assert "little-rotation" in join_camera_imu(t_ns, w, t_ns, w).verdict.names
    other = np.random.default_rng(0).normal(size=w.shape)
    assert "does-not-follow" in join_camera_imu(t_ns, w, t_ns, other).verdict.names
    _, rate = turning(3)
    w = np.array([rate(each) for each in t])
    mirrored = w * np.array([1.0, -1.0, 1.0])
    assert "does-not-fit" in join_camera_imu(t_ns, w, t_ns, mirrored).verdict.names


def test_a_pose_in_a_table_that_is_not_finite_is_named_with_its_line(tmp_path, capsys):
    good = "1,0.1,0.2,0.3,1,0,0,0"
    for bad in (good.replace("0.2", "nan"), good.replace("1,", "inf,", 1)):
        (tmp_path / "poses.csv").write_text(f"t_ns,px,py,pz,qw,qx,qy,qz\n{good}\n{bad}\n")
        command = ["calibrate", "tcp", str(tmp_path / "poses.csv"), "--output", str(tmp_path / "tcp.json")]
        assert main(command) == 1
        assert "poses.csv, line 3: expected finite numbers" in capsys.readouterr().err
