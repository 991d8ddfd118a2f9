"""`fetch`: take a cup from a table in one room and put it into a tray in the other.

y
|   [table A]     |
|      cup        |          [table B]
|                 |             tray          the positions of door and tables, and the side of the room
|                door                         of each table, are drawn for every episode
|    robot        |
+-----------------|-------------------- x
"""

import mujoco
import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.transforms import turn_planar
from sim.scene.kinematics import Q_HOME
from sim.scene.model import MAX_WIDTH
from sim.scene.task import ObservationNoise, Scorer, direction, point
from sim.scene.world import World
from sim.tasks.household import (
    CUP_HALF_HEIGHT,
    CUP_RADIUS,
    TABLE_Z,
    HouseholdScorer,
    add_cup,
    add_table,
    add_wall,
    in_base,
    mobile_schema,
    put,
    put_cup,
)
from sim.tasks.tray import TRAY_FLOOR, TRAY_HALF, add_tray

TABLE_HALF = (0.45, 0.25)
DOOR_HALF = 0.6
WALL_HALF = (0.05, 1.5, 0.6)


class Fetch:
    """The task of two rooms, two tables, a cup and a tray."""

    name = "fetch"
    instruction = "bring the cup from the table to the tray in the other room"
    observation_noise, workspace_height = ObservationNoise(points=(3, 3, 2)), TABLE_Z
    schema: Schema = mobile_schema(
        (
            *point("cup"),
            *point("tray"),
            *point("door")[:2],
            *direction("through_door"),
            *direction("to_table_a"),
            *direction("to_table_b"),
        )
    )
    episode_s = 40.0
    num_stages = 4
    """Reached, lifted, through the door, placed."""

    def __init__(self) -> None:
        self._door_y = 0.0
        self._sides = (1.0, 1.0)
        self._tray = np.zeros(3)

    def add_objects(self, spec: mujoco.MjSpec) -> None:
        for name in ("table_a", "table_b"):
            add_table(spec, name, half=TABLE_HALF)
        add_tray(spec.body("table_b"), np.array([0.0, 0.0, TABLE_Z]))
        for name in ("wall_left", "wall_right"):
            add_wall(spec, name, half=WALL_HALF)
        add_cup(spec)

    def reset(self, world: World, rng: np.random.Generator) -> None:
        self._door_y = rng.uniform(-0.5, 0.5)
        for name, side in (("wall_left", 1.0), ("wall_right", -1.0)):
            put(world, name, np.array([0.0, self._door_y + side * (DOOR_HALF + WALL_HALF[1])]))
        side_a, side_b = rng.choice([-1.0, 1.0], size=2)
        self._sides = side_a, side_b
        table_a = np.array([rng.uniform(-2.0, -1.4), side_a * rng.uniform(1.1, 1.4)])
        table_b = np.array([rng.uniform(1.4, 2.0), side_b * rng.uniform(1.1, 1.4)])
        put(world, "table_a", table_a)
        put(world, "table_b", table_b)
        self._tray = np.array([*table_b, TABLE_Z + TRAY_FLOOR + CUP_HALF_HEIGHT])
        near = side_a * (TABLE_HALF[1] - rng.uniform(0.07, 0.12))
        put_cup(world, table_a + np.array([rng.uniform(-0.2, 0.2), -near]), TABLE_Z)
        yaw = side_a * (0.5 * np.pi + rng.uniform(-0.6, 0.6))
        world.place_base(np.array([rng.uniform(-1.8, -1.0), -side_a * rng.uniform(0.2, 0.7), yaw]))
        world.place_robot(np.array(Q_HOME), MAX_WIDTH)

    def update(self, world: World) -> None:
        """Do nothing: there are no scripted bodies."""

    def apply_event(self, world: World) -> None:
        """Do nothing: there are no scripted events."""

    def environment_state(self, world: World) -> Float[np.ndarray, "14"]:
        """In B: cup (3), tray with a cup in it (3), middle of the door (2) [m]; then directions (2 each).

        Directions: through the door, towards table A, towards table B.
        """
        x_WB = world.x_WB
        through, up = np.array([1.0, 0.0]), np.array([0.0, 1.0])
        return np.concatenate(
            [
                in_base(x_WB, world.data.joint("cup").qpos[:3]),
                in_base(x_WB, self._tray),
                in_base(x_WB, np.array([0.0, self._door_y])),
                turn_planar(through, -x_WB[2]),
                turn_planar(self._sides[0] * up, -x_WB[2]),
                turn_planar(self._sides[1] * up, -x_WB[2]),
            ]
        )

    def make_scorer(self, world: World) -> Scorer:
        return HouseholdScorer(self, t_start_ns=world.t_start_ns)

    def stage(self, world: World, reached: int) -> int:
        cup = world.data.joint("cup").qpos[:3]
        at_hand = float(np.linalg.norm(cup - world.data.site("end_effector").xpos)) < 0.05
        lifted = cup[2] > TABLE_Z + CUP_HALF_HEIGHT + 0.05
        done = (at_hand, at_hand and lifted, lifted and cup[0] > 0.2)
        while reached < len(done) and done[reached]:
            reached += 1
        return reached

    def is_done(self, world: World) -> bool:
        """Whether the cup is upright, still and released in the tray."""
        cup = world.data.joint("cup")
        off = cup.qpos[:3] - self._tray
        inside = np.abs(off[:2]).max() < TRAY_HALF - CUP_RADIUS / 2 and abs(off[2]) < 0.01
        upright = 1.0 - 2.0 * (cup.qpos[4] ** 2 + cup.qpos[5] ** 2) > 0.97
        still = np.abs(cup.qvel[:3]).max() < 0.05
        return bool(inside and upright and still and world.gripper_width > 2 * CUP_RADIUS + 0.01)

    def is_lost(self, world: World) -> bool:
        return bool(world.data.joint("cup").qpos[2] < TABLE_Z - 0.1)
