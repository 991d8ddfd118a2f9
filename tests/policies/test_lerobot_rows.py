"""Rows to imitate out of a run's commands: whole windows of whoever is to be learned from."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from policies.lerobot.rows import FromActions
from robot_runtime.core.values.action import ActionChunk, ActionSpec
from robot_runtime.core.values.columns import hand_numbers
from robot_runtime.core.values.fields import (
    BasePose,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
    Reference,
)
from robot_runtime.core.values.state import BaseState, RobotState
from robot_runtime.core.values.waypoints import Waypoints
from robot_runtime.dataset.run_columns import AUTHORITIES, AUTHORITY, IS_INTERVENTION, NEXT_VALID, TRAINABLE
from robot_runtime.errors import InvalidValueError

NAMES = ["gripper.width", "arm.joint_1", "arm.joint_2"]
FEATURES = {"action": {"names": NAMES}}
SPEC = ActionSpec(fields=(JointPosition(2), GripperWidth()), horizon=3, dt_ns=50_000_000)
ACTIONS = FromActions(spec=SPEC, hand_poses={})
N = 16


def columns() -> dict[str, np.ndarray]:
    """Two episodes of 10 and 6 frames; a person has frames 3 to 6, a pause is at 8."""
    k = np.arange(N)
    human = (k >= 3) & (k <= 6)
    return {
        "action": np.stack([100.0 + k, k, 10.0 + k], axis=1).astype(np.float32),
        "episode_index": np.repeat([0, 1], [10, 6]),
        IS_INTERVENTION: human.astype(np.float32)[:, None],
        TRAINABLE: (k != 8)[:, None],
        NEXT_VALID: ~np.isin(k, (9, 15))[:, None],
    }


def test_rows_are_the_actions_from_a_frame_on_by_name_and_the_last_one_stays():
    rows, kept = ACTIONS.rows(FEATURES, columns())
    np.testing.assert_array_equal(rows[0], [[0, 10, 100], [1, 11, 101], [2, 12, 102]])
    np.testing.assert_array_equal(rows[9], [[9, 19, 109]] * 3)
    np.testing.assert_array_equal(rows[14][:, 0], [14, 15, 15])
    assert np.flatnonzero(kept).tolist() == [0, 1, 2, 3, 4, 5, 9, *range(10, 16)]


@pytest.mark.parametrize(("only", "kept"), [("human", [3, 4]), ("policy", [0, 9, *range(10, 16)])])
def test_only_whole_windows_of_a_person_or_of_the_policy_are_learned_from(only, kept):
    _, is_kept = replace(ACTIONS, only=only).rows(FEATURES, columns())
    assert np.flatnonzero(is_kept).tolist() == kept


def test_it_is_told_what_keeps_frames_from_being_learned_from():
    told = columns() | {AUTHORITY: np.full((N, 2), AUTHORITIES.index("hold"))}
    told[TRAINABLE][:] = False
    said = replace(ACTIONS, only="human").why_none(told)
    assert said == (
        "of 16 frames 16 not trainable, 16 of these with a part in hold, 12 not --only human, "
        "2 before a gap or an end; rows need 3 consecutive ones"
    )


def test_a_window_goes_over_no_gap():
    told = columns()
    told[NEXT_VALID][12] = False
    _, kept = ACTIONS.rows(FEATURES, told)
    assert not kept[11:13].any()
    assert kept[13:].all()


def test_hands_are_where_the_joints_that_were_told_put_them():
    def hand_of(q):
        return pin.SE3(np.eye(3), np.array([*q, 0.5]))

    spec = ActionSpec(fields=(EndEffectorPose(), GripperWidth()), horizon=2, dt_ns=50_000_000)
    rows, _ = FromActions(spec=spec, hand_poses={"arm": hand_of}).rows(FEATURES, columns())
    np.testing.assert_allclose(rows[4][1], [*hand_numbers(hand_of([5.0, 15.0])), 105.0])
    with pytest.raises(InvalidValueError, match=r"no action arm\.x.*it has gripper\.width"):
        FromActions(spec=spec, hand_poses={}).rows(FEATURES, columns())


def test_rows_of_a_base_count_from_where_it_is_at_the_frame():
    """As a policy of such rows tells them, whatever the world that commands were told in."""
    spec = ActionSpec(fields=(BasePose(Reference.RELATIVE), GripperWidth()), horizon=3, dt_ns=50_000_000)
    actions = FromActions(spec=spec, hand_poses={})
    x_WB = np.array([[4.0, 2.0, np.pi / 2], [4.0, 2.5, np.pi / 2], [3.0, 2.5, 3.0]])
    told = np.column_stack([x_WB, [0.01, 0.02, 0.03]])
    here = RobotState(t_ns=1, parts={"base": BaseState(x_WB=x_WB[0] + [0.0, -0.1, 0.0], V_WB_B=np.zeros(3))})
    rows = actions.counted_from(told, here)
    np.testing.assert_allclose(
        rows[:, :3], [[0.1, 0, 0], [0.6, 0, 0], [0.6, 1.0, 3.0 - np.pi / 2]], atol=1e-12
    )
    np.testing.assert_array_equal(rows[:, 3], told[:, 3])
    chunk = ActionChunk(spec=spec, rows=rows, anchor=here, request_id=0, epoch=0)
    np.testing.assert_allclose(Waypoints.from_chunk(chunk).x_WB, x_WB, atol=1e-12)


def test_who_drove_has_to_be_said():
    told = {name: columns()[name] for name in ("action", "episode_index")}
    assert ACTIONS.rows(FEATURES, told)[1].all()
    with pytest.raises(InvalidValueError, match="does not record who drove"):
        replace(ACTIONS, only="human").rows(FEATURES, told)
