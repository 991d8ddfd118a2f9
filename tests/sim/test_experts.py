import pytest

from sim.demonstrations import run_expert


@pytest.mark.parametrize("rows_per_plan", [1, 4])
@pytest.mark.parametrize("task", ["conveyor", "strike"])
def test_expert_without_delay_succeeds(task, rows_per_plan, request):
    world = request.getfixturevalue(f"{task}_world")
    scores = [run_expert(world, seed=700 + i, rows_per_plan=rows_per_plan) for i in range(10)]
    assert sum(score.success for score in scores) >= 9
