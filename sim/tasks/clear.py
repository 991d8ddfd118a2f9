"""`clear`: take three cups from a long counter, one by one, and drop them into the bin on the robot.

y
|   [ cup     counter   cup       cup ]        the counter's position and side, the cups along it and the end
|                                              at which the robot starts are drawn anew for every episode
|      robot, bin at its right side ->
+----------------------------------------- x
"""

import mujoco
import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.transforms import turn_planar
from sim.scene.kinematics import Q_HOME
from sim.scene.mobile_base import P_BA
from sim.scene.model import MAX_WIDTH, add_boxes
from sim.scene.task import ObservationNoise, Scorer, direction, point
from sim.scene.world import World
from sim.tasks.household import (
    CUP_HALF_HEIGHT,
    CUP_RADIUS,
    TABLE_Z,
    HouseholdScorer,
    add_cup,
    add_table,
    in_base,
    mobile_schema,
    put,
    put_cup,
)

CUPS = ("cup_0", "cup_1", "cup_2")
COUNTER_HALF = (1.2, 0.25)
BIN_P = (0.10, -0.44, 0.46)
"""Centre of the bin's floor in B [m]."""
BIN_HALF, BIN_HEIGHT = 0.13, 0.14
_WALL = 0.006


class Clear:
    """The task of a counter with three cups, and a bin on the robot."""

    name = "clear"
    instruction = "clear the cups from the counter into your bin"
    observation_noise, workspace_height = ObservationNoise(points=(3, 3, 3), points_alike=True), TABLE_Z
    schema: Schema = mobile_schema(
        (*point("cup_1"), *point("cup_2"), *point("cup_3"), *direction("to_counter"))
    )
    episode_s = 40.0
    num_stages = len(CUPS)
    """One per cup."""

    def __init__(self) -> None:
        self._side = 1.0

    def add_objects(self, spec: mujoco.MjSpec) -> None:
        add_table(spec, "counter", half=COUNTER_HALF)
        for name in CUPS:
            add_cup(spec, name)
        _add_bin(spec.body("base"))

    def reset(self, world: World, rng: np.random.Generator) -> None:
        self._side, end = rng.choice([-1.0, 1.0], size=2)
        counter = np.array([rng.uniform(-0.4, 0.4), self._side * rng.uniform(1.0, 1.3)])
        put(world, "counter", counter)
        for name, along in zip(CUPS, (-0.7, 0.0, 0.7), strict=True):
            from_edge = COUNTER_HALF[1] - rng.uniform(0.07, 0.12)
            offset = np.array([along + rng.uniform(-0.2, 0.2), -self._side * from_edge])
            put_cup(world, counter + offset, TABLE_Z, name)
        yaw = self._side * rng.uniform(0.6, 1.6)
        start = np.array([counter[0] + end * rng.uniform(0.9, 1.4), -self._side * rng.uniform(0.0, 0.4), yaw])
        world.place_base(start)
        world.place_robot(np.array(Q_HOME), MAX_WIDTH)

    def update(self, world: World) -> None:
        """Do nothing: there are no scripted bodies."""

    def apply_event(self, world: World) -> None:
        """Do nothing: there are no scripted events."""

    def environment_state(self, world: World) -> Float[np.ndarray, "11"]:
        """In B: the three cups (9) [m], then the direction towards the counter (2).

        They look alike, so they are ordered by relevance: the nearest first, those in the bin last.
        """
        x_WB = world.x_WB
        cups = [in_base(x_WB, world.data.joint(name).qpos[:3]) for name in CUPS]
        cups.sort(key=lambda p: (is_over_bin(p) and p[2] < BIN_P[2] + BIN_HEIGHT, np.hypot(p[0], p[1])))
        return np.concatenate([*cups, turn_planar(np.array([0.0, self._side]), -x_WB[2])])

    def make_scorer(self, world: World) -> Scorer:
        return HouseholdScorer(self, t_start_ns=world.t_start_ns)

    def stage(self, world: World, reached: int) -> int:
        return max(reached, self.num_in_bin(world))

    def is_done(self, world: World) -> bool:
        """Whether all cups lie in the bin."""
        return self.num_in_bin(world) == len(CUPS)

    def is_lost(self, world: World) -> bool:
        return bool(min(world.data.joint(name).qpos[2] for name in CUPS) < 0.3)

    def num_in_bin(self, world: World) -> int:
        """Number of released cups in the bin."""
        if world.gripper_width < 2 * CUP_RADIUS + 0.003:
            hand = world.data.site("end_effector").xpos
        else:
            hand = np.full(3, np.inf)
        count = 0
        for name in CUPS:
            cup = world.data.joint(name).qpos[:3]
            p = in_base(world.x_WB, cup)
            inside = is_over_bin(p) and 0.0 < p[2] - BIN_P[2] < BIN_HEIGHT
            count += bool(inside and np.linalg.norm(cup - hand) > CUP_HALF_HEIGHT)
        return count


def is_over_bin(p_B: Float[np.ndarray, "3"]) -> bool:
    """Whether a point is over the bin's inside, or in it."""
    return bool(np.abs(p_B[:2] - BIN_P[:2]).max() < BIN_HALF)


def _add_bin(mount: mujoco.MjsBody) -> None:
    """Add an open box beside the arm, on a bracket."""
    p, outer, up = np.array(BIN_P) - P_BA, BIN_HALF + _WALL, BIN_HEIGHT / 2
    parts = [
        ([0.0, 0.0, -_WALL], [outer + _WALL, outer + _WALL, _WALL]),
        ([outer, 0.0, up], [_WALL, outer + _WALL, up]),
        ([-outer, 0.0, up], [_WALL, outer + _WALL, up]),
        ([0.0, outer, up], [outer + _WALL, _WALL, up]),
        ([0.0, -outer, up], [outer + _WALL, _WALL, up]),
        ([0.0, 0.14, -0.06], [0.03, 0.20, 0.02]),
    ]
    add_boxes(mount, "bin", parts, p=p, rgba=[0.25, 0.45, 0.62, 1.0], mass=0.1)
