"""`describe`: what a LeRobot checkpoint says of itself, and the few words it lacks, as a `Sidecar`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from policies.flow.features import FeatureConfig
from policies.lerobot import LeRobotPolicy, Sidecar, load_lerobot
from policies.lerobot_flow import FLOWS
from robot_runtime.core.action import NS_PER_S, ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.schema import Schema
from robot_runtime.errors import CheckpointError
from robot_runtime.server.engine import zero_observation

PICTURES = "observation.images."


def describe(
    folder: Path,
    *,
    num_joints: int,
    has_gripper: bool,
    fps: float,
    tasks: tuple[str, ...] = (),
    joint_unit_rad: float = 1.0,
    gripper_unit_m: float = 1.0,
) -> Sidecar:
    """Write the sidecar of a checkpoint whose actions are joints, and then the gripper if there is one.

    num_joints, has_gripper: of the robot. fps: rows a second. tasks: texts it was trained on; none: any.
    joint_unit_rad, gripper_unit_m: as in `Sidecar`.
    CheckpointError: the folder holds no policy of LeRobot's, or one for another robot, in numbers.
    """
    from lerobot.configs.policies import PreTrainedConfig

    try:
        config = PreTrainedConfig.from_pretrained(folder)
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{folder} holds no policy of LeRobot's: {error}") from error
    fields = (JointPosition(num_joints), *((GripperWidth(),) if has_gripper else ()))
    spec = ActionSpec(fields=fields, horizon=1, dt_ns=round(NS_PER_S / fps))
    robot = f"{num_joints} joints and {'a' if has_gripper else 'no'} gripper"
    if (columns := _size(config.action_feature)) != spec.dim:
        raise CheckpointError(f"its actions have {columns} columns; {robot} make {spec.dim}")
    scene = config.env_state_feature
    sidecar = Sidecar(
        schema=Schema(
            action_fields=fields,
            num_joints=num_joints,
            has_gripper=has_gripper,
            has_base=False,
            environment_state_dim=0 if scene is None else _size(scene),
            cameras=_cameras(config),
        ),
        action_spec=spec,
        features=_features(_size(config.robot_state_feature), num_joints, spec.dim, robot),
        tasks=tasks,
        adds_origin=False,
        joint_unit_rad=joint_unit_rad,
        gripper_unit_m=gripper_unit_m,
    )
    sidecar = replace(sidecar, action_spec=replace(spec, horizon=_horizon(folder, config, sidecar)))
    sidecar.save(folder)
    return sidecar


def _size(feature: Any) -> int:
    return 0 if feature is None else int(np.prod(feature.shape))


def _cameras(config: Any) -> dict[str, tuple[int, int]]:
    cameras = {}
    for key, feature in config.image_features.items():
        if not key.startswith(PICTURES):
            raise CheckpointError(f"its pictures are called {PICTURES}NAME, this one is {key!r}")
        name, (_, height, width) = key.removeprefix(PICTURES), feature.shape
        if not name.startswith("empty_camera"):  # which it fills itself
            cameras[name] = (height, width)
    return cameras


def _features(size: int, num_joints: int, num_measured: int, robot: str) -> FeatureConfig:
    for features, expected in (
        (FeatureConfig(use_hand_pose=False, use_joint_velocity=False), num_measured),
        (FeatureConfig(use_hand_pose=False, use_joint_velocity=True), num_measured + num_joints),
    ):
        if size == expected:
            return features
    raise CheckpointError(
        f"its state has {size} numbers; {robot} make {num_measured}, or {num_measured + num_joints} with "
        "velocities. If it is made of more, `robot_runtime.json` has to be written by hand"
    )


def _horizon(folder: Path, config: Any, sidecar: Sidecar) -> int:
    """Rows of a chunk: said, or found out by asking for one."""
    if config.type in FLOWS:
        return int(config.chunk_size)
    policy = load_lerobot(folder, sidecar=sidecar)
    assert isinstance(policy, LeRobotPolicy)
    seen = zero_observation(policy.schema, next(iter(policy.tasks), ""))
    return policy.predict([seen], [0]).shape[1]
