"""Online state matching: the row from which a chunk continues."""

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.method.splice_parts import StateMatched
from robot_runtime.core.method.table import METHODS
from robot_runtime.core.plan.answers import PartOutcome
from robot_runtime.core.plan.counts import Counts
from robot_runtime.core.plan.splice import Arrival, first_row_due_ns, nearest_on_path
from robot_runtime.core.values.action import (
    ActionChunk,
    ActionSpec,
    BasePose,
    Command,
    EndEffectorPose,
    GripperCommand,
    JointCommand,
)
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import rotation_to_6d
from robot_runtime.core.values.waypoints import Waypoints
from tests.core.support import DT, FEW, SPEC, TICK, answer, executor, observation_at, ramp, state_at

PART = StateMatched(lead_s=0.0)


def row_at(chunk_rows, *, q, t_ns, part=PART, width=0.08, claimed_ns=None, counts=None) -> float:
    """The row of a chunk observed at 0 that is due at `t_ns`, with the robot at q (2,) then."""
    chunk = ActionChunk(spec=SPEC, rows=chunk_rows, anchor=state_at(0), request_id=0, epoch=1)
    arrival = Arrival(
        now_ns=t_ns,
        state=state_at(t_ns, q),
        claimed_ns=t_ns if claimed_ns is None else claimed_ns,
        commanded=Command(arm=JointCommand(q=np.array(q)), gripper=GripperCommand(width=width)),
        stood_still=False,
    )
    counts = Counts() if counts is None else counts
    t0_ns = first_row_due_ns(part, chunk, Waypoints.from_chunk(chunk), arrival, counts)
    return (t_ns - t0_ns) / DT


def test_a_robot_that_is_behind_goes_on_from_where_it_is():
    rows = ramp(0.0, 0.1)
    by_time = row_at(rows, q=(0.4, -0.4), t_ns=4 * DT)
    behind = row_at(rows, q=(0.25, -0.25), t_ns=4 * DT)
    assert by_time == pytest.approx(4.0, abs=1e-6)
    assert 2.5 < behind < 2.6  # the prior pulls a little towards row 4
    ahead = row_at(rows, q=(0.55, -0.55), t_ns=4 * DT)
    assert 5.4 < ahead < 5.5


def test_the_lead_makes_up_for_an_arm_that_runs_behind_its_setpoint():
    rows, lag_rows = ramp(0.0, 0.1), 0.6
    measured = 0.1 * (4.0 - lag_rows)
    matched = row_at(rows, q=(measured, -measured), t_ns=4 * DT, part=StateMatched(lead_s=0.6 * 0.05))
    assert matched == pytest.approx(4.0, abs=1e-6)  # the setpoint loses nothing


def test_the_search_stays_in_its_window_and_never_goes_before_row_zero():
    rows = ramp(0.0, 0.05)
    part = StateMatched(lead_s=0.0, window_rows=2, time_weight=0.0)
    assert row_at(rows, q=(0.35, -0.35), t_ns=2 * DT, part=part) == pytest.approx(4.0)
    assert row_at(rows, q=(0.0, 0.0), t_ns=5 * DT, part=part) == pytest.approx(3.0)
    assert row_at(rows, q=(-0.2, 0.2), t_ns=DT, part=part) == pytest.approx(0.0)


def test_where_the_path_stands_still_time_decides():
    rows = ramp(0.3, 0.0)
    assert row_at(rows, q=(0.3, -0.3), t_ns=5 * DT) == pytest.approx(5.0)


def test_a_robot_far_from_all_of_the_path_is_aligned_by_time_and_counted():
    counts = Counts()
    assert row_at(ramp(0.0, 0.1), q=(2.0, 2.0), t_ns=3 * DT, counts=counts) == pytest.approx(3.0)
    assert counts.matches_refused == 1
    assert any("too far" in sentence for sentence in counts.fallbacks())


def test_rows_that_have_not_streamed_in_yet_leave_the_alignment_to_time():
    assert row_at(ramp(0.0, 0.1, num_rows=1), q=(0.9, -0.9), t_ns=7 * DT) == pytest.approx(7.0)


def closing(at_row: int) -> np.ndarray:
    rows = ramp(0.0, 0.1)
    rows[at_row:, 2] = 0.0
    return rows


def test_a_gripper_change_that_was_not_commanded_is_never_passed():
    rows = closing(at_row=3)
    assert row_at(rows, q=(0.6, -0.6), t_ns=6 * DT, width=0.08) < 3.0
    assert row_at(rows, q=(0.6, -0.6), t_ns=6 * DT, width=0.0) == pytest.approx(6.0)


def test_a_gripper_change_that_was_commanded_is_not_undone():
    matched = row_at(closing(at_row=3), q=(0.1, -0.1), t_ns=2 * DT, width=0.0)
    assert matched == pytest.approx(3.0)


def test_a_width_the_chunk_never_had_is_met_within_its_first():
    rows = closing(at_row=3)
    assert row_at(rows, q=(0.6, -0.6), t_ns=6 * DT, width=0.04) < 2.0  # row 2, still open, has to run


def test_hands_are_matched_in_position_and_rotation():
    spec = ActionSpec(fields=(EndEffectorPose(),), horizon=8, dt_ns=DT)
    poses = [
        pin.SE3(pin.exp3(np.array([0.0, 0.0, 0.1 * i])), np.array([0.01 * i, 0.0, 0.2])) for i in range(8)
    ]
    rows = np.array([[*X.translation, *rotation_to_6d(X.rotation)] for X in poses])
    X_BE = pin.SE3(pin.exp3(np.array([0.0, 0.0, 0.25])), np.array([0.025, 0.0, 0.2]))
    assert matched_row(spec, rows, RobotState(t_ns=5 * DT, q=np.zeros(0), dq=np.zeros(0), X_BE=X_BE)) == (
        pytest.approx(2.5, abs=0.05)
    )


def test_base_poses_are_matched_the_shorter_way_round():
    spec = ActionSpec(fields=(BasePose(),), horizon=8, dt_ns=DT)
    yaw = np.array([3.0 + 0.1 * i for i in range(8)])
    rows = np.column_stack([0.05 * np.arange(8), np.zeros(8), (yaw + np.pi) % (2 * np.pi) - np.pi])
    x_WB = np.array([0.15, 0.0, 3.3 - 2 * np.pi])
    state = RobotState(t_ns=5 * DT, q=np.zeros(0), dq=np.zeros(0), x_WB=x_WB)
    assert matched_row(spec, rows, state) == pytest.approx(3.0, abs=0.05)


def matched_row(spec: ActionSpec, rows: np.ndarray, state: RobotState) -> float:
    anchor = RobotState(t_ns=0, q=np.zeros(0), dq=np.zeros(0))
    chunk = ActionChunk(spec=spec, rows=rows, anchor=anchor, request_id=0, epoch=1)
    arrival = Arrival(
        now_ns=state.t_ns, state=state, claimed_ns=state.t_ns, commanded=Command(), stood_still=False
    )
    part = StateMatched(lead_s=0.0, time_weight=0.001)
    t0_ns = first_row_due_ns(part, chunk, Waypoints.from_chunk(chunk), arrival, Counts())
    return (state.t_ns - t0_ns) / spec.dt_ns


paths = st.lists(st.lists(st.floats(-3, 3), min_size=2, max_size=2), min_size=2, max_size=8)


@given(paths, st.floats(0, 7), st.floats(0, 4), st.floats(-2, 9), st.floats(0, 0.5))
def test_the_nearest_point_is_as_near_as_a_fine_search_finds(path, lowest, width, expected, row_weight):
    offsets = np.array(path)
    last = len(offsets) - 1.0
    lowest = min(lowest, last)
    highest = min(lowest + width, last)
    row, distance = nearest_on_path(
        offsets, lowest=lowest, highest=highest, expected=expected, row_weight=row_weight
    )
    assert lowest - 1e-9 <= row <= highest + 1e-9

    def cost(u):
        i = min(int(u), len(offsets) - 2)
        point = offsets[i] + (u - i) * (offsets[i + 1] - offsets[i])
        return float(point @ point) + row_weight * (u - expected) ** 2

    assert cost(row) <= min(cost(u) for u in np.linspace(lowest, highest, 201)) + 1e-9
    assert distance**2 + row_weight * (row - expected) ** 2 == pytest.approx(cost(row), abs=1e-9)


@given(st.lists(st.floats(0.0, 0.25), min_size=2, max_size=12), st.floats(0.0, 0.06))
def test_a_robot_that_goes_forward_is_never_matched_further_back(steps, lead_s):
    """One chunk, matched repeatedly: time passes and the robot moves along the path, at any pace."""
    part, rows = StateMatched(lead_s=lead_s), ramp(0.0, 0.1)
    travelled, before = 0.0, -1.0
    for i, step in enumerate(steps):
        travelled = min(travelled + step, 0.7)
        t_ns = i * DT // 2
        row = row_at(rows, q=(travelled, -travelled), t_ns=t_ns, part=part)
        assert row >= before - 1e-6
        before = row


@FEW
@given(
    st.lists(st.integers(0, 250), min_size=1, max_size=12),
    st.lists(st.integers(1, 7), min_size=12, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
    st.floats(0.0, 1.2),
)
def test_state_matching_skips_no_gripper_change_and_goes_behind_none(latencies_ms, change_rows, wide, pace):
    """Whatever the latency and however slow the arm: every width a chunk asks for after the one it found
    commanded is still to come when the chunk enters the plan, and the robot starts no chunk before row 0."""
    robot = executor(METHODS["state-matching"])
    robot.reset(state_at(0), 0)
    q, t = 0.0, 0
    for k, latency_ms in enumerate(latencies_ms):
        while not robot.wants_request(t):
            q += 0.1 * pace * (robot.tick(state_at(t, (q, -q)), t).command.arm.q[0] - q)
            t += TICK
        request = robot.make_request(observation_at(t, (q, -q)))
        arrival = t + latency_ms * 1_000_000
        while t < arrival:
            q += 0.1 * pace * (robot.tick(state_at(t, (q, -q)), t).command.arm.q[0] - q)
            t += TICK
        commanded = robot.timeline.command_at(robot.timeline.claimed_ns).gripper.width
        rows = ramp(q, 0.1)
        rows[: change_rows[k], 2] = 0.08 if wide[k] else 0.0
        rows[change_rows[k] :, 2] = 0.0 if wide[k] else 0.08
        robot.on_part(answer(request, rows), t)
        seam = robot.last_splice.seam
        is_new = robot.last_splice.source.request_id == request.request_id
        assert is_new
        assert robot.last_splice.t0_ns <= t + 1
        if commanded == rows[0, 2]:
            assert seam.first_row <= change_rows[k], "the change was skipped"
        else:
            assert rows[seam.first_row, 2] == commanded or seam.first_row < change_rows[k]


@pytest.mark.parametrize("sizes", [(1, 7), (4, 4), (2, 3, 3)])
def test_a_chunk_that_streams_in_is_matched_where_the_whole_one_would_be(sizes):
    """The arm is a row and a half behind its plan when an answer comes, 5 rows late: the first rows alone
    say nothing about where it is, so they wait for those that do."""
    starts = []
    for parts in ((8,), sizes):
        robot = executor(METHODS["state-matching"])
        robot.reset(state_at(0), 0)
        robot.on_part(answer(robot.make_request(observation_at(0)), ramp(0.0, 0.1)), 0)
        robot.tick(state_at(DT), DT)
        request = robot.make_request(observation_at(DT, (0.1, -0.1)))
        robot.tick(state_at(6 * DT, (0.45, -0.45)), 6 * DT)
        rows, first = ramp(0.1, 0.1), 0
        outcomes = []
        for n in parts:
            part = answer(request, rows[first : first + n], first_row=first, is_last=first + n == 8)
            outcomes.append(robot.on_part(part, 6 * DT))
            first += n
        starts.append(robot.last_splice.t0_ns)
        assert outcomes[:-1] == [PartOutcome.WAITS] * (len(parts) - 1)
        assert outcomes[-1] is PartOutcome.RUNS
    assert starts[0] == starts[1]
    assert starts[0] != DT
