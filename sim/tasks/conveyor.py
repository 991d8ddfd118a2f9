"""`conveyor`: grasp a cube from a belt whose speed and direction change at random, and lift it.

        y  (along the belt)
    ════╪═════════════════════════════╪════
        │      <── [cube] ──>         │        speed and sign drawn at every change
    ════╪═════════════════════════════╪════
     REACH_MIN                     REACH_MAX

The belt runs at constant velocity for MIN_SEGMENT_S plus an exponentially distributed time (MAX_SEGMENT_S at
most), so the time of a change does not depend on how long it has run. Then sign and speed are drawn,
independent of the past, repeatedly until a cube on the belt would stay within reach until the next change.

The cube is carried by friction and grasped by friction. In the physics the belt is a long slab on a slide
joint, so heavy that nothing brakes it, whose velocity is set; its ends are always far away. Cameras see a
short belt with moving marks.
"""

from dataclasses import dataclass

import mujoco
import numpy as np
import pinocchio as pin
from jaxtyping import Float

from robot_runtime.core.values.action import Command
from robot_runtime.core.values.schema import Schema
from sim.episodes.reactions import Reactions
from sim.scene.kinematics import Q_HOME, R_DOWN
from sim.scene.model import MAX_WIDTH, ROBOT, SCENE
from sim.scene.task import EpisodeScore, HeldFor, Scorer, point, robot_schema
from sim.scene.world import World
from sim.tasks.cube import CUBE_SIZE, add_cube, yaw_from_quaternion
from sim.tasks.segments import Segments

BELT_X, BELT_HALF_WIDTH, BELT_Z = 0.50, 0.08, 0.03
"""Centre and half width of the belt along x, and height of its surface [m]."""
BELT_HALF_LENGTH = 0.44
REACH_MIN, REACH_MAX = -0.24, 0.24
"""Range of the cube along y [m]."""
SPEED_MIN, SPEED_MAX = 0.08, 0.20
MIN_SEGMENT_S, MEAN_EXTRA_S, MAX_SEGMENT_S = 0.5, 0.6, 2.4
CUBE_X_MAX, CUBE_YAW_MAX = 0.025, 0.4
"""Largest initial distance from the belt's centre line [m], and yaw [rad]."""
CUBE_ON_BELT_Z = BELT_Z + CUBE_SIZE / 2
HAND_MIN, HAND_MAX = np.array([0.44, -0.15, 0.20]), np.array([0.56, 0.15, 0.30])
HAND_YAW = np.pi / 2
"""Yaw of a hand whose fingers open across the belt [rad]."""
_BELT_MASS = 1e5
LIFT, HOLD_S = 0.10, 0.5
"""Height above the belt at which the cube has to be held [m], and for how long [s]."""
_BELT, _NUM_CANDIDATES, _NUM_MARKS = 4, 64, 8


@dataclass(frozen=True, kw_only=True)
class Run:
    """Motion of the belt from `t_ns` to `end_ns`, relative to the start of the episode."""

    t_ns: int
    end_ns: int
    y: float
    """Position along y of a cube on the belt at `t_ns` [m]."""
    v: float
    """Velocity along y [m/s]."""

    def position(self, t_ns: int) -> float:
        """Position along y of a cube on the belt at a time of the episode [m]."""
        return self.y + self.v * (t_ns - self.t_ns) / 1e9


def draw_run(t_ns: int, y: float, rng: np.random.Generator) -> Run:
    """Draw a run that keeps the cube within reach, and depends on nothing else."""
    duration_s = min(MIN_SEGMENT_S + rng.exponential(MEAN_EXTRA_S), MAX_SEGMENT_S)
    velocities = rng.uniform(SPEED_MIN, SPEED_MAX, _NUM_CANDIDATES) * rng.choice([-1, 1], _NUM_CANDIDATES)
    ends = y + velocities * duration_s
    inside = (ends >= REACH_MIN) & (ends <= REACH_MAX)
    v = float(velocities[int(np.argmax(inside))]) if inside.any() else float(-np.copysign(SPEED_MIN, y))
    return Run(t_ns=t_ns, end_ns=t_ns + int(1e9 * duration_s), y=y, v=v)


class Conveyor:
    """The task of a belt and a cube."""

    name = "conveyor"
    instruction = "pick the cube up from the moving belt"
    observation_noise, workspace_height = None, 0.0
    schema: Schema = robot_schema((*point("cube"), "belt.vy", "cube.sin_4yaw", "cube.cos_4yaw"))
    episode_s = 6.0

    def __init__(self) -> None:
        self._begin(0.0, np.random.default_rng(0))

    def _begin(self, y: float, rng: np.random.Generator) -> None:
        self.runs = Segments(
            draw_run(0, y, rng), lambda last: draw_run(last.end_ns, last.position(last.end_ns), rng)
        )

    def add_objects(self, spec: mujoco.MjSpec) -> None:
        add_cube(spec, np.array([BELT_X, 0.0, CUBE_ON_BELT_Z]), conaffinity=ROBOT | SCENE | _BELT)
        _add_belt(spec)

    def reset(self, world: World, rng: np.random.Generator) -> None:
        hand, hand_yaw = rng.uniform(HAND_MIN, HAND_MAX), HAND_YAW + rng.uniform(-0.2, 0.2)
        X_BE = pin.SE3(pin.utils.rotate("z", hand_yaw) @ R_DOWN, hand)
        world.place_robot(world.kinematics.solve(X_BE, np.array(Q_HOME)), MAX_WIDTH)
        x, y = BELT_X + rng.uniform(-CUBE_X_MAX, CUBE_X_MAX), rng.uniform(REACH_MIN, REACH_MAX)
        yaw = rng.uniform(-CUBE_YAW_MAX, CUBE_YAW_MAX)
        self._begin(y, rng)
        cube = world.data.joint("cube")
        cube.qpos[:] = x, y, CUBE_ON_BELT_Z, np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)
        cube.qvel[1] = self.runs.at(0).v

    def change_times_ns(self, until_ns: int) -> list[int]:
        """Times of changes up to and including `until_ns`, from the start of the episode."""
        return self.runs.change_times_ns(until_ns)

    def update(self, world: World) -> None:
        """Move the marks with the belt, wrapping around at its ends."""
        travel = float(world.data.joint("belt").qpos[0])
        pitch = 2 * BELT_HALF_LENGTH / _NUM_MARKS
        along = (travel + pitch * np.arange(_NUM_MARKS)) % (2 * BELT_HALF_LENGTH) - BELT_HALF_LENGTH
        world.data.mocap_pos[:, 1] = along

    def apply_event(self, world: World) -> int | None:
        """Set the belt's velocity to that of the current run."""
        run = self.runs.at(world.t_ns - world.t_start_ns)
        world.data.joint("belt").qvel[0] = run.v
        return world.t_start_ns + run.end_ns

    def environment_state(self, world: World) -> Float[np.ndarray, "6"]:
        """Cube in B: position (3) [m]; velocity of the belt along y [m/s]; sine and cosine of four times the
        cube's yaw.
        """
        cube = world.data.joint("cube").qpos
        yaw = yaw_from_quaternion(cube[3:])
        v = self.runs.at(world.t_ns - world.t_start_ns).v
        return np.array([*cube[:3], v, np.sin(4 * yaw), np.cos(4 * yaw)])

    def make_scorer(self, world: World) -> Scorer:
        return ConveyorScorer(self, t_start_ns=world.t_start_ns)


def _add_belt(spec: mujoco.MjSpec) -> None:
    """Add slab and joint for the physics; surface, rollers and marks for cameras."""
    box, cylinder = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER
    seen = {"contype": 0, "conaffinity": 0}
    slab = spec.worldbody.add_body(name="belt", pos=[BELT_X, 0.0, BELT_Z / 2], gravcomp=1.0)
    slab.add_joint(name="belt", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[0.0, 1.0, 0.0])
    slab.add_geom(
        name="belt",
        type=box,
        size=[BELT_HALF_WIDTH, 3.0, BELT_Z / 2],
        mass=_BELT_MASS,
        friction=[1.0, 0.02, 0.001],
        contype=_BELT,
        conaffinity=ROBOT,
        group=3,
    )
    colour, width = [0.25, 0.26, 0.28, 1.0], BELT_HALF_WIDTH
    middle = [BELT_X, 0.0, BELT_Z / 2]
    size = [width, BELT_HALF_LENGTH, BELT_Z / 2]
    spec.worldbody.add_geom(name="surface", type=box, pos=middle, size=size, rgba=colour, **seen)
    along_x = [np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0]
    for side in (-1, 1):
        pos = [BELT_X, side * BELT_HALF_LENGTH, BELT_Z / 2]
        size = [BELT_Z / 2, width, 0.0]
        spec.worldbody.add_geom(type=cylinder, pos=pos, quat=along_x, size=size, rgba=colour, **seen)
        pos, size = [BELT_X + side * (width + 0.006), 0.0, 0.014], [0.006, BELT_HALF_LENGTH, 0.014]
        spec.worldbody.add_geom(type=box, pos=pos, size=size, rgba=[0.60, 0.63, 0.67, 1.0], **seen)
    for i in range(_NUM_MARKS):
        mark = spec.worldbody.add_body(name=f"mark_{i}", mocap=True, pos=[BELT_X, 0.0, BELT_Z])
        mark.add_geom(type=box, size=[width, 0.004, 0.0005], rgba=[0.80, 0.72, 0.30, 1.0], **seen)


class ConveyorScorer:
    """Success: the cube is LIFT above the belt, between the fingers, for HOLD_S without interruption.

    A cube that falls off the belt fails the episode.
    """

    def __init__(self, task: Conveyor, *, t_start_ns: int) -> None:
        self._task, self._t_start_ns = task, t_start_ns
        self._lifted = HeldFor(HOLD_S)
        self._is_lost = False
        self._num_closings, self._was_closed = 0, False
        self.reactions = Reactions(task.change_times_ns, t_start_ns=t_start_ns)

    def on_tick(self, t_ns: int, world: World, command: Command, t_obs_ns: int | None) -> None:
        self.reactions.on_tick(t_ns, t_obs_ns)
        p_BO = self._task.environment_state(world)[:3]
        self._is_lost |= bool(p_BO[2] < CUBE_ON_BELT_Z - 0.01 or abs(p_BO[1]) > BELT_HALF_LENGTH)
        is_closed = world.gripper_width < CUBE_SIZE + 0.003
        self._num_closings += is_closed and not self._was_closed
        self._was_closed = is_closed
        self._lifted.on_tick(t_ns, holds=is_lifted(world))

    @property
    def is_done(self) -> bool:
        return self._lifted.done_ns is not None or self._is_lost

    def score(self) -> EpisodeScore:
        done = self._lifted.done_ns
        metrics = {"num_closings": float(self._num_closings), "was_lost": float(self._is_lost)}
        return EpisodeScore(
            success=done is not None,
            completion_s=None if done is None else (done - self._t_start_ns) / 1e9,
            metrics=metrics | self.reactions.metrics(),
            reactions_s=self.reactions.times_s,
        )


def is_lifted(world: World) -> bool:
    """Whether the gripper holds the cube LIFT above its height on the belt."""
    p_BO = world.task.environment_state(world)[:3]
    p_BE = world.kinematics.forward(world.q).translation
    is_held = np.linalg.norm(p_BO - p_BE) < 0.03 and world.gripper_width > 0.8 * CUBE_SIZE
    return bool(is_held and p_BO[2] >= CUBE_ON_BELT_Z + LIFT)
