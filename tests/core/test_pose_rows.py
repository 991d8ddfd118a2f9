"""Many rows at once are as each by itself."""

import numpy as np
import pinocchio as pin
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.values.pose_rows import (
    quaternions_from_rotations,
    rotation_vectors,
    rotations_from_quaternions,
    slerp_rows,
    turns_about_vertical,
)
from robot_runtime.core.values.transforms import (
    compose_planar,
    interpolate_planar,
    pose_from_planar,
    pose_from_quaternion,
    quaternion_from_rotation,
    rotation_to_6d,
)

axes = st.tuples(*[st.floats(-1.0, 1.0)] * 3).filter(lambda v: np.linalg.norm(v) > 1e-3).map(np.array)
angles = st.one_of(st.floats(-np.pi, np.pi), st.sampled_from([0.0, 1e-12, 1e-7, np.pi - 1e-7, np.pi]))
rotations = st.builds(lambda axis, angle: pin.exp3(axis / np.linalg.norm(axis) * angle), axes, angles)
planar = st.tuples(*[st.floats(-3.0, 3.0)] * 3).map(np.array)
shares = st.floats(0.0, 1.0)


def quaternions(Rs):
    return np.array([quaternion_from_rotation(R) for R in Rs])


@given(st.lists(rotations, min_size=1, max_size=5))
def test_rotations_and_quaternions_are_two_ways_to_say_the_same(Rs):
    quats = quaternions_from_rotations(np.array(Rs))
    assert (quats[:, 0] >= 0).all()
    np.testing.assert_allclose(np.abs((quats * quaternions(Rs)).sum(axis=1)), 1.0, atol=1e-12)
    np.testing.assert_allclose(rotations_from_quaternions(2.0 * quats), Rs, atol=1e-9)


@given(st.lists(rotations, min_size=1, max_size=5))
def test_a_rotation_vector_turns_about_its_axis_by_its_length(Rs):
    vectors = rotation_vectors(np.array(Rs))
    assert (np.linalg.norm(vectors, axis=1) <= np.pi + 1e-9).all()
    np.testing.assert_allclose([pin.exp3(v) for v in vectors], Rs, atol=1e-7)


@given(st.lists(rotations, min_size=1, max_size=5))
def test_six_numbers_of_many_rows_are_those_of_each(Rs):
    np.testing.assert_array_equal(rotation_to_6d(np.array(Rs)), [rotation_to_6d(R) for R in Rs])


@given(st.lists(st.tuples(rotations, rotations, shares), min_size=1, max_size=5))
def test_geodesics_of_many_rows_are_those_of_each(rows):
    R_0, R_1, alpha = zip(*rows, strict=True)
    quats_0, quats_1 = quaternions(R_0), quaternions(R_1)
    mixed = slerp_rows(quats_0, quats_1, np.array(alpha))
    each = [R0 @ pin.exp3(x * pin.log3(R0.T @ R1)) for R0, R1, x in rows]
    is_half_turn = np.abs((quats_0 * quats_1).sum(axis=1)) < 1e-6  # both ways round are equally short
    same = np.abs((mixed * quaternions(each)).sum(axis=1))
    np.testing.assert_allclose(same[~is_half_turn], 1.0, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(mixed, axis=1), 1.0, atol=1e-12)


@given(planar, st.lists(st.tuples(planar, planar, shares), min_size=1, max_size=5))
def test_planar_poses_of_many_rows_are_those_of_each(x, rows):
    rows_0, rows_1, alpha = (np.array(column) for column in zip(*rows, strict=True))
    np.testing.assert_array_equal(compose_planar(x, rows_0), [compose_planar(x, row) for row in rows_0])
    each = [interpolate_planar(*row) for row in rows]
    np.testing.assert_array_equal(interpolate_planar(rows_0, rows_1, alpha), each)
    turns = [pose_from_planar(row).rotation for row in rows_0]
    np.testing.assert_allclose(turns_about_vertical(rows_0[:, 2]), turns, atol=1e-15)


@given(rotations, planar)
def test_a_quaternion_turns_a_point_as_pinocchio_has_it(R, p):
    X = pose_from_quaternion(np.zeros(3), quaternion_from_rotation(R))
    turned = rotations_from_quaternions(quaternion_from_rotation(R)[None])[0] @ p
    np.testing.assert_allclose(turned, X.act(p), atol=1e-12)
