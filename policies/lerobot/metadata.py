"""Declares what LeRobot's own files leave open: `PolicyMetadata`, the small file `policy.json` beside them.

It declares the meaning of action columns, the spacing of rows and the robot that is needed. From these follow
the conversion of our observations to LeRobot's and the origin of its rows.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Float
from msgspec import structs
from torch import Tensor

from policies.files import (
    METADATA,
    OLDER_METADATA,
    metadata_file,
    number,
    read_json,
    refuse_unknown,
    texts,
    value_of,
)
from policies.flow.features import FeatureConfig, state_features
from policies.flow.transfers import to_device
from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.sampler_parts import ConstantSchedule, SamplerPart
from robot_runtime.core.policy_info import PolicyInfo, checked_execution_horizon
from robot_runtime.core.values.action import (
    ActionSpec,
    GripperWidth,
    JointPosition,
    JointVelocity,
    RowTiming,
)
from robot_runtime.core.values.columns import HAND, command_columns, present_name, state_numbers
from robot_runtime.core.values.conventions import AS_IT_IS, Linear
from robot_runtime.core.values.row_statistics import row_origin
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import ArmState, GripperState, Observation, PartState, RobotState
from robot_runtime.dataset.recording import PICTURES
from robot_runtime.errors import CheckpointError

STATE, SCENE, ACTION = "observation.state", "observation.environment_state", "action"
TASK = "task"
CPU = torch.device("cpu")
SCENE_NUMBER = "scene_"
"""Prefix of the names of scene numbers, followed by their index."""


@dataclass(frozen=True, kw_only=True)
class PolicyMetadata:
    """Declares what LeRobot's own files leave open."""

    info: PolicyInfo
    """Rows as predicted, after `row_origin` is added; sampler parts that a flow was trained for, beside those
    that need no training."""
    state_names: tuple[str, ...] = ()
    """Names of the numbers of `observation.state`, as in a recording (`core.values.columns`)."""
    features: FeatureConfig | None = None
    """Replaces names: `state_features` without the scene, which is `observation.environment_state`."""
    adds_origin: bool = True
    """Whether absolute columns are predicted relative to the measured joints or end effector, as in our
    training."""
    joint_unit_rad: float = 1.0
    """Unit of its joint numbers [rad]: pi/180 for LeRobot's arms, which use degrees."""
    gripper_state: Linear = AS_IT_IS
    """Conversion of the gripper's number in the state to the distance of the fingers [m]."""
    gripper_action: Linear = AS_IT_IS
    """The same in an action."""
    picture_keys: Mapping[str, str] = field(default_factory=dict)
    """LeRobot's key of a camera's images, where it is not observation.images.CAMERA; not in the file, because
    the checkpoint has it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "state_names", tuple(map(present_name, self.state_names)))
        schema = self.info.schema
        looked_at = [name for name in schema.arms if {f"{name}.{x}" for x in HAND} & {*self.state_names}]
        if self.features is not None:
            looked_at = [*schema.arms] * self.features.needs_hand
        blind = {
            name: replace(arm, has_hand=False) for name, arm in schema.arms.items() if name not in looked_at
        }
        schema = replace(schema, parts={**schema.parts, **blind})
        object.__setattr__(self, "info", replace(self.info, schema=schema))

    def save(self, folder: Path) -> None:
        """Write the file beside LeRobot's, replacing one with the older name."""
        policy, timing = self.info.to_dict(), self.info.action_spec.timing
        assert timing is not None, "an action spec always has one"
        policy["action_spec"]["timing"] = timing.value  # also if it is our default, which is not LeRobot's
        data = {
            "policy": policy,
            "state_names": list(self.state_names),
            "features": None if self.features is None else asdict(self.features),
            "adds_origin": self.adds_origin,
            "joint_unit_rad": self.joint_unit_rad,
            "gripper_state": asdict(self.gripper_state),
            "gripper_action": asdict(self.gripper_action),
        }
        (folder / METADATA).write_text(json.dumps(data, indent=2) + "\n")
        (folder / OLDER_METADATA).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: Path) -> "PolicyMetadata":
        """Read the file of a folder; CheckpointError if it is missing or invalid."""
        path = metadata_file(folder)
        data = read_json(path)
        try:
            known = [f.name for f in fields(cls) if f.name not in ("info", "picture_keys")]
            refuse_unknown(data, [*known, *(("policy",) if "policy" in data else _OLDER_KEYS)])
            features = data.get("features")
            _default_timing(data)
            return cls(
                info=PolicyInfo.from_dict(data["policy"]) if "policy" in data else _older_info(data, folder),
                state_names=_different(tuple(map(present_name, texts(data, "state_names")))),
                features=None if features is None else value_of(FeatureConfig, features),
                adds_origin=value_of(bool, data.get("adds_origin", True)),
                joint_unit_rad=_unit(number(data, "joint_unit_rad", 1.0)),
                gripper_state=_gripper(data, "gripper_state"),
                gripper_action=_gripper(data, "gripper_action"),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path} does not describe a LeRobot policy: {error}") from error

    def seen(self, observations: Sequence[Observation], device: torch.device = CPU) -> dict[str, Any]:
        """A batch with LeRobot's names and units; ValueError names what an observation lacks.

        device: device of the images, which are copied as bytes; numbers are on the host.
        """
        theirs = [self._in_its_units(o) for o in observations]
        batch: dict[str, Any] = {TASK: [o.task for o in observations]}
        if self.features is not None:
            numbers = tensors_of(theirs, self.info.schema, self.features)
            return batch | numbers | self._pictures(theirs, device)
        if self.scene_dim:
            scenes = [o.environment_state[-self.scene_dim :] for o in theirs]
            batch[SCENE] = torch.from_numpy(np.array(scenes, np.float32))
        rows = np.array([self._state(o) for o in theirs], np.float32)
        if not np.isfinite(rows).all():
            raise ValueError("the state holds NaN or infinite numbers")
        return batch | {STATE: torch.from_numpy(rows)} | self._pictures(theirs, device)

    @property
    def scene_dim(self) -> int:
        """Size of `observation.environment_state`: the scene numbers that are not part of its state, which
        come after those that are."""
        as_state = sum(name.startswith(SCENE_NUMBER) for name in self.state_names)
        return self.info.schema.environment_state_dim - as_state

    def _pictures(self, observations: Sequence[Observation], device: torch.device) -> dict[str, Tensor]:
        """Images (b, 3, h, w) in [0, 1] by LeRobot's names, converted from bytes on the device."""
        out = {}
        for camera in self.info.schema.cameras:
            pixels = np.array([o.images[camera].pixels for o in observations])
            there = to_device(torch.from_numpy(pixels), device)
            key = self.picture_keys.get(camera, f"{PICTURES}.{camera}")
            out[key] = there.permute(0, 3, 1, 2).float() / 255.0
        return out

    def _state(self, observation: Observation) -> list[float]:
        numbers = state_numbers(observation.state, self.info.schema)
        numbers |= {f"{SCENE_NUMBER}{i}": float(x) for i, x in enumerate(observation.environment_state)}
        if missing := [name for name in self.state_names if name not in numbers]:
            raise ValueError(f"the policy needs {', '.join(missing)}; the state has {', '.join(numbers)}")
        return [numbers[name] for name in self.state_names]

    def _in_its_units(self, observation: Observation) -> Observation:
        parts: dict[str, PartState] = {}
        for name, part in observation.state.parts.items():
            match part:
                case ArmState(q=q, dq=dq, X_BE=X_BE):
                    parts[name] = ArmState(q=q / self.joint_unit_rad, dq=dq / self.joint_unit_rad, X_BE=X_BE)
                case GripperState(width=width):
                    parts[name] = GripperState(width=self.gripper_state.theirs(width))
        return structs.replace(observation, state=observation.state.with_parts(parts))


class Columns:
    """Converts a policy's own rows to the robot's: `rows * scale + offset + origin(state)`."""

    def __init__(self, metadata: PolicyMetadata, is_relative: Sequence[bool]) -> None:
        """
        is_relative: columns relative to the number of the same name in the state (LeRobot's relative
            actions), whatever the metadata declares.
        CheckpointError: the state has those numbers at other indices, so the origin would be wrong.
        """
        spec = metadata.info.action_spec
        self._metadata = metadata
        self._names = tuple(name for f in spec.fields for name in command_columns(f))
        self._relative = np.array(is_relative, bool)
        for i in np.flatnonzero(self._relative):
            there = metadata.state_names[i] if i < len(metadata.state_names) else "nothing"
            if there != self._names[i]:
                raise CheckpointError(
                    f"its actions are relative to the state, but action {self._names[i]!r} would be relative "
                    f"to {there!r}"
                )
        self.scale, self.offset = np.ones(spec.dim), np.zeros(spec.dim)
        for f, columns in spec.columns():
            if isinstance(f, JointPosition | JointVelocity):
                self.scale[columns] = metadata.joint_unit_rad
            elif isinstance(f, GripperWidth):
                self.scale[columns] = metadata.gripper_action.scale
                self.offset[columns] = metadata.gripper_action.offset
        self.offset[self._relative] = 0.0  # the state's number includes it

    @property
    def is_mixed(self) -> bool:
        """Whether some columns have another origin than `row_origin`: LeRobot's relative actions."""
        return bool(self._relative.any())

    @property
    def count_from_state(self) -> bool:
        """Whether rows are relative to `row_origin`."""
        return self._metadata.adds_origin

    def origin(self, state: RobotState) -> Float[np.ndarray, " D"]:
        """The origin of a row, in the robot's units."""
        spec = self._metadata.info.action_spec
        origin = row_origin(spec, state) if self._metadata.adds_origin else np.zeros(spec.dim)
        if self._relative.any():
            numbers = state_numbers(state, self._metadata.info.schema)
            measured = np.array([numbers.get(name, np.nan) for name in self._names])
            if not np.isfinite(measured[self._relative]).all():
                raise ValueError("the policy's actions are relative to numbers that the state lacks")
            origin[self._relative] = measured[self._relative]
        return origin


def tensors_of(
    observations: Sequence[Observation], schema: Schema, features: FeatureConfig
) -> dict[str, Float[Tensor, "b n"]]:
    """The robot's numbers, and the scene's if there are any, by LeRobot's names."""
    rows = np.array([state_features(o, schema, features) for o in observations], dtype=np.float32)
    robot_dim = rows.shape[1] - schema.environment_state_dim
    batch = {STATE: torch.from_numpy(rows[:, :robot_dim].copy())}
    if schema.environment_state_dim:
        batch[SCENE] = torch.from_numpy(rows[:, robot_dim:].copy())
    return batch


def _default_timing(data: dict[str, Any]) -> None:
    """Set the timing of rows where a file declares none: the command sent, as in all of LeRobot's training
    data. Files made by `train` keep our default, the target at that time."""
    spec = data["policy"]["action_spec"] if "policy" in data else data["action_spec"]
    if data.get("features") is None:
        spec.setdefault("timing", RowTiming.SENT.value)


_OLDER_KEYS = (
    "schema", "action_spec", "tasks", "trained_for", "max_inference_delay", "execution_horizon",
    "gripper_unit_m",
)  # fmt: skip
"""Keys of `robot_runtime.json`, the contents of today's `PolicyInfo`."""


def _older_info(data: dict[str, Any], folder: Path) -> PolicyInfo:
    spec = ActionSpec.from_dict(data["action_spec"])
    rows = checked_execution_horizon(data.get("execution_horizon"), spec.horizon)
    delay = data.get("max_inference_delay", 0)
    trained = [
        part
        for name in _known_samplers(texts(data, "trained_for"))
        for part in get_args(SamplerPart)
        if part.__name__ == name
    ]
    return PolicyInfo(
        name=policy_name(folder),
        action_spec=spec,
        schema=Schema.from_dict(data["schema"]),
        tasks=texts(data, "tasks"),
        capabilities=Capabilities(
            samplers=tuple(dict.fromkeys((ConstantSchedule, *trained))),
            max_inference_delay=delay,
            execution_horizon=rows,
        ),
    )


def policy_name(folder: Path) -> str:
    """The name of a policy without a declared one: LeRobot's type and its folder."""
    kind = read_json(folder / "config.json").get("type", "lerobot")
    return kind if kind == folder.name else f"{kind} {folder.name}"


def _gripper(data: dict[str, Any], key: str) -> Linear:
    """The gripper's conversion; older files have one unit for both state and action."""
    if key in data:
        return value_of(Linear, data[key])
    return Linear(scale=number(data, "gripper_unit_m", 1.0))


def _unit(rad: float) -> float:
    scale = Linear(scale=rad).scale
    if scale < 0.0:
        raise ValueError(f"expected joint_unit_rad above 0, got {rad:g}")
    return scale


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError(f"state_names has a name twice: {', '.join(names)}")
    return names


def _known_samplers(names: Sequence[str]) -> tuple[str, ...]:
    valid = [part.__name__ for part in get_args(SamplerPart)]
    for name in names:
        if name not in valid:
            raise ValueError(f"there is no sampler part {name!r}; valid: {', '.join(valid)}")
    return tuple(names)
