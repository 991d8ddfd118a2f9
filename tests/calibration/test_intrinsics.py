"""A camera's numbers are found, and views that cannot say them are refused by name."""

import itertools
from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.camera import KannalaBrandt, Pinhole
from calibration.coverage import SIDES, Tilt, coverage_picture, is_other, lacking, tilt_of
from calibration.intrinsics import calibrate, most_different
from robot_runtime.errors import InvalidValueError
from tests.calibration.board_views import BOARD, FISHEYE, PINHOLE, corners_from, seen_from


def shown(camera, num, *, tilts=(0.1, 0.8), noise_px=0.05, seed=0, spread=(0.05, 0.95), far=None):
    rng = np.random.default_rng(seed)
    near = far or ((0.25, 0.5) if camera is PINHOLE else (0.12, 0.3))
    views = []
    while len(views) < num:
        X_CB = seen_from(
            camera, BOARD, rng, distance_m=rng.uniform(*near), tilt=rng.uniform(*tilts), places=spread
        )
        corners = corners_from(camera, BOARD, X_CB, rng, noise_px=noise_px)
        if len(corners) > 12:
            views.append(corners)
    return views


@pytest.mark.parametrize(
    ("camera", "model", "kind"), [(PINHOLE, "pinhole", Pinhole), (FISHEYE, "fisheye", KannalaBrandt)]
)
def test_a_camera_is_found_to_a_thousandth(camera, model, kind):
    found = calibrate(BOARD, shown(camera, 18), model)
    got = found.intrinsics.camera
    assert isinstance(got, kind)
    assert abs(got.fx / camera.fx - 1) < 1e-3
    assert abs(got.fy / camera.fy - 1) < 1e-3
    assert np.hypot(got.cx - camera.cx, got.cy - camera.cy) < 0.3  # pixels
    assert found.intrinsics.residuals["rms_px"] < 0.15
    assert found.intrinsics.residuals["focal_repeat_share"] < 3e-3
    assert found.intrinsics.verdict.ok, str(found.intrinsics.verdict)


@pytest.mark.long
@pytest.mark.parametrize(("camera", "model"), [(PINHOLE, "pinhole"), (FISHEYE, "fisheye")])
def test_views_parallel_to_the_picture_are_refused_whatever_focal_length_fits_them(camera, model):
    rng = np.random.default_rng(0)
    views = []
    while len(views) < 14:
        ray = camera.unproject((rng.uniform(0.1, 0.9, 2) * camera.size[::-1])[None])[0]
        side, far = rng.uniform(-np.pi, np.pi), rng.uniform(0.1, 0.3)
        tilt = np.deg2rad(rng.uniform(0, 4)) * np.array([np.cos(side), np.sin(side), 0.0])
        R = pin.exp3(np.array([0.0, 0.0, rng.uniform(-0.5, 0.5)])) @ pin.exp3(tilt)
        X_CB = pin.SE3(R, ray / ray[2] * far - R @ BOARD.centre_B)
        corners = corners_from(camera, BOARD, X_CB, rng, noise_px=0.1)
        if len(corners) > 12:
            views.append(corners)
    found = calibrate(BOARD, views, model).intrinsics
    assert not found.verdict.ok
    assert {"frontal-views", "focal-uncertain"} <= set(found.verdict.names)
    assert np.rad2deg(found.residuals["tilt_median_rad"]) < 5
    assert 0.1 < found.camera.fx / camera.size[1] < 3  # it does not run away


@pytest.mark.long
def test_views_square_to_the_line_of_sight_are_refused():
    verdict = calibrate(BOARD, shown(PINHOLE, 14, tilts=(0.0, 0.15), noise_px=0.2)).intrinsics.verdict
    assert not verdict.ok
    assert "focal-uncertain" in verdict.names


@given(
    tilt=st.floats(0.0, np.pi / 2),
    side=st.floats(-np.pi, np.pi),
    roll=st.floats(-np.pi, np.pi),
    is_from_behind=st.booleans(),
    x_m=st.floats(-1.0, 1.0),
)
def test_a_board_s_tilt_is_its_normal_s_angle_to_the_optical_axis_whichever_way_it_points(
    tilt, side, roll, is_from_behind, x_m
):
    R = pin.exp3(tilt * np.array([np.cos(side), np.sin(side), 0.0])) @ pin.exp3(np.array([0.0, 0.0, roll]))
    if is_from_behind:
        R = R @ np.diag([1.0, -1.0, -1.0])
    assert tilt_of(pin.SE3(R, np.array([x_m, 0.2, 0.5]))) == pytest.approx(tilt, abs=1e-6)


def test_a_board_in_the_middle_only_covers_too_little():
    views = shown(PINHOLE, 14, spread=(0.48, 0.52), far=(1.0, 1.3))
    verdict = calibrate(BOARD, views).intrinsics.verdict
    assert "coverage" in verdict.names
    assert not verdict.ok


NARROW_FISHEYE = KannalaBrandt(size=(360, 480), fx=240.0, fy=240.0, cx=241.0, cy=178.0, k1=0.01, k2=-0.002)
"""110 degrees wide, which a pinhole's distortion nearly fits."""


@pytest.mark.long
def test_a_fisheye_that_is_taken_for_a_pinhole_is_said():
    found = calibrate(BOARD, shown(NARROW_FISHEYE, 14, noise_px=0.1), "pinhole").intrinsics
    assert found.residuals["rms_px"] < 1.0
    reason = next(each for each in found.verdict.reasons if each.name == "wrong-model")
    assert reason.is_fatal
    assert "--model fisheye" in reason.do


def test_pictures_of_two_sizes_and_too_few_are_refused():
    views = shown(PINHOLE, 10)
    with pytest.raises(InvalidValueError, match="2 sizes, 240x180 and 480x360"):
        calibrate(BOARD, [*views, replace(views[0], size=(180, 240))])
    with pytest.raises(
        InvalidValueError, match="3 of 3 images show the board sharply, by 10 corners: at least 12"
    ):
        calibrate(BOARD, views[:3])
    with pytest.raises(InvalidValueError, match="1 of 10 images"):
        calibrate(
            BOARD, [*(replace(view, blur_px=4.0) for view in views[1:]), replace(views[0], blur_px=1.0)]
        )


def test_corners_that_are_far_off_change_nothing():
    views = shown(PINHOLE, 12)
    bad = views[3].uv.copy()
    bad[5] += (25.0, -10.0)
    found = calibrate(BOARD, [*views[:3], replace(views[3], uv=bad), *views[4:]])
    assert abs(found.intrinsics.camera.fx / PINHOLE.fx - 1) < 1e-3
    assert found.intrinsics.residuals["rms_px"] < 0.15


def tilts(angle: float, num: int) -> list[Tilt]:
    """To all sides in turn."""
    return [Tilt(angle=angle, nearer=side) for side in itertools.islice(itertools.cycle(SIDES), num)]


def test_what_is_lacking_is_said_until_there_is_enough():
    views = shown(PINHOLE, 40)
    assert "whole board" in lacking([], [])
    assert "tilt" in lacking(views[:6], tilts(0.1, 6))
    top = [view for view in views if view.uv[:, 1].max() < 250]
    assert "bottom" in lacking(top, tilts(0.6, len(top)))
    assert lacking(views, tilts(0.6, 40)) == ""
    to_one_side = [Tilt(angle=0.6, nearer="upper")] * 40
    assert "its right edge in the image nearest (40 of 40 are tilted)" in lacking(views, to_one_side)
    assert not is_other(views[0], views[:1])
    assert is_other(views[1], views[:1])
    assert len(most_different(views, 10)) == 10
    assert coverage_picture(views, [np.zeros((len(v), 2)) for v in views], ["a line"]).shape[1] == 960


def test_the_picture_of_coverage_has_a_scale_of_its_colours_and_of_its_greys():
    rng = np.random.default_rng(0)
    X_CB = seen_from(PINHOLE, BOARD, rng, distance_m=0.4, tilt=0.5)
    views = [corners_from(PINHOLE, BOARD, X_CB, rng, noise_px=0.1)]
    off = [np.column_stack([np.linspace(0.0, 1.0, len(views[0])), np.zeros(len(views[0]))])]
    below = coverage_picture(views, off, [])[720:].reshape(-1, 3).astype(int)
    shown = {tuple(pixel) for pixel in below.tolist()}
    assert {(235, 235, 235), (170, 170, 170)} <= shown  # cells with corners, and without
    red, _, blue = below[np.ptp(below, axis=1) > 50].T
    assert red.max() > 240
    assert blue.max() > 240
    unknown = coverage_picture(views, [np.zeros((len(views[0]), 2))], [])[720:]
    assert np.ptp(unknown.astype(int), axis=2).max() == 0
