from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from msgspec import structs

from policies.flow.features import (
    MAX_SIGMA,
    MIN_STD,
    NEAR,
    FeatureConfig,
    Normaliser,
    state_features,
    turns_in_features,
    turns_in_rows,
)
from robot_runtime.core.values.action import (
    ActionSpec,
    BasePose,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
    Reference,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.row_statistics import row_origin
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, Schema
from robot_runtime.core.values.state import ArmState, BaseState, GripperState, Observation, RobotState
from tests.policies.toy import SCHEMA, SPEC, make_observation

TOLERANCE = 1e-9  # rad or m: float64 rounding of numbers up to 10, divided by deviations down to 1e-3

numbers = st.floats(-10.0, 10.0)


@given(
    samples=arrays(np.float64, (4, SPEC.horizon, SPEC.dim), elements=numbers),
    prefix=arrays(np.float64, (3, SPEC.dim), elements=numbers),
    seed=st.integers(0, 100),
)
def test_rows_survive_normalising_and_back(samples: np.ndarray, prefix: np.ndarray, seed: int) -> None:
    normaliser, origin = Normaliser.fit(samples), row_origin(SPEC, make_observation(seed).state)
    there = normaliser.normalise(prefix - origin)
    np.testing.assert_allclose(normaliser.restore(there) + origin, prefix, atol=TOLERANCE)


def test_a_column_that_never_moves_gets_the_smallest_deviation() -> None:
    assert Normaliser.fit(np.ones((5, 2, 1))).std.tolist() == [[MIN_STD], [MIN_STD]]


@pytest.mark.parametrize("sees_joints", [True, False])
def test_a_hand_that_hardly_turned_is_not_far_from_training_once_it_leans(sees_joints: bool) -> None:
    config = FeatureConfig(use_joints=sees_joints)

    def seen(lean: float) -> np.ndarray:
        state = RobotState(
            t_ns=0,
            q=np.zeros(7),
            dq=np.zeros(7),
            X_BE=pin.SE3(pin.exp3(np.array([lean, 0.0, 0.0])), np.ones(3)),
            gripper_width=0.04,
        )
        return state_features(Observation(state=state, environment_state=np.zeros(2)), SCHEMA, config)

    turns = turns_in_features(SCHEMA, config)
    np.testing.assert_array_equal(seen(0.08)[turns[0]], [1, 0, 0, 0, np.cos(0.08), np.sin(0.08)])
    noisy = np.array([seen(1e-3 * z) for z in np.random.default_rng(0).normal(size=50)])
    leaning = Normaliser.fit(noisy, turns=turns).features(seen(0.08))
    assert np.abs(leaning[turns[0]]).max() < 3.0


def test_the_turns_of_hands_are_found_in_rows_wherever_the_hands_stand() -> None:
    fields = (BasePose(), EndEffectorPose(part="left"), GripperWidth(), EndEffectorPose(part="right"))
    turns = turns_in_rows(ActionSpec(fields=fields, horizon=2, dt_ns=50_000_000))
    assert turns == [slice(6, 12), slice(16, 22)]


def test_features_far_from_all_training_are_clipped() -> None:
    normaliser = Normaliser.fit(np.random.default_rng(0).normal(size=(100, 3)))
    assert np.abs(normaliser.features(np.array([1e6, -1e6, 0.0]))).max() == MAX_SIGMA


def test_only_absolute_joint_columns_are_counted_from_the_measured_joints() -> None:
    state = make_observation(0).state
    np.testing.assert_array_equal(row_origin(SPEC, state), [*state.q, 0.0])
    relative = ActionSpec(fields=(JointPosition(7, Reference.RELATIVE),), horizon=2, dt_ns=1)
    assert not row_origin(relative, state).any()


def test_features_are_joints_gripper_hand_and_scene_in_that_order() -> None:
    observation = make_observation(0)
    features = state_features(observation, SCHEMA, FeatureConfig())
    hand = [0, 0, 0, 1, 0, 0, 0, 1, 0]
    np.testing.assert_array_equal(
        features, [*observation.state.q, 0.04, *hand, *observation.state.dq, *observation.environment_state]
    )


def mobile_observation() -> Observation:
    observation = make_observation(0)
    base = {"x_WB": np.array([1.0, 2.0, 0.3]), "V_WB_B": np.array([0.1, 0.2, 0.3])}
    return structs.replace(observation, state=replace(observation.state, **base))


def test_of_a_mobile_base_only_its_motion_is_seen() -> None:
    observation, schema = mobile_observation(), replace(SCHEMA, has_base=True)
    features = state_features(observation, schema, FeatureConfig())
    on_a_table = state_features(observation, SCHEMA, FeatureConfig())
    np.testing.assert_array_equal(features, [*on_a_table[:-2], 0.1, 0.2, 0.3, *on_a_table[-2:]])
    still = structs.replace(observation, state=replace(observation.state, V_WB_B=None))
    with pytest.raises(ValueError, match="base's twist V_WB_B"):
        state_features(still, schema, FeatureConfig())


def test_points_are_seen_from_the_hand_too_up_to_where_it_does_not_matter() -> None:
    observation = mobile_observation()
    near, far = np.array([0.01, -0.02, 0.03]), np.array([5.0, -5.0, 0.0])
    scene = np.array([*near, 1.0, 2.0, *far, 0.5])
    schema = replace(SCHEMA, has_base=True, environment_state_dim=9)
    features = state_features(
        structs.replace(observation, environment_state=scene), schema, FeatureConfig(points=(3, 2, 3))
    )
    p = observation.state.X_BE.translation
    np.testing.assert_array_equal(features[-9:], scene)
    np.testing.assert_allclose(features[-15:-12], near - p, atol=1e-3)
    np.testing.assert_allclose(features[-12:-9], [NEAR, -NEAR, 0.0], atol=1e-3)


def test_a_policy_that_tells_the_hand_in_the_world_sees_where_it_is_there() -> None:
    observation, schema = mobile_observation(), replace(SCHEMA, has_base=True)
    features = state_features(observation, schema, FeatureConfig(use_world_pose=True))
    p_WE = [1.0, 2.0, 0.0]  # the toy's hand is in the middle of its base
    np.testing.assert_allclose(features[-9:-2], [1.0, 2.0, np.cos(0.3), np.sin(0.3), *p_WE])
    lost = structs.replace(observation, state=replace(observation.state, x_WB=None))
    with pytest.raises(ValueError, match="needs the base's pose x_WB"):
        state_features(lost, schema, FeatureConfig(use_world_pose=True))


def test_absolute_bases_and_hands_are_counted_from_the_measured_ones() -> None:
    state = replace(mobile_observation().state, X_BE=pin.SE3(np.eye(3), np.array([0.4, 0.1, 0.8])))
    spec = ActionSpec(fields=(BasePose(), EndEffectorPose(), GripperWidth()), horizon=2, dt_ns=1)
    np.testing.assert_array_equal(row_origin(spec, state), [1.0, 2.0, 0.3, 0.4, 0.1, 0.8, *[0] * 7])
    relative = replace(
        spec, fields=(BasePose(Reference.RELATIVE), EndEffectorPose(Reference.RELATIVE), GripperWidth())
    )
    assert not row_origin(relative, state).any()


def test_hands_in_the_world_are_counted_from_where_the_hand_is_there() -> None:
    state = replace(mobile_observation().state, x_WB=np.array([1.0, 2.0, np.pi / 2]))
    state = replace(state, X_BE=pin.SE3(np.eye(3), np.array([0.4, 0.1, 0.8])))
    spec = ActionSpec(fields=(WorldEndEffectorPose(),), horizon=2, dt_ns=1)
    np.testing.assert_allclose(row_origin(spec, state), [0.9, 2.4, 0.8, *[0] * 6])
    with pytest.raises(ValueError, match="needs the base's pose x_WB"):
        row_origin(spec, replace(state, x_WB=None))


def test_joint_velocities_are_seen_only_when_asked_for() -> None:
    features = state_features(make_observation(0), SCHEMA, FeatureConfig(use_joint_velocity=True))
    assert features.shape == (7 + 1 + 9 + 7 + 2,)


def test_a_state_without_hand_pose_is_refused() -> None:
    observation = make_observation(0)
    blind = structs.replace(observation, state=replace(observation.state, X_BE=None))
    with pytest.raises(ValueError, match="hand pose X_BE"):
        state_features(blind, SCHEMA, FeatureConfig())


def test_two_arms_two_grippers_and_two_bases_are_all_seen_each_in_its_turn() -> None:
    parts = {
        "left_arm": ArmState(q=np.array([1.0, 2.0]), dq=np.array([3.0, 4.0])),
        "left_gripper": GripperState(width=0.01),
        "right_arm": ArmState(q=np.array([5.0]), dq=np.array([6.0])),
        "right_gripper": GripperState(width=0.02),
        "front": BaseState(V_WB_B=np.array([7.0, 8.0, 9.0])),
        "rear": BaseState(V_WB_B=np.array([10.0, 11.0, 12.0])),
    }
    schema = Schema(
        parts={
            "left_arm": ArmSchema(2, has_hand=False),
            "left_gripper": GripperSchema(),
            "right_arm": ArmSchema(1, has_hand=False),
            "right_gripper": GripperSchema(),
            "front": BaseSchema(),
            "rear": BaseSchema(),
        }
    )
    seen = Observation(state=RobotState(t_ns=0, parts=parts))
    features = state_features(seen, schema, FeatureConfig())
    assert features.tolist() == [1, 2, 5, 0.01, 0.02, 3, 4, 6, 7, 8, 9, 10, 11, 12]
    lost = structs.replace(seen, state=seen.state.with_parts({"rear": BaseState(x_WB=np.zeros(3))}))
    with pytest.raises(ValueError, match="the base's twist V_WB_B of 'rear', the state has none"):
        state_features(lost, schema, FeatureConfig())
