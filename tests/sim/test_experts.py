import numpy as np
import pytest

from sim.demonstrations.demonstrations import run_expert
from sim.experts import make_expert
from sim.tasks import TABLE_TASKS


@pytest.mark.long
@pytest.mark.parametrize("rows_per_plan", [1, 4])
@pytest.mark.parametrize("task", ["conveyor", "strike"])
def test_expert_without_delay_succeeds(task, rows_per_plan, request):
    world = request.getfixturevalue(f"{task}_world")
    scores = [run_expert(world, seed=700 + i, rows_per_plan=rows_per_plan) for i in range(10)]
    assert sum(score.success for score in scores) >= 9


@pytest.mark.parametrize("num_committed", [1, 12, 32])
@pytest.mark.parametrize("task", TABLE_TASKS)
def test_plan_repeats_what_is_committed_and_goes_on_from_there(task, num_committed, request):
    world, expert = request.getfixturevalue(f"{task}_world"), make_expert(task, seed=0)
    world.reset(0)
    committed = expert.plan(world.observe())[:num_committed]
    plan = expert.plan(world.observe(), committed)
    assert plan.shape == (32, 8)
    np.testing.assert_array_equal(plan[:num_committed], committed)
