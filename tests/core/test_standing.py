"""No robot stands still silently: under any latency it moves, or says why it does not and what would help."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from robot_runtime.core.latency import LatencyEstimator
from robot_runtime.core.method import METHODS, method_named
from robot_runtime.core.safety import Mode
from robot_runtime.telemetry import RunRecord
from tests.core.support import DT, SPEC, TICK, answer, executor, observation_at, ramp, state_at

MS = 1_000_000
CHUNK_MS = (SPEC.horizon - 1) * DT // MS
LONGEST_MS = 3 * SPEC.horizon * DT // MS
NEVER = None
STEP = 5 * TICK


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
        self.latencies_ms, self.said, self.asked_ns, self.ran = latencies_ms, {}, [], []
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
            if (why := robot.why_it_stands(t)) is not None:
                self.said.setdefault(why, t)
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


@given(
    st.sampled_from(sorted(METHODS)), TRACES, st.none() | st.integers(0, LONGEST_MS), st.none() | st.just(2)
)
@example("pipelined-faster", lambda k: 800, None, None)
@example("pipelined-prefix", lambda k: 800, 800, 2)
@example("vlash", lambda k: 650, 650, 2)
def test_every_method_keeps_moving_under_every_latency(name, trace, probed_ms, trained):
    """From the first answer on it never stands for longer than a chunk, its coast and a few answers take."""
    latency = None if probed_ms is None else probed(probed_ms)
    drive = Drive(robot_of(name, trained, latency=latency), trace).to(20_000 * MS)
    assert drive.ran, drive.said
    steps = np.diff([*drive.ran, 20_000 * MS])
    assert steps.max() <= 4_500 * MS + 4 * LONGEST_MS * MS or drive.said
    assert drive.record.num_resent_rows() == 0


@given(
    st.sampled_from(sorted(name for name in METHODS if not name.startswith("synchronous"))),
    st.integers(0, LONGEST_MS),
    st.booleans(),
    st.sampled_from([None, 2, 5]),
)
@example("committed-prefix", LONGEST_MS, True, None)
def test_whatever_the_latency_no_method_moves_less_than_one_that_stops_to_ask(
    name, latency_ms, is_probed, trained
):
    latency = probed(latency_ms) if is_probed else None
    drive = Drive(robot_of(name, trained, latency=latency), lambda k: latency_ms)
    drive.to(25_000 * MS)
    asking = Drive(robot_of("synchronous"), lambda k: latency_ms).to(25_000 * MS)
    assert drive.share_in_motion(5_000 * MS) >= 0.8 * asking.share_in_motion(5_000 * MS)
    assert not drive.said
