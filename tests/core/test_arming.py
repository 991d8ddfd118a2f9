"""An unarmed robot asks, checks the answers, and stays at rest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.arming import ArmingRules
from robot_runtime.core.method.table import METHODS
from robot_runtime.core.plan.answers import PartOutcome
from robot_runtime.core.safety import TRANSITIONS, Cause, Mode, next_mode
from robot_runtime.errors import InvalidValueError, NotArmedError
from tests.core.support import DT, SLOW_TICK, TICK, answer, executor, observation_at, ramp, state_at
from tests.examples import examples

MS = 1_000_000


def unarmed(method="time-aligned", **kwargs):
    out = executor(method, arming=kwargs.pop("arming", ArmingRules()), **kwargs)
    out.reset(state_at(0), 0)
    return out


def is_asked(robot, now):
    return robot.make_request(observation_at(now)) if robot.wants_request(now) else None


def fed(robot, start, end, *, late=0, rows=None):
    """Tick on, and answer every request so long after it was asked, at the end those that are left."""
    rows = ramp(0.0, 0.1) if rows is None else rows
    open_requests, ticks = [], []
    for now in range(start, end, TICK):
        if (request := is_asked(robot, now)) is not None:
            open_requests.append((now + late, request))
        while open_requests and open_requests[0][0] <= now:
            robot.on_part(answer(open_requests.pop(0)[1], rows), now)
        ticks.append(robot.tick(state_at(now), now))
    for _, request in open_requests:
        robot.on_part(answer(request, rows), end)
    return ticks


def test_good_answers_move_nothing_before_the_robot_is_armed():
    robot = unarmed()
    for tick in fed(robot, 0, 40 * DT):
        assert (tick.mode, tick.cause) == (Mode.HOLD, Cause.NOT_ARMED)
        assert tick.command.arm.q[0] == 0.0
    assert robot.why_not_armed(40 * DT) == ""
    robot.arm(40 * DT)
    assert robot.tick(state_at(40 * DT), 40 * DT).cause is Cause.ARMED
    assert fed(robot, 40 * DT + TICK, 46 * DT)[-1].mode is Mode.RUN


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_can_be_armed_and_runs_then(method):
    robot = unarmed(method)
    fed(robot, 0, 10 * DT)
    robot.arm(10 * DT)
    assert any(tick.mode is Mode.RUN for tick in fed(robot, 10 * DT, 20 * DT))


def test_what_is_missing_is_said_and_nothing_moves():
    robot = unarmed()
    robot.on_part(answer(is_asked(robot, 0), ramp(0.0, 0.1)), 0)
    robot.on_part(answer(is_asked(robot, DT), ramp(0.0, 0.1)), DT)
    with pytest.raises(NotArmedError, match=r"^the robot cannot be armed: 2 of 3 fresh chunks have come$"):
        robot.arm(DT)
    assert not robot.is_armed


def test_a_failure_between_chunks_has_them_counted_anew():
    robot = unarmed()
    fed(robot, 0, 5 * DT)
    assert robot.why_not_armed(5 * DT) == ""
    robot.on_request_failed(is_asked(robot, 20 * DT).request_id)
    assert robot.why_not_armed(20 * DT) == "0 of 3 fresh chunks have come"


@pytest.mark.parametrize("bad", [np.full((8, 3), np.nan), np.zeros((8, 5))], ids=["NaN", "another shape"])
def test_answers_that_are_none_do_not_count(bad):
    robot = unarmed()
    request = is_asked(robot, 0)
    assert robot.on_part(answer(request, bad), 0) is PartOutcome.INVALID
    assert robot.why_not_armed(0) == "0 of 3 fresh chunks have come"


def test_answers_later_than_the_plan_lasts_are_no_reason_to_arm_it():
    robot = unarmed()
    fed(robot, 0, 60 * DT, late=8 * DT)
    assert robot.why_not_armed(60 * DT) == "answers are too late: latency p95 400 ms, budget 350 ms"
    patient = unarmed(arming=ArmingRules(latency_budget_s=0.5))
    fed(patient, 0, 60 * DT, late=8 * DT)
    assert patient.why_not_armed(60 * DT) == ""


def test_a_method_that_waits_for_its_answers_has_no_budget():
    robot = unarmed("synchronous")
    fed(robot, 0, 60 * DT, late=8 * DT)
    assert robot.why_not_armed(60 * DT) == ""


def test_a_policy_that_has_gone_silent_is_not_alive():
    robot = unarmed()
    fed(robot, 0, 5 * DT)
    assert robot.why_not_armed(60 * DT).endswith("s ago: the policy does not answer")


def test_a_policy_that_waits_for_a_person_is_asked_seldom():
    robot = unarmed()
    asked = [now for now in range(0, 100 * DT, TICK) if _answered_at_once(robot, now)]
    assert np.diff(asked[:3]).max() == DT
    assert np.diff(asked[3:]).min() == 250 * MS


def _answered_at_once(robot, now):
    if (request := is_asked(robot, now)) is None:
        return False
    robot.on_part(answer(request, ramp(0.0, 0.1)), now)
    return True


@pytest.mark.parametrize("cause", [Cause.STOP_REQUESTED, Cause.RELEASED, Cause.SWITCH_LOST])
def test_after_a_stop_and_a_reset_it_is_armed_anew(cause):
    robot = armed()
    robot.stop(cause)
    assert robot.tick(state_at(20 * DT), 20 * DT).cause is cause
    with pytest.raises(NotArmedError, match=f"{cause.value}: it has to be reset first"):
        robot.arm(20 * DT)
    robot.reset(state_at(21 * DT), 21 * DT)
    assert robot.tick(state_at(21 * DT), 21 * DT).cause is Cause.NOT_ARMED
    assert robot.why_not_armed(21 * DT) == "0 of 3 fresh chunks have come"


def armed():
    robot = unarmed()
    fed(robot, 0, 10 * DT)
    robot.arm(10 * DT)
    assert fed(robot, 10 * DT, 20 * DT)[-1].mode is Mode.RUN
    return robot


def test_a_reset_in_hold_disarms_too():
    robot = armed()
    robot.reset(state_at(20 * DT), 20 * DT)
    assert not robot.is_armed
    assert robot.tick(state_at(20 * DT), 20 * DT).cause is Cause.NOT_ARMED


def test_a_plan_that_ended_and_a_server_that_was_gone_leave_it_armed():
    robot = armed()
    robot.on_server_lost()
    ticks = [robot.tick(state_at(now), now) for now in range(20 * DT, 40 * DT, TICK)]
    assert (ticks[-1].mode, ticks[-1].cause) == (Mode.HOLD, Cause.PLAN_ENDED)
    assert robot.is_armed
    assert fed(robot, 40 * DT, 45 * DT)[-1].mode is Mode.RUN


def test_without_rules_it_is_armed_always():
    robot = executor()
    robot.reset(state_at(0), 0)
    assert robot.is_armed
    robot.stop()
    robot.reset(state_at(DT), DT)
    assert robot.is_armed


def test_no_cause_leads_to_run_without_being_armed():
    for mode in Mode:
        for cause in Cause:
            assert next_mode(mode, cause, is_armed=False) is not Mode.RUN
    assert next_mode(Mode.HOLD, Cause.FRESH_CHUNK) is Mode.RUN


@pytest.mark.parametrize("cause", [Cause.RELEASED, Cause.SWITCH_LOST])
def test_hold_to_run_stops_whatever_goes_on(cause):
    assert TRANSITIONS[Mode.RUN, cause] is TRANSITIONS[Mode.HOLD, cause] is Mode.STOP


@pytest.mark.parametrize(
    "wrong", [{"fresh_chunks": -1}, {"latency_quantile": 1.5}, {"latency_budget_s": 0.0}], ids=str
)
def test_rules_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InvalidValueError, match=next(iter(wrong))):
        ArmingRules(**wrong)


happenings = st.sampled_from(["answer", "bad", "fail", "lost", "stale", "stop", "reset", "refused", "wait"])


@examples(60)
@given(st.lists(st.tuples(happenings, st.integers(1, 30)), max_size=60), st.sampled_from(sorted(METHODS)))
def test_whatever_comes_no_command_differs_from_rest_before_it_is_armed(events, method):
    robot, now, open_requests = unarmed(method, control_period_ns=SLOW_TICK), 0, []
    rest = robot.tick(state_at(0), 0).command.arm.q.copy()
    for what, num_ticks in events:
        match what:
            case "answer" | "bad" if open_requests:
                rows = ramp(1.0, 0.1) if what == "answer" else np.full((8, 3), np.nan)
                robot.on_part(answer(open_requests.pop(0), rows), now)
            case "fail" if open_requests:
                robot.on_request_failed(open_requests.pop(0).request_id)
            case "lost":
                robot.on_server_lost()
                open_requests.clear()
            case "stop":
                robot.stop()
            case "reset":
                robot.reset(state_at(now), now)
            case "refused" if robot.why_not_armed(now):
                with pytest.raises(NotArmedError):
                    robot.arm(now)
        for _ in range(num_ticks):
            now += SLOW_TICK
            if (request := is_asked(robot, now)) is not None:
                open_requests.append(request)
            tick = robot.tick(state_at(0 if what == "stale" else now), now)
            assert tick.mode is not Mode.RUN
            np.testing.assert_array_equal(tick.command.arm.q, rest)
