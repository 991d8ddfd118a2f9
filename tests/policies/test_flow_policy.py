from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec import structs

from policies.flow.checkpoint import load
from policies.flow.policy import FlowPolicy
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ClampedPrefix,
    Consensus,
    ConstantSchedule,
    HorizonAwareSchedule,
    RtcGuidance,
    SamplerPart,
    contrasts,
)
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.state import Observation
from tests.policies.toy import SPEC, infer, make_observation, rows_past, side_of, train_toy


def test_both_ways_are_sampled_and_never_their_average(toy_policy: FlowPolicy) -> None:
    sides = []
    for seed in range(60):
        observation = make_observation(seed)
        sides.append(side_of(infer(toy_policy, observation, seed=seed), observation))
    sides = np.array(sides)
    assert np.mean(np.abs(np.abs(sides) - 1.0) < 0.4) > 0.9
    assert 0.25 < np.mean(sides > 0) < 0.75


@pytest.mark.parametrize("side", [-1, 1])
def test_a_prefix_of_one_way_decides_for_that_way(toy_policy: FlowPolicy, side: int) -> None:
    for seed in range(20):
        observation = make_observation(seed)
        prefix = rows_past(observation, side)[:3]
        assert side * side_of(infer(toy_policy, observation, seed=seed, prefix=prefix), observation) > 0.5


@pytest.mark.parametrize("num_rows", [1, 4, SPEC.horizon - 1])
def test_committed_rows_come_back_bit_for_bit(toy_policy: FlowPolicy, num_rows: int) -> None:
    prefix = np.random.default_rng(0).normal(size=(num_rows, SPEC.dim))
    rows = infer(toy_policy, make_observation(0), prefix=prefix)
    assert rows.shape == (SPEC.horizon, SPEC.dim)
    assert np.array_equal(rows[:num_rows], prefix)


def test_without_committed_rows_a_clamped_prefix_changes_nothing(toy_policy: FlowPolicy) -> None:
    observation = make_observation(0)
    clamped = infer(toy_policy, observation, sampler=ClampedPrefix())
    assert np.array_equal(clamped, infer(toy_policy, observation, sampler=ConstantSchedule()))


def test_the_seed_decides_the_rows(toy_policy: FlowPolicy) -> None:
    observation = make_observation(0)
    torch.manual_seed(1)
    first = infer(toy_policy, observation, seed=7)
    torch.manual_seed(2)
    assert np.array_equal(first, infer(toy_policy, observation, seed=7))
    assert not np.array_equal(first, infer(toy_policy, observation, seed=8))


def test_inference_leaves_torch_as_it_was(toy_policy: FlowPolicy) -> None:
    before = torch.get_rng_state()
    blocks = toy_policy.infer(
        ChunkRequest(observation=make_observation(0), sampler=ConstantSchedule(), seed=0)
    )
    next(blocks)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.is_inference_mode_enabled()


NUM_STEPS = 5  # the toy's own


@pytest.mark.long
@pytest.mark.parametrize("sampler", [RtcGuidance(), RtcGuidance(exact_jacobian=False), BestOfSamples()])
@pytest.mark.parametrize("side", [-1, 1])
def test_samplers_that_need_no_training_keep_to_the_way_that_was_planned(
    toy_policy: FlowPolicy, sampler: SamplerPart, side: int
) -> None:
    def ends_on_side(seed: int, part: SamplerPart) -> bool:
        observation = make_observation(seed)
        planned = rows_past(observation, side)[:6]
        blocks = toy_policy.infer(
            ChunkRequest(
                observation=observation,
                prev_action_chunk=planned,
                inference_delay=0 if isinstance(part, ConstantSchedule) else 2,
                sampler=part,
                seed=seed,
            )
        )
        return side * side_of(next(blocks), observation) > 0.5

    assert sum(ends_on_side(seed, sampler) for seed in range(20)) >= 18
    assert sum(ends_on_side(seed, ConstantSchedule()) for seed in range(20)) <= 15


def test_the_average_of_samples_runs_into_the_post_and_their_medoid_does_not(toy_policy: FlowPolicy) -> None:
    sides: dict[Consensus, list[float]] = {Consensus.MEAN: [], Consensus.MEDOID: []}
    for seed in range(20):
        observation = make_observation(seed)
        for consensus, found in sides.items():
            rows = infer(
                toy_policy,
                observation,
                seed=seed,
                sampler=AveragedSamples(num_samples=32, consensus=consensus),
            )
            found.append(abs(side_of(rows, observation)))
    assert np.median(sides[Consensus.MEAN]) < 0.4
    assert np.median(sides[Consensus.MEDOID]) > 0.7


@pytest.mark.parametrize(
    "part", [BestOfSamples(num_samples=4), AveragedSamples(num_samples=1), RtcGuidance()]
)
def test_without_a_previous_chunk_the_answer_is_the_plain_sample_of_the_seed(
    toy_policy: FlowPolicy, part: SamplerPart
) -> None:
    observation = make_observation(3)
    plain = infer(toy_policy, observation, seed=5)
    np.testing.assert_allclose(infer(toy_policy, observation, seed=5, sampler=part), plain, atol=1e-5)


def test_contrast_with_a_weaker_checkpoint_changes_the_choice(
    toy_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    weak = load(train_toy(tmp_path_factory.mktemp("weak") / "weak", steps=20))
    policy = FlowPolicy(load(toy_folder), weak=weak)
    plain, contrasted = BestOfSamples(num_samples=8), BestOfSamples(num_samples=8, num_contrast=4)
    before = policy.num_evaluations
    changed = 0
    for seed in range(10):
        observation = make_observation(seed)
        planned = rows_past(observation, 1)[:1]
        a = infer(policy, observation, seed=seed, prefix=planned, sampler=plain)
        b = infer(policy, observation, seed=seed, prefix=planned, sampler=contrasted)
        changed += not np.array_equal(a, b)
    assert changed >= 3
    assert policy.num_evaluations - before == 10 * (8 + 16) * NUM_STEPS


@pytest.mark.parametrize(
    ("part", "evaluations"),
    [
        (ConstantSchedule(), NUM_STEPS),
        (ConstantSchedule(num_steps=3), 3),
        (ClampedPrefix(), NUM_STEPS),
        (RtcGuidance(), 3 * NUM_STEPS),
        (RtcGuidance(exact_jacobian=False), NUM_STEPS),
        (BestOfSamples(num_samples=16), 16 * NUM_STEPS),
        (AveragedSamples(num_samples=4), 4 * NUM_STEPS),
    ],
)
def test_network_evaluations_are_counted(toy_policy: FlowPolicy, part: SamplerPart, evaluations: int) -> None:
    before = toy_policy.num_evaluations
    infer(toy_policy, make_observation(0), sampler=part)
    assert toy_policy.num_evaluations - before == evaluations


@pytest.mark.parametrize(
    "part",
    [AveragedSamples(num_samples=3, num_steps=7), BestOfSamples(num_samples=3, num_contrast=1, num_steps=7)],
)
def test_a_policy_comes_by_after_every_step_so_that_whoever_waits_can_give_up(
    toy_folder: Path, part: SamplerPart
) -> None:
    policy = FlowPolicy(load(toy_folder), weak=load(toy_folder))
    request = ChunkRequest(observation=make_observation(0), sampler=part)
    evaluations = [0]
    for new in policy.infer_batch([request]):
        evaluations.append(policy.num_evaluations)
        assert all(len(rows) in (0, SPEC.horizon) for rows in new.rows)
    assert max(np.diff(evaluations)) <= 2 * 3  # a step of three samples, and one of the weaker checkpoint's
    assert evaluations[-1] == 3 * 7 * (2 if contrasts(part) else 1)


@pytest.mark.parametrize("size", [1e30, 1e300])
def test_numbers_that_have_no_place_in_float32_are_refused_by_their_size(
    toy_policy: FlowPolicy, size: float
) -> None:
    with pytest.raises(ValueError, match="at most 1e\\+15 of the policy's standard deviations"):
        infer(toy_policy, make_observation(0), prefix=np.full((2, SPEC.dim), size))


def test_more_committed_rows_than_trained_for_are_kept_and_reported_once(
    toy_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = FlowPolicy(load(toy_folder))
    assert policy.info.capabilities.max_inference_delay == 4
    prefix = rows_past(make_observation(0), 1)[:6]
    for _ in range(2):
        rows = infer(policy, make_observation(0), prefix=prefix)
        assert np.array_equal(rows[:6], prefix)
    assert [record.getMessage() for record in caplog.records] == [
        "6 committed rows, but policy toy was trained with up to 4: it extrapolates from here on"
    ]


def without_gripper(observation: Observation) -> Observation:
    return structs.replace(observation, state=replace(observation.state, gripper_width=None))


def with_nan_joint(observation: Observation) -> Observation:
    return structs.replace(observation, state=replace(observation.state, q=np.full(7, np.nan)))


def with_six_joints(observation: Observation) -> Observation:
    return structs.replace(observation, state=replace(observation.state, q=np.zeros(6), dq=np.zeros(6)))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda o: structs.replace(o, task="fly"), "'fly'; valid: 'pass the post on either side'"),
        (
            lambda o: structs.replace(o, environment_state=np.zeros(5)),
            "environment state of 2 numbers, the observation has 5",
        ),
        (lambda o: structs.replace(o, environment_state=np.array([0.0, np.inf])), "NaN or infinite"),
        (with_nan_joint, "NaN or infinite"),
        (with_six_joints, "needs 7 joints, the state has 6"),
        (without_gripper, "gripper_width"),
    ],
)
def test_an_observation_that_does_not_fit_is_refused_in_words(
    toy_policy: FlowPolicy, spoil: Callable[[Observation], Observation], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        toy_policy.infer(
            ChunkRequest(observation=spoil(make_observation(0)), sampler=ConstantSchedule(), seed=0)
        )


@pytest.mark.parametrize(
    ("prefix", "sampler", "message"),
    [
        (np.zeros((2, SPEC.dim)), ConstantSchedule(), "cannot keep a committed prefix"),
        (np.zeros((2, 3)), ClampedPrefix(), r"rows of 8 numbers, got \(2, 3\)"),
        (np.zeros((SPEC.horizon, SPEC.dim)), ClampedPrefix(), "at most 7 can be committed; got 8"),
        (np.full((1, SPEC.dim), np.nan), ClampedPrefix(), "NaN or infinite"),
        (None, ConstantSchedule(num_steps=0), "at least 1 step"),
        (
            None,
            HorizonAwareSchedule(),
            r"does not take the sampler HorizonAwareSchedule\(.*\); it takes ConstantSchedule, ",
        ),
        (None, BestOfSamples(num_contrast=4), "no weaker checkpoint"),
        (None, BestOfSamples(num_samples=0), r"num_samples must lie in 1..256, got 0"),
        (None, BestOfSamples(rho=1.5), r"rho must lie in \(0, 1\], got 1.5"),
        (None, RtcGuidance(max_guidance_weight=-1.0), "must not be negative, got -1"),
        (np.zeros((2, SPEC.dim)), AveragedSamples(), "cannot keep a committed prefix"),
    ],
)
def test_a_prefix_or_sampler_that_does_not_fit_is_refused_in_words(
    toy_policy: FlowPolicy, prefix: np.ndarray | None, sampler: SamplerPart, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        infer(toy_policy, make_observation(0), prefix=prefix, sampler=sampler)
