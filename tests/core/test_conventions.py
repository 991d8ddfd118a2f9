"""What DROID, LIBERO, ALOHA, UMI, GR00T and LeRobot's arms send comes out as ours, by real key names."""

import math

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.values.conventions import (
    CONVENTIONS,
    Linear,
    Rotation6d,
    convention_named,
    convention_of,
)
from robot_runtime.core.values.transforms import rotation_from_6d, rotation_to_6d
from robot_runtime.errors import InvalidValueError

STROKE_M = 0.08
SENT = {
    "droid": ("observation/exterior_image_1_left", "observation/wrist_image_left",
              "observation/joint_position", "observation/gripper_position", "prompt"),
    "libero": ("observation/image", "observation/wrist_image", "observation/state", "prompt"),
    "aloha": ("cam_high", "cam_low", "cam_left_wrist", "cam_right_wrist", "state", "prompt"),
    "umi": ("camera0_rgb", "robot0_eef_pos", "robot0_eef_rot_axis_angle", "robot0_gripper_width"),
    "groot": ("video/exterior_image_1_left", "state/eef_9d", "state/gripper_position"),
    "so101": ("shoulder_pan.pos", "shoulder_lift.pos", "elbow_flex.pos", "wrist_flex.pos",
              "wrist_roll.pos", "gripper.pos"),
}  # fmt: skip


@pytest.mark.parametrize("name", SENT)
def test_a_convention_is_known_by_the_keys_that_its_robots_send(name):
    assert convention_of(SENT[name]) == name


def test_keys_that_nobody_uses_or_that_contradict_each_other_name_no_convention():
    assert convention_of(("state", "prompt")) is None
    assert convention_of(("observation/gripper_position", "robot0_gripper_width")) is None


@pytest.mark.parametrize(
    ("name", "closed", "half", "opened"),
    [
        ("si", 0.0, 0.04, 0.08),
        ("droid", 1.0, 0.5, 0.0),
        ("rlds", 0.0, 0.5, 1.0),
        ("aloha", 0.0, 0.5, 1.0),
        ("umi", 0.0, 0.04, 0.08),
        ("groot", 1.0, 0.5, 0.0),
        ("so101", 0.0, 50.0, 100.0),
    ],
)
def test_a_gripper_opens_where_they_say_it_does(name, closed, half, opened):
    convention = convention_named(name)
    for number in (convention.gripper_state, convention.gripper_action):
        width = number.to_width(STROKE_M)
        assert [width.ours(x) for x in (closed, half, opened)] == pytest.approx([0.0, 0.04, 0.08])
        assert [width.theirs(x) for x in (0.0, 0.04, 0.08)] == pytest.approx([closed, half, opened])


def test_libero_measures_each_finger_and_closes_with_one():
    libero = convention_named("libero")
    state, action = libero.gripper_state.to_width(STROKE_M), libero.gripper_action.to_width(STROKE_M)
    assert [state.ours(x) for x in (0.0, 0.04)] == pytest.approx([0.0, 0.08])
    assert [action.ours(x) for x in (1.0, -1.0)] == pytest.approx([0.0, 0.08])


def test_degrees_are_declared():
    assert convention_named("so101").rad == math.pi / 180.0
    assert all(c.rad == 1.0 for name, c in CONVENTIONS.items() if name != "so101")


@pytest.mark.parametrize("scale", [0.0, math.nan, math.inf, 1e-300])
def test_a_scale_that_cannot_be_undone_is_refused(scale):
    with pytest.raises(InvalidValueError, match="finite and not 0"):
        Linear(scale=scale)


@pytest.mark.parametrize("stroke_m", [0.0, -0.08, math.nan, math.inf, 80.0])
def test_a_stroke_that_no_gripper_has_is_refused(stroke_m):
    with pytest.raises(InvalidValueError, match="stroke"):
        convention_named("droid").gripper_state.to_width(stroke_m)


def test_an_unknown_convention_is_refused_with_the_names_of_those_there_are():
    with pytest.raises(InvalidValueError, match="droid, libero"):
        convention_named("kuka")


@given(st.tuples(*3 * [st.floats(-3.0, 3.0)]).map(np.array))
def test_each_layout_of_a_rotation_comes_out_as_the_rotation(rotation_vector):
    R = pin.exp3(rotation_vector)
    sent = {
        Rotation6d.COLUMNS: np.concatenate([R[:, 0], R[:, 1]]),
        Rotation6d.ROWS: R[:2].flatten(),  # diffusion_policy/common, mat_to_rot6d; GR00T's eef_9d
        Rotation6d.INTERLEAVED: R[:, :2].flatten(),  # X-VLA
    }
    for layout, numbers in sent.items():
        columns = layout.to_columns(numbers)
        assert rotation_from_6d(columns) == pytest.approx(R, abs=1e-9)
        assert layout.from_columns(rotation_to_6d(R)) == pytest.approx(numbers, abs=1e-9)


def test_thirty_degrees_of_umi_turn_the_way_they_were_meant():
    R = pin.exp3(np.array([0.0, 0.0, math.radians(30.0)]))
    umi = convention_named("umi").rotation
    assert umi is not None
    turned = pin.log3(rotation_from_6d(umi.to_columns(R[:2].flatten())))
    assert math.degrees(turned[2]) == pytest.approx(30.0)
