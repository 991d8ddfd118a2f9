"""What a task is to the world and to an evaluation: `Task`, `Scorer`, `EpisodeScore`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import mujoco
import numpy as np
from jaxtyping import Float

from policies.flow.features import slices_of_points
from robot_runtime.core.env import EpisodeScore
from robot_runtime.core.values.action import (
    ActionField,
    Command,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
)
from robot_runtime.core.values.schema import ArmSchema, GripperSchema, PartSchema, Schema
from sim.scene.arms import FACING_MOUNTS

if TYPE_CHECKING:
    from sim.scene.world import World

CAMERA_SIZE = (224, 224)
"""(height, width) of both cameras [pixels]."""


def point(name: str) -> tuple[str, str, str]:
    """Names of its three coordinates."""
    return f"{name}.x", f"{name}.y", f"{name}.z"


def direction(name: str) -> tuple[str, str]:
    """Names of the two coordinates of a direction in the plane."""
    return f"{name}.x", f"{name}.y"


def robot_schema(scene: tuple[str, ...] = ()) -> Schema:
    """What the simulated FR3 offers: absolute joint rows with a gripper width, two cameras.

    scene: names of its scene quantities, in the order of `Task.environment_state`.
    """
    return Schema(
        action_fields=(JointPosition(7), GripperWidth()),
        num_joints=7,
        has_gripper=True,
        has_base=False,
        environment_state_dim=len(scene),
        environment_state_names=scene,
        cameras={"overview": CAMERA_SIZE, "wrist": CAMERA_SIZE},
    )


def two_arm_schema(scene: tuple[str, ...] = ()) -> Schema:
    """What two FR3s that face each other offer: hand poses with gripper widths, one camera in front, one at
    each wrist."""
    parts: dict[str, PartSchema] = {}
    fields: list[ActionField] = []
    for mount in FACING_MOUNTS:
        parts |= {mount.arm: ArmSchema(7), mount.gripper: GripperSchema()}
        fields += [EndEffectorPose(part=mount.arm), GripperWidth(part=mount.gripper)]
    return Schema(
        action_fields=tuple(fields),
        parts=parts,
        environment_state_dim=len(scene),
        environment_state_names=scene,
        cameras=dict.fromkeys(("overview", "chest", "left_wrist", "right_wrist"), CAMERA_SIZE),
    )


def with_picture_sizes(schema: Schema, sizes: Mapping[str, tuple[int, int]]) -> Schema:
    """The same robot with the cameras that are named here at those sizes: simulated ones have any."""
    cameras = {name: sizes.get(name, size) for name, size in schema.cameras.items()}
    return replace(schema, cameras=cameras)


@dataclass(frozen=True, kw_only=True)
class ObservationNoise:
    """How far off the tracker is that measures a scene: by noise, anew at every observation.

    Points (x, y) or (x, y, z) come first; the numbers after them are directions and lengths.
    """

    points: tuple[int, ...]
    """How many numbers each point has."""
    points_alike: bool = False
    """Whether what is at those of three numbers looks alike, for who sees them."""
    point_std: float = 0.0015
    """Of each coordinate of a point [m], to which comes ..."""
    distance_share: float = 0.004
    """... this share of its distance from B."""
    other_std: float = 0.003
    """Of everything else."""

    def measure(
        self, environment_state: Float[np.ndarray, " K"], rng: np.random.Generator
    ) -> Float[np.ndarray, " K"]:
        """The scene with noise."""
        std = np.full(len(environment_state), self.other_std)
        for point in slices_of_points(self.points):
            distance = float(np.hypot(*environment_state[point][:2]))
            std[point] = self.point_std + self.distance_share * distance
        return environment_state + std * rng.standard_normal(len(std))


class HeldFor:
    """When something had first been true for `hold_s` [s] on end."""

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        self._since_ns: int | None = None
        self.done_ns: int | None = None
        """The first time that it had been [ns]; None if it has not been yet."""

    def on_tick(self, t_ns: int, *, holds: bool) -> None:
        """Take note of whether it is true at one control tick."""
        if not holds:
            self._since_ns = None
        elif self._since_ns is None:
            self._since_ns = t_ns
        elif self.done_ns is None and t_ns - self._since_ns >= self._hold_s * 1e9:
            self.done_ns = t_ns


class Scorer(Protocol):
    """Watches one episode, tick by tick."""

    def on_tick(self, t_ns: int, world: World, command: Command, t_obs_ns: int | None) -> None:
        """Take note of one control tick.

        t_ns: time of the tick, within the episode and increasing [ns].
        command: what is sent at this tick.
        t_obs_ns: capture time of the observation that the command's plan answers [ns]; None while holding.
        """
        ...

    @property
    def is_done(self) -> bool:
        """True as soon as the verdict cannot change any more."""
        ...

    def score(self) -> EpisodeScore: ...


@runtime_checkable
class DoneInParts(Protocol):
    """A task in which the robot changes more of the scene than where things are."""

    def randomize_progress(self, world: World, rng: np.random.Generator) -> None:
        """Right after `reset`: change it as it may be anywhere in an episode."""
        ...


class Task(Protocol):
    """One thing to do; holds what was drawn for the current episode, so each world has its own."""

    @property
    def name(self) -> str: ...

    @property
    def instruction(self) -> str:
        """The task in words, as policies hear it."""
        ...

    @property
    def schema(self) -> Schema: ...

    @property
    def episode_s(self) -> float:
        """Time limit of an episode [s]."""
        ...

    @property
    def observation_noise(self) -> ObservationNoise | None:
        """What errs in the scene quantities that the robot is told; None: nothing."""
        ...

    @property
    def workspace_height(self) -> float:
        """Height of what the hand works at, over B [m]."""
        ...

    def add_objects(self, spec: mujoco.MjSpec) -> None:
        """Put the task's bodies into the scene; the world frame is B."""
        ...

    def reset(self, world: World, rng: np.random.Generator) -> None:
        """Draw an episode and put arm, gripper and objects where it starts."""
        ...

    def update(self, world: World) -> None:
        """Move what moves by itself (mocap bodies without contacts) to where it is at `world.t_ns`.

        Called after every advance and not after every step: has to be a function of the time and of what
        `reset` drew, and must not touch the physics.
        """
        ...

    def apply_event(self, world: World) -> int | None:
        """Do to the physics what is due at `world.t_ns` and no law of it brings; when to be called next.

            asked for
                |
            |---.---|-------|       called at the first step at or after the time that was asked for,
           step    step   step      before anybody can look

        Called once after `reset`, and then at times that only the task decides, so that what comes does not
        depend on how the world is advanced. Returns the next time, later than now [ns, on the world's clock],
        or None for never.
        """
        ...

    def environment_state(self, world: World) -> Float[np.ndarray, " K"]:
        """The scene quantities that a tracker without errors would measure now, in B."""
        ...

    def make_scorer(self, world: World) -> Scorer:
        """A scorer for the episode that starts now."""
        ...
