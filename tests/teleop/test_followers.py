"""Parts follow: without a jump, no faster than they may, and nothing is caught up."""

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.plan.limits import GripperLimits, Limits
from robot_runtime.core.teleop import BaseLead, Frame, GripperLead, JointLead, PoseLead, TwistLead
from robot_runtime.core.values.action import ActionSpec, BasePose, BaseTwist, GripperWidth, JointPosition
from robot_runtime.core.values.command import (
    BasePoseCommand,
    Command,
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
)
from robot_runtime.core.values.fields import EndEffectorPose, JointVelocity
from robot_runtime.errors import InvalidValueError
from robot_runtime.teleop.config import TeleopConfig
from robot_runtime.teleop.followers import JointFollower
from robot_runtime.teleop.hand_kinematics import ForwardKinematics
from robot_runtime.teleop.parts import followers_for, leadable
from sim.scene.kinematics import Q_HOME, Kinematics
from tests.core.support import MOBILE_LIMITS
from tests.examples import examples
from tests.teleop.support import LedRobot

DT_S = 0.002
KINEMATICS = Kinematics()
numbers = st.floats(-3.0, 3.0)


def arm_follower(kinematics=KINEMATICS, **options) -> JointFollower:
    return JointFollower("arm", FR3_LIMITS.arm(), TeleopConfig(**options), kinematics=kinematics)


def led(follower, robot, leads, part="arm"):
    """The part's commands, one a tick."""
    follower.engage(leads[0], robot.commanded, robot.state(0))
    out = []
    for k, lead in enumerate(leads):
        told = follower.follow(lead, robot.commanded, robot.state(k), DT_S)
        robot.lead({part: told}, k)
        out.append(told)
    return out


def hand(told):
    return KINEMATICS.forward(told.q)


@examples(40)
@given(st.lists(numbers, min_size=6, max_size=6), st.lists(numbers, min_size=7, max_size=7))
def test_the_first_command_is_where_the_arm_was_commanded_wherever_the_leader_is(v, q_leader):
    X_LH = pin.SE3(pin.exp3(np.array(v[3:])), np.array(v[:3]))
    for lead in (PoseLead(X_LH=X_LH), JointLead(q=np.array(q_leader)), TwistLead(v=np.zeros(3))):
        first = led(arm_follower(), LedRobot(), [lead])[0]
        assert np.abs(first.q - Q_HOME).max() < 1e-9


@pytest.mark.long
def test_a_hand_goes_where_the_leaders_goes_and_stays_there():
    start = pin.SE3.Identity()
    goal = pin.SE3(pin.utils.rotate("z", 0.3), np.array([0.05, -0.1, 0.08]))
    robot = LedRobot()
    before = KINEMATICS.forward(np.array(Q_HOME))
    told = led(arm_follower(), robot, [PoseLead(X_LH=start)] + [PoseLead(X_LH=goal)] * 600)
    after = hand(told[-1])
    np.testing.assert_allclose(after.translation - before.translation, goal.translation, atol=1e-4)
    np.testing.assert_allclose(after.rotation, goal.rotation @ before.rotation, atol=1e-3)
    speeds = np.diff([hand(each).translation for each in told], axis=0) / DT_S
    assert np.linalg.norm(speeds, axis=1).max() < 0.61


@pytest.mark.parametrize("frame", Frame)
@pytest.mark.long
def test_a_velocity_moves_the_hand_at_that_speed_in_its_frame_and_it_stops_when_it_ends(frame):
    robot = LedRobot()
    asked = TwistLead(v=np.array([0.0, 0.1, 0.05]), frame=frame)
    told = led(arm_follower(), robot, [asked] * 500 + [TwistLead(v=np.zeros(3))] * 300)
    moved = hand(told[499]).translation - hand(told[249]).translation
    R = np.eye(3) if frame is Frame.BASE else KINEMATICS.forward(np.array(Q_HOME)).rotation
    np.testing.assert_allclose(moved, R @ asked.v * 0.5, atol=1e-3)
    np.testing.assert_allclose(hand(told[-1]).rotation, hand(told[0]).rotation, atol=1e-3)
    assert np.abs(told[-1].q - told[-2].q).max() < 1e-6


@pytest.mark.long
def test_a_person_who_faces_the_robot_has_her_left_at_its_right():
    told = led(arm_follower(yaw_deg=180.0), LedRobot(), [TwistLead(v=np.array([0.0, 0.1, 0.0]))] * 200)
    assert hand(told[-1]).translation[1] < hand(told[0]).translation[1] - 0.02


@pytest.mark.long
def test_an_arm_that_cannot_follow_catches_nothing_up():
    robot, follower = LedRobot(), arm_follower()
    lead = TwistLead(v=np.array([0.2, 0.0, 0.0]))
    follower.engage(lead, robot.commanded, robot.state(0))
    for k in range(400):  # the limits let nothing through
        wanted = follower.follow(lead, robot.commanded, robot.state(k), DT_S)
    assert np.abs(wanted.q - Q_HOME).max() <= 0.0801
    rest = TwistLead(v=np.zeros(3))
    for k in range(150):
        told = follower.follow(rest, robot.commanded, robot.state(k), DT_S)
        robot.lead({"arm": told}, k)
    moved = hand(told).translation - KINEMATICS.forward(np.array(Q_HOME)).translation
    assert np.linalg.norm(moved) < 0.1


@pytest.mark.long
def test_no_joint_leaves_its_range_and_none_is_quicker_than_its_share():
    told = led(arm_follower(), LedRobot(), [TwistLead(v=np.array([1.0, 0.3, -1.0]), w=np.full(3, 2.0))] * 300)
    q = np.array([each.q for each in told])
    limits = FR3_LIMITS.arm()
    assert (q >= limits.q_min).all()
    assert (q <= limits.q_max).all()
    assert (np.abs(np.diff(q, axis=0)) <= 0.5 * limits.dq_max * DT_S + 1e-12).all()


@pytest.mark.long
def test_an_arm_follows_a_leader_arm_from_where_both_are_and_may_come_to_agree_with_it():
    at, then = np.array(Q_HOME) + 0.3, np.array(Q_HOME) + 0.4
    told = led(arm_follower(), LedRobot(), [JointLead(q=at)] + [JointLead(q=then)] * 150)
    np.testing.assert_allclose(told[-1].q, np.array(Q_HOME) + 0.1, atol=1e-3)
    told = led(arm_follower(align_rad_s=0.3), LedRobot(), [JointLead(q=at)] * 1000)
    np.testing.assert_allclose(told[-1].q, at, atol=1e-3)
    assert np.abs(np.diff([each.q for each in told], axis=0)).max() <= 0.3 * DT_S * 1.01


def test_a_gripper_follows_shares_and_speeds_within_its_range():
    (follower,) = followers_for(
        ActionSpec(fields=(GripperWidth(),), horizon=2, dt_ns=1),
        Limits({"gripper": GripperLimits(low=0.0, high=0.08)}),
        TeleopConfig(),
    ).values()
    robot = LedRobot(gripper=GripperCommand(width=0.04))
    told = led(follower, robot, [GripperLead(speed=-1.0)] * 400, part="gripper")
    assert told[0].width == pytest.approx(0.04 - 0.08 * DT_S)
    assert told[-1].width == 0.0
    told = led(follower, robot, [GripperLead(opening=share) for share in (0.9, 1.0, 0.5)], part="gripper")
    assert [each.width for each in told] == pytest.approx([0.0, 0.008, 0.0])  # it was closed, and is again
    told = led(follower, robot, [GripperLead(opening=0.0), GripperLead(opening=0.5)], part="gripper")
    assert told[-1].width == pytest.approx(0.04)


def test_a_base_is_driven_by_twists_and_poses_never_far_ahead_of_where_it_is():
    spec = ActionSpec(fields=(BasePose(),), horizon=2, dt_ns=1)
    (follower,) = followers_for(spec, MOBILE_LIMITS, TeleopConfig()).values()
    robot = LedRobot(base=BasePoseCommand(x_WB=np.array([1.0, 2.0, np.pi / 2])))
    drive = BaseLead(V_WB_B=np.array([0.2, 0.0, 0.0]))
    told = led(follower, robot, [drive] * 500, part="base")
    np.testing.assert_allclose(told[-1].x_WB, [1.0, 2.0 + 0.2 * (1.0 - 0.125), np.pi / 2], atol=2e-3)
    stuck = LedRobot(base=BasePoseCommand(x_WB=np.zeros(3)))
    follower.engage(drive, stuck.commanded, stuck.state(0))
    for k in range(600):
        wanted = follower.follow(drive, stuck.commanded, stuck.state(k), DT_S)
    assert wanted.x_WB[0] <= 0.1 + 1e-9
    twists = followers_for(
        ActionSpec(fields=(BaseTwist(),), horizon=2, dt_ns=1), MOBILE_LIMITS, TeleopConfig()
    )["base"]
    told = led(twists, LedRobot(), [BaseLead(V_WB_B=np.array([9.0, 0.0, 0.0]))] * 600, part="base")
    np.testing.assert_allclose(told[-1].V_WB_B, [0.8, 0.0, 0.0], atol=1e-3)


def test_what_can_be_led_and_how_follows_from_what_the_robot_is_told_and_knows():
    fields = (JointPosition(7), GripperWidth(), BasePose())
    followers = followers_for(ActionSpec(fields=fields, horizon=2, dt_ns=1), MOBILE_LIMITS, TeleopConfig())
    parts = leadable(followers)
    assert (parts.arms, parts.hands, parts.grippers, parts.bases) == (("arm",), (), ("gripper",), ("base",))
    knowing = followers_for(
        ActionSpec(fields=fields, horizon=2, dt_ns=1),
        MOBILE_LIMITS,
        TeleopConfig(),
        hand_pose=KINEMATICS.forward,
    )
    assert leadable(knowing).hands == ("arm",)
    posed = ActionSpec(fields=(EndEffectorPose(),), horizon=2, dt_ns=1)
    assert leadable(followers_for(posed, MOBILE_LIMITS, TeleopConfig())).hands == ("arm",)
    robot = LedRobot()
    with pytest.raises(InvalidValueError, match=r"no kinematics of it.*\[parts.arm.kinematics\]"):
        followers["arm"].engage(TwistLead(v=np.zeros(3)), robot.commanded, robot.state(0))


def test_differences_give_the_jacobian():
    q = np.array(Q_HOME) + 0.2
    np.testing.assert_allclose(
        ForwardKinematics(KINEMATICS.forward).jacobian(q), KINEMATICS.jacobian(q), atol=1e-4
    )


@pytest.mark.long
def test_an_arm_that_is_told_velocities_is_led_by_them():
    spec = ActionSpec(fields=(JointVelocity(7),), horizon=2, dt_ns=1)
    follower = followers_for(spec, FR3_LIMITS, TeleopConfig(), hand_pose=KINEMATICS.forward)["arm"]
    robot = LedRobot(arm=JointCommand(q=np.array(Q_HOME)))
    lead, told = TwistLead(v=np.array([0.1, 0.0, 0.0])), JointVelocityCommand(dq=np.zeros(7))
    follower.engage(lead, Command({"arm": told}), robot.state(0))
    for k in range(300):
        told = follower.follow(lead, Command({"arm": told}), robot.state(k), DT_S)
        q = robot.state(k).arm("arm").q
        robot.lead({"arm": JointCommand(q=q + DT_S * told.dq)}, k)
    velocity = KINEMATICS.jacobian(q) @ told.dq
    np.testing.assert_allclose(velocity[:3], [0.1, 0.0, 0.0], atol=5e-3)
