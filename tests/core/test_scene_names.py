"""Scene quantities are matched by name wherever both sides name them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from robot_runtime.core.values.action import ActionSpec, JointPosition
from robot_runtime.core.values.alignment import Alignment
from robot_runtime.core.values.mismatches import mismatches
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import InvalidValueError
from robot_runtime.server.warming import zero_observation

SPEC = ActionSpec(fields=(JointPosition(2),), horizon=4, dt_ns=50_000_000)
NAMES = ("x", "y", "goal_x", "goal_y")


def schema(*names: str, dim: int = 4) -> Schema:
    return Schema.of(SPEC, environment_state_dim=dim, environment_state_names=names)


@given(ours=st.permutations(NAMES), theirs=st.permutations(NAMES))
def test_a_policy_is_shown_each_scene_quantity_at_the_place_that_it_knows(ours: list[str], theirs: list[str]):
    robot, policy = schema(*ours), schema(*theirs)
    assert not mismatches(robot=robot, policy=policy)
    value = dict(zip(NAMES, range(4), strict=True))
    seen = structs.replace(
        zero_observation(robot, ""), environment_state=np.array([value[name] for name in ours], float)
    )
    shown = Alignment.between(robot=robot, policy=policy, action_spec=SPEC).shown(seen)
    assert shown.environment_state.tolist() == [value[name] for name in theirs]


def test_scene_quantities_of_other_names_are_refused_by_name_and_unnamed_ones_go_by_their_number():
    (sentence,) = mismatches(robot=schema("x", "y", "goal_x", "z"), policy=schema(*NAMES))
    assert sentence == "environment state: the names differ; missing: goal_y; left over: z"
    assert not mismatches(robot=schema(), policy=schema(*NAMES))


def test_names_survive_the_wire_and_fit_their_number():
    assert Schema.from_dict(schema(*NAMES).to_dict()) == schema(*NAMES)
    assert "environment_state_names" not in schema().to_dict()
    assert replace(schema(*NAMES), environment_state_dim=0).environment_state_names == ()
    for names in (("x",), ("x", "x", "y", "z")):
        with pytest.raises(InvalidValueError, match="expected 4 different names of environment state"):
            schema(*names)
