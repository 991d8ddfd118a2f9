"""`describe`: what a LeRobot checkpoint says of itself, and the few words it lacks, as a `Sidecar`.

What the numbers of its state and of its actions are is in the dataset it was trained on, or has to be told.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from policies.lerobot import LeRobotPolicy, load_lerobot
from policies.lerobot_flow import FLOWS
from policies.lerobot_sidecar import Sidecar
from robot_runtime.core.action import (
    NS_PER_S,
    ActionField,
    ActionSpec,
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
)
from robot_runtime.core.schema import Schema
from robot_runtime.errors import CheckpointError, InvalidValueError
from robot_runtime.recorder import HAND_NAMES, joint_names, joint_velocity_names
from robot_runtime.server.engine import zero_observation

PICTURES = "observation.images."


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What the numbers of a dataset are."""

    state_names: tuple[str, ...]
    action_fields: tuple[ActionField, ...]
    fps: float

    @classmethod
    def of_dataset(cls, folder: Path) -> "Numbers":
        """Of one that was recorded here; InvalidValueError: its numbers have other names, or none."""
        path = folder / "meta" / "info.json"
        try:
            info = json.loads(path.read_text())
            state, action = (tuple(info["features"][key]["names"]) for key in ("observation.state", "action"))
            return cls(state_names=state, action_fields=_fields_of(action), fps=float(info["fps"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidValueError(
                f"{path} does not say what its numbers are: {error}. For joints and a gripper, say "
                "--joints and --gripper"
            ) from error

    @classmethod
    def of_joints(cls, num_joints: int, *, has_gripper: bool, fps: float, state_dim: int) -> "Numbers":
        """Joints, then the gripper, in the state and in actions; velocities after that if there is room."""
        names = (*joint_names(num_joints), *(("gripper_width",) if has_gripper else ()))
        with_speeds = (*names, *joint_velocity_names(num_joints))
        fields = (JointPosition(num_joints), *((GripperWidth(),) if has_gripper else ()))
        for state_names in (names, with_speeds):
            if len(state_names) == state_dim:
                return cls(state_names=state_names, action_fields=fields, fps=fps)
        robot = f"{num_joints} joints and {'a' if has_gripper else 'no'} gripper"
        raise CheckpointError(
            f"its state has {state_dim} numbers; {robot} make {len(names)}, or {len(with_speeds)} with "
            "velocities. If it is made of other parts, name the dataset it was trained on"
        )


def describe(
    folder: Path,
    *,
    dataset: Path | None = None,
    num_joints: int | None = None,
    has_gripper: bool = False,
    fps: float | None = None,
    tasks: tuple[str, ...] = (),
    joint_unit_rad: float = 1.0,
    gripper_unit_m: float = 1.0,
) -> Sidecar:
    """Write the sidecar of a checkpoint.

    dataset: that it was trained on; None takes the one its training noted, if it is still there.
    num_joints, has_gripper, fps: instead of a dataset: of the robot, and rows a second.
    tasks: texts it was trained on; none: any. joint_unit_rad, gripper_unit_m: as in `Sidecar`.
    CheckpointError: the folder holds no policy of LeRobot's, or one of other sizes.
    InvalidValueError: neither a dataset nor joints and rate are known.
    """
    from lerobot.configs.policies import PreTrainedConfig

    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {folder}")
    try:
        config = PreTrainedConfig.from_pretrained(folder)
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{folder} holds no policy of LeRobot's: {error}") from error
    state_dim = _size(config.robot_state_feature)
    if num_joints is not None and fps is not None:
        numbers = Numbers.of_joints(num_joints, has_gripper=has_gripper, fps=fps, state_dim=state_dim)
    elif (known := dataset or _noted_dataset(folder)) is not None:
        numbers = Numbers.of_dataset(known)
    else:
        raise InvalidValueError(
            f"{folder} does not say what its numbers are: give --joints and --fps, or --dataset"
        )
    sidecar = Sidecar(
        schema=_schema(config, numbers),
        action_spec=ActionSpec(fields=numbers.action_fields, horizon=1, dt_ns=round(NS_PER_S / numbers.fps)),
        state_names=numbers.state_names,
        tasks=tasks,
        adds_origin=False,
        joint_unit_rad=joint_unit_rad,
        gripper_unit_m=gripper_unit_m,
    )
    for what, columns, expected in (
        ("state has", state_dim, len(numbers.state_names)),
        ("actions have", _size(config.action_feature), sidecar.action_spec.dim),
    ):
        if columns != expected:
            raise CheckpointError(f"its {what} {columns} numbers; this robot's make {expected}")
    horizon = _horizon(folder, config, sidecar)
    sidecar = replace(sidecar, action_spec=replace(sidecar.action_spec, horizon=horizon))
    sidecar.save(folder)
    return sidecar


def _noted_dataset(folder: Path) -> Path | None:
    """Where the dataset was when LeRobot trained on it."""
    try:
        noted = json.loads((folder / "train_config.json").read_text())["dataset"]["root"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Path(noted) if noted and (Path(noted) / "meta" / "info.json").is_file() else None


def _schema(config: Any, numbers: Numbers) -> Schema:
    scene = config.env_state_feature
    return Schema(
        action_fields=numbers.action_fields,
        num_joints=sum(name in joint_names(len(numbers.state_names)) for name in numbers.state_names),
        has_gripper="gripper_width" in numbers.state_names,
        has_base="base_vx" in numbers.state_names,
        environment_state_dim=0 if scene is None else _size(scene),
        cameras=_cameras(config),
    )


def _fields_of(names: Sequence[str]) -> tuple[ActionField, ...]:
    """Columns of an action by the names that a recording gives them."""
    fields: list[ActionField] = []
    for kind, group in groupby(names, _kind):
        columns = tuple(group)
        known: dict[tuple[str, ...], ActionField] = {
            joint_names(len(columns)): JointPosition(len(columns)),
            HAND_NAMES: EndEffectorPose(),
            ("gripper_width",): GripperWidth(),
            ("base_x", "base_y", "base_yaw"): BasePose(),
            ("base_vx", "base_vy", "base_wz"): BaseTwist(),
        }
        if columns not in known:
            raise ValueError(f"there are no actions {', '.join(columns)} ({kind})")
        fields.append(known[columns])
    return tuple(fields)


def _kind(name: str) -> str:
    """What a column belongs to: base_x and base_vx are of two kinds."""
    kind = name.partition("_")[0]
    return "base twist" if name in ("base_vx", "base_vy", "base_wz") else kind


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


def _horizon(folder: Path, config: Any, sidecar: Sidecar) -> int:
    """Rows of a chunk: said, or found out by asking for one."""
    if config.type in FLOWS:
        return int(config.chunk_size)
    policy = load_lerobot(folder, sidecar=sidecar)
    assert isinstance(policy, LeRobotPolicy)
    seen = zero_observation(policy.schema, next(iter(policy.tasks), ""))
    return policy.predict([seen], [0]).shape[1]
