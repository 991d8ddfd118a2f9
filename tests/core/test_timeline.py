import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.plan.timeline import ChunkTimeline, Phase, Source
from robot_runtime.core.values.action import BaseTwistCommand, Command, GripperCommand, JointCommand
from robot_runtime.core.values.waypoints import Waypoints
from tests.core.support import ramp, waypoints

DT = 100
REST = Command(arm=JointCommand(q=np.zeros(2)), gripper=GripperCommand(width=0.08))


def timeline() -> ChunkTimeline:
    out = ChunkTimeline(coast_ns=2 * DT)
    out.rest_at(REST, 0)
    return out


def source(i: int, t_obs_ns: int = 0) -> Source:
    return Source(request_id=i, t_obs_ns=t_obs_ns)


def test_a_row_is_reached_when_it_is_due_and_rows_on_a_line_are_passed_on_it():
    plan = timeline()
    plan.splice(waypoints(ramp(1.0, 1.0)), t0_ns=DT, dt_ns=DT, source=source(1))
    assert 0.0 < plan.sample(50).command.arm.q[0] < 0.5  # from rest to row 0, gathering speed
    assert plan.sample(100).command.arm.q[0] == 1.0
    assert plan.sample(100).row == 0
    assert plan.sample(250).command.arm.q[0] == pytest.approx(2.5)
    assert plan.sample(250).row == 1


def test_a_splice_drops_rows_whose_time_is_past_and_keeps_the_path_continuous():
    plan = timeline()
    plan.splice(waypoints(ramp(0.0, 1.0)), t0_ns=0, dt_ns=DT, source=source(1))
    before = plan.sample(250).command.arm.q[0]
    seam = plan.splice(waypoints(ramp(10.0, 1.0)), t0_ns=100, dt_ns=DT, source=source(2))
    assert (seam.first_row, seam.num_dropped) == (2, 2)
    assert seam.jump == pytest.approx(12.0 - 3.0)
    assert plan.sample(250).command.arm.q[0] == before
    assert before < plan.sample(275).command.arm.q[0] < 12.0
    assert plan.sample(300).command.arm.q[0] == 12.0


def test_a_chunk_that_starts_later_leaves_the_old_plan_alone_until_one_row_before():
    plan = timeline()
    plan.splice(waypoints(ramp(0.0, 1.0)), t0_ns=0, dt_ns=DT, source=source(1))
    plan.sample(50)
    plan.splice(waypoints(ramp(50.0, 0.0)), t0_ns=500, dt_ns=DT, source=source(2))
    assert plan.sample(400).command.arm.q[0] == 4.0
    assert plan.sample(500).command.arm.q[0] == 50.0


def whole_robot_rows(rng: np.random.Generator, n: int) -> Waypoints:
    quats = rng.normal(size=(n, 4))
    return Waypoints(
        p_BE=rng.normal(size=(n, 3)),
        quat_BE=quats / np.linalg.norm(quats, axis=1, keepdims=True) * np.sign(quats[:, :1]),
        gripper=rng.uniform(0.0, 0.08, n),
        x_WB=rng.normal(size=(n, 3)),
    )


@given(
    st.lists(st.tuples(st.integers(0, 3 * DT), st.integers(-2 * DT, 2 * DT), st.integers(1, 6)), max_size=4),
    st.lists(st.integers(-DT, 16 * DT), min_size=1, max_size=12),
    st.integers(0, 2**20),
)
def test_many_times_looked_up_at_once_are_as_each_by_itself(splices, times, seed):
    rng, plan, now = np.random.default_rng(seed), ChunkTimeline(coast_ns=2 * DT), 0
    plan.rest_at(whole_robot_rows(rng, 1).row(0), 0)
    for i, (wait, start, n) in enumerate(splices):
        plan.splice(whole_robot_rows(rng, n), t0_ns=now + start, dt_ns=DT, source=source(i, now))
        now += wait
        plan.sample(now)
    slowed = plan.due_times(-(2**60), plan.end_ns)[
        -1:
    ]  # the row before the last: from there on it comes to rest
    times = sorted(t for t in times if t <= min(slowed, default=t) or t >= plan.end_ns + 2 * DT)
    together = plan.waypoints_at(times)
    for i, t in enumerate(times):
        alone, row = plan.command_at(t), together.row(i)
        np.testing.assert_allclose(row.arm.p_BE, alone.arm.p_BE, atol=1e-12)
        np.testing.assert_allclose(row.arm.quat_BE, alone.arm.quat_BE, atol=1e-9)
        np.testing.assert_allclose(row.base.x_WB, alone.base.x_WB, atol=1e-12)
        assert row.gripper == alone.gripper


def test_a_chunk_whose_rows_are_all_past_changes_nothing():
    plan = timeline()
    plan.splice(waypoints(ramp(0.0, 1.0)), t0_ns=0, dt_ns=DT, source=source(1))
    plan.sample(300)
    seam = plan.splice(waypoints(ramp(9.0, 1.0, num_rows=3)), t0_ns=0, dt_ns=DT, source=source(2))
    assert seam.first_row is None
    assert plan.sample(350).command.arm.q[0] == pytest.approx(3.5)


def test_a_plan_comes_to_rest_at_its_last_row_losing_speed_evenly_from_the_row_before():
    plan = timeline()
    plan.splice(waypoints(ramp(0.0, 1.0, num_rows=4)), t0_ns=0, dt_ns=DT, source=source(1))
    assert plan.phase(299) is Phase.PLAN
    q = [plan.sample(t).command.arm.q[0] for t in range(200, 521, 10)]
    speeds = np.diff(q) / 10
    assert plan.phase(499) is Phase.COAST
    assert plan.phase(500) is Phase.REST
    assert speeds[0] == pytest.approx(0.01, rel=0.05)  # the plan's own speed, one per hundred
    assert (np.diff(speeds) <= 1e-12).all()
    assert q[-1] == 3.0  # at the last row, and nowhere beyond
    assert max(q) == 3.0


def test_what_the_rows_say_is_not_slowed_by_the_end_of_the_plan():
    plan = timeline()
    plan.splice(waypoints(ramp(0.0, 1.0, num_rows=4)), t0_ns=0, dt_ns=DT, source=source(1))
    rows = plan.waypoints_at([100, 200, 250, 300, 400])
    np.testing.assert_allclose(rows.q[:, 0], [1.0, 2.0, 2.5, 3.0, 3.0])


rows_of_numbers = st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=9)


@given(rows_of_numbers)
def test_the_path_never_leaves_the_range_of_the_rows_it_lies_between(values):
    plan = timeline()
    values = [0.0, *values]
    plan.splice(Waypoints(q=np.outer(values, [1.0, -1.0]), gripper=np.full(len(values), 0.08)),
                t0_ns=0, dt_ns=DT, source=source(1))  # fmt: skip
    for t in range(0, plan.end_ns + 2 * DT + 1, 7):
        i = min(t // DT, len(values) - 2)
        low, high = sorted(values[i : i + 2])
        assert low - 1e-12 <= plan.command_at(t).arm.q[0] <= high + 1e-12


@given(
    st.lists(st.tuples(st.integers(0, 3 * DT), st.integers(-2 * DT, 2 * DT), st.integers(1, 6)), max_size=5),
    st.integers(0, 2**20),
)
def test_the_path_has_no_corner_whatever_is_spliced_into_it(splices, seed):
    """Its speed just before and just after every splice is the same, for joints, hand and base."""
    rng, plan, now = np.random.default_rng(seed), ChunkTimeline(coast_ns=2 * DT), 0
    plan.rest_at(whole_robot_rows(rng, 1).row(0), 0)
    for i, (wait, start, n) in enumerate(splices):
        now += wait
        plan.sample(now)
        before = plan.rates_at(now)
        plan.splice(whole_robot_rows(rng, n), t0_ns=now + start, dt_ns=DT, source=source(i, now))
        for name, rate in plan.rates_at(now).items():
            tolerance = 2e-3 if name == "quat_BE" else 1e-6  # large rotations are accurate to second order
            np.testing.assert_allclose(
                rate, before[name], atol=tolerance * (1.0 + np.abs(before[name]).max()), rtol=0.0
            )


def test_a_base_twist_ends_at_zero():
    plan = ChunkTimeline(coast_ns=2 * DT)
    plan.rest_at(Command(base=BaseTwistCommand(V_WB_B=np.zeros(3))), 0)
    plan.splice(Waypoints(V_WB_B=np.full((3, 3), 0.5)), t0_ns=0, dt_ns=DT, source=source(1))
    assert plan.sample(200).command.base.V_WB_B[0] == 0.5
    assert plan.sample(300).command.base.V_WB_B[0] == pytest.approx(0.25)
    assert plan.sample(400).command.base.V_WB_B[0] == 0.0


def test_streamed_rows_continue_the_chunk_they_belong_to():
    whole, streamed = timeline(), timeline()
    rows = ramp(1.0, 1.0)
    whole.splice(waypoints(rows), t0_ns=0, dt_ns=DT, source=source(1))
    streamed.splice(waypoints(rows[:3]), t0_ns=0, dt_ns=DT, source=source(1))
    for t in range(0, 91, 30):
        assert whole.sample(t).row == streamed.sample(t).row
    streamed.splice(waypoints(rows), t0_ns=0, dt_ns=DT, source=source(1))
    for t in range(100, 901, 25):
        a, b = whole.sample(t), streamed.sample(t)
        assert (a.row, a.phase) == (b.row, b.phase)
        if t >= 200:  # before, the speed at row 1 is that of a plan which ended a row later
            assert a.command.arm.q[0] == pytest.approx(b.command.arm.q[0])


def test_while_a_chunk_streams_in_the_old_plan_goes_on_after_its_last_row():
    plan, old, new = timeline(), ramp(0.0, 1.0), ramp(50.0, 1.0)
    plan.splice(waypoints(old), t0_ns=0, dt_ns=DT, source=source(1))
    plan.sample(100)
    plan.splice(waypoints(new[:3]), t0_ns=0, dt_ns=DT, source=source(2), is_complete=False)
    assert plan.sample(200).command.arm.q[0] == new[2, 0]
    halfway = plan.sample(250)
    assert halfway.phase is Phase.PLAN
    assert halfway.source == source(1)
    assert old[3, 0] < halfway.command.arm.q[0] < new[2, 0]
    plan.splice(waypoints(new[:5]), t0_ns=0, dt_ns=DT, source=source(2), is_complete=False)
    assert plan.command_at(250).arm.q[0] == pytest.approx(halfway.command.arm.q[0])
    assert [plan.command_at(t).arm.q[0] for t in (300, 400, 500)] == [new[3, 0], new[4, 0], old[5, 0]]
    plan.splice(waypoints(new[:6]), t0_ns=0, dt_ns=DT, source=source(2))
    assert plan.end_ns == 500


def test_time_that_goes_back_is_refused():
    plan = timeline()
    plan.sample(100)
    with pytest.raises(ValueError, match="time went back"):
        plan.sample(99)


chunks = st.lists(
    st.tuples(st.integers(0, 350), st.integers(-400, 400), st.integers(1, 8)), min_size=1, max_size=12
)


@given(chunks, st.integers(1, 40))
def test_no_sent_row_is_rewritten_or_replayed_and_rows_run_in_order(arrivals, step):
    """Over random traces of chunks, each with its own start and length, at any tick rate."""
    plan, now = timeline(), 0
    sent: list[tuple[int, int]] = []  # (request id, row) in the order in which they were due
    for i, (gap, offset, num_rows) in enumerate(arrivals):
        for now in range(now, now + gap + 1, step):  # noqa: B020
            sample = plan.sample(now)
            if sample.row is not None:
                sent.append((sample.source.request_id, sample.row))
        command = plan.command_at(now).arm.q[0]
        rows = waypoints(ramp(float(i), 1.0, num_rows=num_rows))
        seam = plan.splice(rows, t0_ns=now + offset, dt_ns=DT, source=source(i))
        assert plan.command_at(now).arm.q[0] == pytest.approx(command), "a sent command was rewritten"
        if seam.first_row is not None:
            assert now + offset + seam.first_row * DT > plan.claimed_ns, "a row went into the past"
    assert sent == sorted(sent), "a row ran again, or an older chunk came back"


@given(chunks)
def test_the_path_is_continuous_through_every_splice(arrivals):
    """One nanosecond never moves the command by more than its steepest line does."""
    plan, now = timeline(), 0
    for i, (gap, offset, num_rows) in enumerate(arrivals):
        before = plan.sample(now).command.arm.q[0]
        plan.splice(
            waypoints(ramp(float(i), 1.0, num_rows=num_rows)), t0_ns=now + offset, dt_ns=DT, source=source(i)
        )
        assert plan.sample(now).command.arm.q[0] == pytest.approx(before, abs=1e-12)
        now += gap


def test_a_chunk_from_row_zero_starts_at_its_row_zero_at_once():
    plan = timeline()
    plan.sample(0)
    plan.splice(waypoints(ramp(5.0, 1.0)), t0_ns=10, dt_ns=DT, source=source(1))
    sample = plan.sample(10)
    assert sample.command.arm.q[0] == 5.0
    assert sample.row == 0


parts = st.lists(
    st.tuples(st.integers(0, 250), st.integers(-300, 200), st.integers(1, 4)), min_size=1, max_size=12
)


@given(parts, st.integers(1, 40))
def test_a_part_of_a_chunk_neither_shortens_the_plan_nor_replays_or_rewrites_a_row(arrivals, step):
    """Two parts of every chunk; of every third the second is the last, the others stop in the middle."""
    plan, now = timeline(), 0
    sent: list[tuple[int, int]] = []
    for i, (gap, offset, num_rows) in enumerate(arrivals):
        t0_ns, rows = now + offset, ramp(float(i), 1.0, num_rows=2 * num_rows)
        for shown, is_complete in ((num_rows, False), (2 * num_rows, i % 3 == 0)):
            command, end_ns = plan.command_at(now).arm.q[0], plan.end_ns
            plan.splice(
                waypoints(rows[:shown]), t0_ns=t0_ns, dt_ns=DT, source=source(i), is_complete=is_complete
            )
            assert plan.command_at(now).arm.q[0] == pytest.approx(command)
            assert is_complete or plan.end_ns >= end_ns
            for now in range(now, now + gap + 1, step):  # noqa: B020
                sample = plan.sample(now)
                if sample.row is not None and (sample.source.request_id, sample.row) not in sent[-1:]:
                    sent.append((sample.source.request_id, sample.row))
    assert len(sent) == len(set(sent)), "a row ran again"
