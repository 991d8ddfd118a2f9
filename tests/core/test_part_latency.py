"""Parts with latency are sent their rows that much earlier."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.method.request_parts import (
    BeforePlanEnds,
    FixedExecutionHorizon,
    PlainObservation,
    PreviousChunk,
    Synchronous,
)
from robot_runtime.core.method.table import METHODS, Method, method_named
from robot_runtime.core.plan.part_latency import PartLatency, lead_ns
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import ActionSpec, Command, GripperWidth, JointPosition, RowTiming
from robot_runtime.core.values.command import GripperCommand, JointCommand
from robot_runtime.core.values.fields import Reference
from robot_runtime.core.values.state import Observation, RobotState
from tests.core.support import (
    DT,
    SLOW_TICK,
    SPEC,
    ConstantHead,
    answer,
    executor,
    ramp,
    state_at,
)
from tests.examples import examples

MS = 1_000_000
ARM, GRIPPER = 100 * MS, 200 * MS
LATE = {"arm": ARM, "gripper": GRIPPER}
TICK = SLOW_TICK
LONG = replace(SPEC, horizon=24)


def asking(every: int = 3, *, prefix: bool = False) -> Method:
    """Time-aligned rows, asked for at a fixed execution horizon; prefix: shown the committed rows."""
    when = FixedExecutionHorizon(rows=every)
    if prefix:
        return replace(METHODS["committed-prefix"], request=PreviousChunk(when=when))
    return replace(METHODS["time-aligned"], request=PlainObservation(when=when))


class LateRobot:
    """A robot whose parts follow their commands exactly after a latency, with a policy that has latency."""

    def __init__(self, rows_from, *, delay_ns: int = 0, late=LATE, declared=LATE, **kwargs) -> None:
        """rows_from: from a request to the rows of its answer."""
        kwargs = {"action_spec": LONG, "method": asking()} | kwargs
        self.robot = executor(part_latency_ns=declared, control_period_ns=TICK, **kwargs)
        self.late, self.delay_ns, self.rows_from = late, delay_ns, rows_from
        self.sent: dict[int, Command] = {}
        self.requests, self.ticks, self._under_way = [], [], []
        self.robot.reset(self.state(0), 0)

    def doing(self, part: str, t_ns: int):
        """The command that a part executes at a time: the one sent its latency ago."""
        was = self.sent.get(t_ns - self.late.get(part, 0))
        if was is None:
            return JointCommand(q=np.zeros(2)) if part == "arm" else GripperCommand(width=0.08)
        return was.parts[part]

    def state(self, t_ns: int) -> RobotState:
        return state_at(t_ns, self.doing("arm", t_ns).q, self.doing("gripper", t_ns).width)

    def run(self, end_ns: int) -> list[Tick]:
        for t in range(len(self.ticks) * TICK, end_ns, TICK):
            state = self.state(t)
            self._take(t)
            if self.robot.wants_request(t):
                request = self.robot.make_request(Observation(state=state))
                self.requests.append(request)
                self._under_way.append((t + self.delay_ns, request))
                self._take(t)
            if self.robot.wants_correction(t):
                self.robot.correct(Observation(state=state), t)
            self.ticks.append(self.robot.tick(state, t))
            self.sent[t] = self.ticks[-1].command
        return self.ticks

    def _take(self, t: int) -> None:
        for due, request in [each for each in self._under_way if each[0] <= t]:
            self._under_way.remove((due, request))
            self.robot.on_part(answer(request, self.rows_from(request)), t)


def swing(t_ns) -> np.ndarray:
    """Where a policy wants the first joint at a time; 1 rad/s at most."""
    return 0.5 * np.sin(2.0 * np.asarray(t_ns) / 1e9)


def swinging(request) -> np.ndarray:
    times = request.observation.t_obs_ns + np.arange(LONG.horizon) * DT
    return np.column_stack([swing(times), -swing(times), 0.04 + 0.05 * swing(times)])


def test_each_part_is_sent_its_rows_earlier_than_they_are_due_by_its_latency():
    late = LateRobot(swinging)
    late.run(2000 * MS)
    for t in range(600 * MS, 1900 * MS, TICK):
        assert late.sent[t].arm.q[0] == pytest.approx(swing(t + ARM), abs=1e-3)
    for t in range(600 * MS, 1900 * MS, DT):  # a width holds until the next row
        assert late.sent[t].gripper.width == pytest.approx(0.04 + 0.05 * swing(t + GRIPPER), abs=1e-9)


@pytest.mark.parametrize("delay_ms", [0, 120])
def test_a_late_robot_is_where_its_policy_wants_it_when_it_wants_it(delay_ms):
    late = LateRobot(swinging, delay_ns=delay_ms * MS)
    late.run(3000 * MS)
    off = [abs(late.doing("arm", t).q[0] - swing(t)) for t in range(800 * MS, 3000 * MS, TICK)]
    assert max(off) < 2e-3
    told_nothing = LateRobot(swinging, delay_ns=delay_ms * MS, declared={})
    told_nothing.run(3000 * MS)
    assert (
        max(abs(told_nothing.doing("arm", t).q[0] - swing(t)) for t in range(MS * 800, MS * 3000, TICK))
        > 0.08
    )


@pytest.mark.parametrize(
    "name", ["time-aligned", "committed-prefix", "naive", "vlash", "synchronous", "a2c2"]
)
def test_latencies_of_zero_change_nothing(name):
    own = {
        "method": name,
        "delay_ns": 110 * MS,
        "late": {},
        "correction_head": ConstantHead(0.01, 0.0, 0.0, action_spec=LONG),
    }
    plain, zero = (
        LateRobot(swinging, declared=declared, **own) for declared in ({}, {"arm": 0, "gripper": 0})
    )
    for a, b in zip(plain.run(1500 * MS), zero.run(1500 * MS), strict=True):
        assert (a.mode, a.cause, a.phase, a.row) == (b.mode, b.cause, b.phase, b.row)
        assert a.command.arm.q.tobytes() == b.command.arm.q.tobytes()


@examples(6)
@given(st.lists(st.floats(-1.0, 1.0), min_size=40, max_size=40), st.sampled_from([0, 60, 130]), st.booleans())
def test_no_splice_changes_what_is_settled_and_every_part_then_does_it(heights, delay, prefix):
    """Answers that disagree wildly: the plan up to the lead is unchanged, so no part's path is broken."""

    def jumping(request):
        rows = ramp(heights[request.request_id % 40], 0.02, LONG.horizon)
        rows[:, 2] = 0.04 + 0.04 * heights[request.request_id % 40]
        return rows

    late = LateRobot(jumping, delay_ns=delay * MS, method=asking(prefix=prefix))
    settled = {}
    for t in range(0, 1500 * MS, TICK):
        late.run(t + TICK)
        plan = late.robot.timeline
        for ahead in range(0, GRIPPER + TICK, TICK):
            then = plan.command_at(t + ahead)
            was = settled.setdefault(t + ahead, then)
            assert np.allclose(then.arm.q, was.arm.q, atol=1e-12)
    for t in range(GRIPPER, 1500 * MS, TICK):
        assert np.allclose(late.doing("arm", t).q, settled[t].arm.q, atol=1e-12)
        assert late.doing("gripper", t).width == pytest.approx(settled[t].gripper.width, abs=1e-12)


@pytest.mark.parametrize("delay_ms", [0, 130])
def test_committed_rows_cover_the_answer_and_the_way_to_the_motion_and_are_what_the_robot_does(delay_ms):
    late = LateRobot(swinging, delay_ns=delay_ms * MS, method=asking(prefix=True))
    late.run(3000 * MS)
    request = late.requests[-5]
    d = request.inference_delay
    assert d == -(-(delay_ms * MS + GRIPPER) // DT)
    committed = request.prev_action_chunk[:d]
    t_obs = request.observation.t_obs_ns
    for i, row in enumerate(committed):
        t = t_obs + i * DT
        assert row[:2] == pytest.approx(late.doing("arm", t).q, abs=1e-9)
        assert row[2] == pytest.approx(late.doing("gripper", t).width, abs=1e-9)


def test_a_state_rolled_forward_is_the_one_that_the_robot_comes_to():
    late = LateRobot(swinging, delay_ns=130 * MS, method=method_named("vlash", execution_horizon=4))
    late.run(3000 * MS)
    seen = late.requests[-3].observation.state
    assert seen.t_ns % DT == late.requests[-4].observation.state.t_ns % DT
    assert seen.q == pytest.approx(late.doing("arm", seen.t_ns).q, abs=1e-3)


def test_a_request_at_the_latest_moment_is_made_so_much_earlier():
    method = replace(METHODS["time-aligned"], request=PlainObservation(when=BeforePlanEnds(margin_rows=2)))
    asked = {}
    for name, declared in (("prompt", {}), ("late", LATE)):
        late = LateRobot(swinging, delay_ns=DT, method=method, late=declared, declared=declared)
        late.run(4000 * MS)
        gaps = np.diff([request.observation.t_obs_ns for request in late.requests])[2:]
        asked[name] = int(np.median(gaps))
    assert asked["prompt"] - asked["late"] == GRIPPER


def test_a_plan_is_never_left_without_rows_by_latency_that_is_known():
    late = LateRobot(swinging, delay_ns=300 * MS, method=asking(every=16))
    late.run(6000 * MS)
    assert all(tick.mode is Mode.RUN for tick in late.ticks[250:])
    assert late.robot.counts.horizons_shortened > 0  # 16 rows, 10 of delay: more than 23


def test_a_robot_at_rest_begins_with_row_zero_and_skips_none():
    late = LateRobot(lambda request: ramp(0.0, 0.1, LONG.horizon), delay_ns=4 * DT, method=asking(20))
    late.run(1000 * MS)
    first = late.robot.last_splice
    assert first.seam.num_dropped == 0
    assert first.t0_ns == first.t_ns + GRIPPER
    assert late.doing("arm", first.t0_ns + 5 * DT).q[0] == pytest.approx(0.5, abs=1e-9)


def test_a_plan_that_ends_is_sent_earlier_and_the_robot_is_at_rest_when_it_has_done_it():
    late = LateRobot(lambda request: ramp(0.0, 0.1, LONG.horizon), method=asking(24))
    late.robot.wants_request = lambda now_ns, own=late.robot.wants_request: own(now_ns) and not late.requests
    late.run(2500 * MS)
    end_ns = late.robot.last_splice.t0_ns + 23 * DT
    held = next(tick for tick in late.ticks if tick.cause is Cause.PLAN_ENDED)
    assert held.now_ns == end_ns - GRIPPER
    assert late.sent[end_ns - ARM + 2 * DT].arm.q[0] == pytest.approx(2.3)
    assert late.sent[end_ns - ARM + 2 * DT - TICK].arm.q[0] < 2.3


def test_a_stop_brakes_every_part_at_once_from_its_last_command():
    late = LateRobot(swinging)
    late.run(1000 * MS)
    late.robot.stop()
    before = {part: late.ticks[-1].command.parts[part] for part in LATE}
    tick = late.run(1000 * MS + TICK)[-1]
    assert tick.mode is Mode.STOP
    assert np.abs(tick.command.arm.q - before["arm"].q).max() < 1e-2
    assert abs(tick.command.gripper.width - before["gripper"].width) < 1e-3
    last = late.run(2000 * MS)[-1].command
    assert np.abs(last.arm.q - before["arm"].q).max() < 1e-2  # of limits that are wide open


def test_a_stopped_robot_is_at_rest_only_when_its_slowest_part_is():
    late = LateRobot(swinging)
    late.run(1000 * MS)
    late.robot.stop()
    rested = None
    for t in range(1000 * MS, 1600 * MS, TICK):
        late.run(t + TICK)
        rested = rested or (t if late.robot.is_at_rest else None)
    assert rested is not None
    assert 1000 * MS + GRIPPER - TICK <= rested <= 1000 * MS + GRIPPER + 2 * TICK
    assert late.state(rested - 4 * TICK).q[0] == late.state(1590 * MS).q[0]
    assert late.state(rested).gripper_width == late.state(1590 * MS).gripper_width


def test_the_synchronous_robot_asks_when_it_is_at_rest_and_not_when_the_last_row_is_sent():
    method = replace(METHODS["synchronous"], request=Synchronous(execution_horizon=6))
    late = LateRobot(lambda request: ramp(request.observation.state.q[0], 0.05, LONG.horizon), method=method)
    late.run(4000 * MS)
    assert len(late.requests) > 3
    for request in late.requests:
        t = request.observation.t_obs_ns
        assert late.doing("arm", t + GRIPPER).q == pytest.approx(late.doing("arm", t).q, abs=1e-12) or t == 0
        assert request.observation.state.q == pytest.approx(late.doing("arm", t + TICK).q, abs=1e-12)


def test_a_robot_that_lags_by_its_latency_follows_and_a_stationary_one_does_not():
    narrow = StateLimits(max_arm_error=0.05)
    late = LateRobot(swinging, state_limits=narrow)
    assert all(tick.mode is not Mode.STOP for tick in late.run(2000 * MS))
    unknown = LateRobot(swinging, state_limits=narrow, declared={})
    assert unknown.run(2000 * MS)[-1].cause is Cause.TRACKING_LOST
    stuck = LateRobot(swinging, state_limits=narrow)
    stuck.late = {"arm": 10**12, "gripper": GRIPPER}
    lost = next(tick for tick in stuck.run(2000 * MS) if tick.cause is Cause.TRACKING_LOST)
    moved = next(t for t, sent in stuck.sent.items() if abs(sent.arm.q[0]) > 0.05)
    assert lost.now_ns == moved + ARM


def test_rows_that_are_commands_of_their_time_are_sent_when_they_are_due():
    sent = replace(LONG, timing=RowTiming.SENT)
    assert lead_ns(LATE, sent) == 0
    late = LateRobot(swinging, action_spec=sent, state_limits=StateLimits(max_arm_error=0.08))
    late.run(2000 * MS)
    t = 1500 * MS
    assert late.sent[t].arm.q[0] == pytest.approx(swing(t), abs=0.06)
    assert late.ticks[-1].mode is Mode.RUN  # the watch knows the latency all the same


def test_parts_that_a_policy_does_not_move_do_not_make_it_wait():
    arm_only = ActionSpec(fields=(JointPosition(2),), horizon=8, dt_ns=DT)
    assert lead_ns(LATE, arm_only) == ARM
    assert PartLatency(LATE, arm_only).follows_ns == ARM


def test_rows_relative_to_the_observation_count_from_where_the_robot_was_then():
    """Rows relative to the measured joints: the joints reach the policy's targets all the same."""
    relative = replace(LONG, fields=(JointPosition(2, reference=Reference.RELATIVE), GripperWidth()))

    def onward(request):
        rows = swinging(request)
        rows[:, :2] -= request.observation.state.q
        return rows

    late = LateRobot(onward, delay_ns=100 * MS, action_spec=relative)
    late.run(3000 * MS)
    off = [abs(late.doing("arm", t).q[0] - swing(t)) for t in range(1000 * MS, 3000 * MS, TICK)]
    assert max(off) < 2e-3


def test_a_correction_is_made_of_the_state_that_the_robot_comes_to_and_for_the_row_due_then():
    head = ConstantHead(action_spec=LONG)
    seen = []
    head.correction, own = lambda obs, chunk, k: (seen.append(obs), own(obs, chunk, k))[1], head.correction
    late = LateRobot(
        swinging, method=replace(METHODS["a2c2"], request=asking().request), correction_head=head
    )
    late.run(2500 * MS)
    middle = [(obs.state, k) for obs, (k, _) in zip(seen, head.asked, strict=True)][10:30]
    assert len(middle) == 20
    for state, _ in middle:
        assert state.q == pytest.approx(late.doing("arm", state.t_ns).q, abs=1e-6)
    assert late.robot.counts.corrected_rows > 20


def test_a_robot_that_was_stopped_and_reset_resumes():
    late = LateRobot(swinging)
    late.run(1000 * MS)
    late.robot.stop()
    late.run(2000 * MS)
    late.robot.reset(late.state(2000 * MS), 2000 * MS)
    later = [tick for tick in late.run(3500 * MS) if tick.now_ns > 2500 * MS]
    assert all(tick.mode is Mode.RUN for tick in later)


def test_the_lead_is_the_longest_latency_and_other_parts_are_behind_it():
    parts = PartLatency(LATE, SPEC)
    assert (parts.lead_ns, parts.spread_ns, parts.ahead_ns("arm"), parts.ahead_ns("gripper")) == (
        GRIPPER,
        ARM,
        ARM,
        GRIPPER,
    )
