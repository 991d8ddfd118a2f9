"""Behind an estimator: who goes on from a policy that was told, and who errs like what was recorded."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from msgspec import structs

from policies.flow.checkpoint import Checkpoint, load
from policies.flow.demonstrations import StoredDemonstration
from policies.flow.policy import FlowPolicy
from policies.vision.estimator import scene_numbers
from policies.vision.finetune import NUM_ALIKE, behind_estimator, with_errors
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import InvalidValueError
from sim.scene.world import World
from sim.tasks import make_task

POINTS = (3, 3, 2)
NUM = 2 * (6 + 14)


@pytest.fixture(scope="module")
def told() -> Checkpoint:
    return load("fetch")


@cache
def world() -> World:
    return World(make_task("fetch"))


def looked(seed: int) -> Observation:
    world().reset(seed)
    return world().observe(exact=True)


def demonstration(observation: Observation) -> StoredDemonstration:
    return StoredDemonstration(observation=observation, rows=np.zeros((32, 13), np.float32), num_committed=0)


def as_told(seen: Observation, deviations: float) -> Observation:
    """As an estimator that never errs would tell it."""
    numbers = scene_numbers(seen, POINTS)
    scene = np.concatenate([numbers, np.full(len(numbers), deviations)])
    return structs.replace(seen, environment_state=scene)


def test_deviations_have_no_effect_on_a_policy_that_was_told_the_scene_until_it_is_trained(told):
    schema = replace(told.info.schema, environment_state_dim=NUM, environment_state_names=())
    seen = [looked(seed) for seed in range(3)]
    behind = behind_estimator(told, [demonstration(as_told(o, -5.0)) for o in seen], schema)
    assert behind.model_config.state_dim == told.model_config.state_dim + NUM // 2
    for o in seen:
        (rows,) = FlowPolicy(told).infer(ChunkRequest(observation=o, sampler=ConstantSchedule(), seed=1))
        for deviation in (-7.0, -1.0):
            (same,) = FlowPolicy(behind).infer(
                ChunkRequest(observation=as_told(o, deviation), sampler=ConstantSchedule(), seed=1)
            )
            np.testing.assert_allclose(same, rows, atol=1e-5)


def test_a_policy_that_was_told_another_scene_is_refused(told):
    seen = [demonstration(as_told(looked(0), -5.0))]
    with pytest.raises(InvalidValueError, match=r"'drawer' takes 42 numbers.* that takes 47"):
        behind_estimator(
            load("drawer"),
            seen,
            replace(told.info.schema, environment_state_dim=NUM, environment_state_names=()),
        )


def test_what_was_not_recorded_is_told_as_wrongly_as_what_is_most_like_it():
    rng = np.random.default_rng(0)
    recorded = [looked(seed) for seed in range(40)]
    truth = np.array([scene_numbers(o, POINTS) for o in recorded])
    errors = rng.normal(size=(40, NUM))
    told = [
        structs.replace(o, environment_state=np.concatenate([t + e[:20], e[20:]]))
        for o, t, e in zip(recorded, truth, errors, strict=True)
    ]
    others = [demonstration(looked(seed)) for seed in range(100, 130)]
    erring = with_errors(others, recorded, told, points=POINTS, seed=0)
    lenders = set()
    for before, after in zip(others, erring, strict=True):
        exact = scene_numbers(before.observation, POINTS)
        got = after.observation.environment_state
        error = np.concatenate([got[:20] - exact, got[20:]])
        lender = int(np.abs(errors - error).sum(axis=1).argmin())
        np.testing.assert_allclose(error, errors[lender], atol=1e-12)
        distance = np.linalg.norm((truth - exact) / np.maximum(truth.std(axis=0), 1e-3), axis=1)
        assert lender in np.argsort(distance)[: NUM_ALIKE + 2]
        np.testing.assert_array_equal(after.rows, before.rows)
        lenders.add(lender)
    assert len(lenders) > 5
