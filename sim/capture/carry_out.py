"""Labels carried out, physics and all: the mobile robot goes the person's way in the rooms she was in."""

from collections.abc import Callable
from itertools import pairwise

import mujoco
import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.transforms import compose_planar, inverse_planar
from sim.capture.retargeted import RetargetedDemonstration
from sim.capture.samples import led_rows
from sim.demonstrations.rollout_robot import execute_row, robot_rollout
from sim.scene.kinematics import solve_down
from sim.scene.mobile_base import P_BA
from sim.scene.task import EpisodeScore
from sim.scene.world import World
from sim.tasks import make_task

AFTER_ROWS = 30
"""How long the last row is held: fingers and cups need a while."""


def carry_out(
    told: RetargetedDemonstration,
    seed: int,
    start: Float[np.ndarray, "3"],
    *,
    trace: list[np.ndarray] | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> EpisodeScore:
    """Whether the task is done by a robot that is led along a demonstration, blind to everything.

    seed: of the rooms. start: where its base stands in them at first (x, y, yaw): its odometry, which has the
    errors that it has, counts from there, as the rows do. trace: gets a snapshot of the world every row.
    progress: called with (rows done, in all).
    """
    world, rows = World(make_task(told.task)), led_rows(told)
    world.reset(seed)
    world.place_base(start)
    yaw = np.arctan2(rows[0, 7], rows[0, 6])
    world.place_robot(solve_down(rows[:1, 3:6] - P_BA, np.array([yaw]))[0], float(told.width[0]))
    mujoco.mj_forward(world.model, world.data)
    scorer, robot = world.task.make_scorer(world), robot_rollout(world)
    here, first = np.asarray(robot.observe()[0].state.x_WB), inverse_planar(rows[0, :3])
    moved = np.array([compose_planar(here, compose_planar(first, row)) for row in rows[:, :3]])
    rows = np.hstack([moved, rows[:, 3:]])
    rows = np.vstack([rows, np.tile(rows[-1], (AFTER_ROWS, 1))])
    for done, (row, next_row) in enumerate(pairwise(rows), start=1):
        if trace is not None:
            trace.append(world.snapshot())
        execute_row(robot, scorer, row, next_row)
        progress(done, len(rows) - 1)
        if scorer.is_done:
            break
    return scorer.score()
