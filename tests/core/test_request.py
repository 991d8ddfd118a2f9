"""When a robot asks, what it shows, and which numbers are refused."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.method.request_parts import (
    BeforePlanEnds,
    Continuous,
    FixedExecutionHorizon,
    IntegratedDeltas,
    PlainObservation,
    PreviousChunk,
    RolledForwardState,
)
from robot_runtime.core.method.sampler_parts import ClampedPrefix, ConstantSchedule
from robot_runtime.core.method.splice_parts import NotBeforePlanned, TimeAligned
from robot_runtime.core.method.table import METHODS, Method, method_named
from robot_runtime.core.plan.limits import JointLimits, Limits
from robot_runtime.core.values.action import NS_PER_S, BaseTwist, JointPosition, JointVelocity
from robot_runtime.core.values.state import ArmState, BaseState, Observation, RobotState
from robot_runtime.errors import InvalidValueError
from tests.core.support import (
    DT,
    MOBILE_LIMITS,
    OPEN_LIMITS,
    SLOW_TICK,
    SPEC,
    TICK,
    ConstantHead,
    answer,
    executor,
    observation_at,
    ramp,
    state_at,
)
from tests.examples import examples

MS = 1_000_000


def with_request(part, sampler=None, splice=None) -> Method:
    return Method(
        request=part,
        sampler=sampler or ConstantSchedule(),
        splice=TimeAligned() if splice is None else splice,
    )


def moving(request_part, *, latency_ns=0, answers=1, splice=None, **kwargs):
    """A robot that has run for a while, each of its answers having taken `latency_ns`; and the time."""
    robot = executor(with_request(request_part, splice=splice), **kwargs)
    robot.reset(state_at(0), 0)
    now = 0
    for _ in range(answers):
        while not robot.wants_request(now):
            robot.tick(state_at(now), now)
            now += TICK
        request = robot.make_request(observation_at(now))
        end = now + latency_ns
        while now < end:
            robot.tick(state_at(now), now)
            now += TICK
        robot.on_part(answer(request, ramp(0.0, 0.1)), now)
    return robot, now


def first_wish(robot, now):
    while not robot.wants_request(now):
        robot.tick(state_at(now), now)
        now += TICK
    return now


def test_as_soon_as_possible_waits_for_the_answer_and_for_one_row():
    robot, now = moving(PlainObservation(when=Continuous()))
    assert first_wish(robot, now) == DT
    request = robot.make_request(observation_at(DT))
    assert not robot.wants_request(10 * DT)  # its answer is still to come
    robot.on_part(answer(request, ramp(0.0, 0.1)), 3 * DT)
    assert robot.wants_request(3 * DT)


def test_before_starvation_leaves_the_margin_when_the_answer_comes():
    latency = 2 * DT
    robot, now = moving(PlainObservation(when=BeforePlanEnds(margin_rows=2)), latency_ns=latency, answers=4)
    asked = first_wish(robot, now)
    left = robot.timeline.end_ns - (asked + latency)
    assert 2 * DT <= left <= 3 * DT  # d is rounded up to the row that is due with the answer
    assert robot.counts.starved_ticks == latency // TICK  # until the first answer


def test_before_starvation_asks_at_once_while_no_latency_is_known():
    robot, now = moving(PlainObservation(when=BeforePlanEnds()))
    assert first_wish(robot, now) == DT


def test_a_fixed_overlap_asks_when_row_n_minus_o_is_due():
    robot, now = moving(PlainObservation(when=BeforePlanEnds(overlap_rows=3)))
    assert first_wish(robot, now) == 5 * DT  # eight rows, the last due at 7 DT


def test_vlash_with_fixed_overlap_runs_every_row_of_every_chunk():
    method = METHODS["vlash-fixed-overlap"]
    robot = executor(method)
    robot.reset(state_at(0), 0)
    request, arrival, targets = None, 0, []
    for t in range(0, 60 * DT, TICK):
        if request is not None and t >= arrival:
            robot.on_part(answer(request, ramp(0.0, 0.1)), t)
            request = None
        if robot.wants_request(t):
            request = robot.make_request(observation_at(t))
            arrival = t + DT  # well within the overlap of four rows
        tick = robot.tick(state_at(t), t)
        if t % DT == 0:
            targets.append(tick.command.arm.q[0])
    # The first chunk starts when it arrives, at 1 DT.
    np.testing.assert_allclose(targets[1:49], np.tile(0.1 * np.arange(8), 6), atol=1e-9)
    assert robot.counts.starved_ticks == DT // TICK
    assert robot.counts.skipped_rows == 0


def test_a_late_answer_of_vlashs_loop_starts_at_its_row_zero():
    part = RolledForwardState(when=BeforePlanEnds(overlap_rows=2), inference_delay=2)
    robot, now = moving(part, splice=NotBeforePlanned())
    asked = first_wish(robot, now)
    request = robot.make_request(observation_at(asked))
    late = asked + 3 * DT
    robot.on_part(answer(request, ramp(5.0, 0.1)), late)
    assert robot.last_splice.t0_ns == late
    assert robot.last_splice.seam.first_row == 0


def test_vlashs_row_zero_is_due_exactly_d_rows_after_the_capture():
    robot, now = moving(
        RolledForwardState(when=FixedExecutionHorizon(rows=1)), latency_ns=2 * DT + TICK, answers=4
    )
    asked = first_wish(robot, now)
    request = robot.make_request(observation_at(asked))
    assert request.observation.t_obs_ns == asked + 3 * DT  # rows 0, 1 and 2 are due before the answer
    arrival = asked + 2 * DT + TICK
    for t in range(asked, arrival, TICK):
        robot.tick(state_at(t), t)
    robot.on_part(answer(request, ramp(3.0, 0.1)), arrival)
    splice = robot.last_splice
    assert splice.t0_ns == asked + 3 * DT
    assert splice.source.t_obs_ns == asked
    assert splice.latency_ns == 2 * DT + TICK  # counts from the capture, not from the planned start
    assert splice.seam.first_row == 0
    tick = robot.tick(state_at(asked + 3 * DT), asked + 3 * DT)
    assert (tick.row, tick.command.arm.q[0]) == (0, pytest.approx(3.0))
    assert tick.age_ns == 3 * DT


def test_a_rolled_forward_state_is_where_the_plan_will_be_and_the_hand_with_it():
    robot, _ = moving(
        RolledForwardState(when=FixedExecutionHorizon(rows=1), inference_delay=2, model=IntegratedDeltas())
    )
    robot.tick(state_at(DT), DT)
    shown = robot.make_request(observation_at(DT, q=(0.05, 0.0))).observation.state
    assert shown.t_ns == 3 * DT
    assert shown.q[0] == pytest.approx(0.05 + 0.2)
    np.testing.assert_allclose(shown.X_BE.translation[:2], shown.q)
    np.testing.assert_allclose(shown.dq, [2.0, -2.0])  # 0.1 rad a row, 50 ms


def test_nothing_is_rolled_forward_while_no_latency_is_known_or_the_robot_stands():
    part = RolledForwardState(when=FixedExecutionHorizon(rows=1))
    robot, now = moving(part)
    observation = observation_at(first_wish(robot, now))
    assert robot.make_request(observation).observation is observation
    robot, now = moving(RolledForwardState(inference_delay=3))
    at_rest = robot.timeline.end_ns + 5 * DT
    observation = observation_at(at_rest)
    assert robot.make_request(observation).observation is observation


def test_rolling_joints_forward_needs_kinematics():
    with pytest.raises(InvalidValueError, match="hand_pose"):
        executor("vlash", hand_pose=None)


def test_a_delay_beyond_the_policys_training_is_cut_and_counted():
    part = PreviousChunk(when=FixedExecutionHorizon(rows=1))
    robot, now = moving(part, latency_ns=3 * DT, answers=4, max_inference_delay=2)
    assert robot.counts.delays_clamped == 2  # the third request and the fourth knew the latency
    request = robot.make_request(observation_at(first_wish(robot, now)))
    assert request.inference_delay == 2
    assert robot.counts.delays_clamped == 3
    assert any("trained for" in sentence for sentence in robot.counts.fallbacks())


def test_a_delay_within_the_policys_training_is_used_and_nothing_is_said():
    robot, now = moving(
        PreviousChunk(when=FixedExecutionHorizon(rows=1)),
        latency_ns=2 * DT + TICK,
        answers=4,
        max_inference_delay=3,
    )
    assert robot.make_request(observation_at(first_wish(robot, now))).inference_delay == 3
    assert robot.counts.fallbacks() == {}


late_ticks = st.lists(st.integers(0, SLOW_TICK - 1), min_size=40, max_size=40)


def asked_by(late, rows):
    """When a robot asks every so many rows, its ticks late by so much [ns]."""
    method = with_request(PlainObservation(when=FixedExecutionHorizon(rows=rows)))
    robot = executor(method, control_period_ns=SLOW_TICK)
    robot.reset(state_at(0), 0)
    asked = []
    for k in range(40 * DT // SLOW_TICK):
        now = k * SLOW_TICK + late[k % len(late)]
        if robot.wants_request(now):
            robot.on_part(answer(robot.make_request(observation_at(now)), ramp(0.0, 0.1)), now)
            asked.append(now)
        robot.tick(state_at(now), now)
    return np.array(asked)


@examples(50)
@given(late=late_ticks, rows=st.integers(2, 4))
def test_a_robot_whose_ticks_are_late_asks_as_often_as_the_rows_say(late, rows):
    asked = asked_by(late, rows)
    late_by = asked - asked[0] - rows * DT * np.arange(len(asked))
    assert len(asked) >= 40 // rows - 1
    assert late_by.min() >= 0
    assert late_by.max() < 2 * SLOW_TICK


@examples(50)
@given(late=late_ticks)
@pytest.mark.long
def test_requests_never_come_closer_than_a_row(late):
    """The path to an answer's first row leaves the older plan a row before: it would miss the last one's."""
    gaps = np.diff(asked_by(late, 1))
    assert gaps.min() >= DT
    assert gaps.max() < DT + 2 * SLOW_TICK


def test_a_robot_that_could_not_ask_for_more_than_a_row_begins_a_new_pace():
    robot, _ = moving(PlainObservation(when=FixedExecutionHorizon(rows=2)))
    for now in (2 * DT - TICK, 2 * DT + 1, 4 * DT):  # e.g. no image at the second
        robot.tick(state_at(now), now)
        wanted = robot.wants_request(now)
    assert wanted
    robot.on_part(answer(robot.make_request(observation_at(now)), ramp(0.0, 0.1)), now)
    assert first_wish(robot, now + TICK) == now + 2 * DT


@pytest.mark.parametrize(
    ("latency_ns", "trained", "rows"),
    [(0, None, 4), (DT // 2, None, 4), (2 * DT, None, 2), (0, 1, 4), (0, 2, 2), (DT // 2, 6, 2)],
)
def test_answers_that_go_on_from_the_measured_speed_are_asked_for_less_often(latency_ns, trained, rows):
    part = PreviousChunk(when=FixedExecutionHorizon(rows=2, rows_from_measured=4, max_in_flight=8))
    robot, now = moving(part, latency_ns=latency_ns, answers=4, max_inference_delay=trained)
    first = robot.make_request(observation_at(first_wish(robot, now))).observation.t_obs_ns
    assert first_wish(robot, first + TICK) == first + rows * DT


@given(latency_ns=st.integers(0, 3 * DT), trained=st.none() | st.integers(1, 7), rows=st.integers(1, 3))
def test_a_robot_in_motion_commits_two_rows_to_a_policy_that_was_trained_for_them(latency_ns, trained, rows):
    part = PreviousChunk(when=FixedExecutionHorizon(rows=rows))
    robot, now = moving(part, latency_ns=latency_ns, answers=3, max_inference_delay=trained)
    request = robot.make_request(observation_at(first_wish(robot, now)))
    measured = -(-latency_ns // DT)
    most = 7 if trained is None else trained
    least = 0 if trained in (None, 1) else 2
    assert request.inference_delay == min(max(measured, least), most)
    assert len(request.prev_action_chunk) >= request.inference_delay


def test_a_robot_that_stands_or_whose_plan_ends_commits_nothing_that_its_answers_leave_time_for():
    robot, _ = moving(PreviousChunk(), answers=3, max_inference_delay=4)
    end = robot.timeline.end_ns
    for t_obs, d in ((end - DT, 2), (end - DT + 1, 0), (end + 20 * DT, 0)):
        assert robot.make_request(observation_at(t_obs)).inference_delay == d
    robot, now = moving(PreviousChunk(inference_delay=1), answers=3, max_inference_delay=4)
    assert robot.make_request(observation_at(now)).inference_delay == 1


@pytest.mark.parametrize("knows_rest", [True, False])
def test_a_robot_that_stands_shows_a_prefix_only_to_a_policy_that_was_shown_such_ones(knows_rest):
    robot, now = moving(
        PreviousChunk(), answers=3, latency_ns=2 * DT, max_inference_delay=4, prefix_at_rest=knows_rest
    )
    in_motion = robot.make_request(observation_at(now))
    assert in_motion.inference_delay >= 2
    standing = robot.make_request(observation_at(robot.timeline.end_ns + 20 * DT))
    assert (standing.prev_action_chunk is not None) is knows_rest
    assert (standing.inference_delay > 0) is knows_rest


def distance_led(rows, lag_ns, latency_ns):
    """How far a policy moves a robot in 4 s that lags its commands by so much [rad].

    It wants 1 rad/s and speeds up by 0.2 rad/s a row, from the speed that it is told: of two committed rows,
    or else the measured one.
    """
    method = with_request(PreviousChunk(when=FixedExecutionHorizon(rows=rows)), ClampedPrefix())
    robot = executor(method, max_inference_delay=6, control_period_ns=SLOW_TICK)
    robot.reset(state_at(0), 0)
    q, dq, answers = 0.0, 0.0, {}
    for now in range(0, 80 * DT, SLOW_TICK):
        if robot.wants_request(now):
            request = robot.make_request(observation_at(now, q=(q, -q)))
            answers[now + latency_ns] = answer(request, continued(request, q, dq))
        if now in answers:
            robot.on_part(answers[now], now)
        dq = (robot.tick(state_at(now, q=(q, -q)), now).command.arm.q[0] - q) / lag_ns * NS_PER_S
        q += dq * SLOW_TICK / NS_PER_S
    return q


def continued(request, q, dq):
    """The policy's rows."""
    d = request.inference_delay
    planned = [q] if d == 0 else list(request.prev_action_chunk[:d, 0])
    speed = (planned[1] - planned[0]) / DT * NS_PER_S if d >= 2 else dq
    while len(planned) < SPEC.horizon:
        speed = min(speed + 0.2, 1.0)
        planned.append(planned[-1] + speed * DT / NS_PER_S)
    return np.column_stack([planned, -np.array(planned), np.full(SPEC.horizon, 0.08)])


@examples(15)
@given(
    rows=st.integers(2, 4),
    lag_ns=st.integers(DT // 2, 3 * DT),
    ticks_late=st.integers(0, 2 * DT // SLOW_TICK),
)
@pytest.mark.long
def test_an_early_answer_leads_a_robot_that_lags_behind_as_far_as_one_two_rows_late(rows, lag_ns, ticks_late):
    late = distance_led(rows, lag_ns, 2 * DT)
    assert late > 2.5
    assert distance_led(rows, lag_ns, ticks_late * SLOW_TICK) > 0.97 * late


def test_a_horizon_that_the_user_names_holds_at_any_latency():
    assert method_named("pipelined-prefix").request.when.rows_from_measured == 4
    assert method_named("pipelined-prefix", execution_horizon=3).request.when == FixedExecutionHorizon(
        rows=3, max_in_flight=8
    )


def test_a_measured_delay_that_does_not_fit_asks_earlier_and_is_counted():
    robot, now = moving(PlainObservation(when=FixedExecutionHorizon(rows=6)), latency_ns=3 * DT, answers=4)
    last = robot.last_splice.source.t_obs_ns
    assert first_wish(robot, now) == last + 4 * DT  # H = 8, d = 3: s + d < H leaves s = 4
    robot.make_request(observation_at(now))
    assert robot.counts.horizons_shortened >= 1
    assert robot.counts.starved_ticks == 3 * DT // TICK  # until the first answer


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (PreviousChunk(when=FixedExecutionHorizon(rows=6), inference_delay=3), r"6 rows.*d = 3.*9 > 7"),
        (
            PreviousChunk(when=FixedExecutionHorizon(rows=2), inference_delay=5),
            r"s = max\(2, d\) = 5.*10 > 7",
        ),
        (PreviousChunk(inference_delay=9), r"inference delay.*0\.\.7.*got 9"),
        (PreviousChunk(inference_delay=-1), r"inference delay.*got -1"),
        (PlainObservation(when=FixedExecutionHorizon(rows=0)), r"execution horizon.*1\.\.8.*got 0"),
        (
            PreviousChunk(when=FixedExecutionHorizon(rows=4, rows_from_measured=2)),
            r"while d < 2.*4\.\.8.*got 2",
        ),
        (PlainObservation(when=BeforePlanEnds(overlap_rows=9)), r"overlap.*1\.\.8.*got 9"),
        (PlainObservation(when=BeforePlanEnds(execution_horizon=9)), r"execution horizon.*got 9"),
        (PlainObservation(when=BeforePlanEnds(margin_rows=8)), r"margin.*0\.\.7.*got 8"),
        (
            RolledForwardState(when=BeforePlanEnds(overlap_rows=2), inference_delay=3),
            r"o = 2 rows.*d = 3.*d <= o is needed, and 3 > 2",
        ),
        (
            RolledForwardState(when=FixedExecutionHorizon(rows=1), inference_delay=9),
            r"inference delay.*0\.\.8.*got 9",
        ),
        (
            RolledForwardState(when=BeforePlanEnds(execution_horizon=4), inference_delay=5),
            r"s = max\(1, d\) = 5.*s <= H is needed, and 5 > 4",
        ),
    ],
)
def test_numbers_that_cannot_work_are_refused_with_the_inequality(part, text):
    with pytest.raises(InvalidValueError, match=text):
        executor(with_request(part))


@pytest.mark.parametrize(
    "part",
    [
        RolledForwardState(when=FixedExecutionHorizon(rows=8), inference_delay=8),
        RolledForwardState(when=FixedExecutionHorizon(rows=1), inference_delay=7),
        RolledForwardState(when=BeforePlanEnds(overlap_rows=8), inference_delay=8),
        RolledForwardState(when=BeforePlanEnds(overlap_rows=3, execution_horizon=3), inference_delay=3),
    ],
)
def test_a_rolled_forward_state_needs_no_rows_for_the_delay(part):
    executor(with_request(part))


def test_a_fixed_delay_beyond_the_policys_training_is_refused():
    with pytest.raises(InvalidValueError, match=r"0\.\.2, what the policy was trained for; got 3"):
        executor(with_request(PreviousChunk(inference_delay=3), ClampedPrefix()), max_inference_delay=2)


def test_an_execution_horizon_given_by_name_goes_where_the_method_keeps_it():
    assert method_named("synchronous", execution_horizon=5).request.execution_horizon == 5
    assert method_named("naive", execution_horizon=5).request.when == FixedExecutionHorizon(rows=5)
    assert method_named("temporal-ensembling", execution_horizon=5).request.when == FixedExecutionHorizon(
        rows=5
    )
    overlapping = METHODS["pipelined-faster"].request.when
    assert method_named("pipelined-faster", execution_horizon=5).request.when == replace(
        overlapping, rows=5, rows_from_measured=None
    )
    overlap = method_named("vlash-fixed-overlap", execution_horizon=5).request.when
    assert (overlap.execution_horizon, overlap.overlap_rows) == (5, 4)
    whole = method_named("vlash-fixed-overlap-n", execution_horizon=5).request
    assert (whole.when.execution_horizon, whole.when.overlap_rows, whole.inference_delay) == (5, 5, 5)
    with pytest.raises(InvalidValueError, match="at least 1 row, got 0"):
        method_named("vlash", execution_horizon=0)


def test_rare_spikes_hardly_touch_the_estimate_and_are_forgotten():
    """100 ms with 5 % spikes of 600 ms, after a cold start of 5 s."""
    rng, estimator = np.random.default_rng(7), LatencyEstimator()
    estimator.add(5_000 * MS)
    seen = []
    for is_spike in rng.random(2_000) < 0.05:
        estimator.add(600 * MS if is_spike else 100 * MS)
        seen.append(estimator.latency_ns())
    assert set(seen) == {100 * MS, 600 * MS}
    assert np.mean(np.array(seen[20:]) == 100 * MS) > 0.7
    for _ in range(20):
        estimator.add(100 * MS)
    assert estimator.latency_ns() == 100 * MS


def test_the_estimate_follows_a_server_that_has_become_slower():
    estimator = LatencyEstimator()
    for latency_ms in [100] * 30 + [300] * 3:
        estimator.add(latency_ms * MS)
    assert estimator.latency_ns() == 300 * MS


def forward(q: np.ndarray) -> pin.SE3:
    return pin.SE3(np.eye(3), np.array([q[0], q[1], 0.0]))


@pytest.mark.parametrize(("hand_pose", "lacking"), [({"left": forward}, "right"), (forward, "left")])
def test_a_hand_that_could_not_be_rolled_forward_with_its_joints_is_named_before_anything_moves(
    hand_pose, lacking
):
    arms = ("left", "right")
    joints = JointLimits(
        q_min=-np.ones(2), q_max=np.ones(2), dq_max=np.ones(2), ddq_max=np.ones(2), dddq_max=np.ones(2)
    )
    robot = executor(
        "vlash",
        action_spec=replace(SPEC, fields=tuple(JointPosition(2, part=arm) for arm in arms)),
        limits=Limits(dict.fromkeys(arms, joints)),
        hand_pose=hand_pose,
    )
    arm = ArmState(q=np.zeros(2), dq=np.zeros(2))
    seen = ArmState(q=np.zeros(2), dq=np.zeros(2), X_BE=pin.SE3.Identity())
    robot.reset(RobotState(t_ns=0, parts={"left": arm, "right": arm}), 0)
    with pytest.raises(InvalidValueError, match=f"hand_pose={{'{lacking}': ...}}"):
        robot.reset(RobotState(t_ns=0, parts={"left": seen, "right": seen}), 0)


@pytest.mark.parametrize("latency_s", [0.0, 0.1])
@pytest.mark.parametrize("x_WB", [None, np.zeros(3)])
@pytest.mark.parametrize("method", METHODS)
def test_a_base_without_odometry_is_refused_before_the_start_or_never_raises(method, x_WB, latency_s):
    spec = replace(SPEC, fields=(JointPosition(2), BaseTwist()))
    robot = executor(
        METHODS[method],
        action_spec=spec,
        limits=OPEN_LIMITS.replace(base=MOBILE_LIMITS.base),
        correction_head=ConstantHead(*[0.0] * spec.dim, action_spec=spec),
        part_latency_ns={"base": round(latency_s * NS_PER_S)},
    )

    def state(t_ns: int) -> RobotState:
        base = BaseState(x_WB=x_WB, V_WB_B=np.zeros(3))
        return state_at(t_ns).with_parts({"base": base})

    rolls = isinstance(METHODS[method].request, RolledForwardState) or (method == "a2c2" and latency_s > 0.0)
    if rolls and x_WB is None:
        with pytest.raises(InvalidValueError, match="expected x_WB"):
            robot.reset(state(0), 0)
        return
    robot.reset(state(0), 0)
    under_way = []
    for t in range(SLOW_TICK, 4 * NS_PER_S, SLOW_TICK):
        if robot.wants_request(t):
            request = robot.make_request(Observation(state=state(t)))
            under_way.append((t + 80 * MS, answer(request, np.full((SPEC.horizon, 5), 0.1))))
        for each in [each for each in under_way if each[0] <= t]:
            under_way.remove(each)
            robot.on_part(each[1], t)
        if robot.wants_correction(t):
            robot.correct(Observation(state=state(t)), t)
        robot.tick(state(t), t)


def test_joints_commanded_by_velocity_have_to_be_measured():
    robot = executor(action_spec=replace(SPEC, fields=(JointVelocity(2),)))
    for parts in ({}, {"arm": ArmState(q=np.zeros(1), dq=np.zeros(1))}):
        with pytest.raises(ValueError, match="arm"):
            robot.reset(RobotState(t_ns=0, parts=parts), 0)
