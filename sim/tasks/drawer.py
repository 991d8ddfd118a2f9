"""`drawer`: open a drawer, put a cup from a nearby table into it, and close it.

y
|   [cabinet]        [table]         the side of the room, both positions, which of them is on the left,
|   [ drawer ]         cup           cup and start are drawn for every episode
|       |  handle
|     robot
+--------------------------- x
"""

import mujoco
import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.transforms import turn_planar
from sim.scene.kinematics import Q_HOME
from sim.scene.model import CONTACT, MAX_WIDTH, add_boxes
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

TABLE_HALF = (0.30, 0.25)
CABINET_HALF = (0.22, 0.25)
"""Half sizes from back to front, and across [m]."""
DRAWER_TRAVEL = 0.28
DRAWER_FLOOR, DRAWER_WALL = 0.60, 0.69
"""Heights of the drawer's floor and of its walls [m]."""
DRAWER_BACK, DRAWER_FRONT, DRAWER_SIDE = -0.16, 0.19, 0.17
"""Inside of the closed drawer, from the cabinet's centre [m]."""
HANDLE_X, HANDLE_Z = 0.265, 0.68
"""Centre of the handle, a post, when the drawer is closed [m]."""
HANDLE_RADIUS, HANDLE_HALF_HEIGHT = 0.012, 0.04
OPEN, CLOSED = 0.20, 0.015
_PANEL_KG = 0.4
_SHELL, _FRONT, _METAL = [0.62, 0.66, 0.68, 1.0], [0.80, 0.76, 0.66, 1.0], [0.30, 0.31, 0.34, 1.0]


class Drawer:
    """The task of a cabinet with a drawer, a table, and a cup."""

    name = "drawer"
    instruction = "put the cup into the drawer and close it"
    observation_noise, workspace_height = ObservationNoise(points=(3, 3)), TABLE_Z
    schema: Schema = mobile_schema(
        (*point("cup"), *point("handle"), "drawer.opening", *direction("drawer.outward"))
    )
    episode_s = 40.0
    num_stages = 4
    """Opened, cup lifted, cup in the drawer, closed."""

    def __init__(self) -> None:
        self._out = np.array([0.0, -1.0])
        self._cabinet = np.zeros(2)

    def add_objects(self, spec: mujoco.MjSpec) -> None:
        _add_cabinet(spec)
        add_table(spec, "table", half=TABLE_HALF)
        add_cup(spec)

    def reset(self, world: World, rng: np.random.Generator) -> None:
        side, order = rng.choice([-1.0, 1.0], size=2)
        self._out = np.array([0.0, -side])
        self._cabinet = np.array([order * rng.uniform(0.4, 0.7), side * rng.uniform(1.1, 1.4)])
        put(world, "cabinet", self._cabinet, yaw=-side * 0.5 * np.pi)
        table = np.array([-order * rng.uniform(0.4, 0.7), side * rng.uniform(1.1, 1.4)])
        put(world, "table", table)
        near = side * (TABLE_HALF[1] - rng.uniform(0.07, 0.12))
        put_cup(world, table + np.array([rng.uniform(-0.15, 0.15), -near]), TABLE_Z)
        yaw = side * (0.5 * np.pi + rng.uniform(-0.5, 0.5))
        world.place_base(np.array([rng.uniform(-0.8, 0.8), -side * rng.uniform(0.1, 0.4), yaw]))
        world.place_robot(np.array(Q_HOME), MAX_WIDTH)

    def randomize_progress(self, world: World, rng: np.random.Generator) -> None:
        """Open the drawer by a random amount, half of the time."""
        world.data.joint("drawer").qpos[0] = max(0.0, rng.uniform(-1.0, 1.0)) * DRAWER_TRAVEL

    def update(self, world: World) -> None:
        """Do nothing: there are no scripted bodies."""

    def apply_event(self, world: World) -> None:
        """Do nothing: there are no scripted events."""

    def opening(self, world: World) -> float:
        """Opening of the drawer [m]."""
        return float(world.data.joint("drawer").qpos[0])

    def _handle(self, world: World) -> Float[np.ndarray, "3"]:
        p = self._cabinet + (HANDLE_X + self.opening(world)) * self._out
        return np.array([*p, HANDLE_Z])

    def environment_state(self, world: World) -> Float[np.ndarray, "9"]:
        """In B: cup (3), handle (3) [m]; opening of the drawer (1) [m]; its opening direction (2)."""
        x_WB = world.x_WB
        return np.concatenate(
            [
                in_base(x_WB, world.data.joint("cup").qpos[:3]),
                in_base(x_WB, self._handle(world)),
                [self.opening(world)],
                turn_planar(self._out, -x_WB[2]),
            ]
        )

    def make_scorer(self, world: World) -> Scorer:
        return HouseholdScorer(self, t_start_ns=world.t_start_ns)

    def stage(self, world: World, reached: int) -> int:
        cup = world.data.joint("cup").qpos[:3]
        lifted = cup[2] > TABLE_Z + CUP_HALF_HEIGHT + 0.05
        done = (self.opening(world) > OPEN, lifted, self.is_in_drawer(world))
        while reached < len(done) and done[reached]:
            reached += 1
        return reached

    def is_in_drawer(self, world: World) -> bool:
        """Whether the cup lies in the drawer."""
        cup = world.data.joint("cup").qpos[:3]
        along = float((cup[:2] - self._cabinet) @ self._out) - self.opening(world)
        across = float(abs((cup[:2] - self._cabinet) @ np.array([-self._out[1], self._out[0]])))
        inside = DRAWER_BACK < along < DRAWER_FRONT and across < DRAWER_SIDE
        return inside and bool(DRAWER_FLOOR < cup[2] < DRAWER_WALL)

    def is_done(self, world: World) -> bool:
        """Whether the cup is in the drawer, and the drawer is closed and released."""
        hand = world.data.site("end_effector").xpos
        away = float(np.linalg.norm(hand - self._handle(world))) > HANDLE_HALF_HEIGHT
        open_hand = world.gripper_width > 2 * CUP_RADIUS
        return self.is_in_drawer(world) and self.opening(world) < CLOSED and (away or open_hand)

    def is_lost(self, world: World) -> bool:
        return bool(world.data.joint("cup").qpos[2] < 0.5)


def _add_cabinet(spec: mujoco.MjSpec) -> None:
    """Add the cabinet on a mocap body, its front towards +x, with the drawer on a slide joint."""
    depth, across, top = *CABINET_HALF, 0.73
    cabinet = spec.worldbody.add_body(name="cabinet", mocap=True)
    low, high = DRAWER_FLOOR - 0.03, top - 0.01
    shell = [
        ([-0.01, 0.0, low / 2], [depth - 0.02, across, low / 2]),
        ([-0.01, 0.0, top], [depth - 0.02, across, 0.01]),
        ([-depth + 0.02, 0.0, (low + high) / 2], [0.01, across, (high - low) / 2]),
        ([-0.01, across - 0.02, (low + high) / 2], [depth - 0.02, 0.02, (high - low) / 2]),
        ([-0.01, 0.02 - across, (low + high) / 2], [depth - 0.02, 0.02, (high - low) / 2]),
    ]
    add_boxes(cabinet, "cabinet", shell, rgba=_SHELL, mass=_PANEL_KG)
    drawer = cabinet.add_body(name="drawer")
    drawer.add_joint(
        name="drawer",
        type=mujoco.mjtJoint.mjJNT_SLIDE,
        axis=[1.0, 0.0, 0.0],
        limited=True,
        range=[0.0, DRAWER_TRAVEL],
        damping=8.0,
        frictionloss=2.0,
    )
    middle, half = (DRAWER_BACK + DRAWER_FRONT) / 2, (DRAWER_FRONT - DRAWER_BACK) / 2
    wall_z, wall = (DRAWER_FLOOR + DRAWER_WALL) / 2, (DRAWER_WALL - DRAWER_FLOOR) / 2
    box = [
        ([middle, 0.0, DRAWER_FLOOR - 0.006], [half, DRAWER_SIDE, 0.006]),
        ([DRAWER_BACK - 0.006, 0.0, wall_z], [0.006, DRAWER_SIDE, wall]),
        ([middle, DRAWER_SIDE + 0.006, wall_z], [half, 0.006, wall]),
        ([middle, -DRAWER_SIDE - 0.006, wall_z], [half, 0.006, wall]),
    ]
    add_boxes(drawer, "drawer", box, rgba=_FRONT, mass=_PANEL_KG)
    front = [([DRAWER_FRONT + 0.01, 0.0, wall_z], [0.01, across - 0.005, wall + 0.015])]
    add_boxes(drawer, "drawer_front", front, rgba=_FRONT, mass=_PANEL_KG)
    reach = HANDLE_X - DRAWER_FRONT - 0.02
    bracket = [([HANDLE_X - reach / 2, 0.0, HANDLE_Z - HANDLE_HALF_HEIGHT], [reach / 2, 0.01, 0.008])]
    add_boxes(drawer, "bracket", bracket, rgba=_METAL, mass=_PANEL_KG)
    drawer.add_geom(
        name="handle",
        type=mujoco.mjtGeom.mjGEOM_CYLINDER,
        pos=[HANDLE_X, 0.0, HANDLE_Z],
        size=[HANDLE_RADIUS, HANDLE_HALF_HEIGHT, 0.0],
        friction=[1.0, 0.02, 0.001],
        mass=0.1,
        rgba=_METAL,
        **CONTACT,
    )
