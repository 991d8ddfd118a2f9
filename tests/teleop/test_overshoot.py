"""Through the whole chain a part never passes its leader, nor goes faster than declared."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.plan.limits import GripperLimits, Limits, MotionLimits
from robot_runtime.core.teleop import BaseLead, GripperLead, JointLead, PoseLead, TwistLead
from robot_runtime.core.values.action import ActionSpec, BasePose, BaseTwist, GripperWidth, JointPosition
from robot_runtime.core.values.command import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    GripperCommand,
    JointCommand,
    PoseCommand,
)
from robot_runtime.core.values.fields import EndEffectorPose
from robot_runtime.core.values.transforms import quaternion_from_rotation
from robot_runtime.teleop.config import OnRelease, TeleopConfig
from tests.core.support import MOBILE_LIMITS
from tests.examples import examples
from tests.teleop.chain import HOME, KINEMATICS, Chain, joint_limits, norms, turned

MS = 1_000_000
LIMITS = {
    "FR3": FR3_LIMITS.arm(),
    "SO-101": joint_limits(0.8, 4.0, 80.0, reach=4.0),
    "slow": joint_limits(2.0, 2.0, 50.0, reach=4.0),
}
PAST, HELD = 1e-6, 1e-6


def spec_of(field) -> ActionSpec:
    return ActionSpec(fields=(field,), horizon=2, dt_ns=50 * MS)


def joint_chain(limits, **options) -> Chain:
    spec = spec_of(JointPosition(limits.q_min.size))
    start = HOME if limits.q_min.size == 7 else np.zeros(limits.q_min.size)
    return Chain(spec, Limits({"arm": limits}), Command({"arm": JointCommand(q=start)}), **options)


def pose_chain(limits, **options) -> Chain:
    X = KINEMATICS.forward(HOME)
    start = PoseCommand(p_BE=X.translation.copy(), quat_BE=quaternion_from_rotation(X.rotation))
    return Chain(spec_of(EndEffectorPose()), Limits({"arm": limits}), Command({"arm": start}), **options)


def joints(chain) -> np.ndarray:
    return np.array([sent.q for sent in chain.sent()])


def poses(chain) -> list[pin.SE3]:
    return [
        KINEMATICS.forward(sent.q) if isinstance(sent, JointCommand) else sent.X_BE for sent in chain.sent()
    ]


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize(("way", "seconds"), [(0.5, 0.5), (1.0, 0.0)])
def test_an_arm_stops_where_its_leader_arm_stops(name, way, seconds):
    limits = LIMITS[name]
    chain = joint_chain(limits, period_ns=4 * MS)
    for k in range(round(3.2 / chain.dt_s)):
        share = 1.0 if seconds == 0.0 and k else min(k * chain.dt_s / max(seconds, 1e-9), 1.0)
        chain.tick(JointLead(q=np.array([way * share, 0, 0, 0, 0, 0, 0])))
    moved = joints(chain)[:, 0] - HOME[0]
    assert moved.max() <= way + PAST
    assert moved[-1] == pytest.approx(way, abs=1e-3)
    assert np.diff(moved).max() <= 0.5 * limits.dq_max[0] * chain.dt_s + 1e-12
    assert np.diff(moved).min() >= -1e-12
    assert chain.held_back() <= HELD


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("make", [joint_chain, pose_chain])
def test_an_end_effector_stops_where_its_leader_stops(name, make):
    chain = make(LIMITS[name], period_ns=8 * MS)
    X_0, way = KINEMATICS.forward(HOME), np.array([0.0, 0.3, 0.0])
    for k in range(250):
        chain.tick(PoseLead(X_LH=pin.SE3(np.eye(3), way * min(k * chain.dt_s / 0.5, 1.0))))
    p = np.array([X.translation for X in poses(chain)]) - X_0.translation
    assert p[:, 1].max() <= 0.3 + PAST
    assert p[-1, 1] == pytest.approx(0.3, abs=2e-3)
    assert norms(np.diff(p, axis=0)).max() <= 0.6 * chain.dt_s * 1.003
    assert chain.held_back() <= HELD


@pytest.mark.parametrize("make", [joint_chain, pose_chain])
def test_an_end_effector_turns_as_far_as_its_leader_and_no_faster_than_declared(make):
    chain = make(LIMITS["FR3"], period_ns=8 * MS, config=TeleopConfig(hand_rotation_max=1.0))
    axis = np.array([0.0, 0.6, 0.8])
    for k in range(250):
        chain.tick(PoseLead(X_LH=pin.SE3(pin.exp3(axis * min(k * chain.dt_s / 0.3, 0.6)), np.zeros(3))))
    X = poses(chain)
    angle = np.array([turned(X[0], each) @ axis for each in X])
    assert angle.max() <= 0.6 + PAST
    assert angle[-1] == pytest.approx(0.6, abs=2e-3)
    assert max(norms([turned(a, b)]).max() for a, b in pairwise(X)) <= 1.0 * chain.dt_s * 1.003
    assert chain.held_back() <= HELD


rates = st.tuples(st.floats(0.3, 4.0), st.floats(0.5, 20.0), st.floats(5.0, 2000.0))
goals = st.lists(st.tuples(st.floats(-0.7, 0.7), st.integers(0, 60)), min_size=1, max_size=4)


@examples(25)
@given(rates, st.lists(goals, min_size=2, max_size=2), st.sampled_from([2 * MS, 10 * MS]))
def test_no_joint_leaves_the_range_its_leader_was_in_wherever_it_leads(numbers, ways, period_ns):
    limits = joint_limits(*numbers, joints=2)
    chain = joint_chain(limits, period_ns=period_ns, forward=lambda q: pin.SE3.Identity())
    low = high = np.zeros(2)
    chain.tick(JointLead(q=np.zeros(2)))
    for k in range(4):
        goal = np.array([way[k % len(way)][0] for way in ways])
        low, high = np.minimum(low, goal), np.maximum(high, goal)
        for _ in range(ways[0][k % len(ways[0])][1] + 1):
            chain.tick(JointLead(q=goal))
    q = joints(chain)
    assert (q <= high + PAST).all()
    assert (q >= low - PAST).all()
    assert np.abs(np.diff(q, axis=0)).max() <= 0.5 * numbers[0] * chain.dt_s + 1e-12
    assert chain.held_back() <= HELD


@examples(10)
@given(
    st.lists(st.floats(-0.15, 0.15), min_size=6, max_size=6),
    st.sampled_from(["SO-101", "FR3"]),
    st.sampled_from([(1, 1), (1, 0), (0, 1)]),
)
def test_an_end_effector_led_straight_never_passes_the_end(way, name, moves):
    """Both together, too. Damped joints bend the way a little: up to 10 um past in 150 random leads."""
    chain = pose_chain(LIMITS[name], period_ns=10 * MS)
    end = np.array(way) * np.repeat(moves, 3)
    for k in range(150):
        share = min(k / 20, 1.0)
        chain.tick(PoseLead(X_LH=pin.SE3(pin.exp3(share * end[3:]), share * end[:3])))
    X = poses(chain)
    for moved, wanted in (
        (np.array([each.translation - X[0].translation for each in X]), end[:3]),
        (np.array([turned(X[0], each) for each in X]), end[3:]),
    ):
        if (far := np.linalg.norm(wanted)) > 1e-3:
            assert (moved @ wanted / far).max() <= far + 5e-5
    assert chain.held_back() <= HELD


def test_a_gripper_stops_where_its_leader_stops_and_keeps_its_limits():
    motion = MotionLimits(speed=np.array([0.1]), acceleration=np.array([1.0]), jerk=np.array([20.0]))
    limits = Limits({"gripper": GripperLimits(low=0.0, high=0.08, motion=motion)})
    chain = Chain(spec_of(GripperWidth()), limits, Command({"gripper": GripperCommand(width=0.01)}))
    chain.tick(GripperLead(opening=0.0), part="gripper")
    chain.tick(GripperLead(opening=0.6), part="gripper", count=400)
    width = np.array([sent.width for sent in chain.sent("gripper")])
    assert width.max() <= 0.01 + 0.6 * 0.08 + PAST
    assert width[-1] == pytest.approx(0.01 + 0.6 * 0.08, abs=1e-6)
    chain.tick(GripperLead(speed=1.0), part="gripper", count=100)
    chain.tick(GripperLead(speed=0.0), part="gripper", count=100)
    assert chain.held_back() <= HELD


@pytest.mark.parametrize(
    ("field", "start"),
    [
        (BasePose(), BasePoseCommand(x_WB=np.array([1.0, 2.0, 0.5]))),
        (BaseTwist(), BaseTwistCommand(V_WB_B=np.zeros(3))),
    ],
)
def test_a_base_takes_up_and_loses_speed_within_its_limits(field, start):
    chain = Chain(spec_of(field), MOBILE_LIMITS, Command({"base": start}))
    chain.tick(BaseLead(V_WB_B=np.array([9.0, 0.1, 0.5])), part="base", count=500)
    chain.tick(BaseLead(V_WB_B=np.zeros(3)), part="base", count=500)
    assert chain.held_back() <= HELD
    assert chain.executor.is_at_rest or chain.executor._limiter.rests(["base"])


def test_an_arm_taken_over_in_motion_brakes_and_then_follows():
    chain = joint_chain(LIMITS["slow"], config=TeleopConfig(on_release=OnRelease.HOLD))
    chain.tick(JointLead(q=np.zeros(7)))
    chain.tick(JointLead(q=np.full(7, 0.5)), count=150)
    chain.tick(None, count=3)
    chain.tick(JointLead(q=np.full(7, -3.0)), count=600)
    q = joints(chain)
    assert np.diff(q, axis=0).min() >= -1e-9  # it brakes, and does not come back to where it was engaged
    assert np.abs(q[-1] - q[-2]).max() < 1e-9
    assert chain.held_back() <= HELD


def test_what_the_limits_hold_back_of_a_velocity_is_not_caught_up():
    chain = joint_chain(LIMITS["SO-101"], period_ns=8 * MS)
    chain.tick(TwistLead(v=np.array([0.0, 0.6, 0.0])), count=60)
    before = poses(chain)[-1].translation
    speed = norms([before - poses(chain)[-2].translation])[0] / chain.dt_s
    chain.tick(TwistLead(v=np.zeros(3)), count=120)
    p = np.array([X.translation for X in poses(chain)])
    assert np.linalg.norm(p[-1] - before) < speed * 0.3
    assert norms(np.diff(p, axis=0)).max() <= 0.6 * chain.dt_s * 1.003
    assert chain.held_back() <= HELD


def test_a_slow_leader_is_followed_no_later_than_by_fifty_milliseconds():
    for limits in LIMITS.values():
        chain = joint_chain(replace(limits), period_ns=4 * MS)
        for k in range(300):
            chain.tick(JointLead(q=np.full(7, 0.1 * k * chain.dt_s)))
        behind = 0.1 * 299 * chain.dt_s - (joints(chain)[-1] - HOME)
        assert behind.max() <= 0.1 * 0.051
