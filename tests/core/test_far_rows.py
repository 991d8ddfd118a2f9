"""Rows in another unit are refused before anything moves; rows a little beyond a range go to its end."""

import numpy as np
import pinocchio as pin
import pytest

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.arming import ArmingRules
from robot_runtime.core.plan.answers import FarRowsError, PartOutcome, refuse_far
from robot_runtime.core.plan.limits import Limits, MotionLimits
from robot_runtime.core.robot import ArmState
from robot_runtime.core.values.action import ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.state import BaseState, GripperState, Observation, RobotState
from robot_runtime.core.values.waypoints import Waypoints
from tests.core.support import DT, answer, executor

SPEC = ActionSpec(fields=(JointPosition(7), GripperWidth()), horizon=8, dt_ns=DT)
Q = np.array([0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785])
LIMITS = FR3_LIMITS.replace(
    base=MotionLimits(
        speed=np.array([0.8, 0.8, 1.6]),
        acceleration=np.array([1.0, 1.0, 2.5]),
        jerk=np.array([20.0, 20.0, 50.0]),
    )
)
STATE = RobotState(
    t_ns=0,
    parts={
        "arm": ArmState(t_ns=0, q=Q, dq=np.zeros(7), X_BE=pin.SE3(np.eye(3), np.array([0.5, 0.0, 0.4]))),
        "gripper": GripperState(width=0.08),
        "base": BaseState(t_ns=0, x_WB=np.zeros(3), V_WB_B=np.zeros(3)),
    },
)
ONE = np.array([1.0, 0.0, 0.0, 0.0])


def rows(q: np.ndarray, width: float) -> np.ndarray:
    return np.tile([*q, width], (8, 1))


def refused(limits: Limits = LIMITS, **targets: np.ndarray) -> str:
    with pytest.raises(FarRowsError) as error:
        refuse_far(
            Waypoints(**{name: np.tile(each, (2, 1)) for name, each in targets.items()}), limits, STATE
        )
    return str(error.value)


def test_rows_in_degrees_are_refused_before_motion_with_the_unit():
    robot = executor(action_spec=SPEC, limits=FR3_LIMITS)
    robot.reset(STATE, 0)
    request = robot.make_request(Observation(state=STATE))
    assert robot.on_part(answer(request, rows(np.degrees(Q), 0.08)), 0) is PartOutcome.FAR
    assert np.array_equal(robot.tick(STATE, DT).command.arm.q, Q)
    assert robot.counts.far_answers == 1
    assert "joint 4 of arm at -135 rad, and its range is -3.04 to -0.152" in robot.why_far
    assert "are the policy's rows in degrees?" in robot.why_no_rows()


def test_a_gripper_in_millimetres_is_refused_once_it_opens():
    robot = executor(action_spec=SPEC, limits=FR3_LIMITS)
    robot.reset(STATE, 0)
    assert (
        robot.on_part(answer(robot.make_request(Observation(state=STATE)), rows(Q, 0.0)), 0)
        is PartOutcome.RUNS
    )
    assert (
        robot.on_part(answer(robot.make_request(Observation(state=STATE)), rows(Q, 40.0)), 0)
        is PartOutcome.FAR
    )
    assert "the width of gripper at 40 m, and its range is 0 to 0.08: are the policy's rows in mm?" in (
        robot.why_far
    )


def test_a_chunk_that_comes_in_parts_is_refused_at_the_first_far_one():
    robot = executor(action_spec=SPEC, limits=FR3_LIMITS)
    robot.reset(STATE, 0)
    request, far = robot.make_request(Observation(state=STATE)), rows(np.degrees(Q), 0.08)
    assert robot.on_part(answer(request, far[:4], is_last=False), 0) is PartOutcome.FAR
    assert robot.on_part(answer(request, far[4:], first_row=4), 0) is PartOutcome.UNKNOWN


def test_a_robot_that_is_not_armed_refuses_them_too():
    robot = executor(action_spec=SPEC, limits=FR3_LIMITS, arming=ArmingRules(fresh_chunks=1))
    robot.reset(STATE, 0)
    robot.on_part(answer(robot.make_request(Observation(state=STATE)), rows(np.degrees(Q), 0.08)), 0)
    assert robot.why_not_armed(0) == "0 of 1 fresh chunks have come"


def test_hands_and_bases_in_other_units_are_refused():
    assert "end effector of arm at 500 m" in refused(p_BE=np.array([500.0, 0.0, 400.0]), quat_BE=ONE)
    assert "the policy's rows in mm?" in refused(x_WB=np.array([900.0, 0.0, 0.0]))
    assert "the yaw of base at 90 rad" in refused(x_WB=np.array([0.0, 0.0, 90.0]))
    assert "the speed of base at 300 m/s" in refused(V_WB_B=np.array([300.0, 0.0, 0.0]))
    assert "in degrees/s?" in refused(V_WB_B=np.array([0.0, 0.0, -45.0]))


def test_rows_that_a_policy_of_the_right_units_may_write_are_left_to_the_limits():
    for q, width in ((Q + 2.0 * np.pi, 0.08), (Q, 1.0), (Q, -1.0), (Q * 3.0, 0.14)):
        refuse_far(Waypoints(q=np.tile(q, (2, 1)), gripper=np.full(2, width)), LIMITS, STATE)
    refuse_far(Waypoints(V_WB_B=np.tile([4.0, -4.0, 8.0], (2, 1))), LIMITS, STATE)
