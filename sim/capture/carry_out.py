"""Executes labels with physics: the mobile robot follows the person's path in the same rooms."""

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
"""Rows for which the last one is held: fingers and cups need time to settle."""


def carry_out(
    demonstration: RetargetedDemonstration,
    seed: int,
    start: Float[np.ndarray, "3"],
    *,
    trace: list[np.ndarray] | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> EpisodeScore:
    """Score a robot that executes a demonstration open loop.

    seed: of the rooms. start: the base's initial pose in them (x, y, yaw); its odometry, with its errors,
    counts from there, as the rows do. trace: gets a snapshot of the world every row.
    progress: called with (rows done, in all).
    """
    world, rows = World(make_task(demonstration.task)), led_rows(demonstration)
    world.reset(seed)
    world.place_base(start)
    yaw = np.arctan2(rows[0, 7], rows[0, 6])
    world.place_robot(solve_down(rows[:1, 3:6] - P_BA, np.array([yaw]))[0], float(demonstration.width[0]))
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
