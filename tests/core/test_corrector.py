"""What a robot with a correction head sends: planned rows, each moved once by the newest observation."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.method.splice_parts import PerRowCorrection
from robot_runtime.core.method.table import METHODS, Method, method_named
from robot_runtime.core.plan.limits import MotionLimits
from robot_runtime.core.plan.timeline import Phase
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.values.action import (
    ActionSpec,
    EndEffectorPose,
    GripperFraction,
    GripperWidth,
    JointPosition,
    Reference,
)
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import InvalidValueError
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

MOVED = (0.05, -0.03, 0.0)


def a2c2(every: int = 100, **bounds: float) -> Method:
    """The method, asking so rarely that no second request comes by itself."""
    method = METHODS["a2c2"]
    request = replace(method.request, when=replace(method.request.when, rows=min(every, SPEC.horizon)))
    return replace(method, request=request, correction=PerRowCorrection(**bounds))


def started(head: ConstantHead, method: Method | None = None, **kwargs):
    """A robot at rest whose first chunk, a ramp of 0.1 a row, has just come: row i is due at i * DT."""
    robot = executor(a2c2() if method is None else method, correction_head=head, **kwargs)
    robot.reset(state_at(0), 0)
    robot.on_part(answer(robot.make_request(observation_at(0)), ramp(0.0, 0.1)), 0)
    return robot


def step(robot, t):
    """One tick as the control loop does it; the tick and whether a correction was wanted."""
    wanted = robot.wants_correction(t)
    if wanted:
        robot.correct(observation_at(t), t)
    return robot.tick(state_at(t), t), wanted


def run(robot, start, end):
    return [step(robot, t)[0] for t in range(start, end, TICK)]


def joints(tick) -> np.ndarray:
    return tick.command.arm.q


def test_a_row_is_reached_with_its_correction_exactly_when_it_is_due():
    robot = started(ConstantHead(*MOVED))
    ticks = {tick.now_ns: tick for tick in run(robot, 0, 8 * DT)}
    for row in range(1, 7):  # the plan comes to rest at row 7, which takes a little longer
        np.testing.assert_allclose(joints(ticks[row * DT]), ramp(0.0, 0.1)[row, :2] + MOVED[:2], atol=1e-12)


def test_the_first_correction_comes_in_smoothly_over_one_row():
    robot = started(ConstantHead(*MOVED))
    path = np.array([joints(tick) for tick in run(robot, 0, DT + TICK)])
    np.testing.assert_allclose(path[-1], np.array([0.1, -0.1]) + MOVED[:2], atol=1e-12)
    assert (np.diff(path[:, 0]) >= 0.0).all()
    assert np.abs(np.diff(path, n=2, axis=0)).max() < 0.1 * np.abs(path[-1]).max()  # no step, no corner


def test_the_robot_looks_once_a_row_and_says_how_far_into_the_chunk_it_is():
    head = ConstantHead(*MOVED)
    robot = started(head)
    wanted = [t for t in range(0, 12 * DT, TICK) if step(robot, t)[1]]
    assert wanted == [row * DT for row in range(7)]
    assert [k for k, _ in head.asked] == [0, 1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(head.asked[0][1], ramp(0.0, 0.1))
    assert robot.counts.corrected_rows == 7


def test_a_control_loop_off_the_rows_still_corrects_each_of_them_the_last_one_too():
    head = ConstantHead(*MOVED)
    robot = started(head)
    ticks = [step(robot, t)[0] for t in range(0, 7 * DT, 7_000_000)]
    assert robot.counts.corrected_rows == 7
    assert all(k <= row + 7 / 50 for row, (k, _) in enumerate(head.asked))
    assert head.asked[-1][0] == 6.0  # not beyond: the last row is number 7
    assert robot.timeline.command_at(9 * DT).arm.q[0] == pytest.approx(0.75)
    steps = [joints(b)[0] - joints(a)[0] for a, b in pairwise(ticks)]
    assert min(steps) > 0.0
    assert max(steps) < 2.1 * 0.1 * 7 / 50  # 0.15 in the first row, from rest; 0.1 in the others


def test_corrections_do_not_add_up_however_often_they_are_offered():
    robot = started(ConstantHead(*MOVED))
    for t in range(0, 3 * DT, TICK):
        for _ in range(3):
            robot.correct(observation_at(t), t)
        robot.tick(state_at(t), t)
    assert robot.counts.corrected_rows == 3
    assert robot.timeline.command_at(3 * DT).arm.q[0] == pytest.approx(0.3 + 0.05)


def test_a_plan_that_is_corrected_no_more_is_back_at_its_rows_one_row_later():
    robot = started(ConstantHead(*MOVED))
    run(robot, 0, 3 * DT)
    ticks = {t: robot.tick(state_at(t), t) for t in range(3 * DT, 5 * DT, TICK)}
    assert joints(ticks[3 * DT])[0] == pytest.approx(0.35)
    assert joints(ticks[4 * DT])[0] == pytest.approx(0.4)


def test_a_new_chunk_is_corrected_at_once_and_on_its_own_account():
    head = ConstantHead(*MOVED)
    robot = started(head)
    run(robot, 0, 2 * DT)
    robot.on_request_failed(0)
    request = robot.make_request(observation_at(2 * DT))
    now = 3 * DT + 12 * TICK
    before = run(robot, 2 * DT, now)[-1]
    robot.on_part(answer(request, ramp(1.0, 0.1)), now)
    assert robot.wants_correction(now)  # for row 2, due about half a row later
    ticks = run(robot, now, 4 * DT + TICK)
    assert head.asked[-2][0] == pytest.approx(1.48)
    assert joints(ticks[-1])[0] == pytest.approx(1.2 + 0.05)
    steps = [joints(b)[0] - joints(a)[0] for a, b in pairwise([before, *ticks])]
    assert min(steps) > 0.0  # straight there from what was sent last, at the speed it had
    assert steps[0] < 0.3 * max(steps)


def test_nothing_is_corrected_while_the_robot_coasts_or_stands():
    head = ConstantHead(*MOVED)
    robot = started(head)
    ticks = run(robot, 0, 7 * DT)
    num_asked, q_end = len(head.asked), 0.7 + 0.05
    for t in range(7 * DT, 12 * DT, TICK):
        tick, wanted = step(robot, t)
        robot.correct(observation_at(t), t)
        assert not wanted
        assert tick.phase is not Phase.PLAN
        ticks.append(tick)
    assert len(head.asked) == num_asked
    steps = np.diff([joints(tick)[0] for tick in ticks])
    assert (steps > -1e-12).all()  # it coasts from its last command, and does not turn back
    assert q_end < joints(ticks[-1])[0] < q_end + 0.1 + 1e-9


def test_a_robot_that_is_told_to_stop_is_corrected_no_more():
    robot = started(ConstantHead(*MOVED))
    run(robot, 0, 2 * DT)
    robot.stop()
    assert not robot.wants_correction(2 * DT)
    ticks = run(robot, 2 * DT, 6 * DT)
    assert ticks[-1].cause is Cause.STOP_REQUESTED
    assert joints(ticks[0])[0] == pytest.approx(0.25, abs=1e-2)  # from where it is
    assert abs(joints(ticks[-1])[0] - 0.25) < 0.05


def test_a_correction_beyond_its_bound_is_clipped_column_by_column_and_counted():
    robot = started(ConstantHead(0.9, -0.01, 0.0), a2c2(max_joint=0.3))
    run(robot, 0, DT)
    np.testing.assert_allclose(robot.timeline.command_at(DT).arm.q, [0.1 + 0.3, -0.1 - 0.01])
    assert robot.counts.corrections_clipped == 1
    assert "larger than the method allows" in " ".join(robot.counts.fallbacks())


def test_the_gripper_is_corrected_unless_it_is_left_to_the_policy():
    for max_gripper, width, clipped in ((0.08, 0.06, 0), (0.01, 0.07, 2), (0.0, 0.08, 0)):
        robot = started(ConstantHead(0.0, 0.0, -0.02), a2c2(max_gripper=max_gripper))
        widths = [tick.command.gripper.width for tick in run(robot, 0, DT + TICK)]
        assert widths[-1] == pytest.approx(width)
        assert set(widths[1:-1]) == {0.08}  # held until the row is due, as any gripper row
        assert robot.counts.corrections_clipped == clipped


def test_joints_that_count_from_the_observation_move_as_far_as_absolute_ones():
    fields = (JointPosition(2, Reference.RELATIVE), GripperWidth())
    spec = ActionSpec(fields=fields, horizon=8, dt_ns=DT)
    robot = executor(a2c2(), action_spec=spec, correction_head=ConstantHead(*MOVED, action_spec=spec))
    robot.reset(state_at(0, q=(2.0, 1.0)), 0)
    request = robot.make_request(observation_at(0, q=(2.0, 1.0)))
    robot.on_part(answer(request, ramp(0.0, 0.1)), 0)
    run(robot, 0, DT)
    np.testing.assert_allclose(robot.timeline.command_at(DT).arm.q, [2.1 + 0.05, 0.9 - 0.03])


def test_a_chunk_that_streams_in_is_corrected_once_it_is_whole():
    head = ConstantHead(*MOVED)
    robot = executor(a2c2(), correction_head=head)
    robot.reset(state_at(0), 0)
    request, rows = robot.make_request(observation_at(0)), ramp(0.0, 0.1)
    robot.on_part(answer(request, rows[:4], is_last=False), 0)
    run(robot, 0, DT)
    assert not head.asked
    robot.on_part(answer(request, rows[4:], first_row=4), DT)
    run(robot, DT, 2 * DT)
    assert [len(chunk) for _, chunk in head.asked] == [8]


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_what_is_not_finite_corrects_nothing_and_is_counted(broken):
    blind = Observation(state=state_at(0), environment_state=np.array([broken]))
    robot = started(ConstantHead(*MOVED))
    robot.correct(blind, 0)
    assert robot.timeline.command_at(DT).arm.q[0] == pytest.approx(0.1)
    robot.tick(state_at(0), 0)
    wild = started(ConstantHead(broken, 0.0, 0.0))
    run(wild, 0, 2 * DT)
    assert wild.timeline.command_at(2 * DT).arm.q[0] == pytest.approx(0.2)
    assert (robot.counts.corrections_skipped, wild.counts.corrections_skipped) == (1, 2)
    assert "not finite" in " ".join(wild.counts.fallbacks())


def test_a_method_that_corrects_rows_is_refused_without_a_head():
    with pytest.raises(
        InvalidValueError, match=r"needs a correction head, and none is given.*--recipe residual"
    ):
        executor("a2c2", correction_head=None)


@pytest.mark.parametrize(
    ("spec", "head", "words"),
    [
        (SPEC, {"action_spec": replace(SPEC, horizon=9)}, "trained for actions .*horizon=9"),
        (SPEC, {"lead": 2}, "lead 1; the head has lead 2"),
        (replace(SPEC, fields=(JointPosition(2, Reference.DELTA), GripperWidth())), {}, "got .*DELTA"),
        (replace(SPEC, fields=(EndEffectorPose(), GripperWidth())), {}, "absolute or relative joint"),
    ],
)
def test_a_head_that_does_not_fit_the_robot_or_its_policy_is_refused(spec, head, words):
    given_head = ConstantHead(action_spec=head.get("action_spec", spec))
    given_head.lead = head.get("lead", 1)
    fast = MotionLimits.of_norm(speed=1.0, acceleration=10.0, jerk=1e3)
    hand_too = replace(OPEN_LIMITS, hand_translation=fast, hand_rotation=fast)
    with pytest.raises(InvalidValueError, match=words):
        executor(a2c2(), action_spec=spec, correction_head=given_head, limits=hand_too)


def test_bounds_that_make_no_sense_are_refused():
    with pytest.raises(InvalidValueError, match="max_joint > 0"):
        executor(a2c2(max_joint=0.0))


def test_a_method_that_does_not_correct_leaves_a_head_alone():
    head = ConstantHead(*MOVED)
    robot = started(head, method_named("time-aligned", execution_horizon=8))
    ticks = run(robot, 0, 3 * DT)
    assert not head.asked
    assert joints(ticks[-1])[0] == pytest.approx(0.1 * ticks[-1].now_ns / DT)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 70), st.floats(-0.3, 0.3)), min_size=1, max_size=40)
)
def test_no_correction_touches_what_was_sent_or_makes_a_row_come_twice(events):
    """Ticks of any spacing, answers and corrections at any time: what was commanded last never moves, and
    rows come in order, each once."""
    head = ConstantHead()
    robot = started(head, a2c2(every=1))
    now, request, asked, sent = 0, None, [0], []
    for wait_ms, latency_ms, residual in events:
        now += wait_ms * 1_000_000
        head.residual = np.array([residual, -residual, 0.0])
        if request is None and robot.wants_request(now):
            request, due = robot.make_request(observation_at(now)), now + latency_ms * 1_000_000
            asked.append(request.request_id)
        if request is not None and now >= due:
            robot.on_part(answer(request, ramp(residual, 0.1)), now)
            request = None
        claimed = robot.timeline.claimed_ns
        before = robot.timeline.command_at(claimed)
        robot.correct(observation_at(now), now)
        np.testing.assert_allclose(robot.timeline.command_at(claimed).arm.q, before.arm.q, atol=1e-12)
        assert not robot.wants_correction(now)
        tick = robot.tick(state_at(now), now)
        if tick.mode is Mode.RUN and tick.row is not None:
            sent.append((tick.source.request_id, tick.row))
    distinct = [row for i, row in enumerate(sent) if i == 0 or sent[i - 1] != row]
    assert distinct == sorted(set(distinct))


def test_the_state_that_a_head_sees_is_the_newest_not_the_one_its_chunk_saw():
    class Follow(ConstantHead):
        def correction(self, observation: Observation, chunk: np.ndarray, k: float) -> np.ndarray:
            return np.array([*observation.state.q, 0.0]) / 100

    robot = started(Follow())
    state: RobotState = state_at(2 * DT, q=(3.0, 4.0))
    run(robot, 0, 2 * DT)
    robot.correct(Observation(state=state), 2 * DT)
    np.testing.assert_allclose(robot.timeline.command_at(3 * DT).arm.q, [0.3 + 0.03, -0.3 + 0.04])


def test_a_gripper_whose_shares_stand_for_the_robot_s_widths_is_no_other_policy_to_a_head():
    spec = replace(SPEC, fields=(JointPosition(2), GripperFraction()))
    robot = executor(a2c2(), action_spec=spec, correction_head=ConstantHead(*MOVED, action_spec=spec))
    assert robot.action_spec != spec
    robot.reset(state_at(0), 0)
    rows = ramp(0.0, 0.1, width=0.5)
    robot.on_part(answer(robot.make_request(observation_at(0)), rows), 0)
    step(robot, 0)
    tick, _ = step(robot, DT)
    np.testing.assert_allclose(tick.command.arm.q, rows[1, :2] + MOVED[:2])
    assert tick.command.gripper.width == pytest.approx(0.04, abs=0.01)
