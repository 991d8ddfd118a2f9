"""What the household tasks share: rooms and furniture, an object to carry, and what is seen of them from B.

Furniture stands on mocap bodies, so every episode has it elsewhere; it does not move and nothing moves it.
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
"""Height and width of what the robot itself sees: small, so that a CPU keeps up [pixels]."""
TABLE_Z = 0.72
"""Height of table tops [m]."""
CUP_RADIUS, CUP_HALF_HEIGHT = 0.03, 0.05
SETTLED_S = 0.3
_PATH_STEP_NS = 20_000_000
_WOOD, _WALL = [0.72, 0.60, 0.46, 1.0], [0.85, 0.86, 0.84, 1.0]


def mobile_schema(scene: tuple[str, ...] = ()) -> Schema:
    """What the mobile robot offers: base rows from where it looked, the hand in the base, a gripper."""
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
    """A table with its top at TABLE_Z, on a mocap body; its origin on the floor under its middle."""
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
    """A box that stands on the floor, on a mocap body."""
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
    """A free cup that friction can hold; its origin in its middle."""
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
    """How far the base went against the way it was going.

    x(t - 1 s) ───────────────────► x(t + 1 s)      the way it is going
                 x(t + dt) ◄── x(t)                 counted: how far this leads back along it
    """

    def __init__(self) -> None:
        self._path: list[np.ndarray] = []
        self._next_ns = 0

    def on_tick(self, t_ns: int, x_WB: Float[np.ndarray, "3"]) -> None:
        """Take note of where the base is, or is led, at one control tick; times rise."""
        if t_ns >= self._next_ns:
            self._path.append(x_WB[:2])
            self._next_ns = t_ns + _PATH_STEP_NS

    def metres(self) -> float:
        """Total so far; where the base gets less than 2 cm on in two seconds, nothing counts."""
        path, half = np.array(self._path), NS_PER_S // _PATH_STEP_NS
        if len(path) <= 2 * half + 1:
            return 0.0
        way = path[2 * half :] - path[: -2 * half]
        length = np.linalg.norm(way, axis=1, keepdims=True)
        unit = np.divide(way, length, out=np.zeros_like(way), where=length > 0.02)
        steps = np.diff(path, axis=0)[half : half + len(way)]
        back = -(steps * unit[: len(steps)]).sum(axis=1)
        return float(back[back > 0.0].sum())


class BaseTravel:
    """How far the base went backwards, and how far it was led so."""

    def __init__(self) -> None:
        self._true, self._led = BackwardTravel(), BackwardTravel()

    def on_tick(self, t_ns: int, x_WB: Float[np.ndarray, "3"], command: Command) -> None:
        """Take note of one control tick: where the base is, and what is sent."""
        self._true.on_tick(t_ns, x_WB)
        if isinstance(command.base, BasePoseCommand):
            self._led.on_tick(t_ns, command.base.x_WB)

    def metrics(self) -> dict[str, float]:
        """Both totals [m]."""
        return {"backward_m": self._true.metres(), "led_backward_m": self._led.metres()}


class HouseholdTask(Protocol):
    """What the scorer asks a household task for."""

    @property
    def num_stages(self) -> int: ...

    def stage(self, world: World, reached: int) -> int:
        """How many stages are done now, given how many were before: it never falls."""
        ...

    def is_done(self, world: World) -> bool:
        """Whether all is now as it should be."""
        ...

    def is_lost(self, world: World) -> bool:
        """Whether it cannot be done any more: something lies on the floor."""
        ...


class HouseholdScorer:
    """Success: all is as it should be for a third of a second; progress by stage."""

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
    """Stand furniture at a place on the floor; for `Task.reset` only."""
    i = world.model.body(name).mocapid[0]
    world.data.mocap_pos[i] = *xy, 0.0
    world.data.mocap_quat[i] = np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)


def put_cup(world: World, xy: Float[np.ndarray, "2"], z: float, name: str = "cup") -> None:
    """Stand a cup with its foot at a height; for `Task.reset` only."""
    pose = world.data.joint(name).qpos
    pose[:2], pose[2], pose[3:] = xy, z + CUP_HALF_HEIGHT, (1.0, 0.0, 0.0, 0.0)


def in_base(x_WB: Float[np.ndarray, "3"], p_W: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """A point of the world (2 or 3 numbers) as the base sees it [m]."""
    (x, y, yaw), (px, py, *up) = x_WB.tolist(), p_W.tolist()
    return turn_planar(np.array([px - x, py - y, *up]), -yaw)
