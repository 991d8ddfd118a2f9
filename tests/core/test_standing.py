"""No robot is stationary without a reason: under any latency it moves, or reports why not and what helps."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.method.table import METHODS, method_named
from robot_runtime.core.plan.answers import PartOutcome
from robot_runtime.core.plan.standstill import PATIENCE_NS
from robot_runtime.core.safety import Mode
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.robot.telemetry import RunRecord
from tests.core.support import DT, FEW, SPEC, TICK, answer, executor, observation_at, ramp, state_at
from tests.examples import examples

MS = 1_000_000
LONGEST_MS = 3 * SPEC.horizon * DT // MS
NEVER = None
STEP = 10 * TICK
END_NS = 10_000 * MS


def probed(latency_ms: int) -> LatencyEstimator:
    out = LatencyEstimator()
    for _ in range(8):
        out.add(latency_ms * MS)
    return out


class Drive:
    """A robot driven by hand, request k answered or, if its latency is NEVER, failed `GIVEN_UP_MS` later."""

    GIVEN_UP_MS = 300

    def __init__(self, robot, latencies_ms):
        self.robot, self.record, self.wire = robot, RunRecord(), []
        self.latencies_ms, self.reported, self.asked_ns, self.ran = latencies_ms, {}, [], []
        self.moved, self.q = [], None
        robot.reset(state_at(0), 0)

    def to(self, end_ns):
        robot = self.robot
        start_ns = self.record.ticks[-1].now_ns + STEP if self.record.ticks else 0
        for t in range(start_ns, end_ns, STEP):
            for item in [item for item in self.wire if item[0] <= t]:
                self.wire.remove(item)
                _, request, is_lost = item
                if is_lost:
                    robot.on_request_failed(request.request_id)
                else:
                    robot.on_part(answer(request, ramp(0.0, 0.01)), t)
            if robot.wants_request(t):
                latency_ms = self.latencies_ms(len(self.asked_ns))
                is_lost = latency_ms is NEVER
                after_ms = self.GIVEN_UP_MS if is_lost else latency_ms
                self.asked_ns.append(t)
                self.wire.append((t + after_ms * MS, robot.make_request(observation_at(t)), is_lost))
            tick = robot.tick(state_at(t), t)
            self.record.on_tick(tick, robot.last_splice)
            if tick.mode is Mode.RUN:
                self.ran.append(t)
            q = tick.command.parts["arm"].q
            if tick.mode is Mode.RUN or not np.array_equal(q, self.q):  # or it brakes
                self.moved.append(t)
            self.q = q
            if (why := robot.why_stationary(t)) is not None:
                self.reported.setdefault(why, t)
        return self

    def share_in_motion(self, start_ns):
        ticks = [tick for tick in self.record.ticks if tick.now_ns >= start_ns]
        return np.mean([tick.mode is Mode.RUN for tick in ticks])


def robot_of(name, trained=None, **kwargs):
    trained = None if name.startswith("vlash-fixed") else trained  # whose delay is fixed
    return executor(method_named(name), max_inference_delay=trained, **kwargs)


constant = st.integers(0, LONGEST_MS).map(lambda ms: lambda k: ms)
jittered = st.tuples(st.integers(0, LONGEST_MS), st.integers(0, 2**31)).map(
    lambda x: lambda k: x[0] + int(np.random.default_rng([x[1], k]).integers(0, 200))
)
late_first = st.tuples(st.integers(0, 200), st.integers(200, LONGEST_MS)).map(
    lambda x: lambda k: x[1] if k == 0 else x[0]
)
half_lost = st.tuples(st.integers(0, LONGEST_MS), st.integers(0, 2**31)).map(
    lambda x: lambda k: NEVER if np.random.default_rng([x[1], k]).random() < 0.5 else x[0]
)
alternating = st.tuples(st.integers(0, 100), st.integers(400, LONGEST_MS)).map(lambda x: lambda k: x[k % 2])
TRACES = st.one_of(constant, jittered, late_first, half_lost, alternating)


@examples(50)
@given(
    st.sampled_from(sorted(METHODS)), TRACES, st.none() | st.integers(0, LONGEST_MS), st.none() | st.just(2)
)
@example("pipelined-faster", lambda k: 800, None, None)
@example("pipelined-prefix", lambda k: 800, 800, 2)
@example("vlash", lambda k: 650, 650, 2)
@example("a2c2", lambda k: NEVER if np.random.default_rng([488, k]).random() < 0.5 else 0, 201, None)
@pytest.mark.long
def test_every_method_keeps_moving_under_every_latency(name, trace, probed_ms, trained):
    """Or it reports why it is stationary."""
    latency = None if probed_ms is None else probed(probed_ms)
    drive = Drive(robot_of(name, trained, latency=latency), trace).to(END_NS)
    assert np.diff([0, *drive.moved, END_NS]).max() <= PATIENCE_NS + STEP or drive.reported
    assert drive.record.num_resent_rows() == 0


@FEW
@given(
    st.sampled_from(sorted(name for name in METHODS if not name.startswith("synchronous"))),
    st.integers(0, LONGEST_MS),
    st.booleans(),
    st.sampled_from([None, 2, 5]),
)
@example("committed-prefix", LONGEST_MS, True, None)
@pytest.mark.long
def test_whatever_the_latency_no_method_moves_less_than_one_that_stops_to_ask(
    name, latency_ms, is_probed, trained
):
    latency = probed(latency_ms) if is_probed else None
    drive = Drive(robot_of(name, trained, latency=latency), lambda k: latency_ms)
    drive.to(END_NS)
    asking = Drive(robot_of("synchronous"), lambda k: latency_ms).to(END_NS)
    assert drive.share_in_motion(4_000 * MS) >= 0.7 * asking.share_in_motion(4_000 * MS)
    assert not drive.reported


def test_a_first_answer_later_than_measured_starts_at_the_first_row_that_was_not_committed():
    robot = robot_of("committed-prefix", latency=probed(3 * DT // MS))
    drive = Drive(robot, lambda k: 5 * DT // MS if k == 0 else 3 * DT // MS).to(6 * DT)
    assert robot.last_splice.seam.first_row == 3
    assert robot.last_splice.t0_ns == robot.last_splice.t_ns - 3 * DT  # row 3 is due when it comes, not row 5
    assert drive.robot.counts.skipped_rows == 3


def test_an_answer_that_comes_in_time_starts_when_it_was_to():
    robot = robot_of("committed-prefix", latency=probed(3 * DT // MS))
    Drive(robot, lambda k: 2 * DT // MS).to(4 * DT)
    assert robot.last_splice.t0_ns == 0


def test_what_was_asked_under_the_belief_that_the_first_answer_would_come_in_time_is_void():
    robot = robot_of("pipelined-prefix", latency=probed(3 * DT // MS))
    robot.reset(state_at(0), 0)
    first = robot.make_request(observation_at(0))
    for t in range(0, 5 * DT, TICK):
        robot.tick(state_at(t), t)
    second = robot.make_request(observation_at(2 * DT))
    assert second.in_flight == (first.request_id,)
    robot.on_part(answer(first, ramp(0.0, 0.01)), 5 * DT)
    assert robot.wants_request(5 * DT)
    assert robot.make_request(observation_at(5 * DT)).in_flight == ()
    assert robot.on_part(answer(second, ramp(0.0, 0.01)), 5 * DT) is PartOutcome.VOID


def test_a_robot_whose_requests_all_fail_asks_more_and_more_rarely():
    drive = Drive(robot_of("time-aligned"), lambda k: NEVER)
    drive.GIVEN_UP_MS = 0
    drive.to(20_000 * MS)
    pauses = np.diff(drive.asked_ns)
    assert len(pauses) < 15
    assert DT <= pauses[0] < 3 * DT
    assert (pauses[1:] >= pauses[:-1]).all()
    assert pauses.max() <= 4_000 * MS + 2 * STEP
    assert "requests failed" in next(iter(drive.reported))


@FEW
@given(
    st.sampled_from(["pipelined-prefix", "pipelined-time-aligned", "time-aligned", "synchronous"]),
    half_lost,
    st.lists(st.integers(1, 60), max_size=4),
)
@example("pipelined-time-aligned", lambda k: 200 if k < 4 else NEVER, [])
@example("pipelined-time-aligned", lambda k: 200, [8])
def test_never_more_requests_are_reported_failed_than_were_asked(name, trace, lost_at):
    """Neither when some were open as the last row ran, nor when the server was lost."""
    drive = Drive(robot_of(name, latency=probed(200)), trace)
    for t in range(DT, 4_000 * MS, DT):
        drive.to(t)
        if t // DT in lost_at:
            drive.robot.on_server_lost()
            drive.wire.clear()
        reported = re.match(r"(\d+) of (\d+) ", drive.robot.why_no_rows())
        assert reported is None or int(reported[1]) <= int(reported[2])


@pytest.mark.parametrize("name", ["synchronous", "time-aligned"])
def test_a_run_that_ends_before_its_first_answer_reports_that_and_blames_no_server(name):
    drive = Drive(robot_of(name), lambda k: 3_000).to(2_000 * MS)
    drive.robot.stop()
    drive.to(2_000 * MS + 10 * STEP)
    assert "the run ended 2.2 s after the robot had first asked" in drive.robot.why_no_rows()
    assert "--duration-s" in drive.robot.why_no_rows()


def test_requests_from_before_a_reset_are_no_reason_after_it():
    robot = robot_of("time-aligned")
    Drive(robot, lambda k: NEVER).to(1_000 * MS)
    assert "requests failed" in robot.why_no_rows()
    robot.reset(state_at(1_000 * MS), 1_000 * MS)
    assert "nothing has been asked" in robot.why_no_rows()


def test_a_good_answer_ends_the_pauses_and_requests_that_fail_together_count_once():
    robot = robot_of("pipelined-time-aligned")
    robot.reset(state_at(0), 0)
    robot.on_part(answer(robot.make_request(observation_at(0)), ramp(0.0, 0.01)), 0)
    robot.tick(state_at(2 * DT), 2 * DT)
    both = [robot.make_request(observation_at(t)) for t in (DT, 2 * DT)]
    for request in both:
        robot.on_request_failed(request.request_id)
    assert not robot.wants_request(3 * DT - 1)
    assert robot.wants_request(3 * DT)


def test_a_robot_without_answers_reports_that_once_it_has_been_stationary_for_a_while():
    drive = Drive(robot_of("time-aligned"), lambda k: 60_000).to(PATIENCE_NS + 20 * STEP)
    why = next(iter(drive.reported))
    assert "no answer has come to 1 requests, to the oldest for 3.0 s" in why
    assert PATIENCE_NS <= drive.reported[why] < PATIENCE_NS + 2 * STEP
    summary = drive.record.summary()
    assert summary["stalled_s"] == pytest.approx(summary["duration_s"])
    assert drive.robot.counts.starved_ticks == drive.record.num_ticks


@pytest.mark.parametrize("rows", [np.zeros((8, 5)), np.full((8, 3), np.nan)])
def test_answers_that_are_no_chunks_are_reported_and_asked_for_more_and_more_rarely(rows):
    robot, num_asked = robot_of("time-aligned"), 0
    robot.reset(state_at(0), 0)
    for t in range(0, PATIENCE_NS + 2 * STEP, STEP):
        if robot.wants_request(t):
            num_asked += 1
            robot.on_part(answer(robot.make_request(observation_at(t)), rows), t)
        robot.tick(state_at(t), t)
    assert "not chunks of 8 x 3" in robot.why_stationary(t)
    assert num_asked <= 7  # at 0, 1, 3, 7, 15, 31 and 63 rows


def test_rows_beyond_those_that_are_run_do_not_make_an_answer_late():
    robot = robot_of("vlash-fixed-overlap-n", action_spec=replace(SPEC, horizon=16))
    robot.reset(state_at(0), 0)
    request, rows = robot.make_request(observation_at(0)), ramp(0.0, 0.01, num_rows=16)
    outcomes = [
        robot.on_part(answer(request, rows[i : i + 4], first_row=i, is_last=i == 12), 0)
        for i in range(0, 16, 4)
    ]
    assert outcomes == [PartOutcome.RUNS] * 4


def test_the_first_rows_of_a_streamed_answer_may_be_past_and_the_answer_is_not_late_for_that():
    robot = robot_of("time-aligned")
    robot.reset(state_at(0), 0)
    robot.on_part(answer(robot.make_request(observation_at(0)), ramp(0.0, 0.01)), 0)
    robot.tick(state_at(3 * DT), 3 * DT)
    request, rows = robot.make_request(observation_at(0)), ramp(0.0, 0.02)
    outcomes = []
    for i, t in ((0, 3 * DT), (2, 3 * DT), (4, 4 * DT), (6, 9 * DT)):
        robot.tick(state_at(t), t)
        part = answer(request, rows[i : i + 2], first_row=i, is_last=i == 6)
        outcomes.append(robot.on_part(part, t))
    assert outcomes == [PartOutcome.WAITS, PartOutcome.WAITS, PartOutcome.RUNS, PartOutcome.RUNS]
    assert robot.counts.late_answers == 0


def test_a_chunk_that_begins_far_from_the_plan_is_reported_with_its_distance():
    robot = robot_of("time-aligned")
    robot.reset(state_at(0), 0)
    robot.on_part(answer(robot.make_request(observation_at(0)), ramp(1.5, 0.01)), 0)
    (reported,) = robot.counts.fallbacks()
    assert "begins 1.5 rad or m from the plan" in reported


STATISTICS = RowStatistics(mean=np.zeros((1, 3)), std=np.full((1, 3), 0.1), from_measured=False)


@pytest.mark.parametrize(("start", "is_told"), [(0.1, True), (5.0, False)])
def test_rows_far_outside_a_policys_training_are_no_longer_shown_as_a_prefix(start, is_told):
    robot = robot_of("pipelined-prefix", latency=probed(2 * DT // MS), row_statistics=STATISTICS)
    robot.reset(state_at(0, (start, -start)), 0)
    asked, wire = [], []
    for t in range(0, 40 * DT, STEP):
        for item in [item for item in wire if item[0] <= t]:
            wire.remove(item)
            robot.on_part(answer(item[1], ramp(start, 0.001)), t)
        if robot.wants_request(t):
            asked.append(robot.make_request(observation_at(t, (start, -start))))
            wire.append((t + 2 * DT, asked[-1]))
        robot.tick(state_at(t, (start, -start)), t)
    assert (asked[-1].prev_action_chunk is not None) is is_told
    assert (
        any("outside what the policy was trained on" in reported for reported in robot.counts.fallbacks())
        is not is_told
    )
    assert robot.mode is Mode.RUN
