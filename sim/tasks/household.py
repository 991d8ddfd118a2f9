"""Shared by the household tasks: rooms and furniture, objects to carry, scoring, and poses seen from B.

Furniture is on mocap bodies, placed anew in every episode; it does not move during one.
"""

from typing import Protocol

import mujoco
import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.action import (
    NS_PER_S,
    BasePose,
    BasePoseCommand,
    Command,
    EndEffectorPose,
    GripperWidth,
    Reference,
)
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.transforms import turn_planar
from sim.scene.model import CONTACT
from sim.scene.task import CAMERA_SIZE, EpisodeScore, HeldFor
from sim.scene.world import World

EYE_SIZE = (96, 96)
"""Height and width of the robot's own cameras: small, so that a CPU keeps up [pixels]."""
TABLE_Z = 0.72
"""Height of table tops [m]."""
CUP_RADIUS, CUP_HALF_HEIGHT = 0.03, 0.05
SETTLED_S = 0.3
_PATH_STEP_NS = 20_000_000
_WOOD, _WALL = [0.72, 0.60, 0.46, 1.0], [0.85, 0.86, 0.84, 1.0]


def mobile_schema(scene: tuple[str, ...] = ()) -> Schema:
    """Schema of the mobile robot: base poses relative to the observed one, hand in the base, gripper."""
    return Schema(
        action_fields=(BasePose(Reference.RELATIVE), EndEffectorPose(), GripperWidth()),
        num_joints=7,
        has_gripper=True,
        has_base=True,
        environment_state_dim=len(scene),
        environment_state_names=scene,
        cameras={"overview": CAMERA_SIZE, "chest": EYE_SIZE, "wrist": EYE_SIZE},
    )


def add_table(spec: mujoco.MjSpec, name: str, *, half: tuple[float, float]) -> None:
    """Add a table with its top at TABLE_Z, on a mocap body with its origin on the floor at its centre."""
    table = spec.worldbody.add_body(name=name, mocap=True)
    box = mujoco.mjtGeom.mjGEOM_BOX
    table.add_geom(
        name=f"{name}_top",
        type=box,
        pos=[0.0, 0.0, TABLE_Z - 0.02],
        size=[*half, 0.02],
        rgba=_WOOD,
        **CONTACT,
    )
    table.add_geom(
        name=f"{name}_leg",
        type=box,
        pos=[0.0, 0.0, TABLE_Z / 2 - 0.02],
        size=[0.7 * half[0], 0.5 * half[1], TABLE_Z / 2 - 0.02],
        rgba=[0.55, 0.45, 0.35, 1.0],
        **CONTACT,
    )


def add_wall(spec: mujoco.MjSpec, name: str, *, half: tuple[float, float, float]) -> None:
    """Add a box on the floor, on a mocap body."""
    wall = spec.worldbody.add_body(name=name, mocap=True)
    wall.add_geom(
        name=name,
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[0.0, 0.0, half[2]],
        size=list(half),
        rgba=_WALL,
        **CONTACT,
    )


def add_cup(spec: mujoco.MjSpec, name: str = "cup") -> None:
    """Add a free cup that friction can hold; its origin is its centre."""
    cup = spec.worldbody.add_body(name=name)
    cup.add_freejoint(name=name)
    cup.add_geom(
        name=name,
        type=mujoco.mjtGeom.mjGEOM_CYLINDER,
        size=[CUP_RADIUS, CUP_HALF_HEIGHT, 0.0],
        mass=0.15,
        solref=[0.004, 1.0],
        friction=[1.0, 0.02, 0.001],
        condim=4,
        rgba=[0.85, 0.25, 0.20, 1.0],
        **CONTACT,
    )


class BackwardTravel:
    """Distance that the base backtracked against its direction of travel.

    x(t - 1 s) ───────────────────► x(t + 1 s)      direction of travel
                 x(t + dt) ◄── x(t)                 counted: the backward component of a step
    """

    def __init__(self) -> None:
        self._path: list[np.ndarray] = []
        self._next_ns = 0

    def on_tick(self, t_ns: int, x_WB: Float[np.ndarray, "3"]) -> None:
        """Process the measured or commanded base pose at one control tick; times must increase."""
        if t_ns >= self._next_ns:
            self._path.append(x_WB[:2])
            self._next_ns = t_ns + _PATH_STEP_NS

    def metres(self) -> float:
        """Total so far [m]; motion of less than 2 cm in two seconds does not count."""
        path, half = np.array(self._path), NS_PER_S // _PATH_STEP_NS
        if len(path) <= 2 * half + 1:
            return 0.0
        travel = path[2 * half :] - path[: -2 * half]
        length = np.linalg.norm(travel, axis=1, keepdims=True)
        unit = np.divide(travel, length, out=np.zeros_like(travel), where=length > 0.02)
        steps = np.diff(path, axis=0)[half : half + len(travel)]
        back = -(steps * unit[: len(steps)]).sum(axis=1)
        return float(back[back > 0.0].sum())


class BaseTravel:
    """Backtracking distances of the base and of its commands."""

    def __init__(self) -> None:
        self._true, self._commanded = BackwardTravel(), BackwardTravel()

    def on_tick(self, t_ns: int, x_WB: Float[np.ndarray, "3"], command: Command) -> None:
        """Process the true pose and the sent command of one control tick."""
        self._true.on_tick(t_ns, x_WB)
        if isinstance(command.base, BasePoseCommand):
            self._commanded.on_tick(t_ns, command.base.x_WB)

    def metrics(self) -> dict[str, float]:
        """Both totals [m]."""
        return {"backward_m": self._true.metres(), "led_backward_m": self._commanded.metres()}


class HouseholdTask(Protocol):
    """Interface of a household task for its scorer."""

    @property
    def num_stages(self) -> int: ...

    def stage(self, world: World, reached: int) -> int:
        """Number of completed stages, given the number so far."""
        ...

    def is_done(self, world: World) -> bool:
        """Whether the goal is reached at this moment."""
        ...

    def is_lost(self, world: World) -> bool:
        """Whether the task has become impossible: an object lies on the floor."""
        ...


class HouseholdScorer:
    """Success: the goal holds for a third of a second; progress by stage."""

    def __init__(self, task: HouseholdTask, *, t_start_ns: int) -> None:
        self._task, self._t_start_ns = task, t_start_ns
        self._done, self._travel = HeldFor(SETTLED_S), BaseTravel()
        self._stage, self._lost = 0, False

    def on_tick(self, t_ns: int, world: World, command: Command, t_obs_ns: int | None) -> None:
        self._done.on_tick(t_ns, holds=self._task.is_done(world))
        self._stage = self._task.stage(world, self._stage)
        self._lost = self._task.is_lost(world)
        self._travel.on_tick(t_ns, world.x_WB, command)

    @property
    def is_done(self) -> bool:
        return self._done.done_ns is not None or self._lost

    def score(self) -> EpisodeScore:
        done, why = self._done.done_ns, ""
        if done is None:
            why = f"its time was over at stage {self._stage} of {self._task.num_stages}"
        if done is None and self._lost:
            why = "something has fallen to the floor: it cannot be done any more"
        return EpisodeScore(
            success=done is not None,
            completion_s=None if done is None else (done - self._t_start_ns) / 1e9,
            metrics={
                "stage": float(self._stage if done is None else self._task.num_stages),
                **self._travel.metrics(),
            },
            why=why,
        )


def put(world: World, name: str, xy: Float[np.ndarray, "2"], *, yaw: float = 0.0) -> None:
    """Place furniture on the floor; for `Task.reset` only."""
    i = world.model.body(name).mocapid[0]
    world.data.mocap_pos[i] = *xy, 0.0
    world.data.mocap_quat[i] = np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)


def put_cup(world: World, xy: Float[np.ndarray, "2"], z: float, name: str = "cup") -> None:
    """Place a cup upright with its bottom at a height; for `Task.reset` only."""
    pose = world.data.joint(name).qpos
    pose[:2], pose[2], pose[3:] = xy, z + CUP_HALF_HEIGHT, (1.0, 0.0, 0.0, 0.0)


def in_base(x_WB: Float[np.ndarray, "3"], p_W: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """A point in the world (2 or 3 numbers), expressed in the base [m]."""
    (x, y, yaw), (px, py, *up) = x_WB.tolist(), p_W.tolist()
    return turn_planar(np.array([px - x, py - y, *up]), -yaw)
