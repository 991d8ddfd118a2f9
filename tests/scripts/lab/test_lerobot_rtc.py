"""LeRobot's engine on our policy: the conversion is exact, the engine theirs, the record true."""

import logging
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from policies.flow.policy import FlowPolicy
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.safety import Mode
from scripts.lab.baselines.lerobot_import import lerobot_problem
from scripts.lab.baselines.lerobot_rtc import run_peer_episode
from scripts.lab.baselines.lerobot_settings import LeRobotSettings, Variant
from scripts.lab.baselines.virtual_time import LockstepTime
from sim.scene.world import World
from sim.tasks import make_task

if lerobot_problem() is not None:
    pytest.skip(str(lerobot_problem()), allow_module_level=True)

from lerobot.policies.rtc import ActionQueue, RTCProcessor

from scripts.lab.baselines import lerobot_engine
from scripts.lab.baselines.lerobot_engine import PeerError, running_engine
from scripts.lab.baselines.lerobot_policy import (
    NUM_TAGS,
    STATE,
    PeerPolicy,
    feature_names,
    make_processors,
    make_rtc_config,
    observation_frame,
)

MS = 1_000_000


def make_policy(checkpoint, *, enabled: bool = True, **settings) -> PeerPolicy:
    config = {"schedule": "LINEAR", "max_guidance_weight": 10.0, "execution_horizon": 10} | settings
    time = LockstepTime()
    time.sleep_ns = lambda duration_ns: None  # no thread: an answer takes no time
    return PeerPolicy(
        checkpoint=checkpoint,
        rtc_config=make_rtc_config(enabled=enabled, **config),
        time=time,
        delay_ns=lambda t_ns: 0,
        lost_after_ns=0,
        seed=0,
    )


def batch_of(observation, checkpoint) -> dict:
    frame = observation_frame(observation, checkpoint)
    state = torch.tensor([[frame[name] for name in feature_names(len(frame))]], dtype=torch.float32)
    return {STATE: state, "task": [observation.task]}


@pytest.mark.parametrize("task", ["track"])
@pytest.mark.parametrize("seed", range(3))
def test_without_guidance_their_loop_gives_our_chunk(task, seed, track_checkpoint):
    observation = World(make_task(task), seed=seed).observe()
    policy = make_policy(track_checkpoint, enabled=False)
    policy.seed = seed
    before, after = make_processors(policy)
    batch = before(batch_of(observation, track_checkpoint))
    theirs = after(policy.predict_action_chunk(batch))[0, :, :-NUM_TAGS].double().numpy()
    ours = next(
        FlowPolicy(track_checkpoint).infer(
            ChunkRequest(observation=observation, sampler=ConstantSchedule(), seed=seed * 1_000_003)
        )
    )
    np.testing.assert_allclose(theirs, ours, atol=1e-5)


def ramp(d: int, end: int, horizon: int) -> np.ndarray:
    """The paper's soft mask, linear: 1 for i < d, falling, 0 from `end` on (arXiv 2506.07339, eq. 5)."""
    i = np.arange(horizon)
    return np.where(i >= end, 0.0, np.clip((d - 1 - i) / (end - d + 1) + 1, 0.0, 1.0))


def guided(velocity, noise, y, mask, *, num_steps: int, beta: float) -> np.ndarray:
    """Real-time chunking in our time (0 noise, 1 action) with the identity in the Jacobian's place."""
    x = noise.copy()
    for k in range(num_steps):
        t = k / num_steps
        v = velocity(x, t)
        error = (y - (x + (1 - t) * v)) * mask[:, None]
        weight = beta if t == 0 else min(beta, (1 - t) / t * (t**2 + (1 - t) ** 2) / (1 - t) ** 2)
        x = x + (v + weight * error) / num_steps
    return x


@pytest.mark.parametrize("inference_delay", [0, 4, 9])
@pytest.mark.parametrize(("schedule", "shape"), [("LINEAR", lambda c: c), ("EXP", None)])
def test_their_guidance_is_the_formula_with_the_identity_for_the_jacobian(
    inference_delay, schedule, shape, track_checkpoint
):
    checkpoint, horizon, end = track_checkpoint, track_checkpoint.info.action_spec.horizon, 14
    observation = World(make_task("track"), seed=1).observe()
    policy = make_policy(checkpoint, schedule=schedule, execution_horizon=end, max_guidance_weight=5.0)
    before, _ = make_processors(policy)
    batch = before(batch_of(observation, checkpoint))
    rng = np.random.default_rng(7)
    left_over = rng.normal(size=(end, checkpoint.info.action_spec.dim)).astype(np.float32)
    theirs = policy.predict_action_chunk(
        batch, inference_delay=inference_delay, prev_chunk_left_over=torch.as_tensor(left_over)
    )[0].numpy()

    context = checkpoint.model.encode(batch[STATE], torch.tensor([0]))

    def velocity(x: np.ndarray, t: float) -> np.ndarray:
        rows = torch.as_tensor(x, dtype=torch.float32)[None]
        with torch.no_grad():
            return checkpoint.model.velocity(rows, torch.full((1, horizon), t), context)[0].double().numpy()

    mask = ramp(inference_delay, end, horizon)
    if shape is None:
        mask = mask * np.expm1(mask) / (math.e - 1)
    y = np.zeros((horizon, checkpoint.info.action_spec.dim))
    y[:end] = left_over
    noise = torch.randn(1, *y.shape, generator=torch.Generator().manual_seed(0))[0].double().numpy()
    ours = guided(velocity, noise, y, mask, num_steps=checkpoint.num_steps, beta=5.0)
    np.testing.assert_allclose(theirs, ours, atol=2e-4)


@pytest.mark.parametrize("schedule", ["LINEAR", "EXP"])
@pytest.mark.parametrize("t", [0.0, 0.2, 0.5, 0.8])
def test_their_step_is_our_samplers_identity_form_where_the_settings_coincide(t, schedule):
    guidance = pytest.importorskip("policies.flow.guidance", reason="this branch has no RTC guidance yet")
    d, end, horizon, dim = 3, 9, 16, 4
    rng = torch.Generator().manual_seed(3)
    x, y = (torch.randn(1, horizon, dim, generator=rng) for _ in range(2))
    y[:, end:] = 0.0
    matrix = torch.randn(dim, dim, generator=rng)
    config = make_rtc_config(enabled=True, schedule=schedule, max_guidance_weight=5.0, execution_horizon=end)
    theirs = RTCProcessor(config).denoise_step(
        x, y[:, :end], d, 1.0 - t, lambda rows: -(rows @ matrix), execution_horizon=end
    )
    mask = getattr(guidance.SoftMask, schedule)
    weights = guidance.soft_mask(mask, start=torch.tensor([d]), end=torch.tensor([end]), horizon=horizon)
    ours = guidance.guided(
        lambda rows, _: rows @ matrix,
        target=y,
        weights=weights,
        max_guidance_weight=5.0,
        exact_jacobian=False,
    )(x, torch.full((1, horizon), t))
    torch.testing.assert_close(-theirs, ours, atol=1e-5, rtol=1e-5)


def test_what_is_left_over_reaches_the_policy_as_the_rows_it_is_about_to_be(track_checkpoint):
    checkpoint, spec = track_checkpoint, track_checkpoint.info.action_spec
    worlds = [World(make_task("track"), seed=seed).observe() for seed in (2, 3)]
    policy = make_policy(checkpoint, enabled=False)
    before, after = make_processors(policy)
    absolute = after(policy.predict_action_chunk(before(batch_of(worlds[0], checkpoint))))[0]
    left_over = absolute[5:]
    before(batch_of(worlds[1], checkpoint))  # a newer observation: the anchor moves
    module = lerobot_engine.rtc_engine_module()
    seen = module.reanchor_relative_rtc_prefix(
        prev_actions_absolute=left_over,
        current_state=before.steps[0].get_cached_state(),
        relative_step=before.steps[0],
        normalizer_step=before.steps[1],
        policy_device="cpu",
    )
    origin = np.array([*worlds[1].state.q, 0.0])
    expected = checkpoint.rows.normalise(left_over[:, : spec.dim].double().numpy() - origin)
    np.testing.assert_allclose(seen.numpy(), expected, atol=1e-4)


def settings(**changes) -> LeRobotSettings:
    return LeRobotSettings(**({"queue_threshold": 19} | changes))


def drive(checkpoint, delay_ns, *, cycles: int, at_end=lambda peer: None, **changes):
    """The engine for some periods on a world that stands still: (peer, popped (request, row) or None)."""
    observation, rows = World(make_task("track"), seed=4).observe(), []
    with running_engine(
        checkpoint,
        settings(**changes),
        instruction=observation.task,
        delay_ns=delay_ns if callable(delay_ns) else lambda t_ns: delay_ns,
        lost_after_ns=1000 * MS,
        seed=0,
    ) as peer:
        for k in range(cycles):
            popped = peer.cycle(k * checkpoint.info.action_spec.dt_ns, lambda: observation).popped
            rows.append(None if popped is None else (popped.request_id, popped.row))
        at_end(peer)
    return peer, rows


def test_the_engine_and_its_parts_are_lerobots_own(track_checkpoint):
    peer, _ = drive(track_checkpoint, 0, cycles=3)
    assert type(peer.engine).__module__ == "lerobot.rollout.inference.rtc"
    assert isinstance(peer.engine.action_queue, ActionQueue)
    assert RTCProcessor.__module__ == "lerobot.policies.rtc.modeling_rtc"
    assert lerobot_engine.rtc_engine_module().supports_rtc_inference(peer.policy)


def test_an_answer_is_in_time_for_the_tick_it_falls_on_and_starts_at_the_row_that_is_due(track_checkpoint):
    peer, rows = drive(track_checkpoint, 400 * MS, cycles=22)
    # Their thread looks every 10 ms: it asks that long after a tick, with that tick's observation, and knows
    # a latency of 390 ms.
    assert [request.t_ns for request in peer.policy.requests] == [10 * MS, 610 * MS]
    assert [request.t_obs_ns for request in peer.policy.requests] == [0, 600 * MS]
    assert [request.inference_delay for request in peer.policy.requests] == [0, 8]
    assert rows == [None] * 8 + [(0, row) for row in range(8, 20)] + [(1, 8), (1, 9)]


def test_no_row_is_sent_twice(track_checkpoint):
    rng = np.random.default_rng(0)
    delays = rng.integers(20, 700, size=200) * MS
    _, rows = drive(track_checkpoint, lambda t_ns: int(delays[t_ns // (50 * MS)]), cycles=150)
    sent = [row for row in rows if row is not None]
    assert len(sent) > 100
    assert all(a < b for a, b in pairwise(sent))


def test_a_lost_request_costs_its_deadline_and_their_pause(track_checkpoint):
    peer, _ = drive(track_checkpoint, lambda t_ns: None if t_ns == 0 else 100 * MS, cycles=40)
    assert peer.policy.num_failed == 1
    assert peer.policy.requests[1].t_ns == (10 + 1000 + 500) * MS


@pytest.mark.long
def test_an_empty_queue_leaves_the_arm_where_it_was_told_to_be():
    episode = run_peer_episode(
        "track",
        task_name="track",
        variant=Variant.DEFAULTS,
        seed=4,
        delay_ns=lambda t_ns: (100 if t_ns < 2000 * MS else 1500) * MS,
        expected_delay_ns=100 * MS,
    )
    held = [(a, b) for a, b in pairwise(episode.record.ticks) if a.source and b.mode is Mode.HOLD]
    assert 0.2 < episode.result.summary["stalled_s"] < 8.0
    assert sum((a.command.arm.q == b.command.arm.q).all() for a, b in held) > len(held) / 2


def test_a_delay_as_long_as_a_chunk_never_moves_the_arm(track_checkpoint):
    unused = []
    peer, rows = drive(
        track_checkpoint, 1650 * MS, cycles=100, at_end=lambda peer: unused.append(peer.num_unused())
    )
    assert rows == [None] * 100
    assert unused == [len(peer.policy.requests) - 2]  # one is the newest answer, one is under way


@pytest.mark.long
@pytest.mark.parametrize("variant", [Variant.INTERPOLATED])
def test_the_same_seed_gives_the_same_commands_to_the_last_bit(variant):
    digests = {
        run_peer_episode("track", task_name="track", variant=variant, seed=3, delay_ns=130 * MS).result.digest
        for _ in range(2)
    }
    assert len(digests) == 1


def test_an_episode_leaves_no_thread_and_no_virtual_time_behind(track_checkpoint):
    import threading
    import time

    module, level = lerobot_engine.rtc_engine_module(), logging.getLogger("lerobot").level
    drive(track_checkpoint, 100 * MS, cycles=5)
    assert "RTCInference" not in [thread.name for thread in threading.enumerate()]
    assert module.time is time
    assert logging.getLogger("lerobot").level == level


def test_an_error_inside_their_thread_comes_out(track_checkpoint):
    with running_engine(
        track_checkpoint,
        settings(),
        instruction="a task nobody taught it",
        delay_ns=lambda t_ns: 0,
        lost_after_ns=0,
        seed=0,
    ) as peer:
        observe = World(make_task("track"), seed=4).observe
        peer.cycle(0, observe)
        with pytest.raises(PeerError, match="not in tuple"):
            peer.cycle(50 * MS, observe)
