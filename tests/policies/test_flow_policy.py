from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from policies.flow.policy import FlowPolicy
from policies.policy import Policy
from robot_runtime.core.method import ClampedPrefix, ConstantSchedule, SamplerPart
from robot_runtime.core.state import Observation
from tests.policies.toy import SPEC, make_observation, rows_past, side_of


def infer(
    policy: Policy,
    observation: Observation,
    *,
    seed: int = 0,
    prefix: np.ndarray | None = None,
    sampler: SamplerPart | None = None,
) -> np.ndarray:
    part = sampler or (ConstantSchedule() if prefix is None else ClampedPrefix())
    return np.concatenate(
        list(
            policy.infer(
                observation,
                prev_action_chunk=prefix,
                inference_delay=0 if prefix is None else len(prefix),
                sampler=part,
                seed=seed,
            )
        )
    )


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
    blocks = toy_policy.infer(make_observation(0), sampler=ConstantSchedule(), seed=0)
    next(blocks)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.is_inference_mode_enabled()


def without_gripper(observation: Observation) -> Observation:
    return replace(observation, state=replace(observation.state, gripper_width=None))


def with_nan_joint(observation: Observation) -> Observation:
    return replace(observation, state=replace(observation.state, q=np.full(7, np.nan)))


def with_six_joints(observation: Observation) -> Observation:
    return replace(observation, state=replace(observation.state, q=np.zeros(6), dq=np.zeros(6)))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda o: replace(o, task="fly"), "'fly'; valid: 'pass the post on either side'"),
        (
            lambda o: replace(o, environment_state=np.zeros(5)),
            "environment state of 2 numbers, the observation has 5",
        ),
        (lambda o: replace(o, environment_state=np.array([0.0, np.inf])), "NaN or infinite"),
        (with_nan_joint, "NaN or infinite"),
        (with_six_joints, "needs 7 joints, the state has 6"),
        (without_gripper, "gripper_width"),
    ],
)
def test_an_observation_that_does_not_fit_is_refused_in_words(
    toy_policy: FlowPolicy, spoil: Callable[[Observation], Observation], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        toy_policy.infer(spoil(make_observation(0)), sampler=ConstantSchedule(), seed=0)


@pytest.mark.parametrize(
    ("prefix", "sampler", "message"),
    [
        (np.zeros((2, SPEC.dim)), ConstantSchedule(), "cannot keep a committed prefix"),
        (np.zeros((2, 3)), ClampedPrefix(), r"rows of 8 numbers, got \(2, 3\)"),
        (np.zeros((SPEC.horizon, SPEC.dim)), ClampedPrefix(), "at most 7 can be committed; got 8"),
        (np.full((1, SPEC.dim), np.nan), ClampedPrefix(), "NaN or infinite"),
        (None, ConstantSchedule(num_steps=0), "at least 1 step"),
        (None, "guided", "does not know the sampler part guided"),
    ],
)
def test_a_prefix_or_sampler_that_does_not_fit_is_refused_in_words(
    toy_policy: FlowPolicy, prefix: np.ndarray | None, sampler: SamplerPart, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        infer(toy_policy, make_observation(0), prefix=prefix, sampler=sampler)
