"""Whatever is asked for, what is sent keeps to the limits, by divided differences of what was sent."""

import re
from itertools import pairwise

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.plan.limiter import Limiter
from robot_runtime.core.plan.limits import Limits, MotionLimits, SpeedCurve
from robot_runtime.core.values.action import (
    ActionSpec,
    BasePose,
    BasePoseCommand,
    BaseTwist,
    BaseTwistCommand,
    Command,
    EndEffectorPose,
    GripperCommand,
    GripperWidth,
    JointCommand,
    JointPosition,
    PoseCommand,
)
from robot_runtime.core.values.transforms import compose_planar, inverse_planar
from robot_runtime.errors import InvalidValueError

STEP = 2_000_000
DT_S = 0.002
HAND = MotionLimits.of_norm(speed=1.0, acceleration=9.0, jerk=1000.0)
LIMITS = Limits(
    q_min=np.array([-1.0, -2.0]),
    q_max=np.array([1.0, 2.0]),
    dq_max=np.array([2.0, 3.0]),
    ddq_max=np.array([10.0, 5.0]),
    dddq_max=np.array([5000.0, 400.0]),
    dq_curve=SpeedCurve(
        low=np.array([-1.01, -2.01]),
        high=np.array([1.01, 2.01]),
        gain=np.array([12.0, 5.0]),
        offset=np.array([0.3, 0.2]),
    ),
    gripper=MotionLimits(speed=np.array([0.2]), acceleration=np.array([2.0]), jerk=np.array([100.0])),
    hand_translation=HAND,
    hand_rotation=HAND,
    base=MotionLimits(
        speed=np.array([0.5, 0.5, 1.0]),
        acceleration=np.array([1.0, 1.0, 2.0]),
        jerk=np.array([20.0, 20.0, 40.0]),
    ),
)


def joints(*q: float) -> Command:
    return Command(arm=JointCommand(q=np.array(q)))


def sent(limiter: Limiter, targets: list[np.ndarray | None], make) -> np.ndarray:
    """What the limiter makes of targets, one a tick; None brakes."""
    out = []
    for k, target in enumerate(targets):
        now_ns = (k + 1) * STEP
        command = limiter.brake(now_ns) if target is None else limiter.limit(make(target), now_ns)[0]
        out.append(command)
    return out


def derivatives(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    v = np.diff(values, axis=0) / DT_S
    a = np.diff(v, axis=0) / DT_S
    return v, a, np.diff(a, axis=0) / DT_S


def assert_within(values: np.ndarray, limits: MotionLimits) -> None:
    assert np.isfinite(values).all()
    for what, most in zip(derivatives(values), (limits.speed, limits.acceleration, limits.jerk), strict=True):
        assert (np.abs(what) <= most * (1.0 + 1e-9)).all()


wild = st.one_of(
    st.floats(-3.0, 3.0), st.sampled_from([1.7e308, -1.7e308, np.inf, -np.inf, np.nan, 1e9, 0.0, 1.0, -2.0])
)
places = st.one_of(st.none(), st.lists(wild, min_size=3, max_size=3))
asked = st.lists(st.tuples(places, st.floats(-3.0, 3.0), st.integers(1, 150)), min_size=1, max_size=8)


def spread(pieces) -> list[np.ndarray | None]:
    """Targets of every tick: jumps to a position, from which they move at some speed; None brakes."""
    out: list[np.ndarray | None] = []
    for place, speed, count in pieces:
        for k in range(count):
            out.append(None if place is None else np.array(place) + speed * k * DT_S)
    return out


@given(asked)
def test_joints_keep_to_position_speed_acceleration_jerk_and_speed_by_position(pieces):
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(joints(0.0, 0.0), 0)
    commands = sent(limiter, spread(pieces), lambda x: joints(*x[:2]))
    q = np.array([[0.0, 0.0]] * 3 + [command.arm.q for command in commands])
    assert_within(q, LIMITS.joints)
    assert (q <= LIMITS.q_max * (1.0 + 1e-12)).all()
    assert (q >= LIMITS.q_min * (1.0 + 1e-12)).all()
    curve, v = LIMITS.dq_curve, np.diff(q, axis=0) / DT_S
    assert (v <= np.sqrt(curve.gain * (curve.high - q[1:])) - curve.offset + 1e-9).all()
    assert (-v <= np.sqrt(curve.gain * (q[1:] - curve.low)) - curve.offset + 1e-9).all()


@given(asked)
def test_the_hand_keeps_to_its_limits_along_and_about_every_axis(pieces):
    start = PoseCommand(p_BE=np.zeros(3), quat_BE=np.array([1.0, 0.0, 0.0, 0.0]))
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(Command(arm=start), 0)

    def pose(x: np.ndarray) -> Command:
        quat = np.array([1.0, *x])
        with np.errstate(all="ignore"):
            quat = quat / np.linalg.norm(quat) if np.isfinite(x).all() and np.abs(x).max() < 1e9 else quat
        return Command(arm=PoseCommand(p_BE=x, quat_BE=quat))

    arms = [start] * 3 + [command.arm for command in sent(limiter, spread(pieces), pose)]
    p = np.array([arm.p_BE for arm in arms])
    for what, most in zip(derivatives(p), (1.0, 9.0, 1000.0), strict=True):
        assert (np.linalg.norm(what, axis=1) <= most * (1.0 + 1e-9)).all()
    turns = [pin.log3(b.X_BE.rotation @ a.X_BE.rotation.T) / DT_S for a, b in pairwise(arms)]
    w = np.array(turns)
    assert (np.linalg.norm(w, axis=1) <= 1.0 + 1e-6).all()
    assert (np.linalg.norm(np.diff(w, axis=0), axis=1) / DT_S <= 9.0 * (1.0 + 1e-6)).all()


@given(asked)
def test_the_gripper_keeps_to_its_range_and_its_limits(pieces):
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(Command(gripper=GripperCommand(width=0.08)), 0)
    out = sent(limiter, spread(pieces), lambda x: Command(gripper=GripperCommand(width=float(x[0]))))
    widths = np.array([[0.08]] * 3 + [[command.gripper.width] for command in out])
    assert_within(widths, LIMITS.gripper)
    assert ((widths >= -1e-15) & (widths <= 0.08 + 1e-15)).all()


@pytest.mark.parametrize("start", [-0.02, 0.1])
def test_a_gripper_measured_beyond_its_range_is_led_in_within_its_limits(start):
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(Command(gripper=GripperCommand(width=start)), 0)
    out = sent(
        limiter, [np.array([0.05])] * 2000, lambda x: Command(gripper=GripperCommand(width=float(x[0])))
    )
    widths = np.array([[start]] * 3 + [[command.gripper.width] for command in out])
    assert_within(widths, LIMITS.gripper)
    assert widths[-1] == 0.05


@given(asked)
def test_a_base_led_by_pose_keeps_to_its_limits_along_its_own_axes(pieces):
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(Command(base=BasePoseCommand(x_WB=np.zeros(3))), 0)
    out = sent(limiter, spread(pieces), lambda x: Command(base=BasePoseCommand(x_WB=x)))
    x_WB = np.array([np.zeros(3)] * 3 + [command.base.x_WB for command in out])
    own = [compose_planar(inverse_planar(a), b) for a, b in pairwise(x_WB)]  # along its own axes
    assert_within(np.cumsum(own, axis=0), LIMITS.base)


@given(asked)
def test_a_base_led_by_twist_keeps_to_its_limits(pieces):
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(Command(base=BaseTwistCommand(V_WB_B=np.zeros(3))), 0)
    out = sent(limiter, spread(pieces), lambda x: Command(base=BaseTwistCommand(V_WB_B=x)))
    twist = np.array([np.zeros(3)] * 3 + [command.base.V_WB_B for command in out])
    assert np.isfinite(twist).all()
    assert (np.abs(twist) <= LIMITS.base.speed * (1.0 + 1e-9)).all()
    a, j, _ = derivatives(twist)
    assert (np.abs(a) <= LIMITS.base.acceleration * (1.0 + 1e-9)).all()
    assert (np.abs(j) <= LIMITS.base.jerk * (1.0 + 1e-9)).all()


@given(asked)
def test_braking_never_goes_faster_than_the_acceleration_at_the_time_leads_to_and_ends_at_rest(pieces):
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(joints(0.0, 0.0), 0)
    targets = spread(pieces)
    sent(limiter, targets, lambda x: joints(*x[:2]))
    path = [limiter.sent.arm.q]
    for k in range(2000):
        path.append(limiter.brake((len(targets) + 1 + k) * STEP).arm.q)
        if limiter.is_at_rest:
            break
    assert limiter.is_at_rest
    speeds = np.abs(np.diff(path, axis=0)) / DT_S
    rise = LIMITS.ddq_max**2 / (2.0 * LIMITS.dddq_max) + LIMITS.ddq_max * DT_S
    assert (speeds <= speeds[0] + rise).all()


@pytest.mark.parametrize("period_ns", [1_000_000, 2_000_000, 20_000_000])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_base_led_by_twist_comes_to_a_stand_where_its_twist_is_not_finite(bad, period_ns):
    limiter = Limiter(LIMITS, period_ns=period_ns)
    limiter.reset(Command(base=BaseTwistCommand(V_WB_B=np.zeros(3))), 0)
    fast = Command(base=BaseTwistCommand(V_WB_B=np.array([0.4, -0.3, 0.9])))
    broken = Command(base=BaseTwistCommand(V_WB_B=np.array([0.4, bad, 0.9])))
    speeds = []
    for k in range(1, 3_000_000_000 // period_ns):
        command, _ = limiter.limit(fast if k * period_ns < 1_000_000_000 else broken, k * period_ns)
        speeds.append(np.abs(command.base.V_WB_B))
    assert speeds[1_000_000_000 // period_ns - 2][0] == pytest.approx(0.4)
    np.testing.assert_array_equal(speeds[-1], 0.0)
    assert limiter.is_at_rest


@pytest.mark.parametrize("period_ns", [1_000_000, 10_000_000, 20_000_000])
def test_a_base_led_by_twist_keeps_to_its_speeds_where_they_are_turned_round(period_ns):
    limiter = Limiter(LIMITS, period_ns=period_ns)
    limiter.reset(Command(base=BaseTwistCommand(V_WB_B=np.zeros(3))), 0)
    rng = np.random.default_rng(1)
    for k in range(1, 1500):
        if k % 37 == 1:
            target = Command(base=BaseTwistCommand(V_WB_B=rng.choice([-5.0, 5.0, 0.45], size=3)))
        twist = limiter.limit(target, k * period_ns)[0].base.V_WB_B
        assert (np.abs(twist) <= LIMITS.base.speed).all()


def test_a_step_is_reached_without_overshoot():
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(joints(0.0, 0.0), 0)
    q = np.array([c.arm.q for c in sent(limiter, [np.array([0.5, -0.5])] * 800, lambda x: joints(*x))])
    np.testing.assert_array_equal(q[-1], [0.5, -0.5])
    assert q[:, 0].max() <= 0.5
    assert q[:, 1].min() >= -0.5
    assert limiter.is_at_rest


def test_a_plan_within_the_limits_passes_untouched_to_the_last_bit():
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(joints(0.0, 0.0), 0)
    targets = [0.3 * (1.0 - np.cos(k * DT_S)) * np.ones(2) for k in range(1000)]
    out = sent(limiter, targets, lambda x: joints(*x))
    np.testing.assert_array_equal([command.arm.q for command in out], targets)
    assert limiter.tally.sentences() == []


def test_after_a_stall_it_goes_on_from_where_it_was_and_counts():
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(joints(0.0, 0.0), 0)
    ramp = [np.full(2, 0.2 * k * DT_S) for k in range(400)]
    before = sent(limiter, ramp[:200], lambda x: joints(*x))[-1].arm.q
    after, _ = limiter.limit(joints(*ramp[350]), 350 * STEP)
    assert (np.abs(after.arm.q - before) <= 2.0 * 0.2 * DT_S).all()
    assert (limiter.num_stalls, limiter.stalled_ns) == (1, 149 * STEP)


@pytest.mark.parametrize(
    ("elapsed_ns", "num_stalls"), [(STEP, 0), (3 * STEP // 2 - 1, 0), (3 * STEP // 2, 1)]
)
def test_a_tick_that_comes_half_a_period_late_is_a_stall(elapsed_ns, num_stalls):
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(joints(0.0, 0.0), 0)
    limiter.brake(STEP)
    limiter.brake(STEP + elapsed_ns)
    assert (limiter.num_stalls, limiter.stalled_ns) == (num_stalls, num_stalls * (elapsed_ns - STEP))


def test_what_was_held_back_is_told_by_part_and_kind():
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(joints(0.0, 0.0), 0)
    _, clip = limiter.limit(joints(5.0, 0.0), STEP)
    assert clip.has("position")
    assert clip.has("velocity")
    assert clip.has("acceleration")
    assert clip.arm.distance == pytest.approx(5.0, abs=0.1)
    _, clip = limiter.limit(joints(np.nan, 0.0), 2 * STEP)
    assert clip.has("not_finite")
    assert any(
        re.fullmatch(r"arm: held back by its position limit for 0\.00 s, by up to 5\S* rad", sentence)
        for sentence in limiter.tally.sentences()
    )


def test_a_corner_that_is_rounded_off_unseen_is_counted_and_not_said():
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(joints(0.0, 0.0), 0)
    limiter.limit(joints(1e-4, 0.0), STEP)
    assert limiter.tally.num_ticks
    assert limiter.tally.sentences() == []


def test_what_a_speed_was_held_back_by_is_named_as_of_a_speed():
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(Command(base=BaseTwistCommand(V_WB_B=np.zeros(3))), 0)
    for k in range(1, 2000):
        _, clip = limiter.limit(Command(base=BaseTwistCommand(V_WB_B=np.array([99.0, 0.0, 0.0]))), k * STEP)
        assert not clip.has("position")
        if k == 1:
            assert clip.has("velocity")
            assert clip.has("acceleration")
    reported = limiter.tally.sentences()
    assert [sentence.split(" for ")[0] for sentence in reported] == [
        "base: held back by its acceleration limit", "base: held back by its jerk limit",
        "base: held back by its velocity limit",
    ]  # fmt: skip
    assert all(sentence.endswith(" m/s or rad/s") for sentence in reported)


def test_a_base_pose_turns_the_shorter_way():
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(Command(base=BasePoseCommand(x_WB=np.array([0.0, 0.0, 3.1]))), 0)
    target = Command(base=BasePoseCommand(x_WB=np.array([0.0, 0.0, -3.1])))
    yaws = [limiter.limit(target, k * STEP)[0].base.x_WB[2] for k in range(1, 400)]
    assert yaws[-1] == -3.1
    assert min(abs(yaw) for yaw in yaws) > 3.0


def test_a_base_goes_on_as_it_went_when_odometry_calls_its_place_another():
    limiter = Limiter(LIMITS, period_ns=STEP)
    limiter.reset(Command(base=BasePoseCommand(x_WB=np.zeros(3))), 0)
    ramp = [np.array([0.2 * k * DT_S, 0.0, 0.0]) for k in range(300)]
    out = sent(limiter, ramp, lambda x: Command(base=BasePoseCommand(x_WB=x)))
    step = out[-1].base.x_WB - out[-2].base.x_WB
    here = out[-1].base.x_WB
    limiter.move_odometry(here, np.array([5.0, -1.0, np.pi / 2]))
    np.testing.assert_allclose(limiter.sent.base.x_WB, [5.0, -1.0, np.pi / 2], atol=1e-12)
    after = limiter.brake(301 * STEP).base.x_WB - limiter.sent.base.x_WB
    moved = limiter.sent.base.x_WB - [5.0, -1.0, np.pi / 2]
    np.testing.assert_allclose(after, 0.0)
    assert moved[1] == pytest.approx(step[0], rel=0.05)
    assert abs(moved[0]) < 1e-9


@pytest.mark.parametrize("name", ["q_min", "dq_max", "ddq_max", "dddq_max"])
def test_limits_that_are_not_finite_are_refused_by_name(name):
    numbers = {n: getattr(LIMITS, n) for n in ("q_min", "q_max", "dq_max", "ddq_max", "dddq_max")}
    with pytest.raises(InvalidValueError, match=name):
        Limits(**{**numbers, name: np.array([np.inf, 1.0])})


def test_a_part_without_declared_limits_cannot_be_commanded():
    bare = Limits(
        q_min=LIMITS.q_min, q_max=LIMITS.q_max, dq_max=LIMITS.dq_max, ddq_max=LIMITS.ddq_max,
        dddq_max=LIMITS.dddq_max,
    )  # fmt: skip
    spec = ActionSpec(fields=(EndEffectorPose(), BasePose()), horizon=4, dt_ns=STEP)
    with pytest.raises(InvalidValueError, match=r"hand_translation=..., hand_rotation=..., base=..."):
        bare.check(spec, resolves_hand=False)
    with pytest.raises(InvalidValueError, match=r"Limits\(base=...\)"):
        bare.check(spec, resolves_hand=True)
    fields = (JointPosition(2, part="left_arm"), GripperWidth("left_gripper"), GripperWidth())
    with pytest.raises(InvalidValueError) as refused:
        bare.check(ActionSpec(fields=fields, horizon=4, dt_ns=STEP))
    assert (
        "Limits({'left_arm': JointLimits(q_min=..., q_max=..., dq_max=..., ddq_max=..., dddq_max=...), "
        "'left_gripper': GripperLimits(motion=...)}, gripper=...) is needed"
    ) in str(refused.value)
    with pytest.raises(InvalidValueError, match=r"7 joints.*2"):
        LIMITS.check(ActionSpec(fields=(JointPosition(7),), horizon=4, dt_ns=STEP), resolves_hand=False)


DIFFERENTIAL = Limits(
    base=MotionLimits(speed=np.array([0.5, 0.0, 1.0]), acceleration=np.ones(3), jerk=np.full(3, 20.0))
)


@given(asked)
def test_a_differential_base_is_never_sent_sideways(pieces):
    limiter = Limiter(DIFFERENTIAL, period_ns=STEP)
    limiter.reset(Command(base=BaseTwistCommand(V_WB_B=np.zeros(3))), 0)
    out = sent(limiter, spread(pieces), lambda x: Command(base=BaseTwistCommand(V_WB_B=x)))
    twist = np.array([command.base.V_WB_B for command in out])
    assert not twist[:, 1].any()
    assert (np.abs(twist) <= DIFFERENTIAL.base.speed).all()


def test_a_policy_that_commands_poses_of_a_differential_base_is_refused():
    DIFFERENTIAL.check(ActionSpec(fields=(BaseTwist(),), horizon=4, dt_ns=STEP))
    with pytest.raises(InvalidValueError, match="differential base"):
        DIFFERENTIAL.check(ActionSpec(fields=(BasePose(),), horizon=4, dt_ns=STEP))


@pytest.mark.parametrize("speed", [[0.0, 0.5, 1.0], [0.5, 0.5, 0.0], [0.5, -0.1, 1.0]])
def test_a_base_that_does_not_drive_ahead_or_turn_is_refused(speed):
    with pytest.raises(InvalidValueError, match="speed"):
        Limits(base=MotionLimits(speed=np.array(speed), acceleration=np.ones(3), jerk=np.ones(3)))


def test_a_gripper_without_speed_is_refused():
    with pytest.raises(InvalidValueError, match="gripper: speeds have to be positive"):
        Limits(gripper=MotionLimits(speed=np.zeros(1), acceleration=np.ones(1), jerk=np.ones(1)))
