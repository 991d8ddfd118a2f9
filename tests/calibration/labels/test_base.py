"""The virtual base under a person: heading, pivot, and a path that a robot can go."""

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter1d

from calibration.labels.base import assumed_pivot, fit_pivot, heading, neutral_rotation
from calibration.labels.smoothing import Pace, Smoothing, smooth_path
from robot_runtime.core.values.transforms import wrap_angle
from robot_runtime.errors import InvalidValueError
from tests.calibration.labels.walk import CHEST_P_HIPS, PITCH, R_CAMERA, walk
from tests.examples import examples

angles = st.floats(-3.0, 3.0)
R_GC = pin.utils.rotate("y", PITCH) @ R_CAMERA
PERIOD_S = 0.05


@examples(40)
@given(yaw=angles, pitch=st.floats(-1.2, 1.2))
def test_heading_is_the_same_however_far_a_person_bends_forwards(yaw, pitch):
    R = pin.utils.rotate("z", yaw) @ pin.utils.rotate("y", pitch) @ R_GC
    found, _ = heading(R[None])
    assert wrap_angle(found[0] - yaw) == pytest.approx(0.0, abs=1e-9)


def test_three_ways_to_see_the_heading_agree_without_roll_and_differ_with_it():
    straight = pin.utils.rotate("z", 0.7) @ R_GC
    sideways = pin.utils.rotate("z", 0.7) @ pin.utils.rotate("x", 0.3) @ R_GC
    assert heading(straight[None])[1][0] == pytest.approx(0.0, abs=1e-9)
    assert heading(sideways[None])[1][0] > 0.05


def test_a_camera_that_stands_on_its_side_is_refused():
    R = R_GC @ pin.utils.rotate("z", np.pi / 2)
    with pytest.raises(InvalidValueError, match="turned by 90 degrees"):
        heading(R[None])


def leaning(seed: int = 0, twist: float = 0.4) -> tuple[np.ndarray, np.ndarray]:
    """Poses of the chest about hips that stand still."""
    rng = np.random.default_rng(seed)
    p, R = [], []
    for lean, roll, turn in rng.uniform(-1.0, 1.0, (200, 3)) * [0.4, 0.3, twist]:
        body = pin.utils.rotate("z", turn) @ pin.utils.rotate("y", lean) @ pin.utils.rotate("x", roll)
        p.append(body @ CHEST_P_HIPS + [1.0, 2.0, 0.9])
        R.append(body @ R_GC)
    return np.array(p), np.array(R)


def test_the_pivot_is_found_by_a_clip_in_which_a_person_leans_and_twists():
    p, R = leaning()
    pivot = fit_pivot([(p, R)], R_GC)
    np.testing.assert_allclose(pivot.d_C, R_GC.T @ -CHEST_P_HIPS, atol=2e-3)
    assert pivot.is_measured
    assert pivot.rms_m < 1e-3


@examples(10)
@given(seed=st.integers(0, 100))
def test_the_base_does_not_move_while_a_person_leans_with_feet_still(seed):
    pivot = fit_pivot([leaning(0)], R_GC)
    p, R = leaning(seed + 1)
    assert np.ptp(pivot.places(p, R)[:, :2], axis=0).max() < 0.004


def test_a_lean_that_is_too_shallow_is_no_measurement():
    p, R = leaning()
    pivot = fit_pivot([(p[:20] * 0 + p[0], np.repeat(R[:1], 20, axis=0))], R_GC)
    assert not pivot.is_measured
    np.testing.assert_allclose(pivot.d_C, assumed_pivot(R_GC).d_C, atol=1e-6)


def test_an_upright_person_is_the_median_of_what_the_chest_does():
    truth = walk(1, lean=0.2)
    np.testing.assert_allclose(neutral_rotation(truth.chest.R), R_GC, atol=0.05)


def steps_and_stands() -> np.ndarray:
    """Two seconds of standing, three of walking with sway, two of standing."""
    t = np.arange(0.0, 7.0, PERIOD_S)
    v = 0.6 * gaussian_filter1d(((t > 2.0) & (t < 5.0)).astype(float), 0.25 / PERIOD_S)
    sway = 0.02 * np.sin(2 * np.pi * 0.9 * t) * (v > 0.1)
    return np.column_stack([np.cumsum(v) * PERIOD_S, sway, np.zeros(len(t))])


def test_a_base_stands_exactly_where_a_person_stands():
    path, stands = smooth_path(steps_and_stands(), PERIOD_S, Smoothing())
    assert stands[:20].all()
    assert not stands[60:80].any()
    assert np.ptp(path[stands & (np.arange(len(path)) < 60)], axis=0).max() == 0.0


def test_sway_goes_and_the_way_stays_without_a_shift_in_time():
    x = steps_and_stands()
    path, _ = smooth_path(x, PERIOD_S, Smoothing(pace=None))
    walking = slice(65, 85)
    assert np.abs(path[walking, 1]).max() < 0.005
    assert np.abs(path[walking, 0] - x[walking, 0]).max() < 0.015


@examples(15)
@given(speed=st.floats(0.3, 2.0), acceleration=st.floats(0.5, 3.0))
def test_a_base_keeps_its_pace_however_fast_a_person_walks(speed, acceleration):
    pace = Pace(speed=speed, acceleration=acceleration)
    path, _ = smooth_path(steps_and_stands() * [2.0, 1.0, 1.0], PERIOD_S, Smoothing(pace=pace))
    v = np.diff(path[:, :2], axis=0) / PERIOD_S
    a = np.diff(v, axis=0) / PERIOD_S
    assert np.linalg.norm(v, axis=1).max() < 1.03 * speed
    assert np.linalg.norm(a, axis=1).max() < 1.03 * acceleration


@examples(15)
@given(yaw=angles, x=st.floats(-5, 5), y=st.floats(-5, 5))
def test_a_smoothed_path_turns_with_the_world(yaw, x, y):
    path = steps_and_stands()
    turn = pin.utils.rotate("z", yaw)[:2, :2]
    moved = np.column_stack([path[:, :2] @ turn.T + [x, y], path[:, 2] + yaw])
    smooth, _ = smooth_path(path, PERIOD_S, Smoothing())
    there, _ = smooth_path(moved, PERIOD_S, Smoothing())
    np.testing.assert_allclose(there[:, :2], smooth[:, :2] @ turn.T + [x, y], atol=2e-3)
    np.testing.assert_allclose(there[:, 2], smooth[:, 2] + yaw, atol=2e-3)


def test_numbers_that_are_no_pace_are_refused():
    with pytest.raises(InvalidValueError, match="above 0"):
        Pace(speed=0.0)
    with pytest.raises(InvalidValueError, match="cut_off_hz"):
        Smoothing(cut_off_hz=0.0)
