"""The clutch: whatever the leader's pose, the robot goes on from where it was commanded to be."""

import numpy as np
import pinocchio as pin
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.teleop.clutch import HandClutch, JointClutch, OpeningClutch

numbers = st.floats(-3.0, 3.0, allow_nan=False)


@st.composite
def poses(draw):
    v = np.array([draw(numbers) for _ in range(6)])
    return pin.SE3(pin.exp3(v[3:]), v[:3])


def hand_clutch(X_BE, X_LH, yaw=0.0, **scales):
    return HandClutch(X_BE=X_BE, X_LH=X_LH, R_BL=pin.utils.rotate("z", yaw), **scales)


@given(poses(), poses(), numbers, st.floats(0.1, 3.0))
def test_nothing_jumps_when_it_is_engaged(X_BE, X_LH, yaw, scale):
    first = hand_clutch(X_BE, X_LH, yaw, translation_scale=scale).target(X_LH)
    assert np.abs(first.homogeneous - X_BE.homogeneous).max() < 1e-9


@given(poses(), poses(), poses(), poses())
def test_what_the_leader_does_while_it_is_let_go_does_not_count(X_BE, X_1, X_2, X_3):
    held = hand_clutch(X_BE, X_1).target(X_2)
    again = hand_clutch(held, X_3).target(X_3)
    assert np.abs(again.homogeneous - held.homogeneous).max() < 1e-9


@given(poses(), poses(), st.floats(0.1, 3.0))
def test_the_hand_goes_as_far_as_the_scale_says_the_way_the_frames_are_turned(X_BE, X_LH, scale):
    clutch = hand_clutch(X_BE, X_LH, np.pi / 2, translation_scale=scale)
    ahead = pin.SE3(X_LH.rotation, X_LH.translation + np.array([0.1, 0.0, 0.0]))
    moved = clutch.target(ahead).translation - X_BE.translation
    np.testing.assert_allclose(moved, [0.0, 0.1 * scale, 0.0], atol=1e-9)


@given(poses(), poses())
def test_a_turn_of_the_leader_about_the_vertical_is_one_of_the_hand_about_itself(X_BE, X_LH):
    turn = pin.utils.rotate("z", 0.4)
    out = hand_clutch(X_BE, X_LH).target(pin.SE3(turn @ X_LH.rotation, X_LH.translation))
    np.testing.assert_allclose(out.rotation, turn @ X_BE.rotation, atol=1e-9)
    np.testing.assert_allclose(out.translation, X_BE.translation, atol=1e-12)


@given(poses(), poses(), poses())
def test_a_rotation_scale_of_zero_keeps_the_orientation(X_BE, X_LH, X_other):
    out = hand_clutch(X_BE, X_LH, rotation_scale=0.0).target(X_other)
    np.testing.assert_allclose(out.rotation, X_BE.rotation, atol=1e-12)


@given(st.lists(numbers, min_size=3, max_size=3), st.lists(numbers, min_size=3, max_size=3))
def test_joints_follow_by_as_much_and_their_offset_may_shrink_to_nothing(q, q_leader):
    q, q_leader = np.array(q), np.array(q_leader)
    clutch = JointClutch(q, q_leader)
    np.testing.assert_allclose(clutch.target(q_leader), q, atol=1e-12)
    np.testing.assert_allclose(clutch.target(q_leader + 0.2), q + 0.2, atol=1e-12)
    for _ in range(70):
        clutch.target(q_leader, align=0.1)
    np.testing.assert_allclose(clutch.target(q_leader), q_leader, atol=1e-12)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_gripper_starts_where_it_is_and_agrees_with_the_leader_after_a_whole_stroke(opening, leader):
    clutch = OpeningClutch(opening, leader)
    assert abs(clutch.target(leader) - opening) < 1e-12
    clutch.target(0.0)
    clutch.target(1.0)
    clutch.target(0.0)
    assert clutch.target(0.37) == 0.37
