"""A hand's rotation as a rotation vector: declared, converted exactly, and without a jump at half a turn."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

import robot_runtime as rr
from policies.lerobot.names import fields_of
from robot_runtime.core.values.action import ActionChunk, ActionSpec
from robot_runtime.core.values.fields import (
    EndEffectorPose,
    Reference,
    Rotation,
    WorldEndEffectorPose,
    fields_from_dicts,
    fields_to_dicts,
)
from robot_runtime.core.values.mismatches import mismatches
from robot_runtime.core.values.pose_rows import (
    continued,
    rotation_vectors,
    rotations_from_vectors,
    rotations_to_columns,
)
from robot_runtime.core.values.schema import ArmSchema, Schema
from robot_runtime.core.values.state import ArmState, BaseState, RobotState
from robot_runtime.core.values.waypoints import Waypoints

PI = np.pi
coordinates = st.floats(-4.0 * PI, 4.0 * PI, allow_subnormal=False)
vectors = st.lists(st.tuples(coordinates, coordinates, coordinates), min_size=1, max_size=8).map(np.array)
small = st.floats(-0.2, 0.2, allow_subnormal=False)


def state() -> RobotState:
    X_BE = pin.SE3(pin.rpy.rpyToMatrix(3.0, 0.1, -1.0), np.array([0.4, 0.1, 0.3]))
    arm = ArmState(t_ns=0, q=np.zeros(7), dq=np.zeros(7), X_BE=X_BE)
    return RobotState(t_ns=0, parts={"arm": arm, "base": BaseState(t_ns=0, x_WB=np.array([1.0, 2.0, 0.5]))})


@given(vectors)
def test_vectors_become_the_rotations_of_the_exponential(v):
    R = rotations_from_vectors(v)
    expected = np.array([pin.exp3(each) for each in v])
    np.testing.assert_allclose(R, expected, atol=1e-12)


@given(vectors)
def test_rotations_are_the_same_after_a_round_trip(v):
    R = rotations_from_vectors(v)
    np.testing.assert_allclose(rotations_from_vectors(rotation_vectors(R)), R, atol=1e-12)
    columns = rotations_to_columns(R, Rotation.VECTOR)
    np.testing.assert_allclose(rotations_from_vectors(columns), R, atol=1e-12)


@given(
    st.tuples(coordinates, coordinates, coordinates).filter(lambda v: np.linalg.norm(v) > 0.1),
    st.lists(st.tuples(small, small, small), min_size=1, max_size=30),
)
def test_a_rotation_that_turns_on_slowly_has_no_jump_at_half_a_turn(start, steps):
    R = [pin.exp3(np.array(start) * PI / np.linalg.norm(start))]
    for each in steps:
        R.append(R[-1] @ pin.exp3(0.1 * np.array(each)))
    found = rotations_to_columns(np.array(R), Rotation.VECTOR)
    assert np.linalg.norm(np.diff(found, axis=0), axis=1).max(initial=0.0) < 0.5


def test_vectors_go_on_beyond_half_a_turn():
    angles = np.linspace(0.1, 5.5, 40)
    v = angles[:, None] * np.array([0.6, 0.0, 0.8])
    np.testing.assert_allclose(continued(rotation_vectors(rotations_from_vectors(v))), v, atol=1e-9)


@pytest.mark.parametrize("kind", [Rotation.COLUMNS, Rotation.VECTOR])
@pytest.mark.parametrize(
    "field",
    [*(EndEffectorPose(reference=each) for each in Reference), WorldEndEffectorPose()],
    ids=lambda f: getattr(getattr(f, "reference", None), "value", "world"),
)
@given(v=vectors)
def test_rows_are_the_same_targets_in_either_form_and_come_back(field, kind, v):
    field = replace(field, rotation=kind)
    spec = ActionSpec(fields=(field,), horizon=len(v), dt_ns=50_000_000)
    R = rotations_from_vectors(v)
    p = np.linspace(0.1, 0.3, 3 * len(v)).reshape(-1, 3)
    six = replace(field, rotation=Rotation.COLUMNS)
    plain = ActionSpec(fields=(six,), horizon=len(v), dt_ns=50_000_000)
    rows = np.column_stack([p, v if kind is Rotation.VECTOR else rotations_to_columns(R, kind)])
    expected = np.column_stack([p, rotations_to_columns(R, Rotation.COLUMNS)])

    def targets(of: ActionSpec, numbers: np.ndarray) -> Waypoints:
        chunk = ActionChunk(spec=of, rows=numbers, anchor=state(), request_id=0, epoch=0)
        return Waypoints.from_chunk(chunk)

    found, wanted = targets(spec, rows), targets(plain, expected)
    np.testing.assert_allclose(found.p_BE, wanted.p_BE, atol=1e-9)
    turns = [np.abs((a * b).sum(axis=1)) for a, b in [(found.quat_BE, wanted.quat_BE)]]
    np.testing.assert_allclose(turns[0], 1.0, atol=1e-9)
    again = targets(spec, found.encode(spec, state()))
    np.testing.assert_allclose(again.p_BE, found.p_BE, atol=1e-9)
    np.testing.assert_allclose(np.abs((again.quat_BE * found.quat_BE).sum(axis=1)), 1.0, atol=1e-9)


@pytest.mark.parametrize("field", [EndEffectorPose, WorldEndEffectorPose])
def test_it_is_declared_with_six_named_columns_and_read_back_from_plain_values(field):
    f = field(rotation=Rotation.VECTOR)
    assert f.column_names == ("arm.x", "arm.y", "arm.z", "arm.rx", "arm.ry", "arm.rz")
    [entry] = fields_to_dicts((f,))
    assert (entry["rotation"], entry["dim"]) == ("vector", 6)
    assert fields_from_dicts([entry]) == (f,)
    assert "rotation" not in fields_to_dicts((field(),))[0]
    with pytest.raises(ValueError, match="rpy"):
        fields_from_dicts([entry | {"rotation": "rpy"}])
    with pytest.raises(ValueError, match="has 6 columns, got 9"):
        fields_from_dicts([entry | {"dim": 9}])


def test_a_robot_that_takes_hand_poses_takes_them_in_either_form():
    def schema(rotation: Rotation) -> Schema:
        return Schema(action_fields=(EndEffectorPose(rotation=rotation),), parts={"arm": ArmSchema(7)})

    assert mismatches(robot=schema(Rotation.COLUMNS), policy=schema(Rotation.VECTOR)) == []


def test_a_lerobot_dataset_whose_actions_are_called_so_has_it():
    names = [*(f"arm.{name}" for name in ("x", "y", "z", "rx", "ry", "rz")), "gripper.width"]
    assert fields_of(names, Path())[0] == EndEffectorPose(rotation=Rotation.VECTOR)


def test_it_is_a_name_of_the_package():
    assert rr.Rotation is Rotation
