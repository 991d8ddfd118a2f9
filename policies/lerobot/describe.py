"""`describe`: makes a `PolicyMetadata` from a LeRobot checkpoint and the declarations that it lacks.

The meaning of the numbers in its state and actions is in the dataset it was trained on, by name, or has to be
declared. Declarations beside a dataset may add to it and may not contradict it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policies.files import read_json
from policies.lerobot.declared import Declared
from policies.lerobot.files import CONFIG
from policies.lerobot.load import cameras_of, chunk_rows, lerobot_config, refuse_misfit, size_of
from policies.lerobot.metadata import (
    ACTION,
    SCENE,
    SCENE_NUMBER,
    STATE,
    PolicyMetadata,
    policy_name,
)
from policies.lerobot.names import HINT, WIDTH, declared_names, explained, fields_of, is_ours, parts_of
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import (
    MAX_DT_NS,
    NS_PER_S,
    ActionField,
    ActionSpec,
    GripperWidth,
    JointPosition,
    RowTiming,
)
from robot_runtime.core.values.action import Numbers as PlainNumbers
from robot_runtime.core.values.columns import VELOCITY, command_columns
from robot_runtime.core.values.conventions import AS_IT_IS, Linear, convention_named, convention_of
from robot_runtime.core.values.schema import Schema
from robot_runtime.dataset.recording import camera_of, timing_of
from robot_runtime.dataset.stored import refuse_no_dataset
from robot_runtime.errors import CheckpointError, InvalidValueError

_SLOWEST_FPS = NS_PER_S / MAX_DT_NS


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Describes the numbers of a dataset by our names."""

    state_names: tuple[str, ...]
    action_fields: tuple[ActionField, ...]
    fps: float
    theirs: Mapping[str, str] = field(default_factory=dict)
    """Foreign names and ours for them; foreign names do not determine units."""
    timing: RowTiming | None = None
    """Meaning of an action in time; None if undeclared."""
    cameras: Mapping[str, tuple[int, int]] | None = None
    """Height and width of its images; None: no dataset is known."""
    scene_names: tuple[str, ...] = ()
    """Names of the scene's quantities; empty if unknown."""

    def __post_init__(self) -> None:
        if not _SLOWEST_FPS <= self.fps <= NS_PER_S:
            raise InvalidValueError(f"expected at least {_SLOWEST_FPS:.3g} rows per second, got {self.fps:g}")
        if len(set(self.state_names)) < len(self.state_names):
            raise InvalidValueError(
                f"two numbers of the state would have one name: {', '.join(self.state_names)}"
            )

    @classmethod
    def of_dataset(cls, folder: Path, declared: Declared) -> "Numbers":
        """The numbers of a dataset; InvalidValueError: some of their names are undeclared."""
        refuse_no_dataset(folder)
        path = folder / "meta" / "info.json"
        info = read_json(path)
        try:
            features = info["features"]
            state, action = (_names_of(features[key]["names"]) for key in (STATE, ACTION))
            fps, scene = float(info["fps"]), _scene_names(features)
            cameras = {
                camera_of(key): _picture_size(feature)
                for key, feature in features.items()
                if feature.get("dtype") in ("video", "image")
            }
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise InvalidValueError(f"{path} does not declare what its numbers are: {error!r}") from error
        timing = timing_of(features)
        if declared.are_numbers:
            return cls.plain(state, action, scene_names=scene, fps=fps, timing=timing, cameras=cameras)
        return cls.named(
            state, action, declared, path, scene_names=scene, fps=fps, timing=timing, cameras=cameras
        )

    @classmethod
    def named(
        cls, state: Sequence[str], action: Sequence[str], declared: Declared, path: Path, **more: Any
    ) -> "Numbers":
        """The numbers by the names in a file; InvalidValueError: a name is undeclared."""
        names = dict.fromkeys((*state, *action))
        declared_of = declared_names(declared.joints, declared.grippers)
        if missing := [name for name in declared_of if name not in names]:
            raise InvalidValueError(f"{path} has no {', '.join(missing)}, but {', '.join(action)}")
        ours = explained([*names], declared_of)
        if unknown := [name for name in names if name not in ours]:
            raise InvalidValueError(
                f"{path} has undeclared numbers {', '.join(unknown)}. {HINT}; all are {', '.join(names)}"
            )
        return cls(
            state_names=tuple(ours[name] for name in state),
            action_fields=fields_of([ours[name] for name in action], path),
            theirs={name: ours[name] for name in names if not is_ours(name)},
            **more,
        )

    @classmethod
    def plain(cls, state: Sequence[str], action: Sequence[str], **more: Any) -> "Numbers":
        """The numbers of a simulator whose state and action have these names. If both have the same ones, the
        state measures what actions move; otherwise it is the simulator's whole state, in its order."""
        moved = PlainNumbers(names=tuple(action))
        is_measured = set(state) == set(action)
        names = [f"{moved.part}.{n}" if is_measured else f"{SCENE_NUMBER}{i}" for i, n in enumerate(state)]
        if not is_measured:  # further scene numbers come after the state
            more["scene_names"] = (*state, *more.get("scene_names", ()))
        return cls(state_names=tuple(names), action_fields=(moved,), **more)

    @classmethod
    def of_simulator(cls, declared: Declared, state_dim: int, action_dim: int) -> "Numbers":
        """The numbers of a simulator that gives its state as one vector, in its own order."""
        names = declared.action_names or tuple(f"action_{i + 1}" for i in range(action_dim))
        if len(names) != action_dim:
            raise CheckpointError(f"its actions have {action_dim} numbers, --action-names has {len(names)}")
        assert declared.fps is not None, "checked by `Declared`"
        state = tuple(f"{SCENE_NUMBER}{i}" for i in range(state_dim))
        return cls(state_names=state, action_fields=(PlainNumbers(names=names),), fps=declared.fps)

    @classmethod
    def of_joints(cls, declared: Declared, state_dim: int) -> "Numbers":
        """Joints, then the gripper, in state and actions; the state may end with the joints' velocities."""
        assert declared.num_joints is not None, "checked by `Declared`"
        assert declared.fps is not None, "checked by `Declared`"
        joints, fps = JointPosition(declared.num_joints), declared.fps
        fields = (joints, *((GripperWidth(),) if declared.has_gripper else ()))
        names = tuple(name for f in fields for name in f.column_names)
        with_speeds = (*names, *(name + VELOCITY for name in joints.column_names))
        for state_names in (names, with_speeds):
            if len(state_names) == state_dim:
                return cls(state_names=state_names, action_fields=fields, fps=fps)
        robot = f"{declared.num_joints} joints and {'a' if declared.has_gripper else 'no'} gripper"
        raise CheckpointError(
            f"its state has {state_dim} numbers; {robot} make {len(names)}, or {len(with_speeds)} with "
            "velocities; if it has other parts, name the dataset it was trained on"
        )


def describe(folder: Path, declared: Declared) -> PolicyMetadata:
    """Write the metadata of a checkpoint.

    CheckpointError: the folder holds no supported LeRobot policy, or its sizes differ.
    InvalidValueError: neither a dataset nor joints and rate are known, or they contradict each other.
    """
    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {folder}")
    numbers, known = None, declared.known_dataset(folder)
    if known is not None:
        numbers = Numbers.of_dataset(known, declared)
        _refuse_contradictions(numbers, declared, known)
    config = lerobot_config(folder)
    numbers = numbers or _by_place(config, declared)
    dim = sum(field.dim for field in numbers.action_fields)
    for what, columns, expected in (
        ("state has", size_of(config.robot_state_feature), len(numbers.state_names)),
        ("actions have", size_of(config.action_feature), dim),
    ):
        if columns != expected:
            raise CheckpointError(f"its {what} {columns} numbers; this robot's have {expected}")
    gripper_state, gripper_action = _grippers(numbers, declared)
    metadata = PolicyMetadata(
        info=PolicyInfo(
            name=policy_name(folder),
            action_spec=ActionSpec(
                fields=numbers.action_fields,
                horizon=chunk_rows(config),
                dt_ns=round(NS_PER_S / numbers.fps),
                timing=declared.timing or numbers.timing or RowTiming.SENT,
            ),
            schema=_schema(config, numbers, folder),
            tasks=declared.tasks,
            n_obs_steps=config.n_obs_steps,
        ),
        state_names=numbers.state_names,
        adds_origin=False,
        joint_unit_rad=_joint_unit(numbers, declared),
        gripper_state=gripper_state,
        gripper_action=gripper_action,
    )
    refuse_misfit(metadata, config, folder)
    _refuse_other_names(config, metadata, declared)
    metadata.save(folder)
    return metadata


def _by_place(config: Any, declared: Declared) -> Numbers:
    """The numbers of a checkpoint without names: a simulator's, or joints."""
    state_dim = size_of(config.robot_state_feature)
    if declared.are_numbers:
        return Numbers.of_simulator(declared, state_dim, size_of(config.action_feature))
    return Numbers.of_joints(declared, state_dim)


def _refuse_contradictions(numbers: Numbers, declared: Declared, dataset: Path) -> None:
    """InvalidValueError: a declaration contradicts the dataset."""
    joints = sum(field.dim for field in numbers.action_fields if isinstance(field, JointPosition))
    has_gripper = any(isinstance(field, GripperWidth) for field in numbers.action_fields)
    for what, given, found in (
        ("joints", declared.num_joints, joints),
        ("fps", declared.fps, numbers.fps),
        ("gripper", declared.has_gripper or None, has_gripper),
    ):
        if given is not None and given != found:
            raise InvalidValueError(f"--{what} {given} contradicts the dataset {dataset}, which has {found}")


def _refuse_other_names(config: Any, metadata: PolicyMetadata, declared: Declared) -> None:
    """CheckpointError: the checkpoint names its actions (pi's relative ones do) and in another way."""
    noted = getattr(config, "action_feature_names", None)
    if noted is None:
        return
    ours = explained(noted, declared_names(declared.joints, declared.grippers))
    names = tuple(ours.get(name, name) for name in noted)
    declared_columns = tuple(name for f in metadata.info.action_spec.fields for name in command_columns(f))
    if names != declared_columns:
        raise CheckpointError(
            f"its {CONFIG} calls its actions {', '.join(noted)}, but they are declared as "
            f"{', '.join(declared_columns)}; name the dataset, and its joints in order"
        )


def _joint_unit(numbers: Numbers, declared: Declared) -> float:
    if declared.joint_unit_rad is not None:
        return declared.joint_unit_rad
    if declared.convention is not None:
        return convention_named(declared.convention).rad
    if joints := [name for name, ours in numbers.theirs.items() if not ours.endswith(f".{WIDTH}")]:
        raise InvalidValueError(
            f"the unit of {joints[0]} is undeclared; add --joint-unit rad or degrees. Per cent of a range is "
            "not an angle: LeRobot's arms record degrees with use_degrees"
        )
    return 1.0


def _grippers(numbers: Numbers, declared: Declared) -> tuple[Linear, Linear]:
    """The gripper's conversions for the state and for actions."""
    if not any(isinstance(field, GripperWidth) for field in numbers.action_fields):
        return AS_IT_IS, AS_IT_IS
    theirs = [name for name, ours in numbers.theirs.items() if ours.endswith(f".{WIDTH}")]
    name = declared.convention or convention_of(theirs)
    if name is None and declared.stroke_m is None:
        if theirs:
            raise InvalidValueError(f"the meaning of {theirs[0]} is undeclared; add --convention")
        return AS_IT_IS, AS_IT_IS
    found = convention_named(name or "rlds")
    if declared.stroke_m is None and found.gripper_action.open_m is None:
        raise InvalidValueError(f"in the convention {name} a gripper has a share; add --gripper-stroke-m")
    stroke_m = declared.stroke_m or 1e-3  # unused where the number is a distance
    return found.gripper_state.to_width(stroke_m), found.gripper_action.to_width(stroke_m)


def _schema(config: Any, numbers: Numbers, folder: Path) -> Schema:
    cameras = cameras_of(config, folder)
    for name, size in cameras.items():
        if numbers.cameras is not None and numbers.cameras.get(name) != size:
            raise CheckpointError(
                f"it uses camera {name}, {size}; the dataset has {dict(numbers.cameras) or 'no images'}"
            )
    fields, names = numbers.action_fields, numbers.state_names
    scene = size_of(config.env_state_feature)
    measured, scene_names = {}, numbers.scene_names
    if isinstance(fields[0], PlainNumbers):
        is_scene = names[0].startswith(SCENE_NUMBER)
        scene += len(names) if is_scene else 0
        scene_names = scene_names[:scene] if is_scene else scene_names
        measured = {} if is_scene else {fields[0].part: fields[0].dim}
    return Schema(
        action_fields=fields,
        parts={} if isinstance(fields[0], PlainNumbers) else parts_of(fields, names),
        measured=measured,
        environment_state_dim=scene,
        environment_state_names=scene_names if len(scene_names) == scene else (),
        cameras=cameras,
    )


def _names_of(names: Any) -> tuple[str, ...]:
    """The names of a LeRobot feature, which are a list, or in older files a list under one key."""
    if isinstance(names, dict) and len(names) == 1:
        (names,) = names.values()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"expected a list of names, got {names!r:.200}")
    if len(set(names)) < len(names):
        raise ValueError(f"two numbers have one name, {names!r:.200}")
    return tuple(names)


def _scene_names(features: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the scene's quantities; empty if they have none, or only numbers."""
    names = features.get(SCENE, {}).get("names")
    if not names:
        return ()
    found = _names_of(names)
    return () if all(name.startswith(SCENE_NUMBER) for name in found) else found


def _picture_size(feature: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width of an image feature. Channels come first if the third name is not that of channels."""
    one, two, three = (int(n) for n in feature["shape"])
    names: Sequence[str] = feature.get("names") or ()
    are_last = len(names) != 3 or names[2] in ("channel", "channels")
    return (one, two) if are_last else (two, three)
