"""LeRobot's real X-VLA, small and random, under our samplers; that it gives what LeRobot's own loop gives is
asked of every type in `test_lerobot_types`."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec import structs

from policies.lerobot.flow_policy import LeRobotFlowPolicy
from policies.lerobot.metadata import PolicyMetadata
from policies.load import load_policy
from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    RtcGuidance,
    SamplerPart,
)
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.evaluation.delay import answers
from tests.policies.test_lerobot_types import described, observation, save

pytest.importorskip("lerobot", reason="serves LeRobot's policies")
pytest.importorskip("transformers", reason="X-VLA needs it")
H, D = 6, 3


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> LeRobotFlowPolicy:
    folder = save("xvla", tmp_path_factory.mktemp("xvla"))
    described(folder)
    said = PolicyMetadata.load(folder)
    trained = Capabilities(samplers=(ClampedPrefix, HorizonAwareSchedule), max_inference_delay=4)
    replace(said, info=replace(said.info, capabilities=trained)).save(folder)
    return load_policy(folder)


def request(policy: LeRobotFlowPolicy, seed: int, *, n: int = 0, d: int = 0) -> ChunkRequest:
    rows = np.random.default_rng(seed).normal(size=(n, D)) if n else None
    return ChunkRequest(
        observation=observation(policy, seed), prev_action_chunk=rows, inference_delay=d, seed=seed
    )


def rows_of(policy: LeRobotFlowPolicy, part: SamplerPart, *requests: ChunkRequest) -> list[np.ndarray]:
    return [answer.rows for answer in answers(policy, [structs.replace(r, sampler=part) for r in requests])]


@pytest.mark.parametrize(
    "part",
    [
        ConstantSchedule(num_steps=3),
        ClampedPrefix(num_steps=3),
        HorizonAwareSchedule(num_steps=4),
        RtcGuidance(num_steps=3),
        RtcGuidance(num_steps=3, exact_jacobian=False),
        BestOfSamples(num_samples=3),
        AveragedSamples(num_samples=2),
    ],
    ids=lambda part: type(part).__name__,
)
def test_batches_change_nothing_and_committed_rows_stay_to_the_last_bit(policy, part: SamplerPart):
    prefixless = isinstance(part, ConstantSchedule | AveragedSamples)
    requests = [request(policy, 0), request(policy, 1) if prefixless else request(policy, 1, n=5, d=2)]
    together = rows_of(policy, part, *requests)
    for one, rows in zip(requests, together, strict=True):
        np.testing.assert_allclose(rows_of(policy, part, one)[0], rows, atol=1e-4)
    if isinstance(part, ClampedPrefix | HorizonAwareSchedule):
        assert np.array_equal(together[1][:2], requests[1].prev_action_chunk[:2])


def test_first_rows_come_after_the_first_call(policy):
    before = policy.num_evaluations
    blocks = policy.infer(structs.replace(request(policy, 0), sampler=HorizonAwareSchedule(num_steps=4)))
    assert len(next(blocks)) >= 1
    assert policy.num_evaluations - before == 1


def test_guidance_draws_the_chunk_towards_the_plan(policy):
    asked = request(policy, 1, n=5)
    free, drawn = (
        rows_of(policy, part, asked)[0][:4]
        for part in (ConstantSchedule(num_steps=4), RtcGuidance(num_steps=4, exact_jacobian=False))
    )
    plan = asked.prev_action_chunk[:4]
    assert np.linalg.norm(drawn - plan) < 0.8 * np.linalg.norm(free - plan)


def test_each_row_is_shown_its_own_time(policy):
    network = policy._sampler._network
    with torch.no_grad():
        context = network.encode(policy._seen([observation(policy, 2)]))
        x, t = torch.randn(1, H, network.row_dim), torch.full((1, H), 0.25)
        towards = x + 0.75 * network.velocity(x, t, context, None, 0)
        t[0, 3] = 0.5
        other = network.velocity(x, t, context, None, 0)
    moved = (x + (1.0 - t)[..., None] * other - towards).abs().amax(dim=-1)[0]
    assert moved.argmax() == 3
    assert moved[3] > 1e-3


def test_a_step_starts_again_from_the_first_noise(policy):
    network = policy._sampler._network
    asked = request(policy, 4)
    noise = torch.randn((1, H, network.row_dim), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        context, action = network.encode(policy._seen([asked.observation])), torch.zeros_like(noise)
        for t in (0.0, 0.25, 0.5, 0.75):
            x = (1.0 - t) * noise + t * action
            v = network.velocity(x, torch.full((1, H), t), context, None, 0)
            action = x + (1.0 - t) * v
        (rows,) = rows_of(policy, ConstantSchedule(num_steps=4), asked)
    expected = network.restored(action)[0]
    np.testing.assert_allclose(rows, expected + policy._origin(asked.observation.state), atol=1e-5)


def test_grippers_are_logits_to_the_network_and_shares_to_everybody_else(tmp_path: Path):
    from lerobot.policies.xvla.action_hub import build_action_space

    from policies.lerobot.xvla import XvlaFlow

    flow = XvlaFlow.__new__(XvlaFlow)
    flow.row_dim, flow._dim, flow.scale, flow.offset = 14, 14, np.full(14, 2.0), np.zeros(14)
    flow._after = lambda rows: 2.0 * rows
    flow._model = torch.nn.Module()
    flow._model.action_space = build_action_space("joint")
    rows = np.random.default_rng(0).uniform(0.1, 1.9, (5, 14))
    known = flow.normalised(rows)
    assert flow._grippers == (6, 13)
    np.testing.assert_allclose(known[:, :6], rows[:, :6] / 2.0)
    np.testing.assert_allclose(flow.restored(torch.from_numpy(known)), rows, atol=1e-9)
