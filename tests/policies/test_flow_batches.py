"""Several robots in one pass of the network, and rows that are final before others."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from msgspec import structs

from policies.flow.checkpoint import load
from policies.flow.policy import FlowPolicy
from robot_runtime.core.method.sampler_parts import (
    BestOfSamples,
    ClampedPrefix,
    HorizonAwareSchedule,
    RtcGuidance,
    SamplerPart,
)
from robot_runtime.core.method.schedule import finish_steps
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.evaluation.delay import answers
from tests.policies.toy import SPEC, infer, make_observation, rows_past


@pytest.fixture(scope="module")
def any_sampler(toy_folder: Path) -> FlowPolicy:
    policy = FlowPolicy(load(toy_folder))
    can = replace(policy.info.capabilities, samplers=get_args(SamplerPart))  # whatever it was trained for
    policy.info = replace(policy.info, capabilities=can)
    return policy


@pytest.mark.parametrize(
    "part",
    [
        ClampedPrefix(),
        RtcGuidance(),
        RtcGuidance(exact_jacobian=False),
        BestOfSamples(num_samples=4),
        HorizonAwareSchedule(),
        HorizonAwareSchedule(early_stop_rows=2),
    ],
)
def test_an_answer_does_not_depend_on_what_else_is_in_the_batch(
    any_sampler: FlowPolicy, part: SamplerPart
) -> None:
    requests = []
    for seed, (n, d) in enumerate([(0, 0), (8, 3), (5, 5), (6, 0), (2, 1), (8, 7)]):
        observation = make_observation(seed)
        requests.append(
            ChunkRequest(
                observation=observation,
                prev_action_chunk=rows_past(observation, 1)[:n],
                inference_delay=d,
                seed=seed,
            )
        )
    together = answers(any_sampler, [structs.replace(r, sampler=part) for r in requests])
    for request, answer in zip(requests, together, strict=True):
        (alone,) = answers(any_sampler, [structs.replace(request, sampler=part)])
        streamed = list(any_sampler.infer(structs.replace(request, sampler=part)))
        assert answer.num_calls == alone.num_calls
        assert [len(b) for b in answer.blocks] == [len(b) for b in alone.blocks] == [len(b) for b in streamed]
        np.testing.assert_allclose(answer.rows, alone.rows, atol=1e-5)
        assert np.array_equal(alone.rows, np.concatenate(streamed))
        d = request.inference_delay
        assert np.array_equal(answer.rows[:d], request.prev_action_chunk[:d])


def test_an_empty_batch_has_no_answers(toy_policy: FlowPolicy) -> None:
    assert answers(toy_policy, []) == []


def test_near_rows_are_answered_before_the_network_has_been_at_the_far_ones(any_sampler: FlowPolicy) -> None:
    part = HorizonAwareSchedule(num_steps=10)
    observation = make_observation(0)
    prefix = rows_past(observation, 1)[:2]
    before = any_sampler.num_evaluations
    blocks = any_sampler.infer(
        ChunkRequest(
            observation=observation, prev_action_chunk=prefix, inference_delay=2, sampler=part, seed=0
        )
    )
    first = next(blocks)
    assert any_sampler.num_evaluations - before == 1
    assert len(first) == 3
    assert np.array_equal(first[:2], prefix)
    assert sum(len(block) for block in blocks) == SPEC.horizon - 3
    assert any_sampler.num_evaluations - before == 10


def test_blocks_say_after_which_call_they_were_final(any_sampler: FlowPolicy) -> None:
    part = HorizonAwareSchedule(num_steps=10)
    (answer,) = answers(
        any_sampler,
        [ChunkRequest(observation=make_observation(0), sampler=part)],
    )
    calls = np.repeat(answer.num_calls, [len(block) for block in answer.blocks])
    assert calls.tolist() == finish_steps(part, horizon=SPEC.horizon).tolist()


def test_an_early_stop_spares_the_calls_for_rows_that_nobody_asked_for(any_sampler: FlowPolicy) -> None:
    part = HorizonAwareSchedule(num_steps=10, early_stop_rows=2)
    whole = infer(any_sampler, make_observation(0), sampler=HorizonAwareSchedule(num_steps=10))
    before = any_sampler.num_evaluations
    rows = infer(any_sampler, make_observation(0), sampler=part)
    calls = int(finish_steps(part, horizon=SPEC.horizon)[1])
    assert any_sampler.num_evaluations - before == calls < 10
    assert np.array_equal(rows, whole[: len(rows)])
    assert 2 <= len(rows) < SPEC.horizon
