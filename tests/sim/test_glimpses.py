"""Glimpses: scenes in which the robot says nothing of where things are."""

import numpy as np
import pytest

from robot_runtime.core.values.state import Observation
from sim.demonstrations.demonstrations import disturbed_episode
from sim.demonstrations.random_views import ARM_STD, REACH, random_views
from sim.scene.world import World
from sim.tasks import HOUSEHOLD_TASKS, make_task
from sim.tasks.household import CUP_HALF_HEIGHT, TABLE_Z

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def demonstrated() -> list[Observation]:
    kept = disturbed_episode(World(make_task("fetch")), seed=1, episode=0)
    assert kept is not None
    return [d.observation for d in kept]


def look(demonstrated: list[Observation], num: int, seed: int = 0) -> list[Observation]:
    return list(random_views("fetch", demonstrated, num=num, seed=seed, cameras={}))


def to_cup(seen: Observation) -> np.ndarray:
    assert seen.state.X_BE is not None
    return seen.environment_state[:3] - seen.state.X_BE.translation


@pytest.mark.long
def test_the_same_arguments_give_the_same_glimpses(demonstrated):
    for one, other in zip(look(demonstrated, 4), look(demonstrated, 6), strict=False):
        np.testing.assert_array_equal(one.environment_state, other.environment_state)
        np.testing.assert_array_equal(one.state.q, other.state.q)
    assert not np.array_equal(
        look(demonstrated, 1)[0].environment_state, look(demonstrated, 1, seed=1)[0].environment_state
    )


def test_things_are_near_the_hand_but_the_arm_does_not_say_where(demonstrated):
    seen = look(demonstrated, 300)
    near = [o for o in seen if np.hypot(*to_cup(o)[:2]) < 0.2]
    assert len(near) > 40
    q0, bearing = np.array([(o.state.q[0], np.arctan2(*to_cup(o)[1::-1])) for o in near]).T
    assert np.ptp(bearing) > 5.0  # all around it
    assert abs(np.corrcoef(q0, np.sin(bearing))[0, 1]) < 0.35


def test_the_hand_reaches_for_what_stands(demonstrated):
    within_reach = [o for o in look(demonstrated, 100) if np.linalg.norm(to_cup(o)) < REACH]
    assert len(within_reach) > 12
    on_table = TABLE_Z + CUP_HALF_HEIGHT
    for seen in within_reach:
        assert seen.environment_state[2] == pytest.approx(on_table, abs=1e-3)


@pytest.mark.parametrize("task_name", ["drawer", "wipe"])
def test_what_is_done_in_parts_is_seen_begun_and_not(task_name):
    world = World(make_task(task_name))
    world.reset(0)
    seen = list(random_views(task_name, [world.observe()], num=100, seed=0, cameras={}))
    scenes = np.array([o.environment_state for o in seen])
    if task_name == "drawer":
        done = scenes[:, 6]  # how far it is open [m]
        assert 30 < np.sum(done == 0.0) < 70
        assert np.ptp(done) > 0.2
    else:
        left = np.linalg.norm(scenes[:, 3:5] - scenes[:, :2], axis=1)
        assert left.min() < 0.2
        assert 10 < np.sum(left > 0.9) < 90


def test_demonstrations_that_never_reach_have_glimpses_too():
    world = World(make_task("fetch"))
    world.reset(3)
    seen = look([world.observe()], 2)
    assert all(np.linalg.norm(to_cup(o)) > REACH for o in seen)


def test_arms_are_like_the_demonstrated_ones(demonstrated):
    q = np.array([o.state.q for o in demonstrated])
    for seen in look(demonstrated, 20):
        assert np.abs(q - seen.state.q).max(axis=1).min() < 5 * ARM_STD


@pytest.mark.parametrize("task", sorted(HOUSEHOLD_TASKS))
def test_every_household_task_can_be_glimpsed(task):
    world = World(make_task(task))
    world.reset(3)
    (seen,) = random_views(task, [world.observe()], num=1, seed=0, cameras={})
    assert seen.environment_state.shape == (world.task.schema.environment_state_dim,)
    assert np.isfinite(seen.environment_state).all()
