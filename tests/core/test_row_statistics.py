"""Which rows are foreign to a policy."""

import numpy as np
import pytest

from robot_runtime.core.values.action import ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.core.values.state import RobotState
from robot_runtime.errors import InvalidValueError

SPEC = ActionSpec(fields=(JointPosition(2), GripperWidth()), horizon=3, dt_ns=50_000_000)
Q = np.array([0.5, -0.5])
STATE = RobotState(t_ns=0, q=Q, dq=np.zeros(2), gripper_width=0.04)


def test_rows_where_the_demonstrations_were_lie_within_their_deviations():
    mean = np.array([[0.0, 0.0, 0.04], [0.1, 0.1, 0.04], [0.2, 0.2, 0.04]])
    knows = RowStatistics(mean=mean, std=np.full((3, 3), 0.01), from_measured=True)
    rows = mean + np.array([*Q, 0.0])
    assert knows.deviations(rows, SPEC, STATE) == pytest.approx(np.zeros((3, 3)), abs=1e-9)
    rows[1, 0] -= 0.05
    assert knows.deviations(rows[:2], SPEC, STATE).max() == pytest.approx(5.0)


def test_an_arm_that_lags_has_a_plan_far_from_what_was_learnt():
    knows = RowStatistics(mean=np.zeros((3, 3)), std=np.full((3, 3), 1e-3), from_measured=True)
    ahead = np.tile([*(Q + 0.03), 0.0], (2, 1))
    assert knows.deviations(ahead, SPEC, STATE).max() == pytest.approx(30.0)


def test_one_row_of_statistics_is_for_all_rows_and_counts_from_where_it_says():
    knows = RowStatistics(mean=np.array([[*Q, 0.04]]), std=np.ones((1, 3)), from_measured=False)
    assert knows.deviations(np.tile([*Q, 1.04], (3, 1)), SPEC, STATE) == pytest.approx(
        np.tile([0.0, 0.0, 1.0], (3, 1))
    )


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        (np.zeros((3, 3)), np.zeros((3, 3))),
        (np.full((3, 3), np.nan), np.ones((3, 3))),
        (np.zeros((3, 3)), np.full((3, 3), np.inf)),
        (np.zeros((0, 3)), np.ones((0, 3))),
    ],
)
def test_statistics_that_measure_nothing_are_refused(mean, std):
    with pytest.raises(InvalidValueError, match="statistics of rows"):
        RowStatistics(mean=mean, std=std, from_measured=False)
