import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.values.transforms import (
    compose_planar,
    integrate_twist,
    interpolate_planar,
    inverse_planar,
    pose_from_numbers,
    pose_to_numbers,
    quaternion_from_rotation,
    rotation_from_6d,
    rotation_to_6d,
    wrap_angle,
)

number = st.floats(-3.0, 3.0)
planar = st.tuples(number, number, number).map(np.array)
rotation_vector = st.tuples(number, number, number).map(np.array)


@given(planar, planar, planar)
def test_planar_poses_form_a_group(a, b, c):
    identity = np.zeros(3)
    left = compose_planar(compose_planar(a, b), c)
    right = compose_planar(a, compose_planar(b, c))
    np.testing.assert_allclose(left[:2], right[:2], atol=1e-12)
    assert abs(wrap_angle(left[2] - right[2])) < 1e-12
    np.testing.assert_allclose(compose_planar(a, inverse_planar(a))[:2], identity[:2], atol=1e-12)
    np.testing.assert_allclose(compose_planar(identity, a)[:2], a[:2])


@given(rotation_vector)
def test_six_numbers_give_the_rotation_back(v):
    R = pin.exp3(v)
    np.testing.assert_allclose(rotation_from_6d(rotation_to_6d(R)), R, atol=1e-12)


@given(st.lists(rotation_vector, min_size=1, max_size=5))
def test_rows_of_six_numbers_are_turned_as_each_by_itself(vectors):
    rows = np.array([1.3 * rotation_to_6d(pin.exp3(v)) for v in vectors])
    np.testing.assert_array_equal(rotation_from_6d(rows), [rotation_from_6d(row) for row in rows])


def test_a_degenerate_six_number_rotation_is_refused():
    with pytest.raises(ValueError, match="independent"):
        rotation_from_6d(np.array([1.0, 0, 0, 2.0, 0, 0]))


def test_yaw_goes_the_shorter_way_round():
    mid = interpolate_planar(np.array([0.0, 0.0, 3.0]), np.array([2.0, 4.0, -3.0]), 0.5)
    np.testing.assert_allclose(mid[:2], [1.0, 2.0])
    assert abs(abs(mid[2]) - np.pi) < 1e-9


@given(planar, planar)
def test_a_constant_twist_integrates_to_the_se2_exponential(x, twist):
    whole = integrate_twist(x, twist, 1.0)
    halves = integrate_twist(integrate_twist(x, twist, 0.5), twist, 0.5)
    np.testing.assert_allclose(whole[:2], halves[:2], atol=1e-9)
    assert abs(wrap_angle(whole[2] - halves[2])) < 1e-9


@given(rotation_vector, st.floats(0.9, 1.1))
def test_a_pose_survives_as_numbers_even_if_its_quaternion_is_not_quite_unit(vector, scale):
    X_AB = pin.SE3(pin.exp3(vector), vector)
    numbers = pose_to_numbers(X_AB)
    assert numbers[3] >= 0.0
    np.testing.assert_allclose(numbers[3:], quaternion_from_rotation(X_AB.rotation), atol=1e-12)
    scaled = (*numbers[:3], *(scale * x for x in numbers[3:]))
    assert pose_from_numbers(scaled).isApprox(X_AB, 1e-9)
