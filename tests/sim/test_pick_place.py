import numpy as np
import pytest

from robot_runtime.core.values.action import Command
from robot_runtime.errors import UnknownNameError
from sim.demonstrations.demonstrations import run_expert
from sim.scene.kinematics import solve_down
from sim.tasks import make_task
from sim.tasks.cube import CUBE_SIZE
from sim.tasks.pick_place import CUBE_IN_TRAY_Z, TRAY_P

MS = 1_000_000


def verdict(world, *, p_cube, p_hand, width) -> bool:
    """Score of half a second in which the cube lies and the hand stands where they are put."""
    world.reset(0)
    world.place_robot(solve_down(np.array([p_hand]), np.zeros(1))[0], width)
    world.data.joint("cube").qpos[:3] = p_cube
    scorer = world.task.make_scorer(world)
    for t_ns in range(0, 500 * MS, 10 * MS):
        world.advance_to(t_ns)
        scorer.on_tick(t_ns, world, Command(), None)
    return scorer.score().success


IN_TRAY = np.array([TRAY_P[0], TRAY_P[1], CUBE_IN_TRAY_Z])
ABOVE_TRAY = np.array([TRAY_P[0], TRAY_P[1], 0.22])


def test_cube_in_the_tray_with_the_hand_off_is_a_success(pick_place_world):
    assert verdict(pick_place_world, p_cube=IN_TRAY, p_hand=ABOVE_TRAY, width=0.08)


def test_cube_beside_the_tray_is_none(pick_place_world):
    beside = np.array([TRAY_P[0], TRAY_P[1] - 0.15, CUBE_SIZE / 2])
    assert not verdict(pick_place_world, p_cube=beside, p_hand=ABOVE_TRAY, width=0.08)


def test_cube_in_the_tray_that_is_still_held_is_none(pick_place_world):
    assert not verdict(pick_place_world, p_cube=IN_TRAY, p_hand=IN_TRAY, width=CUBE_SIZE)


def test_hand_through_the_wall_fails_the_episode(pick_place_world):
    pick_place_world.reset(0)
    scorer = pick_place_world.task.make_scorer(pick_place_world)
    pick_place_world.place_robot(solve_down(np.array([[0.5, -0.2, 0.15]]), np.zeros(1))[0], 0.08)
    pick_place_world.set_joint_target(solve_down(np.array([[0.5, 0.2, 0.15]]), np.zeros(1))[0])
    for t_ns in range(0, 1_000 * MS, 10 * MS):
        pick_place_world.advance_to(t_ns)
        scorer.on_tick(t_ns, pick_place_world, Command(), None)
    assert scorer.is_done
    assert not scorer.score().success
    assert pick_place_world.kinematics.forward(pick_place_world.q).translation[1] < 0.1


@pytest.mark.long
@pytest.mark.parametrize("rows_per_plan", [1, 8])
def test_expert_succeeds_and_uses_both_sides_of_the_wall(pick_place_world, rows_per_plan):
    scores = [
        run_expert(pick_place_world, seed=seed, rows_per_plan=rows_per_plan) for seed in range(700, 708)
    ]
    assert all(score.success for score in scores)
    assert {score.metrics["side"] for score in scores} == {-1.0, 1.0}


def test_unknown_task_is_refused_with_the_names_there_are():
    with pytest.raises(UnknownNameError, match="fetch, handover, pick_place, strike, track, wipe"):
        make_task("juggle")
