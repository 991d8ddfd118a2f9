import pytest

from robot_runtime.core.values.action import Command

MS = 1_000_000


@pytest.mark.parametrize("task", ["track", "conveyor"])
def test_reaction_ends_with_the_first_command_that_has_seen_the_change(task, request):
    world = request.getfixturevalue(f"{task}_world")
    world.reset(0)  # whose first change is after the approach, where `track` begins to count errors
    change_ns = world.task.change_times_ns(round(world.task.episode_s * 1e9))[0]
    scorer = world.task.make_scorer(world)
    for late_ns, t_obs_ns in (
        (0, change_ns - 1),
        (100 * MS, change_ns - 1),
        (200 * MS, None),
        (300 * MS, change_ns),
    ):
        scorer.on_tick(change_ns + late_ns, world, Command(), t_obs_ns)
    assert scorer.reactions.answered == [(change_ns, 0.3)]
    assert scorer.score().reactions_s == (0.3,)
