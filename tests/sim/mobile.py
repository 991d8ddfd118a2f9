"""A mobile robot on an empty floor."""

import mujoco
import numpy as np

from robot_runtime.core.values.action import BasePose, EndEffectorPose, GripperWidth
from robot_runtime.core.values.schema import Schema
from sim.scene.kinematics import Q_HOME
from sim.scene.model import MAX_WIDTH
from sim.scene.task import Scorer
from sim.scene.world import World


class EmptyFloor:
    name = "empty_floor"
    instruction = "do as you like"
    observation_noise, workspace_height = None, 0.0
    schema = Schema(
        action_fields=(BasePose(), EndEffectorPose(), GripperWidth()),
        num_joints=7,
        has_gripper=True,
        has_base=True,
    )
    episode_s = 10.0

    def add_objects(self, spec: mujoco.MjSpec) -> None:
        spec.worldbody.add_geom(
            name="post", type=mujoco.mjtGeom.mjGEOM_CYLINDER, pos=[2.0, 1.0, 0.5], size=[0.05, 0.5, 0.0]
        )

    def reset(self, world: World, rng: np.random.Generator) -> None:
        world.place_base(np.array([0.5, -0.2, rng.uniform(-0.5, 0.5)]))
        world.place_robot(np.array(Q_HOME), MAX_WIDTH)

    def update(self, world: World) -> None: ...

    def apply_event(self, world: World) -> None: ...

    def environment_state(self, world: World) -> np.ndarray:
        return np.zeros(0)

    def make_scorer(self, world: World) -> Scorer:
        raise NotImplementedError
