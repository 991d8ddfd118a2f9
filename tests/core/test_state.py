"""What drivers hand over: `RobotState` and `Image` keep what was measured, as plain numbers."""

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.plan.limits import Limits
from robot_runtime.core.state_watch import not_finite
from robot_runtime.core.values.state import ArmState, GripperState, Image, Observation, RobotState
from robot_runtime.errors import InvalidValueError

WIDTHS = (0.04, np.float64(0.04), np.float32(0.04), np.array(0.04), np.array([0.04]))


def test_a_state_stays_what_it_was_when_the_driver_measures_again_into_the_same_memory():
    q, x_WB, X_BE = np.zeros(7), np.zeros(3), pin.SE3.Identity()
    shown = q.view()
    shown.flags.writeable = False  # to us; not to the driver
    state = RobotState(t_ns=1, q=shown, dq=q, X_BE=X_BE, x_WB=x_WB, V_WB_B=x_WB)
    q[:], x_WB[:], X_BE.translation = 1.0, 1.0, np.ones(3)
    for numbers in (state.q, state.dq, state.x_WB, state.V_WB_B):
        assert not np.any(numbers)
    assert pin.SE3.Identity() == state.X_BE


def test_a_picture_stays_what_it_was_when_the_camera_fills_its_buffer_again():
    buffer = np.zeros((4, 6, 3), np.uint8)
    image = Image(t_ns=1, pixels=buffer[..., ::-1])
    buffer[:] = 255
    assert not image.pixels.any()
    assert not image.pixels.flags.writeable


def test_pixels_that_nobody_can_write_to_are_not_copied():
    pixels = np.frombuffer(bytes(4 * 6 * 3), np.uint8).reshape(4, 6, 3)
    assert Image(t_ns=1, pixels=pixels).pixels is pixels


def test_a_picture_of_numbers_that_could_be_nan_is_none():
    with pytest.raises(ValueError, match=r"an image is \(h, w, 3\) uint8, got \(4, 6, 3\) float32"):
        Image(t_ns=1, pixels=np.full((4, 6, 3), np.nan, np.float32))


@given(width=st.sampled_from(WIDTHS), t_ns=st.integers(0, 2**62))
def test_numbers_of_numpys_types_become_plain_ones(width, t_ns: int):
    state = RobotState(t_ns=np.int64(t_ns), q=np.zeros(1), dq=np.zeros(1), gripper_width=width)
    image = Image(t_ns=np.uint64(t_ns), pixels=np.zeros((1, 1, 3), np.uint8))
    assert (type(state.t_ns), type(image.t_ns), type(state.gripper_width)) == (int, int, float)
    assert (state.t_ns, image.t_ns) == (t_ns, t_ns)
    assert state.gripper_width == pytest.approx(0.04)


def test_a_stamp_in_seconds_and_two_fingers_for_a_width_are_refused_in_words():
    with pytest.raises(ValueError, match=r"whole nanoseconds, got 1\.5"):
        RobotState(t_ns=1.5, q=np.zeros(1), dq=np.zeros(1))
    with pytest.raises(ValueError, match=r"whole nanoseconds, got 1\.5"):
        Image(t_ns=1.5, pixels=np.zeros((1, 1, 3), np.uint8))
    for width in (np.zeros(2), "0.04"):
        with pytest.raises(ValueError, match=r"one number \[m\]"):
            RobotState(t_ns=1, q=np.zeros(1), dq=np.zeros(1), gripper_width=width)


def test_an_observation_says_which_camera_it_does_not_have_and_is_a_mapping_all_the_same():
    seen = Observation(state=RobotState(t_ns=0, parts={"arm": ArmState(q=np.zeros(2), dq=np.zeros(2))}))
    assert "front" not in seen.images
    assert seen.images.get("front") is None
    with pytest.raises(KeyError, match="no camera 'front' is shown, only none; a policy declares"):
        seen.images["front"]


def test_measured_numbers_that_are_none_are_named():
    q = np.array([0.0, np.nan, np.inf])
    parts = {"left_arm": ArmState(q=q, dq=np.zeros(3)), "left_gripper": GripperState(width=np.nan)}
    state = RobotState(t_ns=0, parts=parts, measured={"wrench": np.zeros(6)})
    assert not_finite(state) == "left_arm.q[1] = nan, left_arm.q[2] = inf, left_gripper.width = nan"


def test_limits_of_a_part_with_a_name_of_its_own_are_refused_with_what_takes_them():
    with pytest.raises(TypeError, match=r'Limits has no left_arm; .*Limits\(\{"left_arm": JointLimits'):
        Limits(left_arm=None)


def test_texts_in_a_state_are_refused_with_the_name_of_what_they_stand_in():
    for name in ("q", "dq", "x_WB", "V_WB_B"):
        numbers = {"q": np.zeros(3), "dq": np.zeros(3), name: ["a", "b", "c"]}
        with pytest.raises(
            InvalidValueError, match=rf"^{name} is an array of numbers, got \['a', 'b', 'c'\]"
        ):
            RobotState(t_ns=0, **numbers)
    with pytest.raises(InvalidValueError, match="wrench is an array of numbers, got 'strong'"):
        RobotState(t_ns=0, q=np.zeros(1), dq=np.zeros(1), measured={"wrench": "strong"})
