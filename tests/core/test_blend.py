"""What a chunk's rows become where they meet an old plan."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.method.request_parts import FixedExecutionHorizon, PlainObservation
from robot_runtime.core.method.splice_parts import (
    Blend,
    CrossFade,
    Replace,
    TemporalEnsembling,
    TimeAligned,
    WeightedAverage,
)
from robot_runtime.core.method.table import Method, method_named
from robot_runtime.core.plan.blend import Blender, mix
from robot_runtime.core.plan.timeline import ChunkTimeline, Source
from robot_runtime.core.values.action import BaseTwistCommand, Command, PoseCommand
from robot_runtime.core.values.waypoints import Waypoints
from robot_runtime.errors import InvalidValueError
from tests.core.support import DT, FEW, TICK, answer, executor, observation_at, ramp, state_at

BLENDS = [Replace(), WeightedAverage(), TemporalEnsembling(), TemporalEnsembling(m=0.5), CrossFade()]


def robot_with(blend: Blend, every: int = 1):
    method = method_named("time-aligned")
    robot = executor(
        Method(
            request=PlainObservation(when=FixedExecutionHorizon(rows=every)),
            sampler=method.sampler,
            splice=TimeAligned(),
            blend=blend,
        )
    )
    robot.reset(state_at(0), 0)
    return robot


def run_chunks(robot, chunks, *, latency=0):
    """Answer with one chunk after the other, each asked for a row after the last answer; the time after."""
    t = 0
    for rows in chunks:
        while not robot.wants_request(t):
            robot.tick(state_at(t), t)
            t += TICK
        request, arrival = robot.make_request(observation_at(t)), t + latency
        while t < arrival:
            robot.tick(state_at(t), t)
            t += TICK
        robot.on_part(answer(request, rows), t)
    return t


def planned(robot, t):
    """What the rows of the plan say."""
    return robot.timeline.waypoints_at([t]).q[0, 0]


def constant(value: float) -> np.ndarray:
    return ramp(value, 0.0)


def test_a_weighted_average_takes_three_tenths_of_the_old_plan_as_lerobot_does():
    robot = robot_with(WeightedAverage())
    run_chunks(robot, [constant(1.0), constant(2.0)])  # the second is observed, and due, at 1 DT
    assert planned(robot, 2 * DT) == pytest.approx(0.3 * 1.0 + 0.7 * 2.0)
    assert planned(robot, 7 * DT) == pytest.approx(1.7)  # the old plan's last row
    assert planned(robot, 8 * DT) == pytest.approx(2.0)  # only the new chunk speaks of it


def test_a_weighted_average_of_a_third_chunk_counts_from_the_aggregate():
    robot = robot_with(WeightedAverage(old_weight=0.5))
    run_chunks(robot, [constant(0.0), constant(2.0), constant(4.0)])
    assert planned(robot, 4 * DT) == pytest.approx(0.5 * (0.5 * 0.0 + 0.5 * 2.0) + 0.5 * 4.0)


def test_temporal_ensembling_weighs_the_oldest_most():
    m = 0.1
    robot = robot_with(TemporalEnsembling(m=m))
    values = [3.0, 1.0, 2.0]
    run_chunks(robot, [constant(value) for value in values])  # due from 0, 1 and 2 DT on
    weights = np.exp(-m * np.arange(3))
    assert planned(robot, 5 * DT) == pytest.approx(np.average(values, weights=weights))
    # Past the end of the oldest, the second is the oldest of those that speak.
    assert planned(robot, 8 * DT) == pytest.approx(np.average(values[1:], weights=weights[:2]))
    assert planned(robot, 9 * DT) == pytest.approx(2.0)


def test_a_cross_fade_rises_as_a_smoothstep_and_then_leaves_the_chunk_alone():
    robot = robot_with(CrossFade(duration_s=0.2))
    t = run_chunks(robot, [constant(0.0), constant(1.0)], latency=2 * DT)
    for rows_on, share in ((1, 0.15625), (2, 0.5), (3, 0.84375), (4, 1.0)):
        due = t + rows_on * DT
        seam = robot.timeline.claimed_ns
        x = min((due - seam) / 200e6, 1.0)
        assert planned(robot, due) == pytest.approx(x * x * (3 - 2 * x))
        assert planned(robot, due) == pytest.approx(share, abs=0.02)


def test_a_cross_fade_takes_the_new_chunks_gripper_at_once():
    robot = robot_with(CrossFade(duration_s=0.3))
    t = run_chunks(robot, [ramp(0.0, 0.0, width=0.08), ramp(0.0, 0.0, width=0.0)])
    assert robot.timeline.command_at(t + DT).gripper.width == 0.0


def test_rotations_are_mixed_on_the_geodesic_and_twists_linearly():
    quarter = np.array([np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)])
    here = np.array([1.0, 0.0, 0.0, 0.0])
    a = Waypoints.from_commands([Command(arm=PoseCommand(p_BE=np.zeros(3), quat_BE=here))])
    b = Waypoints.from_commands([Command(arm=PoseCommand(p_BE=np.ones(3), quat_BE=quarter))])
    mixed = mix(a, b, np.array([0.25]))
    np.testing.assert_allclose(mixed.quat_BE[0], [np.cos(np.pi / 16), 0.0, 0.0, np.sin(np.pi / 16)])
    np.testing.assert_allclose(mixed.p_BE[0], 0.25)
    twists = [Command(base=BaseTwistCommand(V_WB_B=np.full(3, value))) for value in (0.0, 1.0)]
    a, b = (Waypoints.from_commands([command]) for command in twists)
    np.testing.assert_allclose(mix(a, b, np.array([0.25])).V_WB_B[0], 0.25)


@pytest.mark.parametrize("blend", BLENDS, ids=str)
def test_a_robot_that_stood_still_takes_the_chunk_as_it_is(blend):
    robot = robot_with(blend)
    run_chunks(robot, [ramp(1.0, 0.5)])
    np.testing.assert_allclose([planned(robot, i * DT) for i in range(1, 8)], 1.0 + 0.5 * np.arange(1, 8))


@pytest.mark.parametrize("blend", BLENDS[1:], ids=str)
def test_after_a_halt_nothing_of_the_old_chunks_is_left(blend):
    robot = robot_with(blend)
    t = run_chunks(robot, [constant(5.0), constant(5.0)]) + TICK
    robot.tick(state_at(0), t + 200_000_000)  # the state is stale: the robot holds
    t += 400_000_000
    robot.tick(state_at(t), t)
    request = robot.make_request(observation_at(t))
    robot.on_part(answer(request, constant(1.0)), t)
    assert planned(robot, t + 2 * DT) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("blend", "text"),
    [
        (WeightedAverage(old_weight=1.0), r"\[0, 1\), got 1\.0"),
        (WeightedAverage(old_weight=-0.1), r"got -0\.1"),
        (CrossFade(duration_s=0.0), r"takes time, got 0\.0 s"),
    ],
)
def test_numbers_that_make_no_blend_are_refused(blend, text):
    with pytest.raises(InvalidValueError, match=text):
        Blender(blend, dt_ns=DT)


parts_of_eight = st.lists(st.integers(1, 8), min_size=1, max_size=8)


def ends_of(sizes: list[int]) -> list[int]:
    """Where blocks of these sizes end in a chunk of eight rows; the last block takes the rest."""
    ends = [end for end in np.cumsum(sizes).tolist() if end < 8]
    return [*ends, 8]


@FEW
@given(st.sampled_from(BLENDS), st.lists(st.floats(-2, 2), min_size=2, max_size=6), parts_of_eight)
def test_a_chunk_in_parts_is_blended_like_a_chunk_in_one(blend, values, sizes):
    whole, streamed = robot_with(blend, every=2), robot_with(blend, every=2)
    t = 0
    for value in values:
        while not whole.wants_request(t):
            if t % DT == 0:  # rows; between them the path knows of later rows sooner or later
                assert planned(whole, t) == pytest.approx(planned(streamed, t), abs=1e-9)
            whole.tick(state_at(t), t)
            streamed.tick(state_at(t), t)
            t += TICK
        rows, first = ramp(value, 0.1), 0
        asked = [robot.make_request(observation_at(t)) for robot in (whole, streamed)]
        whole.on_part(answer(asked[0], rows), t)
        for end in ends_of(sizes):
            part = answer(asked[1], rows[first:end], first_row=first, is_last=end == 8)
            streamed.on_part(part, t)
            first = end
    for ahead in range(0, 8 * DT, DT):
        assert planned(whole, t + ahead) == pytest.approx(planned(streamed, t + ahead), abs=1e-9)


@given(
    st.sampled_from(BLENDS),
    st.lists(st.tuples(st.integers(0, 300), st.floats(-2, 2)), min_size=1, max_size=10),
)
def test_a_blend_changes_nothing_that_was_sent_and_makes_no_jump(blend, arrivals):
    blender, plan, now = Blender(blend, dt_ns=100), ChunkTimeline(coast_ns=200), 0
    plan.rest_at(Waypoints(q=np.zeros((1, 2))).row(0), 0)
    for k, (gap, value) in enumerate(arrivals):
        path = {t: plan.sample(t).command.arm.q[0] for t in range(now, now + gap + 1, 10)}
        now = max(path)
        blender.begin(plan, t0_ns=now - 150, stood_still=k == 0)
        rows = Waypoints(q=ramp(value, 0.1)[:, :2])
        blended = blender.rows(rows)
        assert blended.num_rows == rows.num_rows
        np.testing.assert_array_equal(blended.q[:2], rows.q[:2])  # rows that are past
        source = Source(request_id=k, t_obs_ns=0)
        plan.splice(blended, t0_ns=now - 150, dt_ns=100, source=source)
        assert plan.command_at(now).arm.q[0] == pytest.approx(path[now], abs=1e-9)
