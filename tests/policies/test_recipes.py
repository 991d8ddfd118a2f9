from dataclasses import replace

import numpy as np
import pytest

from policies.flow.dataset import make_dataset
from policies.flow.features import FeatureConfig
from policies.flow.recipes import (
    RECIPE_NAMES,
    LambdaMask,
    MixedSchedule,
    Offset,
    Plain,
    Prefix,
    Recipe,
    make_recipe,
    recipe_from_dict,
    recipe_to_dict,
)
from robot_runtime.errors import InvalidValueError, UnknownNameError
from tests.policies.draws import hand_pose, make_data, make_samples
from tests.policies.toy import SCHEMA, SPEC


@pytest.mark.parametrize(
    ("recipe", "kept"),
    [
        (Plain(), [0]),
        (Prefix(max_delay=3), [0, 1, 3]),
        (MixedSchedule(max_delay=3), [0, 1, 3]),
        (Offset(max_delay=3), [0, 1, 3, 4]),
        (LambdaMask(max_delay=4), [0, 1, 3, 4]),
    ],
)
def test_a_recipe_leaves_out_commitments_it_cannot_show(recipe: Recipe, kept: list[int]) -> None:
    samples = [replace(s, num_committed=d) for s, d in zip(make_samples(n=5), (0, 1, 3, 4, 6), strict=True)]
    dataset = make_dataset(samples, SCHEMA, SPEC, FeatureConfig(), recipe=recipe, hand_pose=hand_pose)
    assert dataset.num_committed.tolist() == kept


def test_statistics_do_not_depend_on_what_a_recipe_leaves_out() -> None:
    samples = [replace(s, num_committed=i % 3) for i, s in enumerate(make_samples(n=9))]
    means = [
        make_dataset(samples, SCHEMA, SPEC, FeatureConfig(), recipe=r).statistics.rows.mean
        for r in (Plain(), Prefix())
    ]
    assert np.array_equal(*means)


def test_a_data_set_of_commitments_only_is_refused_by_the_plain_recipe() -> None:
    with pytest.raises(ValueError, match="none of 64 demonstrations fits the recipe Plain"):
        make_data(Plain(), num_committed=2)


def test_positions_that_would_mean_two_things_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="position_offset must be at least max_delay, 12; got 10"):
        LambdaMask(position_offset=10)


@pytest.mark.parametrize("name", RECIPE_NAMES)
def test_a_recipe_survives_a_file(name: str) -> None:
    recipe = make_recipe(name)
    assert recipe_from_dict(recipe_to_dict(recipe)) == recipe
    assert recipe.max_delay >= 0


def test_an_unknown_recipe_or_option_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"recipe 'rtc'; valid: .*plain"):
        make_recipe("rtc")
    with pytest.raises(InvalidValueError, match="plain has no option max_delay; it has: none"):
        make_recipe("plain", max_delay=3)
