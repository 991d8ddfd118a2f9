"""What a Franka's tracker is told between commands: steady streams are followed, and no limit is broken."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.fer import FER_LIMITS
from drivers.fr3 import FR3_LIMITS
from drivers.franka import FrankaArm
from drivers.franka.lead import SetpointLead
from robot_runtime.core.plan.limiter import Limiter
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import Command, JointCommand, PoseCommand
from robot_runtime.errors import InvalidValueError

LIMITS = FR3_LIMITS.arm()
HOME = np.array([0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785])
PERIOD_NS = 4_000_000
AROUND_HOME = st.lists(st.floats(-4.0, 4.0), min_size=7, max_size=7)
COMMANDS = st.lists(st.tuples(AROUND_HOME, st.sampled_from([0, 2, 5, 20, 50, 300])), max_size=25)


def standing(q=HOME):
    lead = SetpointLead(LIMITS)
    lead.stand_at(JointCommand(q=q))
    return lead


def steps(lead, *, start_ns, num):
    return [lead.step(start_ns + k * PERIOD_NS) for k in range(num)]


def broken(path, dt_s=PERIOD_NS / NS_PER_S):
    """The worst share of each limit that setpoints take, from standing."""
    limits, out = LIMITS.joints, []
    path = np.concatenate([np.repeat(path[:1], 3, axis=0), path])
    for most in (limits.speed, limits.acceleration, limits.jerk):
        path = np.diff(path, axis=0) / dt_s
        out.append(float((np.abs(path) / most).max()))
    return out


@given(COMMANDS)
def test_no_stream_of_commands_leads_it_beyond_position_speed_acceleration_or_jerk(commands):
    lead, now_ns, path = standing(), 0, [HOME]
    for offsets, wait_ms in commands:
        lead.tell(JointCommand(q=HOME + np.array(offsets)), now_ns)
        for _ in range(wait_ms // 4):
            path.append(lead.step(now_ns).command.q)
            now_ns += PERIOD_NS
    path += [s.command.q for s in steps(lead, start_ns=now_ns, num=200)]
    path = np.array(path)
    assert (path >= LIMITS.q_min).all()
    assert (path <= LIMITS.q_max).all()
    assert max(broken(path)) <= 1.0 + 1e-9
    curve, speed = LIMITS.dq_curve, np.diff(path, axis=0) / (PERIOD_NS / NS_PER_S)
    up = np.sqrt(np.maximum(curve.gain * (curve.high - path[1:]), 0.0)) - curve.offset
    assert (speed <= np.maximum(up, 0.0) * (1.0 + 1e-9)).all()
    assert lead.is_at_rest


def test_a_steady_stream_at_20_hz_is_followed_without_its_steps():
    lead, lag = standing(), []
    for k in range(1000):
        now_ns = k * PERIOD_NS
        sine = 0.15 * np.sin(2.0 * np.pi * 0.25 * now_ns / NS_PER_S)
        if now_ns % 50_000_000 < PERIOD_NS:
            lead.tell(JointCommand(q=HOME + sine), now_ns)
        lag.append(abs(lead.step(now_ns).command.q[0] - HOME[0] - sine))
    assert max(lag[250:]) < 0.004  # a staircase of 20 Hz would be 0.0118 off


@pytest.mark.parametrize("jitter_ms", [0, 1, 3, 8])
def test_a_stream_near_the_limits_is_followed_however_its_arrivals_jitter(jitter_ms):
    rng = np.random.default_rng(jitter_ms)
    upstream_ns, num = 2_000_000, 3000
    most = FR3_LIMITS.replace(dq_max=0.95 * FR3_LIMITS.dq_max, ddq_max=0.95 * FR3_LIMITS.ddq_max)
    limiter = Limiter(most, period_ns=upstream_ns)
    limiter.reset(Command({"arm": JointCommand(q=HOME)}), 0)
    told, goal = [], HOME
    for k in range(num):
        if k % 250 == 0:
            goal = np.clip(HOME + rng.uniform(-0.6, 0.6, 7), LIMITS.q_min + 0.1, LIMITS.q_max - 0.1)
        told.append(limiter.limit(Command({"arm": JointCommand(q=goal)}), (k + 1) * upstream_ns)[0].arm.q)
    late = (rng.uniform(0.0, jitter_ms, num) * 1e6).astype(int)
    arrived = np.maximum.accumulate(np.arange(num) * upstream_ns + late) // 1_000_000 * 1_000_000
    lead, seen, lag = standing(), -1, []
    for k in range(num * upstream_ns // PERIOD_NS):
        newest = int(np.searchsorted(arrived, k * PERIOD_NS, side="right")) - 1
        if newest > seen:
            lead.tell(JointCommand(q=told[newest]), k * PERIOD_NS, newest - seen)
            seen = newest
        sent = lead.step(k * PERIOD_NS).command.q
        lag.append(float(np.abs(sent - told[min(num - 1, k * PERIOD_NS // upstream_ns)]).max()))
    # As late as arrivals are, at up to 5 rad/s, and catching up with 5 % of the limits.
    assert np.quantile(lag, 0.9) <= 0.002 + 0.0045 * jitter_ms


def test_a_jump_is_not_taken_for_a_speed():
    lead, aim = standing(), HOME + 0.3
    lead.tell(JointCommand(q=HOME), 0)
    lead.step(0)
    furthest = 0.0
    for k in range(1, 400):
        if k % 12 == 1:
            lead.tell(JointCommand(q=aim), k * PERIOD_NS)
        furthest = max(furthest, float((lead.step(k * PERIOD_NS).command.q - aim).max()))
    assert furthest <= 1e-9


def test_with_nothing_told_it_brakes_and_stands_with_no_speed_left_to_feed_forward():
    lead = standing()
    lead.tell(JointCommand(q=HOME + 1.0), 0)
    moving = steps(lead, start_ns=0, num=25)[-1]
    assert moving.speed[0] > 0.5
    end = steps(lead, start_ns=26 * PERIOD_NS, num=200)
    assert not end[-1].speed.any()
    assert 0.02 < end[-1].command.q[0] < 0.5  # far from where it was told to go


def test_it_starts_where_the_arm_is_measured_even_outside_its_range():
    start = HOME.copy()
    start[3] = LIMITS.q_max[3] + 0.01
    lead = standing(start)
    lead.tell(JointCommand(q=HOME), 0)
    path = np.array([start] + [s.command.q for s in steps(lead, start_ns=0, num=20)])
    assert (np.diff(path[:, 3]) <= 0.0).all()
    assert max(broken(path)) <= 1.0 + 1e-9


def test_a_hand_pose_is_led_with_its_speed_in_metres_and_radians():
    lead = SetpointLead(LIMITS)
    upright = np.array([1.0, 0.0, 0.0, 0.0])
    lead.stand_at(PoseCommand(p_BE=np.array([0.5, 0.0, 0.5]), quat_BE=upright))
    lead.tell(PoseCommand(p_BE=np.array([0.5, 0.1, 0.5]), quat_BE=upright), 0)
    speeds = np.array([s.speed for s in steps(lead, start_ns=0, num=20)])
    assert speeds.shape == (20, 6)
    assert speeds[-1, 1] > 0.1
    assert not np.delete(speeds, 1, axis=1).any()


def test_not_a_number_brakes_it():
    lead = standing()
    lead.tell(JointCommand(q=np.full(7, np.nan)), 0)
    assert all((s.command.q == HOME).all() for s in steps(lead, start_ns=0, num=5))


@pytest.mark.parametrize(("period_s", "silence_s"), [(0.0, 0.1), (0.004, 0.001), (-1.0, 0.1)])
def test_a_period_longer_than_the_silence_that_brakes_is_refused(period_s, silence_s):
    with pytest.raises(InvalidValueError, match="period_s <= silence_s"):
        SetpointLead(LIMITS, period_s=period_s, silence_s=silence_s)


def test_a_panda_has_limits_of_its_own_and_models_that_are_none_are_refused():
    sheet = FER_LIMITS.arm()
    lead, path = SetpointLead(sheet), [HOME]
    lead.stand_at(JointCommand(q=HOME))
    for k in range(400):
        lead.tell(JointCommand(q=sheet.q_max + 1.0), k * PERIOD_NS)
        path.append(lead.step(k * PERIOD_NS).command.q)
    speeds = np.abs(np.diff(path, axis=0)) / (PERIOD_NS / NS_PER_S)
    assert (path[-1] <= sheet.q_max).all()
    assert (speeds <= sheet.dq_max * (1.0 + 1e-9)).all()
    with pytest.raises(InvalidValueError, match=r"dq_max of joint 5 is 5.26, beyond the 2.61 of an FER"):
        FrankaArm("127.0.0.1", model="fer", limits=LIMITS)
    with pytest.raises(InvalidValueError, match="model is one of fr3, fer, got 'panda'"):
        FrankaArm("127.0.0.1", model="panda")
