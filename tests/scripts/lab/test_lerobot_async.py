"""The weights of LeRobot's asynchronous client, which our weighted average claims to be."""

import pytest

from robot_runtime.core.method.splice_parts import WeightedAverage
from scripts.lab.baselines.lerobot_import import import_without_init, lerobot_problem

if lerobot_problem() is not None:
    pytest.skip(str(lerobot_problem()), allow_module_level=True)


def test_our_weighted_average_has_their_weights():
    aggregate = import_without_init("lerobot.async_inference", "configs").AGGREGATE_FUNCTIONS
    old_weights = {name: function(1.0, 0.0) for name, function in aggregate.items()}
    assert old_weights == {
        "weighted_average": WeightedAverage().old_weight,
        "latest_only": 0.0,
        "average": 0.5,
        "conservative": 0.7,
    }
