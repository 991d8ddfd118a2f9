"""What each recipe's policy may be asked for, on networks of that recipe."""

from typing import get_args

import numpy as np
import pytest

from policies.flow.checkpoint import load
from policies.flow.policy import FlowPolicy
from policies.flow.recipes import (
    LambdaMask,
    Masked,
    MixedSchedule,
    Offset,
    Plain,
    Prefix,
    Recipe,
    recipe_name,
)
from policies.flow.support import UNTRAINED
from robot_runtime.core.method.request_parts import TrackingLag
from robot_runtime.core.method.sampler_parts import (
    PREFIXLESS,
    ClampedPrefix,
    HorizonAwareSchedule,
    LambdaMaskedPrefix,
    PrefixPreservedStart,
    SamplerPart,
)
from robot_runtime.core.policy import ChunkRequest
from tests.policies.toy import SPEC, make_observation, rows_past, train_toy

TRAINED_FOR = {
    Plain(): set(),
    Offset(max_delay=4): set(),
    Prefix(max_delay=4): {ClampedPrefix},
    MixedSchedule(max_delay=4): {ClampedPrefix, HorizonAwareSchedule},
    Masked(max_delay=4): {PrefixPreservedStart},
    LambdaMask(max_delay=4): {LambdaMaskedPrefix},
}


@pytest.fixture(scope="module", params=TRAINED_FOR, ids=lambda recipe: type(recipe).__name__)
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return request.param


@pytest.fixture(scope="module")
def policy(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> FlowPolicy:
    folder = tmp_path_factory.mktemp("checkpoints")
    init = None
    if isinstance(recipe, Masked):
        init = load(train_toy(folder / "plain", steps=20, recipe=Plain()))
    return FlowPolicy(load(train_toy(folder / "toy", steps=20, recipe=recipe, init=init)))


def ask(policy: FlowPolicy, part: SamplerPart) -> np.ndarray:
    observation = make_observation(0)
    given = {}
    if not isinstance(part, PREFIXLESS):
        given = {"prev_action_chunk": rows_past(observation, 1)[:6], "inference_delay": 3}
    return np.concatenate(
        list(policy.infer(ChunkRequest(observation=observation, sampler=part, seed=0, **given)))
    )


@pytest.mark.long
def test_a_policy_declares_what_its_recipe_trained_for(policy: FlowPolicy, recipe: Recipe) -> None:
    assert set(policy.info.capabilities.samplers) == {*UNTRAINED, *TRAINED_FOR[recipe]}
    assert policy.info.capabilities.max_inference_delay == recipe.max_delay


@pytest.mark.parametrize("kind", get_args(SamplerPart), ids=lambda kind: kind.__name__)
def test_what_is_declared_is_answered_and_all_else_refused(
    policy: FlowPolicy, kind: type[SamplerPart]
) -> None:
    if kind not in policy.info.capabilities.samplers:
        with pytest.raises(ValueError, match=rf"{kind.__name__}.*it takes ConstantSchedule, RtcGuidance"):
            ask(policy, kind())
        return
    rows = ask(policy, kind())
    assert rows.shape == (SPEC.horizon, SPEC.dim)
    assert np.isfinite(rows).all()
    if kind not in PREFIXLESS:
        assert np.array_equal(rows[:3], rows_past(make_observation(0), 1)[:3])


def test_a_delay_beyond_the_chunk_is_not_promised(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = train_toy(tmp_path_factory.mktemp("long") / "toy", steps=1, recipe=Prefix(max_delay=12))
    assert FlowPolicy(load(folder)).info.capabilities.max_inference_delay == SPEC.horizon - 1


def test_a_policy_declares_its_recipe_and_how_its_states_were_rolled_forward(
    policy: FlowPolicy, recipe: Recipe
) -> None:
    can = policy.info.capabilities
    assert can.recipe == recipe_name(recipe)
    rolls = isinstance(recipe, Offset)
    assert can.roll_forward == (TrackingLag(time_constant_s=recipe.tracking_lag_s) if rolls else None)
    assert ("vlash" in can.methods()) == rolls
