"""Contents of a robot's dataset: `Recording` declares columns by name, and checks an existing dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robot_runtime.core.values.action import Command, RowTiming
from robot_runtime.core.values.columns import (
    command_numbers,
    pose_columns,
    present_name,
    quantity_columns,
    state_columns,
    state_numbers,
)
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import InvalidValueError

STATE, SCENE, ACTION = "observation.state", "observation.environment_state", "action"
BASE_POSES, PICTURES = "observation.pose_world_base", "observation.images"
PICTURE = "observation.image"
"""Prefix of LeRobot's image columns, and its name for a single one."""
CAPTURE = "capture.time_ns"
LEROBOT_COLUMNS = {"timestamp", "frame_index", "episode_index", "index", "task_index"}
"""Columns that LeRobot adds to every dataset."""
_TAKEN = {STATE, SCENE, BASE_POSES, PICTURES}


def camera_of(column: str) -> str:
    """The camera of an image column: observation.images.chest -> chest, observation.image -> image."""
    return column.removeprefix(f"{PICTURES}.").removeprefix("observation.")


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Contents of a dataset: a robot's numbers by name (`core.values.columns`), its images, its commands.

    observation.state             all measured numbers of its parts, except the pose of a base
    observation.pose_world_base   poses of its bases in the world
    observation.NAME              a further measured quantity of the schema
    action                        the command, for all parts that the commands move
    """

    schema: Schema
    """Schema of the robot: its parts, further quantities, and cameras, all of which are recorded."""
    fps: int = 20
    robot_type: str = "robot"
    extra: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Further columns of float32, by name: shapes."""
    timing: RowTiming = RowTiming.REACHED
    """Meaning of the action of frame k. REACHED: the command at t_k on a path that continued to that of frame
    k + 1, as under this runtime. SENT: the command at t_k that held until then."""

    def __post_init__(self) -> None:
        """InvalidValueError: LeRobot or its videos cannot store it."""
        if self.fps < 1:
            raise InvalidValueError(f"a recording has at least one frame a second, got {self.fps}")
        for camera, (height, width) in self.schema.cameras.items():
            if "/" in camera:
                raise InvalidValueError(f"LeRobot's columns have no / in their names, camera {camera!r} has")
            if height % 2 or width % 2:
                raise InvalidValueError(
                    f"a video's height and width are even numbers of pixels, camera {camera!r} has "
                    f"{height} x {width}"
                )
        if taken := [name for name in self.schema.measured if f"observation.{name}" in _TAKEN]:
            raise InvalidValueError(f"a quantity has a column observation.NAME, and {taken[0]!r} is taken")
        names = [name for column in self.named.values() for name in column]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidValueError(f"two numbers of the robot would have one name: {', '.join(twice)}")

    @property
    def named(self) -> dict[str, tuple[str, ...]]:
        """The columns of measured numbers, and the names of their numbers, in order."""
        schema = self.schema
        out = {STATE: state_columns(schema)}
        if schema.environment_state_dim:
            out[SCENE] = tuple(f"scene_{i}" for i in range(schema.environment_state_dim))
        if schema.bases:
            out[BASE_POSES] = pose_columns(schema)
        for name, size in schema.measured.items():
            out[f"observation.{name}"] = quantity_columns(name, size, schema)
        return out

    def features(
        self, action_names: Sequence[str], *, like: Mapping[str, Any] | None = None
    ) -> dict[str, dict[str, Any]]:
        """The columns, as LeRobot wants them declared.

        like: those of a dataset to continue, whose numbers may have another order and older names.
        """
        there = like or {}
        out: dict[str, dict[str, Any]] = {}
        for column, names in {**self.named, ACTION: tuple(action_names)}.items():
            if column in there:
                names = tuple(there[column]["names"])
            out[column] = {"dtype": "float32", "shape": (len(names),), "names": list(names)}
        if ACTION not in there or "info" in there[ACTION]:
            out[ACTION]["info"] = {"timing": self.timing.value}
        for camera, (height, width) in self.schema.cameras.items():
            shape = (height, width, 3)
            axes = ["height", "width", "channels"]
            out[f"{PICTURES}.{camera}"] = {"dtype": "video", "shape": shape, "names": axes}
        for clock in ("state", *self.schema.cameras):
            out[f"{CAPTURE}.{clock}"] = {"dtype": "int64", "shape": (1,), "names": None}
        for name, size in self.extra.items():
            out[name] = {"dtype": "float32", "shape": size, "names": None}
        return out

    def refuse_other(self, info: Mapping[str, Any], folder: Path) -> None:
        """InvalidValueError: a dataset with this info.json cannot be continued; names the difference."""
        if (info["fps"], info.get("robot_type")) != (self.fps, self.robot_type):
            raise InvalidValueError(
                f"{folder} is of {info.get('robot_type')!r} at {info['fps']} frames a second, the recording "
                f"of {self.robot_type!r} at {self.fps}"
            )
        own, there = self.features([]), info["features"]
        for name in sorted((own.keys() ^ there.keys()) - LEROBOT_COLUMNS):
            side = "the recording" if name in own else "the dataset"
            raise InvalidValueError(f"only {side} has a column {name!r}; {folder} cannot be continued")
        if (timing := timing_of(there)) is not self.timing:
            raise InvalidValueError(
                f"an action of {folder} is {'' if timing is None else timing.value}, "
                f"of the recording {self.timing.value}"
            )
        for name in own.keys() - {ACTION}:
            what, has = own[name], there[name]
            if name in self.named:
                refuse_other_names(f"column {name!r}", names_in(there, name), what["names"])
            if (what["dtype"], list(what["shape"])) != (has["dtype"], list(has["shape"])):
                raise InvalidValueError(
                    f"column {name!r} is {has['dtype']} {tuple(has['shape'])} in {folder}, "
                    f"{what['dtype']} {tuple(what['shape'])} in the recording"
                )

    def measured_numbers(self, observation: Observation) -> dict[str, float]:
        """All numbers of an observation by name; InvalidValueError names those that it lacks."""
        try:
            numbers = state_numbers(observation.state, self.schema)
        except ValueError as error:
            raise InvalidValueError(f"a frame does not fit the recording: {error}") from error
        wanted = [name for column, names in self.named.items() if column != SCENE for name in names]
        if missing := [name for name in wanted if name not in numbers]:
            hand = next((name for name in missing if name.endswith(".r1")), None)
            hint = "; declare an arm without measured hand pose as ArmSchema(..., has_hand=False)" * bool(
                hand
            )
            raise InvalidValueError(
                f"the recording has {', '.join(missing)}, which the state does not have{hint}"
            )
        return numbers

    def commanded_numbers(self, command: Command) -> dict[str, float]:
        """All numbers of a command by name; InvalidValueError: a part has another size."""
        try:
            return command_numbers(command, self.schema)
        except ValueError as error:
            raise InvalidValueError(f"a command does not fit the recording: {error}") from error


def timing_of(features: Mapping[str, Any]) -> RowTiming | None:
    """Meaning of a dataset's actions in time; None: undeclared.

    Older datasets are REACHED without a declaration, recognised by their capture times.
    InvalidValueError: it declares something else.
    """
    info = features[ACTION].get("info")
    declared = info.get("timing") if isinstance(info, dict) else None
    if declared is not None:
        if declared not in (valid := [timing.value for timing in RowTiming]):
            raise InvalidValueError(f"expected an action {' or '.join(valid)}, got {declared!r:.100}")
        return RowTiming(declared)
    return RowTiming.REACHED if f"{CAPTURE}.state" in features else None


def names_in(features: Mapping[str, Any], column: str) -> list[str]:
    """A dataset's names for the numbers of a column, converted to present names."""
    names = list(features[column]["names"] or ())
    if column == BASE_POSES:
        names = [name if "." in name else f"base_{name}" for name in names]
    return [present_name(name) for name in names]


def refuse_other_names(
    column: str,
    has: Sequence[str],
    names: Sequence[str],
    *,
    sides: tuple[object, object] = ("the dataset", "the recording"),
) -> None:
    """InvalidValueError names what only one side has; the order does not matter."""
    if sorted(has) == sorted(names):
        return
    only = [
        f"only {side} has {', '.join(more)}"
        for side, more in (
            (sides[0], [name for name in has if name not in names]),
            (sides[1], [name for name in names if name not in has]),
        )
        if more
    ]
    raise InvalidValueError(f"{column} of {sides[0]} is {list(has)}: {'; '.join(only)}")


def row_of(numbers: Mapping[str, float], names: Sequence[str]) -> np.ndarray:
    """Numbers in that order, as they are stored: those too large for float32 become infinite."""
    with np.errstate(over="ignore"):
        return np.array([numbers[name] for name in names]).astype(np.float32)
