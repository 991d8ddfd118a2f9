from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.values.action import (
    ActionChunk,
    ActionSpec,
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
    Reference,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.mismatches import mismatches
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import pose_from_planar, pose_from_quaternion, rotation_to_6d
from robot_runtime.core.values.waypoints import Waypoints

references = st.sampled_from(list(Reference))
arms = st.one_of(
    st.builds(JointPosition, st.integers(1, 7), references),
    st.builds(EndEffectorPose, references),
    st.just(WorldEndEffectorPose()),
)
bases = st.one_of(st.builds(BasePose, references), st.just(BaseTwist()))
specs = st.builds(
    lambda arm, base, gripper, horizon: ActionSpec(
        fields=tuple(f for f in (arm, base, gripper) if f is not None), horizon=horizon, dt_ns=50_000_000
    ),
    arms,
    st.one_of(st.none(), bases),
    st.one_of(st.none(), st.just(GripperWidth())),
    st.integers(1, 6),
)


def random_rows(spec: ActionSpec, rng: np.random.Generator) -> np.ndarray:
    rows = rng.uniform(-0.5, 0.5, (spec.horizon, spec.dim))
    for f, columns in spec.columns():
        if isinstance(f, EndEffectorPose | WorldEndEffectorPose):
            for row in rows:
                row[columns.start + 3 : columns.stop] = rotation_to_6d(pin.exp3(rng.normal(0, 0.4, 3)))
    return rows


def random_state(num_joints: int, rng: np.random.Generator) -> RobotState:
    return RobotState(
        t_ns=0,
        q=rng.normal(size=num_joints),
        dq=np.zeros(num_joints),
        X_BE=pin.SE3(pin.exp3(rng.normal(0, 0.5, 3)), rng.normal(size=3)),
        gripper_width=0.04,
        x_WB=np.array([*rng.normal(size=2), rng.uniform(-2.0, 2.0)]),  # less than half a turn from any row
        V_WB_B=np.zeros(3),
    )


@given(specs, st.integers(0, 2**20))
def test_encoding_absolute_targets_gives_the_policys_rows_back(spec, seed):
    rng = np.random.default_rng(seed)
    joints = next((f.num_joints for f in spec.fields if isinstance(f, JointPosition)), 3)
    anchor, rows = random_state(joints, rng), random_rows(spec, rng)
    chunk = ActionChunk(spec=spec, rows=rows, anchor=anchor, request_id=0, epoch=0)
    np.testing.assert_allclose(Waypoints.from_chunk(chunk).encode(spec, anchor), rows, atol=1e-9)


@given(st.floats(-np.pi, np.pi), st.floats(-np.pi, np.pi))
def test_a_base_told_in_the_world_is_told_at_most_half_a_turn_from_where_it_is(measured, planned):
    """A policy tells how rows differ from there; one a whole turn away would be another number."""
    spec = ActionSpec(fields=(BasePose(),), horizon=1, dt_ns=1)
    anchor = replace(random_state(0, np.random.default_rng(0)), x_WB=np.array([0.0, 0.0, measured]))
    row = Waypoints(x_WB=np.array([[1.0, 2.0, planned]])).encode(spec, anchor)[0]
    assert abs(row[2] - measured) <= np.pi + 1e-9
    np.testing.assert_allclose(np.exp(1j * row[2]), np.exp(1j * planned), atol=1e-9)


@given(specs)
def test_a_spec_survives_the_wire(spec):
    assert ActionSpec.from_dict(spec.to_dict()) == spec


def test_delta_rows_add_up_from_the_observation():
    spec = ActionSpec(fields=(JointPosition(1, Reference.DELTA),), horizon=3, dt_ns=1)
    anchor = RobotState(t_ns=0, q=np.array([10.0]), dq=np.zeros(1))
    chunk = ActionChunk(spec=spec, rows=np.array([[1.0], [2.0], [3.0]]), anchor=anchor, request_id=0, epoch=0)
    np.testing.assert_allclose(Waypoints.from_chunk(chunk).q[:, 0], [11.0, 13.0, 16.0])


def test_relative_hand_rows_are_composed_with_the_hand_at_the_observation():
    rng = np.random.default_rng(0)
    spec = ActionSpec(fields=(EndEffectorPose(Reference.RELATIVE),), horizon=2, dt_ns=1)
    anchor, rows = random_state(0, rng), random_rows(spec, rng)
    waypoints = Waypoints.from_chunk(ActionChunk(spec=spec, rows=rows, anchor=anchor, request_id=0, epoch=0))
    np.testing.assert_allclose(waypoints.p_BE[1], anchor.X_BE.act(rows[1, :3]), atol=1e-12)


def test_hands_in_the_world_are_put_into_the_base_that_their_own_row_has():
    rng = np.random.default_rng(1)
    fields = (BasePose(Reference.RELATIVE), WorldEndEffectorPose())
    spec = ActionSpec(fields=fields, horizon=3, dt_ns=1)
    anchor, rows = random_state(0, rng), random_rows(spec, rng)
    waypoints = Waypoints.from_chunk(ActionChunk(spec=spec, rows=rows, anchor=anchor, request_id=0, epoch=0))
    for i in range(3):
        X_BE = pose_from_quaternion(waypoints.p_BE[i], waypoints.quat_BE[i])
        X_WE = pose_from_planar(waypoints.x_WB[i]) * X_BE
        np.testing.assert_allclose(X_WE.translation, rows[i, 3:6], atol=1e-12)
        np.testing.assert_allclose(rotation_to_6d(X_WE.rotation), rows[i, 6:], atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_chunk_with_a_number_that_is_none_is_refused(bad):
    spec = ActionSpec(fields=(JointPosition(1),), horizon=2, dt_ns=1)
    anchor = RobotState(t_ns=0, q=np.zeros(1), dq=np.zeros(1))
    with pytest.raises(ValueError, match="NaN or infinite"):
        ActionChunk(spec=spec, rows=np.array([[0.0], [bad]]), anchor=anchor, request_id=7, epoch=0)


def test_a_chunk_of_another_shape_is_refused_with_both_shapes():
    spec = ActionSpec(fields=(JointPosition(2),), horizon=4, dt_ns=1)
    anchor = RobotState(t_ns=0, q=np.zeros(2), dq=np.zeros(2))
    with pytest.raises(ValueError, match=r"1 to 4 rows of 2 numbers, got an array of shape \(4, 3\)"):
        ActionChunk(spec=spec, rows=np.zeros((4, 3)), anchor=anchor, request_id=7, epoch=0)


def test_two_arm_fields_in_a_spec_are_refused():
    with pytest.raises(ValueError, match="at most one field each"):
        ActionSpec(fields=(JointPosition(7), EndEffectorPose()), horizon=1, dt_ns=1)


def test_a_schema_mismatch_names_both_sides():
    common = {"has_gripper": True, "has_base": False}
    robot = Schema(action_fields=(JointPosition(7),), num_joints=7, cameras={"wrist": (224, 224)}, **common)
    policy = Schema(action_fields=(JointPosition(6),), num_joints=6, cameras={"chest": (480, 640)}, **common)
    text = " / ".join(mismatches(robot=robot, policy=policy))
    assert "arm joints: the robot has 7, the policy needs 6" in text
    assert "camera 'chest': the policy needs it, the robot has wrist" in text
    assert mismatches(robot=robot, policy=robot) == []


def test_a_policy_may_count_from_elsewhere_than_the_robot_but_not_move_other_parts():
    common = {"num_joints": 7, "has_gripper": True, "has_base": True}
    fields = (BasePose(Reference.RELATIVE), EndEffectorPose(), GripperWidth())
    robot = Schema(action_fields=fields, **common)
    in_world = Schema(action_fields=(WorldEndEffectorPose(), GripperWidth(), BasePose()), **common)
    assert mismatches(robot=robot, policy=in_world) == []
    by_twist = Schema(action_fields=(BaseTwist(), EndEffectorPose(), GripperWidth()), **common)
    (text,) = mismatches(robot=robot, policy=by_twist)
    assert text == "base: the robot takes base poses, the policy gives base twists"
