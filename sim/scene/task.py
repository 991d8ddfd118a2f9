"""Interfaces of a task for the world and for evaluation: `Task`, `Scorer`, `EpisodeScore`."""

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
    """Names of a point's three coordinates."""
    return f"{name}.x", f"{name}.y", f"{name}.z"


def direction(name: str) -> tuple[str, str]:
    """Names of the two coordinates of a planar direction."""
    return f"{name}.x", f"{name}.y"


def robot_schema(scene: tuple[str, ...] = ()) -> Schema:
    """Schema of the simulated FR3: absolute joint rows with a gripper width, two cameras.

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
    """Schema of two FR3s that face each other: end-effector poses with gripper widths, overview, chest and
    wrist cameras."""
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
    """The same schema with other image sizes of the named cameras."""
    cameras = {name: sizes.get(name, size) for name, size in schema.cameras.items()}
    return replace(schema, cameras=cameras)


@dataclass(frozen=True, kw_only=True)
class ObservationNoise:
    """Noise of the tracker that measures a scene, drawn for every observation.

    Points (x, y) or (x, y, z) come first; the numbers after them are directions and lengths.
    """

    points: tuple[int, ...]
    """Number of coordinates of each point."""
    points_alike: bool = False
    """Whether the objects at the points with three coordinates look alike."""
    point_std: float = 0.0015
    """Constant part of the standard deviation of a point's coordinates [m]."""
    distance_share: float = 0.004
    """Part proportional to its distance from B."""
    other_std: float = 0.003
    """Standard deviation of all other numbers."""

    def measure(
        self, environment_state: Float[np.ndarray, " K"], rng: np.random.Generator
    ) -> Float[np.ndarray, " K"]:
        """The scene state with noise."""
        std = np.full(len(environment_state), self.other_std)
        for point in slices_of_points(self.points):
            distance = float(np.hypot(*environment_state[point][:2]))
            std[point] = self.point_std + self.distance_share * distance
        return environment_state + std * rng.standard_normal(len(std))


class HeldFor:
    """Finds when a condition first held for `hold_s` [s] without interruption."""

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        self._since_ns: int | None = None
        self.done_ns: int | None = None
        """The first time at which it had [ns]; None: not yet."""

    def on_tick(self, t_ns: int, *, holds: bool) -> None:
        """Process whether the condition holds at one control tick."""
        if not holds:
            self._since_ns = None
        elif self._since_ns is None:
            self._since_ns = t_ns
        elif self.done_ns is None and t_ns - self._since_ns >= self._hold_s * 1e9:
            self.done_ns = t_ns


class Scorer(Protocol):
    """Scores one episode, tick by tick."""

    def on_tick(self, t_ns: int, world: World, command: Command, t_obs_ns: int | None) -> None:
        """Process one control tick.

        t_ns: time of the tick, within the episode and increasing [ns].
        command: sent at this tick.
        t_obs_ns: capture time of the observation behind the command's plan [ns]; None while holding.
        """
        ...

    @property
    def is_done(self) -> bool:
        """True once the verdict is final."""
        ...

    def score(self) -> EpisodeScore: ...


@runtime_checkable
class DoneInParts(Protocol):
    """A task with progress that is not only the positions of things."""

    def randomize_progress(self, world: World, rng: np.random.Generator) -> None:
        """Right after `reset`, set the progress to that of a random moment of an episode."""
        ...


class Task(Protocol):
    """One task; it holds the current episode's random draws, so each world has its own."""

    @property
    def name(self) -> str: ...

    @property
    def instruction(self) -> str:
        """The instruction for policies."""
        ...

    @property
    def schema(self) -> Schema: ...

    @property
    def episode_s(self) -> float:
        """Time limit of an episode [s]."""
        ...

    @property
    def observation_noise(self) -> ObservationNoise | None:
        """Noise of the observed scene state; None: no noise."""
        ...

    @property
    def workspace_height(self) -> float:
        """Height of the work surface over B [m]."""
        ...

    def add_objects(self, spec: mujoco.MjSpec) -> None:
        """Add the task's bodies to the scene; the world frame is B."""
        ...

    def reset(self, world: World, rng: np.random.Generator) -> None:
        """Draw an episode and place arm, gripper and objects at its start."""
        ...

    def update(self, world: World) -> None:
        """Move scripted bodies (mocap bodies without contacts) to their poses at `world.t_ns`.

        Called after every advance, not after every step: must depend only on the time and on what `reset`
        drew, and must not affect the physics.
        """
        ...

    def apply_event(self, world: World) -> int | None:
        """Apply the scripted change of the physics that is due at `world.t_ns`; returns the next call's time.

            requested
                |
            |---.---|-------|       called at the first step at or after the requested time,
           step    step   step      before the state can be read

        Called once after `reset`, and then at times that only the task decides, so that the outcome does not
        depend on how the world is advanced. The returned time is later than now [ns, on the world's clock];
        None: never again.
        """
        ...

    def environment_state(self, world: World) -> Float[np.ndarray, " K"]:
        """The scene state that a tracker without errors would measure now, in B."""
        ...

    def make_scorer(self, world: World) -> Scorer:
        """Make a scorer for the episode that starts now."""
        ...
