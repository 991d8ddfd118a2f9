"""`pick_place`: bring a cube into the tray on the other side of a wall, round its near or its far end.

  x (away from the robot)
  |        far path
  |    cube  |W|  tray        the wall is at y = 0, from x = 0.44 to 0.56, and is too tall to pass
  |          |W|              over it with the cube in the usual posture
  |        near path
--B------------------ y       cube at y < 0, tray at y > 0
"""

import mujoco
import numpy as np
import pinocchio as pin
from jaxtyping import Float

from robot_runtime.core.values.action import Command
from robot_runtime.core.values.schema import Schema
from sim.scene.kinematics import Q_HOME, R_DOWN
from sim.scene.model import MAX_WIDTH, ROBOT, SCENE
from sim.scene.task import EpisodeScore, HeldFor, Scorer, point, robot_schema
from sim.scene.world import World
from sim.tasks.cube import CUBE_SIZE, add_cube, yaw_from_quaternion
from sim.tasks.tray import TRAY_FLOOR, TRAY_HALF, add_tray

CUBE_MIN, CUBE_MAX = np.array([0.43, -0.30]), np.array([0.57, -0.20])
CUBE_YAW_MAX = 0.6
"""Largest initial yaw of the cube [rad]; it looks the same after a quarter turn."""
HAND_MIN, HAND_MAX = np.array([0.42, -0.28, 0.26]), np.array([0.58, -0.12, 0.34])
WALL_P, WALL_HALF = np.array([0.50, 0.0, 0.12]), np.array([0.06, 0.015, 0.12])
TRAY_P = np.array([0.50, 0.27, 0.0])
CUBE_IN_TRAY_Z = TRAY_FLOOR + CUBE_SIZE / 2
MAX_WALL_FORCE_N = 10.0
_SETTLED_S = 0.2


class PickPlace:
    """The task of a cube, a wall and a tray."""

    name = "pick_place"
    instruction = "put the cube into the tray behind the wall"
    observation_noise, workspace_height = None, 0.0
    schema: Schema = robot_schema((*point("cube"), "cube.sin_4yaw", "cube.cos_4yaw"))
    episode_s = 15.0

    def add_objects(self, spec: mujoco.MjSpec) -> None:
        box = mujoco.mjtGeom.mjGEOM_BOX
        contact = {"contype": SCENE, "conaffinity": ROBOT | SCENE}
        add_cube(spec, np.array([0.5, -0.25, CUBE_SIZE / 2]))
        spec.worldbody.add_geom(
            name="wall", type=box, pos=WALL_P, size=WALL_HALF, rgba=[0.30, 0.45, 0.70, 1.0], **contact
        )
        add_tray(spec.worldbody, TRAY_P)

    def reset(self, world: World, rng: np.random.Generator) -> None:
        hand, hand_yaw = rng.uniform(HAND_MIN, HAND_MAX), rng.uniform(-0.2, 0.2)
        X_BE = pin.SE3(pin.utils.rotate("z", hand_yaw) @ R_DOWN, hand)
        world.place_robot(world.kinematics.solve(X_BE, np.array(Q_HOME)), MAX_WIDTH)
        yaw = rng.uniform(-CUBE_YAW_MAX, CUBE_YAW_MAX)
        cube = world.data.joint("cube").qpos
        cube[:2], cube[2] = rng.uniform(CUBE_MIN, CUBE_MAX), CUBE_SIZE / 2
        cube[3:] = np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)

    def update(self, world: World) -> None:
        """Do nothing: there are no scripted bodies."""

    def apply_event(self, world: World) -> None:
        """Do nothing: there are no scripted events."""

    def environment_state(self, world: World) -> Float[np.ndarray, "5"]:
        """Cube in B: position (3) [m], then sine and cosine of four times its yaw."""
        cube = world.data.joint("cube").qpos
        yaw = yaw_from_quaternion(cube[3:])
        return np.array([*cube[:3], np.sin(4 * yaw), np.cos(4 * yaw)])

    def make_scorer(self, world: World) -> Scorer:
        return PickPlaceScorer(t_start_ns=world.t_start_ns)


class PickPlaceScorer:
    """Success: for a fifth of a second the cube lies in the tray, released, with the hand retracted.

    Any contact of arm, hand or cube with the wall above MAX_WALL_FORCE_N fails the episode.
    """

    def __init__(self, *, t_start_ns: int) -> None:
        self._t_start_ns = t_start_ns
        self._placed = HeldFor(_SETTLED_S)
        self._wall_force = 0.0
        self._side: float = 0.0

    def on_tick(self, t_ns: int, world: World, command: Command, t_obs_ns: int | None) -> None:
        self._wall_force = max(self._wall_force, wall_force(world))
        p_BO = world.task.environment_state(world)[:3]
        if abs(p_BO[1]) < 0.02:
            self._side = float(np.sign(p_BO[0] - WALL_P[0]))
        self._placed.on_tick(t_ns, holds=is_placed(world))

    @property
    def is_done(self) -> bool:
        return self._placed.done_ns is not None or self._wall_force > MAX_WALL_FORCE_N

    def score(self) -> EpisodeScore:
        done = self._placed.done_ns if self._wall_force <= MAX_WALL_FORCE_N else None
        return EpisodeScore(
            success=done is not None,
            completion_s=None if done is None else (done - self._t_start_ns) / 1e9,
            metrics={"wall_force_max_N": self._wall_force, "side": self._side},
        )


def is_placed(world: World) -> bool:
    """Whether the cube lies still in the tray, with the fingers open and 5 cm above it."""
    p_BO = world.task.environment_state(world)[:3]
    inside = np.abs(p_BO[:2] - TRAY_P[:2]).max() < TRAY_HALF - CUBE_SIZE / 4
    lies = abs(p_BO[2] - CUBE_IN_TRAY_Z) < 0.01
    hand_z = world.kinematics.forward(world.q).translation[2]
    still = np.abs(world.data.joint("cube").qvel[:3]).max() < 0.05
    is_released = world.gripper_width > CUBE_SIZE + 0.01 and hand_z > p_BO[2] + 0.05
    return bool(inside and lies and still and is_released)


def wall_force(world: World) -> float:
    """Strongest contact with the wall in the last physics step [N]."""
    wall = world.model.geom("wall").id
    strongest, wrench = 0.0, np.zeros(6)
    for i in np.flatnonzero((world.data.contact.geom == wall).any(axis=1)):
        mujoco.mj_contactForce(world.model, world.data, int(i), wrench)
        strongest = max(strongest, float(np.linalg.norm(wrench[:3])))
    return strongest
