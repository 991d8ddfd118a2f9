from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from robot_runtime.core.method.request_parts import (
    BeforePlanEnds,
    Continuous,
    FixedExecutionHorizon,
    PlainObservation,
    PreviousChunk,
    Synchronous,
)
from robot_runtime.core.method.table import METHODS, Method
from robot_runtime.core.plan.answers import PartOutcome
from robot_runtime.core.plan.limits import Limits, MotionLimits
from robot_runtime.core.plan.timeline import Phase
from robot_runtime.core.safety import TRANSITIONS, Cause, Mode
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.values.action import BaseTwist
from robot_runtime.core.values.state import BaseState, Observation, RobotState
from robot_runtime.core.values.transforms import integrate_twist
from robot_runtime.robot.telemetry import RunRecord
from tests.core.support import (
    DT,
    OPEN_LIMITS,
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

MS, NS_PER_S = 1_000_000, 1_000_000_000


def started(method="time-aligned", **kwargs):
    out = executor(method, **kwargs)
    out.reset(state_at(0), 0)
    return out


def ask(robot, now):
    assert robot.wants_request(now)
    return robot.make_request(observation_at(now))


def run(robot, start, end):
    """Tick from start to end (exclusive) with fresh states; the ticks."""
    return [robot.tick(state_at(t), t) for t in range(start, end, TICK)]


def test_a_robot_holds_still_until_its_first_chunk():
    robot = started()
    ticks = run(robot, 0, 10 * DT)
    assert all(tick.mode is Mode.HOLD and tick.command.arm.q[0] == 0.0 for tick in ticks)


def test_time_aligned_rows_run_at_the_time_they_were_meant_for():
    robot = started()
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.1)), 0)
    run(robot, 0, 2 * DT)
    request = ask(robot, 2 * DT)
    run(robot, 2 * DT, 5 * DT)
    assert robot.on_part(answer(request, ramp(1.0, 0.1)), 5 * DT) is PartOutcome.RUNS
    tick = robot.tick(state_at(7 * DT), 7 * DT)
    assert tick.row == 5  # observed at 2 DT, so row 5 is due at 7 DT
    assert tick.command.arm.q[0] == pytest.approx(1.5)
    assert tick.age_ns == 5 * DT
    assert robot.last_splice.seam.num_dropped == 3  # rows due before 5 DT had passed at the last tick


def test_a_robot_that_stood_still_starts_a_time_aligned_chunk_at_row_zero():
    robot = started()
    request = ask(robot, 0)
    run(robot, 0, 4 * DT)
    robot.on_part(answer(request, ramp(0.0, 0.1)), 4 * DT)
    assert robot.tick(state_at(4 * DT), 4 * DT).row == 0


def test_naive_goes_back_to_row_zero():
    robot = started("naive")
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.1)), 0)
    run(robot, 0, 2 * DT)
    request = ask(robot, 2 * DT)
    run(robot, 2 * DT, 5 * DT)
    robot.on_part(answer(request, ramp(0.2, 0.1)), 5 * DT)
    assert robot.tick(state_at(5 * DT), 5 * DT).command.arm.q[0] == pytest.approx(0.2)


def test_synchronous_asks_only_when_it_stands_still():
    method = Method(
        request=Synchronous(execution_horizon=3),
        sampler=METHODS["synchronous"].sampler,
        splice=METHODS["synchronous"].splice,
    )
    robot = started(method)
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.1)), 0)
    asked = [t for t in range(0, 10 * DT, TICK) if robot.tick(state_at(t), t) and robot.wants_request(t)]
    assert asked[0] == 4 * DT  # three rows, the last due at 2 DT, then two rows of coasting
    assert robot.timeline.phase(asked[0]) is Phase.REST


def test_an_execution_horizon_spaces_the_requests():
    method = Method(
        request=PlainObservation(when=FixedExecutionHorizon(rows=3)),
        sampler=METHODS["naive"].sampler,
        splice=METHODS["time-aligned"].splice,
    )
    robot = started(method)
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.1)), 0)
    assert not robot.wants_request(3 * DT - 1)
    assert robot.wants_request(3 * DT)


def test_an_execution_horizon_longer_than_the_chunk_is_refused():
    method = Method(
        request=PlainObservation(when=FixedExecutionHorizon(rows=9)),
        sampler=METHODS["naive"].sampler,
        splice=METHODS["naive"].splice,
    )
    with pytest.raises(ValueError, match=r"1\.\.8.*got 9"):
        executor(method)


def test_the_committed_prefix_is_what_the_robot_will_do_until_the_answer():
    method = Method(
        request=PreviousChunk(inference_delay=3, when=FixedExecutionHorizon(rows=1)),
        sampler=METHODS["committed-prefix"].sampler,
        splice=METHODS["committed-prefix"].splice,
    )
    robot = started(method)
    first = ask(robot, 0)
    np.testing.assert_allclose(first.prev_action_chunk, [[0.0, 0.0, 0.08]] * 3)  # it will rest until then
    robot.on_part(answer(first, ramp(0.0, 0.1)), 0)
    run(robot, 0, DT)
    request = ask(robot, DT)
    assert request.inference_delay == 3
    np.testing.assert_allclose(request.prev_action_chunk[:, 0], 0.1 * np.arange(1, 8), atol=1e-12)
    np.testing.assert_allclose(request.prev_action_chunk[:, 2], 0.08)


def test_the_prefix_length_follows_the_measured_latency():
    robot = started("committed-prefix")
    now = 0
    for _ in range(4):
        request = ask(robot, now)
        run(robot, now, now + 2 * DT + TICK)
        now += 2 * DT + TICK
        robot.on_part(answer(request, ramp(0.0, 0.1)), now)
    assert ask(robot, now).inference_delay == 3  # two rows and a bit: rows 0, 1 and 2 will have come


def test_when_the_plan_ends_the_robot_decelerates_and_holds_and_a_fresh_chunk_resumes():
    robot = started()
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.1)), 0)
    ticks = run(robot, 0, 12 * DT)
    assert ticks[-1].mode is Mode.HOLD
    assert ticks[-1].cause is Cause.PLAN_ENDED
    end = 7 * DT  # the last of eight rows
    moving = [b.now_ns for a, b in pairwise(ticks) if a.command.arm.q[0] != b.command.arm.q[0]]
    assert end < moving[-1] <= end + 2.5 * DT
    robot.on_part(answer(ask(robot, 12 * DT), ramp(0.9, 0.1)), 12 * DT)
    assert robot.tick(state_at(12 * DT), 12 * DT).mode is Mode.RUN


def test_an_answer_from_before_a_reset_is_refused():
    robot = started()
    old = ask(robot, 0)
    robot.reset(state_at(DT), DT)
    assert robot.on_part(answer(old, ramp(0.0, 0.1)), DT) is PartOutcome.UNKNOWN
    new = ask(robot, DT)
    assert new.epoch == old.epoch + 1
    assert robot.on_part(answer(new, ramp(0.0, 0.1)), DT) is PartOutcome.RUNS


def test_an_answer_of_another_epoch_is_refused_though_its_request_is_open():
    robot = started()
    request = ask(robot, 0)
    for epoch in (request.epoch - 1, request.epoch + 1):
        part = structs.replace(answer(request, ramp(1.0, 0.1)), epoch=epoch)
        assert robot.on_part(part, 0) is PartOutcome.UNKNOWN
    assert robot.on_part(answer(request, ramp(1.0, 0.1)), 0) is PartOutcome.RUNS


def test_duplicate_and_reordered_parts_are_refused():
    robot = started()
    request, rows = ask(robot, 0), ramp(0.0, 0.1)
    late = answer(request, rows[4:], first_row=4)
    early = answer(request, rows[:4], is_last=False)
    assert robot.on_part(late, 0) is PartOutcome.OUT_OF_ORDER
    assert robot.on_part(early, 0) is PartOutcome.RUNS
    assert robot.on_part(early, 0) is PartOutcome.OUT_OF_ORDER
    assert robot.on_part(late, 0) is PartOutcome.RUNS
    assert robot.on_part(late, 0) is PartOutcome.UNKNOWN


@pytest.mark.parametrize(
    "rows", [np.full((8, 3), np.nan), np.zeros((8, 4)), np.zeros((9, 3)), np.zeros((0, 3))]
)
def test_a_broken_chunk_is_refused_and_the_plan_goes_on(rows):
    robot = started()
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.1)), 0)
    run(robot, 0, DT)
    assert robot.on_part(answer(ask(robot, DT), rows), DT) is PartOutcome.INVALID
    assert robot.tick(state_at(2 * DT), 2 * DT).command.arm.q[0] == pytest.approx(0.2)
    assert robot.wants_request(2 * DT)


def test_a_stale_state_holds_the_robot_and_a_broken_one_stops_it():
    robot = started()
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.1)), 0)
    robot.tick(state_at(0), 0)
    assert robot.tick(state_at(0), 101_000_000).cause is Cause.STATE_STALE
    assert robot.mode is Mode.HOLD
    robot.tick(state_at(110_000_000, q=(np.nan, 0.0)), 110_000_000)
    assert robot.mode is Mode.STOP
    assert not robot.wants_request(120_000_000)


def test_a_stopped_robot_takes_no_chunk_until_it_is_reset():
    robot = started()
    request = ask(robot, 0)
    robot.stop()
    assert robot.on_part(answer(request, ramp(0.0, 0.1)), 0) is PartOutcome.STOPPED
    assert robot.tick(state_at(DT), DT).mode is Mode.STOP
    robot.reset(state_at(2 * DT), 2 * DT)
    assert robot.mode is Mode.HOLD


def test_only_a_reset_leaves_stop():
    assert {cause for (mode, cause) in TRANSITIONS if mode is Mode.STOP} == {Cause.RESET}
    assert set(TRANSITIONS.values()) == set(Mode)


def test_a_lost_server_voids_its_answer_but_not_the_plan():
    robot = started()
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.1)), 0)
    lost = ask(robot, DT)
    robot.on_server_lost()
    assert robot.on_part(answer(lost, ramp(5.0, 0.1)), DT) is PartOutcome.UNKNOWN
    assert robot.tick(state_at(DT), DT).mode is Mode.RUN


def test_a_far_arm_stops():
    robot = executor(state_limits=StateLimits(max_arm_error=0.3))
    robot.reset(state_at(0), 0)
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.1)), 0)
    robot.tick(state_at(0), 0)
    tick = robot.tick(state_at(5 * DT), 5 * DT)  # the command is half a radian on, the arm has not moved
    assert tick.mode is Mode.STOP
    assert robot.tick(state_at(6 * DT), 6 * DT).cause is Cause.TRACKING_LOST


def test_starting_from_a_broken_state_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        executor().reset(state_at(0, q=(np.inf, 0.0)), 0)


parts = st.lists(st.integers(1, 8), min_size=1, max_size=4)
answers = st.tuples(st.integers(0, 400), st.booleans(), parts, st.integers(0, 60))
WHENS = [
    FixedExecutionHorizon(rows=1),
    FixedExecutionHorizon(rows=5),
    Continuous(),
    BeforePlanEnds(),
    BeforePlanEnds(overlap_rows=3),
]


def asking(name: str, when) -> Method:
    method = METHODS[name]
    if isinstance(method.request, Synchronous) or name.startswith("vlash-fixed-overlap"):
        return method
    return replace(method, request=replace(method.request, when=when))


@examples(50)
@given(
    st.sampled_from(sorted(METHODS)),
    st.sampled_from(WHENS),
    st.lists(answers, min_size=1, max_size=12),
    st.integers(0, 100),
)
@example("committed-prefix", FixedExecutionHorizon(rows=1), [(0, False, [8], 0), (0, True, [3], 0)], 0)
def test_no_method_replays_or_rewrites_a_sent_row_under_any_latency(name, when, trace, seed):
    """Random latencies, answers lost half-way, chunks in parts of any size with any gap, gripper changes: the
    log has every row at most once, those of a chunk in order and no chunk's first ones after a newer chunk's,
    and no arrival moves what was commanded last."""
    robot = started(asking(name, when), correction_head=ConstantHead(0.05, -0.05, 0.0))
    rng, record = np.random.default_rng(seed), RunRecord()
    wire, trace = [], iter(trace)
    for t in range(0, 60 * DT, 5 * TICK):
        while wire and wire[0][0] <= t:
            _, part = wire.pop(0)
            before = robot.timeline.command_at(robot.timeline.claimed_ns)
            if isinstance(part, int):
                robot.on_request_failed(part)
            else:
                robot.on_part(part, t)
            after = robot.timeline.command_at(robot.timeline.claimed_ns)
            np.testing.assert_allclose(after.arm.q, before.arm.q, atol=1e-9)
            assert after.gripper == before.gripper
        robot.correct(observation_at(t), t)
        record.on_tick(robot.tick(state_at(t), t), robot.last_splice)
        if robot.wants_request(t):
            request = robot.make_request(observation_at(t))
            latency_ms, is_lost, sizes, gap_ms = next(trace, (200, False, [8], 0))
            wire = arrivals(request, rng, t + latency_ms * MS, sizes, gap_ms * MS, is_lost=is_lost)
    assert record.num_resent_rows() == 0
    chunks = list(dict.fromkeys(request_id for request_id, _ in record.rows_sent()))
    assert chunks == sorted(chunks)
    assert len(chunks) > 0
    if "naive" not in name and "vlash-fixed" not in name and "state" not in name:
        assert record.num_repeated_rows() == 0


def arrivals(request, rng, t_ns, sizes, gap_ns, *, is_lost):
    """[(time, part or, at the end of a lost answer, the id that failed)]"""
    rows = ramp(rng.normal(), 0.1, width=0.08)
    rows[rng.integers(0, 9) :, 2] = 0.0
    ends = [*(end for end in np.cumsum(sizes).tolist() if end < 8), 8]
    out, first = [], 0
    for i, end in enumerate(ends):
        is_last = end == 8
        part = answer(request, rows[first:end], first_row=first, is_last=is_last)
        out.append((t_ns + i * gap_ns, request.request_id if is_last and is_lost else part))
        first = end
    return out


def test_the_record_counts_what_a_naive_splice_repeats_and_what_time_alignment_skips():
    for name, repeated, skipped in (("naive", 3, 0), ("time-aligned", 0, 3)):
        robot, record = started(name), RunRecord()
        robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.1)), 0)
        robot.counts.skipped_rows = 0
        request, arrival = None, 5 * DT
        for t in range(TICK, 9 * DT, TICK):
            if t == 2 * DT:
                request = ask(robot, t)
            if t == arrival:
                robot.on_part(answer(request, ramp(0.2, 0.1)), t)
            record.on_tick(robot.tick(state_at(t), t), robot.last_splice)
        # Observed at 2 DT, arrived at 5 DT just before that tick: rows 0, 1 and 2 are past.
        assert record.num_repeated_rows() == repeated
        assert robot.counts.skipped_rows == skipped
        assert record.num_resent_rows() == 0


def test_an_answer_that_never_comes_in_time_is_counted_and_the_robot_starves():
    robot = started("time-aligned")
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.1)), 0)
    run(robot, 0, DT)
    request = ask(robot, DT)
    run(robot, DT, 9 * DT)
    assert robot.on_part(answer(request, ramp(0.0, 0.1)), 9 * DT) is PartOutcome.LATE
    assert robot.counts.late_answers == 1
    assert robot.counts.skipped_rows >= 8
    assert robot.counts.starved_ticks == 2 * DT // TICK  # from the last row, due at 7 DT, on


def test_a_robot_that_stops_on_purpose_does_not_starve():
    robot = started("synchronous")
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.1)), 0)
    run(robot, 0, 12 * DT)
    assert robot.counts.starved_ticks == 0


NARROW_LIMITS = replace(
    OPEN_LIMITS, dq_max=np.full(2, 2.0), ddq_max=np.full(2, 10.0), dddq_max=np.full(2, 500.0)
)


def arm_in_motion():
    """In the middle of a plan, within limits; the time of the last tick, and what was sent."""
    robot = started(limits=NARROW_LIMITS)
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.05)), 0)
    sent = [tick.command.arm.q for tick in run(robot, 0, 3 * DT)]
    assert sent[-1][0] - sent[-2][0] > 0.5 * TICK / 1e9
    return robot, 3 * DT - TICK, sent


def assert_smooth(sent, limits=NARROW_LIMITS):
    path = np.array([sent[0]] * 3 + sent)
    for most in (limits.dq_max, limits.ddq_max, limits.dddq_max):
        path = np.diff(path, axis=0) / (TICK / 1e9)
        assert (np.abs(path) <= most * (1.0 + 1e-9)).all()


@pytest.mark.parametrize("back", [0, 1, TICK, 5 * DT, 10**15])
def test_a_clock_that_goes_back_is_counted_and_the_commands_go_on_by_the_control_period(back):
    robot, now, sent = arm_in_motion()
    for t in range(now - back, now - back + 20 * DT, TICK):
        robot.wants_request(t)
        robot.wants_correction(t)
        sent.append(robot.tick(state_at(t), t).command.arm.q)
    assert robot.counts.clock_steps_back > 0
    assert any("or went back" in sentence for sentence in robot.counts.fallbacks())
    assert_smooth(sent)
    assert robot.is_at_rest


@pytest.mark.parametrize("is_moving", [True, False])
@pytest.mark.parametrize("latency_ns", [0, 3 * TICK])
@pytest.mark.parametrize("back", [3 * TICK, 90 * MS, 120 * MS, 5 * NS_PER_S, 10**15])
def test_a_robot_whose_clock_goes_back_holds_and_then_runs_a_fresh_chunk(back, latency_ns, is_moving):
    robot, now, sent = late_arm(latency_ns, is_moving=is_moving)
    is_running, num_steps, num_resumed, coming = is_moving, 0, 0, []
    for t in range(now - back, now - back + 40 * DT, TICK):
        if robot.wants_request(t):
            request = robot.make_request(observation_at(t, q=tuple(sent[-1])))
            coming.append((t + DT, answer(request, sent[-1][0] + ramp(0.0, 0.05))))
        for each in [each for each in coming if each[0] <= t]:
            coming.remove(each)
            robot.on_part(each[1], t)
        tick = robot.tick(state_at(t, q=tuple(sent[-1])), t)
        assert tick.now_ns == t
        sent.append(tick.command.arm.q)
        num_steps += is_running and tick.cause is Cause.CLOCK_WENT_BACK
        num_resumed += tick.mode is Mode.RUN
        is_running = tick.mode is Mode.RUN
    assert num_steps == is_moving
    assert robot.counts.clock_steps_back == 1
    assert num_resumed > 20
    assert_smooth(sent)


def test_a_robot_that_is_reset_after_its_clock_went_back_comes_to_rest():
    robot, now, sent = late_arm(3 * TICK, is_moving=True)
    then = now - 10**15
    robot.reset(state_at(then, q=tuple(sent[-1])), then)
    run(robot, then, then + 20 * DT)
    assert robot.is_at_rest
    ask(robot, then + 20 * DT)


def late_arm(latency_ns, *, is_moving):
    """An arm of that latency, long after its clock began; the time of the next tick, and what was sent."""
    robot, start = executor(limits=NARROW_LIMITS, part_latency_ns={"arm": latency_ns}), 2 * 10**15
    robot.reset(state_at(start), start)
    if is_moving:
        robot.on_part(answer(ask(robot, start), ramp(0.0, 0.05)), start)
    end = start + 3 * DT
    return robot, end, [tick.command.arm.q for tick in run(robot, start, end)]


def test_a_clock_that_goes_back_behind_the_reset_does_not_raise_either():
    robot = started()
    tick = robot.tick(state_at(-5 * DT), -5 * DT)
    assert tick.command.arm.q[0] == 0.0
    assert robot.counts.clock_steps_back == 1
    assert robot.tick(state_at(TICK), TICK).now_ns == TICK
    assert robot.counts.clock_steps_back == 1


def test_an_answer_that_comes_when_the_clock_has_gone_back_is_no_negative_delay():
    robot, now, _ = arm_in_motion()
    request = ask(robot, now)
    robot.on_part(answer(request, ramp(0.3, 0.05)), now - 10 * DT)
    assert robot.latency.latency_ns() is None or robot.latency.latency_ns() >= 0
    assert robot.tick(state_at(now), now).command.arm.q is not None


def test_a_robot_that_is_reset_in_motion_brakes_from_what_was_sent():
    robot, now, sent = arm_in_motion()
    robot.reset(state_at(now, q=tuple(sent[-1])), now)
    assert robot.mode is Mode.HOLD
    assert not robot.is_at_rest
    sent += [robot.tick(state_at(t), t).command.arm.q for t in range(now, now + 20 * DT, TICK)]
    assert_smooth(sent)
    assert robot.is_at_rest
    ask(robot, now + 20 * DT)


@given(error=st.floats(-0.09, 0.09), after=st.integers(1, 40), is_stopped=st.booleans())
@example(error=0.05, after=40, is_stopped=False)
def test_a_reset_in_mid_run_does_not_step_by_the_error_that_a_controller_leaves(error, after, is_stopped):
    robot, now = started(limits=NARROW_LIMITS), 0
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.01)), 0)
    sent = [np.zeros(2)]

    def ticks(num):
        nonlocal now
        for _ in range(num):
            sent.append(robot.tick(state_at(now, q=tuple(sent[-1] + error)), now).command.arm.q)
            now += TICK

    ticks(after)
    if is_stopped:
        robot.stop()
        ticks(40)
    is_at_rest = robot.is_at_rest
    robot.reset(state_at(now, q=tuple(sent[-1] + error)), now)
    ticks(40)
    assert_smooth(sent)
    if is_at_rest:
        np.testing.assert_allclose(sent[-1], sent[-41], atol=1e-9)


@pytest.mark.parametrize(("pause", "guided"), [(0, 0.2), (2 * NS_PER_S, 0.05)])
def test_an_arm_that_was_guided_or_not_commanded_for_a_while_begins_where_it_is_measured(pause, guided):
    robot = started()
    run(robot, 0, 10 * DT)
    now = 10 * DT + pause
    robot.reset(state_at(now, q=(guided,) * 2), now)
    assert robot.tick(state_at(now, q=(guided,) * 2), now).command.arm.q[0] == guided


def test_a_gripper_on_an_object_keeps_its_grip_through_a_reset():
    robot = started()
    robot.on_part(answer(ask(robot, 0), ramp(0.0, 0.0, width=0.0)), 0)
    for t in range(0, 4 * DT, TICK):
        robot.tick(state_at(t, width=0.04), t)
    now = 4 * DT
    robot.reset(state_at(now, width=0.04), now)
    assert robot.tick(state_at(now, width=0.04), now).command.gripper.width == 0.0


def test_a_differential_base_drives_ahead_and_says_that_it_does_not_go_sideways():
    base = MotionLimits(speed=np.array([0.5, 0.0, 1.0]), acceleration=np.ones(3), jerk=np.full(3, 20.0))
    spec = replace(SPEC, fields=(BaseTwist(),))
    robot = executor(action_spec=spec, limits=Limits(base=base))
    x_WB = np.zeros(3)

    def state(t_ns: int) -> RobotState:
        return RobotState(t_ns=t_ns, parts={"base": BaseState(x_WB=x_WB, V_WB_B=np.zeros(3))})

    robot.reset(state(0), 0)
    rows = np.tile([0.2, 0.4, 0.0], (SPEC.horizon, 1))
    for t in range(0, 20 * DT, TICK):
        if robot.wants_request(t):
            robot.on_part(answer(robot.make_request(Observation(state=state(t))), rows), t)
        twist = robot.tick(state(t), t).command.base.V_WB_B
        x_WB = integrate_twist(x_WB, twist, TICK / NS_PER_S)
        assert twist[1] == 0.0
    assert robot.mode is Mode.RUN
    assert twist[0] == pytest.approx(0.2)
    assert any("differential base sideways" in sentence for sentence in robot.counts.fallbacks())
