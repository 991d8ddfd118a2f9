"""What drivers hand over: `RobotState` and `Image` keep what was measured, as plain numbers."""

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.values.state import Image, RobotState

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
