"""The virtual server: answers come when the trace says, part by part, and not at all after the deadline."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from msgspec import structs

from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.sampler_parts import ClampedPrefix, ConstantSchedule, HorizonAwareSchedule
from robot_runtime.core.method.schedule import finish_steps
from robot_runtime.core.method.table import method_named
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_MS
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.evaluation.delay import Answer, DelayedPolicy, answer_all
from robot_runtime.evaluation.loop import play_together
from robot_runtime.evaluation.traces import LOST, SLOT_NS, LatencyTrace, constant, spikes
from sim.episodes.evaluate import play_task, run_episode
from sim.experts import ACTION_SPEC, make_expert
from sim.scene.world import World
from sim.tasks import make_task
from sim.tasks.track import Track


@dataclass
class ExpertPolicy:
    """A scripted expert behind the `Policy` protocol: what it answers depends on the request alone."""

    task_name: str

    def __post_init__(self) -> None:
        self.info = PolicyInfo(
            name="expert",
            action_spec=ACTION_SPEC,
            schema=replace(make_task(self.task_name).schema, cameras={}),
            capabilities=Capabilities(samplers=(ConstantSchedule, ClampedPrefix)),
        )
        self._expert = make_expert(self.task_name, seed=0)

    def infer(self, request):
        d = request.inference_delay
        yield self._expert.plan(request.observation, request.prev_action_chunk[:d] if d else None)


def request(request_id: int = 0, *, sampler=None, t_ns: int = 0) -> ChunkRequest:
    state = RobotState(t_ns=t_ns, q=np.zeros(7), dq=np.zeros(7), gripper_width=0.0)
    return ChunkRequest(
        request_id=request_id,
        epoch=1,
        observation=Observation(state=state),
        prev_action_chunk=None,
        inference_delay=0,
        sampler=sampler or ConstantSchedule(),
        seed=0,
        deadline_ns=1_000 * NS_PER_MS,
    )


def inference(*num_calls: int) -> Answer:
    blocks = tuple(np.zeros((2, 8)) for _ in num_calls)
    return Answer(blocks=blocks, num_calls=num_calls, num_evaluations=float(num_calls[-1]))


def arrivals_ms(server: DelayedPolicy, until_ms: int = 2_000) -> list[tuple[int, int]]:
    """(time, first row) of every part."""
    return [(t, part.first_row) for t in range(until_ms) for part in server.receive(t * NS_PER_MS)]


def test_rows_arrive_as_the_sampler_finishes_them():
    server = DelayedPolicy(constant(400.0), spec=ACTION_SPEC, seed=0, sampling_share=0.5)
    server.submit(request(), 0)
    server.answer(0, inference(1, 4, 10))
    assert arrivals_ms(server) == [(220, 0), (280, 2), (400, 4)]


def test_a_sampler_that_stops_early_saves_the_calls_it_did_not_make():
    server = DelayedPolicy(constant(400.0), spec=ACTION_SPEC, seed=0, sampling_share=0.5)
    server.submit(request(sampler=HorizonAwareSchedule(num_steps=10, early_stop_rows=4)), 0)
    server.answer(0, inference(1, 5))
    assert arrivals_ms(server) == [(220, 0), (300, 2)]


@pytest.mark.parametrize(("share", "first_ms"), [(0.0, 400), (0.5, 200), (1.0, 0)])
def test_an_answer_is_needed_when_the_first_of_it_could_arrive(share, first_ms):
    server = DelayedPolicy(constant(400.0), spec=ACTION_SPEC, seed=0, sampling_share=share)
    server.submit(request(), 0)
    if first_ms:
        assert server.needed(first_ms * NS_PER_MS - 1) is None
    assert server.needed(first_ms * NS_PER_MS) is not None
    server.answer(0, inference(1))
    assert server.needed(first_ms * NS_PER_MS) is None


def test_a_lost_request_is_given_up_at_its_deadline_and_never_worked_out():
    trace = LatencyTrace(name="x", delays_ns=np.array([LOST, 0]), starts_with_episode=True)
    server = DelayedPolicy(trace, spec=ACTION_SPEC, seed=0)
    server.submit(request(), 0)
    assert server.expired(1_000 * NS_PER_MS - 1) == []
    assert server.needed(1_000 * NS_PER_MS) is None
    assert server.expired(1_000 * NS_PER_MS) == [0]
    assert server.expired(1_001 * NS_PER_MS) == []
    assert (server.num_requests, server.num_failed, server.num_evaluations) == (1, 1, 0.0)


def test_an_answer_after_the_deadline_does_not_come():
    server = DelayedPolicy(constant(1_500.0), spec=ACTION_SPEC, seed=0)
    server.submit(request(), 0)
    server.answer(0, inference(1, 2))
    assert [part.first_row for part in server.receive(999 * NS_PER_MS)] == []
    assert server.expired(1_000 * NS_PER_MS) == [0]
    assert arrivals_ms(server) == []


def test_a_delay_counts_from_the_capture_in_its_slot():
    trace = LatencyTrace(
        name="x", delays_ns=np.array([100 * NS_PER_MS, 300 * NS_PER_MS]), starts_with_episode=True
    )
    server = DelayedPolicy(trace, spec=ACTION_SPEC, seed=0, sampling_share=0.0)
    server.submit(request(0), SLOT_NS - 1)
    server.submit(request(1, t_ns=SLOT_NS), SLOT_NS)
    server.answer(0, inference(1))
    server.answer(1, inference(1))
    assert [t for t, _ in arrivals_ms(server)] == [150, 350]


@pytest.mark.long
def test_a_robot_waits_for_a_lost_answer_as_long_as_the_deadline_and_a_row(monkeypatch):
    delays = np.full(200, 100 * NS_PER_MS)
    delays[40:44] = LOST  # 2.0 s to 2.2 s: one request of those that are made every 200 ms
    trace = LatencyTrace(name="x", delays_ns=delays, starts_with_episode=True)
    monkeypatch.setattr(Track, "episode_s", 5.0)
    episode = run_episode(
        ExpertPolicy("track"), task_name="track", method=method_named("time-aligned"), seed=3, trace=trace
    )
    captures = [splice.source.t_obs_ns for splice in episode.record.splices]
    gaps_ms = sorted(np.diff(captures) // NS_PER_MS)
    assert episode.result.summary["num_failed_requests"] == 1.0
    assert 0 <= gaps_ms[-1] - 200 - trace.deadline_ns // NS_PER_MS <= 50
    assert set(gaps_ms[:-1]) == {200}


@pytest.mark.long
@pytest.mark.parametrize("method", ["synchronous", "naive", "committed-prefix"])
def test_episodes_side_by_side_come_out_as_one_by_one(method, monkeypatch):
    monkeypatch.setattr(Track, "episode_s", 4.0)
    policy, trace = ExpertPolicy("track"), spikes()

    def digest_alone(seed: int) -> str:
        return run_episode(
            policy, task_name="track", method=method_named(method), seed=seed, trace=trace,
            control_period_ns=10 * NS_PER_MS,
        ).result.digest  # fmt: skip

    plays = [
        play_task(
            policy, task_name="track", method=method_named(method), seed=seed, trace=trace,
            control_period_ns=10 * NS_PER_MS,
        )
        for seed in range(3)
    ]  # fmt: skip
    together = [episode.result.digest for episode in play_together(policy, plays)]
    assert together == [digest_alone(seed) for seed in range(3)]


def test_the_rows_of_a_formula_come_when_those_of_a_network_would():
    sampler, seen = HorizonAwareSchedule(), World(make_task("track")).observe()
    asked = structs.replace(
        request(), observation=seen, inference_delay=3, prev_action_chunk=np.zeros((32, 8))
    )
    (made,) = answer_all(ExpertPolicy("track"), [structs.replace(asked, sampler=sampler)])
    calls = np.repeat(made.num_calls, [len(block) for block in made.blocks])
    assert calls[3:].tolist() == finish_steps(sampler, horizon=32, inference_delay=3)[3:].tolist()
    assert calls[0] == 1
    (whole,) = answer_all(ExpertPolicy("track"), [asked])
    assert len(whole.blocks) == 1
    np.testing.assert_array_equal(whole.rows, made.rows)
