"""Requests that overlap: what the policy is shown of answers that the robot has not got yet."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from robot_runtime.core.method.choose import DEFAULTS
from robot_runtime.core.method.request_parts import FixedExecutionHorizon, PreviousChunk
from robot_runtime.core.method.table import METHODS, Method
from robot_runtime.core.plan.answers import PartOutcome
from robot_runtime.core.plan.overlap import OpenAnswers
from robot_runtime.core.safety import Mode
from robot_runtime.errors import InvalidValueError
from tests.core.support import (
    DT,
    FEW,
    SLOW_TICK,
    SPEC,
    TICK,
    answer,
    executor,
    observation_at,
    ramp,
    state_at,
)


def overlapping(rows: int = 1, *, delay: int | None = None, most: int = 8) -> Method:
    when = FixedExecutionHorizon(rows=rows, max_in_flight=most)
    return replace(METHODS["committed-prefix"], request=PreviousChunk(when=when, inference_delay=delay))


def continuing(request, step: float) -> np.ndarray:
    """The answer of a policy that continues from its last committed row by `step` a row."""
    d = request.inference_delay
    out = np.empty((SPEC.horizon, SPEC.dim))
    out[:d] = request.prev_action_chunk[:d]
    out[d:] = out[d - 1] + np.outer(np.arange(1, SPEC.horizon - d + 1), [step, -step, 0.0])
    return out


def drive(method: Method, latency: int, steps, num_rows: int):
    """A robot whose policy answers request k with `continuing(steps[k])`, `latency` later."""
    robot, server = executor(method, control_period_ns=SLOW_TICK), OpenAnswers(SPEC)
    robot.reset(state_at(0), 0)
    asked, ticks, shown = [], [], []
    for now in range(0, num_rows * DT, SLOW_TICK):
        for t_ns, request in list(asked):
            if now >= t_ns + latency:
                asked.remove((t_ns, request))
                seen = server.shown(request)
                shown.append(seen)
                rows = continuing(seen, steps[request.request_id % len(steps)])
                server.add(request, rows)
                assert robot.on_part(answer(request, rows), now) is PartOutcome.RUNS
        if robot.wants_request(now):
            asked.append((now, robot.make_request(observation_at(now))))
        ticks.append(robot.tick(state_at(now), now))
    return robot, ticks, shown


def two_under_way(*, delay: int):
    """A standing robot that has asked twice, a row apart; and its requests."""
    robot = executor(overlapping(delay=delay))
    robot.reset(state_at(0), 0)
    first = robot.make_request(observation_at(0))
    robot.tick(state_at(0), 0)
    return robot, first, robot.make_request(observation_at(DT))


@FEW
@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=5))
def test_every_answer_goes_on_from_where_the_ones_before_it_will_have_led(steps):
    d = 3
    robot, ticks, shown = drive(overlapping(delay=d), d * DT, steps, 30)
    commanded = {tick.now_ns: tick.command.arm.q for tick in ticks}
    for request in shown[d:]:
        for i in range(d):
            due = request.observation.t_obs_ns + i * DT
            if due in commanded:
                np.testing.assert_allclose(request.prev_action_chunk[i, :2], commanded[due], atol=1e-9)
    assert robot.counts.starved_ticks == d * DT // SLOW_TICK  # until the first answer


def test_a_robot_that_asks_every_row_moves_as_far_as_its_policy_means_to():
    _, ticks, _ = drive(overlapping(delay=3), 3 * DT, [0.1], 20)
    assert ticks[-1].command.arm.q[0] == pytest.approx(0.1 * (20 - 3), abs=0.11)


def test_without_the_answers_under_way_each_one_would_start_anew():
    """The plan alone shows the policy rows that the next answer has already replaced."""
    _, first, second = two_under_way(delay=3)
    server = OpenAnswers(SPEC)
    server.add(first, continuing(first, 0.1))
    np.testing.assert_allclose(second.prev_action_chunk[:, 0], [0.0, 0.0, 0.0])
    np.testing.assert_allclose(
        server.shown(second).prev_action_chunk[:, 0], [0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    )


def test_only_answers_that_the_request_names_are_shown():
    robot = executor(overlapping(delay=3))
    robot.reset(state_at(0), 0)
    first = robot.make_request(observation_at(0))
    second = structs.replace(robot.make_request(observation_at(DT)), in_flight=())
    server = OpenAnswers(SPEC)
    server.add(first, continuing(first, 0.1))
    assert server.shown(second) is second
    other_epoch = structs.replace(second, in_flight=(first.request_id,), epoch=first.epoch + 1)
    assert server.shown(other_epoch) is other_epoch


def test_a_request_names_those_under_way_and_no_more_than_allowed_are():
    robot = executor(overlapping(delay=3, most=2))
    robot.reset(state_at(0), 0)
    asked = []
    for now in range(0, 4 * DT, TICK):
        if robot.wants_request(now):
            asked.append(robot.make_request(observation_at(now)))
        robot.tick(state_at(now), now)
    assert [request.in_flight for request in asked] == [(), (0,)]
    robot.on_request_failed(0)
    assert robot.wants_request(5 * DT)


def test_overlapping_requests_come_no_faster_than_the_server_works():
    robot, first, second = two_under_way(delay=3)
    worked = structs.replace(answer(first, continuing(first, 0.1)), queue_ns=DT, infer_ns=DT)
    robot.on_part(worked, 3 * DT)
    assert second.in_flight == (first.request_id,)
    assert not robot.wants_request(3 * DT - TICK)
    assert robot.wants_request(3 * DT)


def test_while_the_latency_is_unknown_one_request_is_under_way():
    robot = executor(overlapping())
    robot.reset(state_at(0), 0)
    robot.make_request(observation_at(0))
    robot.tick(state_at(0), 0)
    assert not robot.wants_request(5 * DT)


def test_an_answer_that_was_overtaken_changes_nothing_but_counts_for_the_latency():
    robot, first, second = two_under_way(delay=2)
    assert robot.on_part(answer(second, ramp(0.0, 0.1)), 2 * DT) is PartOutcome.RUNS
    end = robot.timeline.end_ns
    assert robot.on_part(answer(first, ramp(9.0, 9.0)), 2 * DT) is PartOutcome.OVERTAKEN
    assert robot.timeline.end_ns == end
    assert robot.latency.latency_ns() == 2 * DT
    assert robot.mode is Mode.RUN


@pytest.mark.parametrize("most", [0, 33])
def test_a_number_in_flight_that_no_server_takes_is_refused(most):
    with pytest.raises(InvalidValueError, match=f"max_in_flight must lie in 1..32.*got {most}"):
        executor(overlapping(most=most))


def test_past_the_end_of_a_short_answer_the_committed_rows_stand():
    robot = executor(overlapping(delay=3))
    robot.reset(state_at(0), 0)
    first = robot.make_request(observation_at(0))
    robot.tick(state_at(0), 0)
    second = robot.make_request(observation_at(2 * DT))
    server = OpenAnswers(SPEC)
    server.add(first, continuing(first, 0.1)[:4])
    shown = server.shown(second).prev_action_chunk
    np.testing.assert_allclose(shown[:, 0], [0.0, 0.1, 0.1])


@pytest.mark.parametrize("name", ["time-aligned", "rtc", "committed-prefix", "faster"])
def test_a_pipelined_method_asks_as_the_default_does_and_differs_in_nothing_else(name):
    one_at_a_time, default = METHODS[name], METHODS[DEFAULTS[0][0]]
    pipelined = METHODS[f"pipelined-{name.removeprefix('committed-')}"]
    assert pipelined.request.when == default.request.when
    assert replace(pipelined, request=one_at_a_time.request) == one_at_a_time
