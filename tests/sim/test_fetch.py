"""`fetch`: rooms, rule and score."""

import numpy as np
import pytest

from robot_runtime.core.method.table import METHODS
from robot_runtime.core.values.command import Command
from sim.episodes.evaluate import run_episode
from sim.experts.policy import ExpertPolicy
from sim.scene.world import World
from sim.tasks.fetch import DOOR_HALF, Fetch
from sim.tasks.household import BackwardTravel

MS = 1_000_000


@pytest.fixture(scope="module")
def rooms() -> World:
    return World(Fetch())


def test_what_is_seen_is_seen_from_the_base(rooms):
    rooms.reset(4)
    seen = rooms.task.environment_state(rooms)
    x, y, yaw = rooms.x_WB
    cup = rooms.data.joint("cup").qpos[:3]
    c, s = np.cos(yaw), np.sin(yaw)
    np.testing.assert_allclose(np.array([[c, -s], [s, c]]) @ seen[:2] + [x, y], cup[:2], atol=1e-9)
    door = np.array([[c, -s], [s, c]]) @ seen[6:8] + [x, y]
    assert door[0] == pytest.approx(0.0)
    assert abs(door[1]) <= 0.5
    assert rooms.model.geom("chassis").size[0] + 0.2 < DOOR_HALF


@pytest.mark.long
def test_the_expert_fetches_the_cup_under_latency_with_odometry_that_drifts():
    """By another method than in `test_household`."""
    episode = run_episode(
        ExpertPolicy("fetch"),
        task_name="fetch",
        method=METHODS["state-matching"],
        seed=10_000,
        delay_ns=300 * MS,
        control_period_ns=10 * MS,
    )
    assert episode.result.score.success
    assert episode.result.score.metrics["stage"] == 4.0
    assert episode.result.score.completion_s < 20.0


def test_backward_travel_is_what_leads_back_along_the_way():
    """3 m forwards at 0.5 m/s, with one step of 10 cm back in the middle and one aside."""
    travel, x = BackwardTravel(), np.zeros(3)
    for i in range(350):
        v = np.array([0.5, 0.0, 0.0])
        if 150 <= i < 160:
            v = np.array([-0.5, 0.0, 0.0])
        if 200 <= i < 210:
            v = np.array([0.0, 0.5, 0.0])
        travel.on_tick(i * 20 * MS, x.copy())
        x = x + 0.02 * v
    assert travel.metres() == pytest.approx(0.10, abs=0.005)
    standing = BackwardTravel()
    for i in range(350):
        standing.on_tick(i * 20 * MS, np.array([0.001 * (i % 2), 0.0, 0.0]))
    assert standing.metres() == 0.0


@pytest.mark.parametrize(
    ("z", "why"),
    [
        (None, "its time was over at stage 0 of 4"),
        (0.1, "something has fallen to the floor: it cannot be done any more"),
    ],
)
def test_a_failure_says_why(z, why):
    world = World(Fetch(), seed=3)
    scorer = world.task.make_scorer(world)
    if z is not None:
        world.data.joint("cup").qpos[2] = z
    scorer.on_tick(world.t_start_ns, world, Command(), None)
    assert (scorer.score().success, scorer.score().why) == (False, why)
