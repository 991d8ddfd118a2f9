"""The figures of a run, of all its ticks whatever is kept of them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.plan.answers import Splice
from robot_runtime.core.plan.axis_limiter import Shortfall
from robot_runtime.core.plan.clip import Clip
from robot_runtime.core.plan.timeline import Phase, Seam, Source
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import Command, GripperCommand, JointCommand, JointVelocityCommand
from robot_runtime.core.values.state import ArmState, GripperState, RobotState
from robot_runtime.distribution import SAMPLE_SIZE, Distribution
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.telemetry import KEPT_REQUESTS, MotionCheck, RunRecord
from tests.examples import examples

TICK = 2_000_000
REST = Tick(
    now_ns=0,
    command=Command(arm=JointCommand(q=np.zeros(2))),
    mode=Mode.RUN,
    cause=Cause.FRESH_CHUNK,
    phase=Phase.PLAN,
    source=None,
    row=None,
    clip=Clip(),
)


def record_of(q: np.ndarray, t_ns: np.ndarray, *, keep: int | None = None) -> RunRecord:
    record = RunRecord(keep=keep)
    for now_ns, joints in zip(t_ns.tolist(), q, strict=True):
        record.on_tick(replace(REST, now_ns=now_ns, command=Command(arm=JointCommand(q=joints))), None)
    return record


@pytest.mark.parametrize("every", [1, 3])
def test_the_jerk_of_a_cubic_is_its_third_derivative(every):
    t_ns = np.arange(0, 200, every) * TICK
    t_s = t_ns * 1e-9
    q = np.column_stack([2.0 * t_s**3, -5.0 * t_s**3 + t_s**2])
    summary = record_of(q, t_ns).summary()
    assert summary["jerk_mean"] == pytest.approx(30.0, rel=1e-3)  # 6 * 5 of the second joint
    assert summary["jerk_max"] == pytest.approx(30.0, rel=1e-2)


def test_a_tick_that_is_late_is_no_jerk_of_the_robot():
    rng = np.random.default_rng(0)
    due_ns = np.arange(200) * TICK
    q = np.column_stack([2.0 * (due_ns * 1e-9) ** 3] * 2)
    record = RunRecord(period_ns=TICK)
    for now_ns, joints in zip((due_ns + rng.integers(0, 200_000, 200)).tolist(), q, strict=True):
        record.on_tick(replace(REST, now_ns=now_ns, command=Command(arm=JointCommand(q=joints))), None)
    assert record.summary()["jerk_max"] == pytest.approx(12.0, rel=1e-2)


def test_a_run_that_stood_still_for_most_of_its_time_says_for_how_long_and_why():
    record = RunRecord()
    causes = (
        [Cause.RESET] * 10 + [Cause.FRESH_CHUNK] * 40 + [Cause.PLAN_ENDED] * 30 + [Cause.STATE_STALE] * 21
    )
    for i, cause in enumerate(causes):
        mode = Mode.RUN if cause is Cause.FRESH_CHUNK else Mode.HOLD
        record.on_tick(replace(REST, now_ns=i * 50 * TICK, mode=mode, cause=cause), None)
    assert record.why_it_stood() == (
        "the robot was stationary for 6.0 of 10.0 s: the plan ended before the next chunk came (3.0 s), the "
        "robot's state is too old (2.0 s), it waited for its first chunk (1.0 s)"
    )
    assert record_of(np.zeros((30, 2)), np.arange(30) * TICK).why_it_stood() == ""


def test_the_jerk_of_two_arms_is_that_of_the_worse_one_whatever_they_are_called():
    t_s = np.arange(100) * TICK * 1e-9
    record = RunRecord()
    for i, cube in enumerate(t_s**3):
        parts = {
            "left_arm": JointCommand(q=np.array([cube])),
            "lift": JointCommand(q=np.array([-3.0 * cube])),
        }
        record.on_tick(replace(REST, now_ns=i * TICK, command=Command(parts)), None)
    assert record.summary()["jerk_max"] == pytest.approx(18.0, rel=1e-2)


def test_a_run_of_three_ticks_has_no_jerk():
    assert record_of(np.zeros((3, 2)), np.arange(3) * TICK).summary()["jerk_max"] == 0.0


def splice(request_id: int, now_ns: int, jump: float, first_fresh_row: int) -> Splice:
    return Splice(
        t_ns=now_ns,
        source=Source(request_id=request_id, t_obs_ns=now_ns - 5 * TICK),
        latency_ns=5 * TICK,
        t0_ns=now_ns,
        seam=Seam(first_row=0, num_dropped=0, jump=jump),
        first_fresh_row=first_fresh_row,
    )


def a_run(seed: int, num_ticks: int) -> tuple[list[Tick], list[Splice]]:
    """Ticks on their way through rows of answers, and the splice that was the last one at each."""
    rng = np.random.default_rng(seed)
    ticks, splices, now_ns, request_id = list[Tick](), list[Splice](), 0, 0
    for k in range(num_ticks):
        now_ns += int(rng.integers(1, 4)) * TICK
        if k == 0 or rng.random() < 0.1:
            request_id += 1
            last = splice(request_id, now_ns, float(rng.random()), int(rng.integers(0, 4)))
        splices.append(last)
        mode = Mode.RUN if rng.random() < 0.7 else Mode.HOLD
        source, row = (None, None) if mode is Mode.HOLD else (last.source, int(rng.integers(0, 6)))
        clip = Clip(
            arm=Shortfall(
                distance=0.0, velocity=bool(rng.random() < 0.2), acceleration=bool(rng.random() < 0.4)
            )
        )
        sent = Command(arm=JointCommand(q=rng.random(2)))
        ticks.append(replace(REST, now_ns=now_ns, command=sent, mode=mode, source=source, row=row, clip=clip))
    return ticks, splices


def reference(ticks: list[Tick], splices: list[Splice]) -> dict[str, float]:
    """The same figures by their definitions, from the whole log."""
    splices = list(dict.fromkeys(splices))
    held_ns = sum(b.now_ns - a.now_ns for a, b in pairwise(ticks) if a.mode is Mode.HOLD)
    sent = [(t.source.request_id, t.row) for t in ticks if t.source is not None and t.row is not None]
    sent = [row for i, row in enumerate(sent) if i == 0 or sent[i - 1] != row]
    latest, resent = dict[int, int](), 0
    for request_id, row in sent:
        resent += row <= latest.get(request_id, -1)
        latest[request_id] = max(row, latest.get(request_id, -1))
    fresh = {splice.source.request_id: splice.first_fresh_row for splice in splices}
    jumps = [splice.seam.jump for splice in splices[1:]]
    return {
        "duration_s": (ticks[-1].now_ns - ticks[0].now_ns) / 1e9,
        "stalled_s": held_ns / 1e9,
        "num_chunks": len(splices),
        "seam_jump_p50": float(np.quantile(jumps, 0.5)) if jumps else 0.0,
        "seam_jump_max": max(jumps, default=0.0),
        "resent_rows": resent,
        "repeated_rows": sum(row < fresh[request_id] for request_id, row in set(sent)),
        "clipped_share": sum(tick.clip.has("velocity") for tick in ticks) / len(ticks),
        "smoothed_share": sum(tick.clip.has("acceleration") for tick in ticks) / len(ticks),
    }


@given(st.integers(0, 2**32), st.integers(1, 200), st.sampled_from([None, 1, 7, 1000]))
@examples(40)
def test_the_figures_are_of_all_ticks_whatever_is_kept(seed, num_ticks, keep):
    ticks, splices = a_run(seed, num_ticks)
    record = RunRecord(keep=keep)
    for tick, last in zip(ticks, splices, strict=True):
        record.on_tick(tick, last)
    summary = record.summary()
    for name, value in reference(ticks, splices).items():
        assert summary[name] == pytest.approx(value, abs=1e-12), name
    assert list(record.ticks) == ticks[-len(record.ticks) :]
    assert len(record.ticks) == (num_ticks if keep is None else min(keep, num_ticks))


def test_a_log_that_is_not_whole_has_no_fingerprint():
    ticks = np.random.default_rng(0).random((10, 2)), np.arange(10) * TICK
    whole = record_of(*ticks).digest()
    assert record_of(*ticks, keep=10).digest() == whole
    with pytest.raises(InvalidValueError, match="of 10 ticks the last 9 are kept, not all"):
        record_of(*ticks, keep=9).digest()


def test_a_long_run_holds_no_more_than_a_short_one():
    """Nothing in a record but what is kept grows: splices, lines, rows of answers, samples."""
    record = RunRecord(keep=100)
    for k in range(20_000):
        last = splice(k // 10, k * TICK, 0.1, 3)
        record.on_tick(replace(REST, now_ns=k * TICK, source=last.source, row=k % 10), last)
        record.lateness_ns.add(k)
        record.log.append((k, "a line"))
    assert (len(record.ticks), len(record.splices), len(record.log)) == (100, 100, 1000)
    rows = record._rows
    assert max(map(len, (rows._latest, rows._first_fresh, rows._repeated))) <= KEPT_REQUESTS
    assert record.num_ticks == 20_000
    assert len(record.lateness_ns._kept) == SAMPLE_SIZE


@given(st.lists(st.floats(-1e9, 1e9), max_size=50), st.floats(0.0, 1.0))
def test_a_few_numbers_have_the_quantiles_numpy_gives_them(values, q):
    numbers = Distribution()
    for value in values:
        numbers.add(value)
    assert numbers.count == len(values)
    assert numbers.quantile(q) == (float(np.quantile(values, q)) if values else 0.0)
    assert numbers.max == max(values, default=0.0)


def test_many_numbers_have_nearly_theirs():
    values, numbers = np.random.default_rng(1).permutation(100_000), Distribution()
    for value in values.tolist():
        numbers.add(value)
    for q in (0.05, 0.5, 0.95, 0.99):
        assert numbers.quantile(q) / 1e5 == pytest.approx(q, abs=0.025)
    assert numbers.max == 99_999
    assert numbers.mean == pytest.approx(49_999.5)


def test_the_joint_that_ignores_its_commands_is_named():
    check = MotionCheck(0.01)
    for i in range(100):
        told = np.array([0.001 * i, 0.002 * i, 0.0001 * i])
        at = ArmState(t_ns=i, q=told * [1.0, 0.0, 0.0], dq=np.zeros(3))
        check.add(Command({"arm": JointCommand(q=told)}), RobotState(t_ns=i, parts={"arm": at}))
    (sentence,), is_all = check.unmoved()
    assert sentence.startswith(
        "joint 2 of arm was commanded over 0.2 rad or m and is measured to have moved 0:"
    )
    assert not is_all


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 1.0])
def test_an_arm_that_is_commanded_by_velocities_is_taken_to_follow_from_a_tenth_of_the_way(share):
    check, dq = MotionCheck(0.01), np.full(2, 0.2)
    for i in range(100):
        at = ArmState(t_ns=i, q=share * 0.01 * i * dq, dq=np.zeros(2))
        check.add(Command({"arm": JointVelocityCommand(dq=dq)}), RobotState(t_ns=i, parts={"arm": at}))
    assert bool(check.unmoved()[0]) == (share < 0.1)


def test_what_is_not_commanded_to_move_may_stand():
    check = MotionCheck(0.01)
    for i in range(10):
        at = ArmState(t_ns=i, q=np.zeros(2), dq=np.zeros(2))
        command = Command(
            {"arm": JointCommand(q=np.full(2, 0.001 * i)), "gripper": GripperCommand(width=0.01 * i)}
        )
        check.add(command, RobotState(t_ns=i, parts={"arm": at, "gripper": GripperState(width=0.0)}))
    assert check.unmoved() == ([], False)
