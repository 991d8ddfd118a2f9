"""Loads demonstrations from a LeRobot v3 dataset written by `robot-runtime`: `load_dataset`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from jaxtyping import Int64, UInt8
from msgspec import structs

from policies.files import read_json
from policies.flow.demonstrations import StoredDemonstration
from policies.lerobot.rows import FromActions
from robot_runtime.core.values.columns import (
    HAND,
    POSE,
    TWIST,
    VELOCITY,
    pose_columns,
    quantity_columns,
    state_columns,
)
from robot_runtime.core.values.fields import joint_names
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, PartSchema, Schema
from robot_runtime.core.values.state import (
    ArmState,
    BaseState,
    GripperState,
    Image,
    Observation,
    PartState,
    RobotState,
)
from robot_runtime.core.values.transforms import rotation_from_6d
from robot_runtime.dataset.recording import BASE_POSES, CAPTURE, PICTURES, SCENE, STATE, names_in
from robot_runtime.dataset.stored import refuse_no_dataset
from robot_runtime.errors import CheckpointError, InvalidValueError

ROWS, NUM_COMMITTED = "expert.rows", "expert.num_committed"
"""Columns that `record` adds: the chunk planned from a frame, and the number of its rows that were given."""


def load_dataset(
    folder: Path,
    robot: Schema | None = None,
    actions: FromActions | None = None,
    *,
    most_pixels: int | None = None,
    n_obs_steps: int = 1,
    image_age_ns: int = 0,
) -> list[StoredDemonstration]:
    """Every frame in order, with its images and the expert's plan from it on; videos are read sequentially.

    robot: the robot whose numbers are read, in the order of its joints; None infers it from the names.
    Numbers are matched by name; names from before parts were named are known too.
    actions: makes rows from a run's commands where there is no expert's plan; frames that are not to be
        imitated are then left out. None: a plan is required.
    most_pixels: larger images are reduced until their longer side has as many.
    n_obs_steps: observations of each frame, earlier ones of its episode as its history.
    image_age_ns: images of each frame are at least this much older than its state, as on a robot whose
        cameras are late; those of the episode's first frame where there is none.

    Remains of an episode whose saving was interrupted are skipped: info.json has the number of episodes, and
    each of these names its files.
    InvalidValueError: something is missing, damaged or does not fit.
    """
    import pyarrow as pa

    refuse_no_dataset(folder)
    try:
        return _loaded(folder, robot, actions, most_pixels, n_obs_steps, image_age_ns)
    except InvalidValueError:
        raise
    except (pa.ArrowException, CheckpointError, OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidValueError(f"the dataset {folder} is damaged: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"it has no {lines[0]}" if isinstance(error, KeyError) else lines[0][:500]


def _loaded(
    folder: Path,
    robot: Schema | None,
    actions: FromActions | None,
    most_pixels: int | None,
    n_obs_steps: int,
    image_age_ns: int,
) -> list[StoredDemonstration]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    info = read_json(folder / "meta" / "info.json")
    features = info["features"]
    if ROWS not in features and actions is None:
        raise InvalidValueError(f"{folder} has no column {ROWS}; record a dataset with robot-runtime record")
    if ROWS in features and actions is not None and actions.only != "all":
        raise InvalidValueError(f"--only {actions.only}: {folder} holds an expert's plans without takeovers")
    paths = sorted((folder / "meta" / "episodes").rglob("*.parquet"))
    episodes = [row for path in paths for row in pq.read_table(path).to_pylist()]
    episodes = [row for row in episodes if row["episode_index"] < info["total_episodes"]]
    if not episodes:
        raise InvalidValueError(f"{folder} has no finished episode")
    saved = pa.array([row["episode_index"] for row in episodes])
    table = pq.read_table(_files(folder, "data", episodes, "parquet"))
    num_written = table.num_rows
    table = table.filter(pc.is_in(table["episode_index"], value_set=saved))
    columns = {name: np.array(table[name].to_pylist()) for name in table.column_names if name != "task_index"}
    tasks = pq.read_table(folder / "meta" / "tasks.parquet").to_pandas()
    texts = {int(row["task_index"]): str(text) for text, row in tasks.iterrows()}
    task_of = [texts[i] for i in table["task_index"].to_pylist()]
    prefix = f"{PICTURES}."
    videos = {}
    for name in features:
        if name.startswith(prefix):
            camera = name.removeprefix(prefix)
            videos[camera] = _decode(
                _files(folder, f"videos/{name}", episodes, "mp4"),
                len(task_of),
                _reduced(features[name]["shape"], most_pixels),
                num_written=num_written,
            )
    numbers = _Numbers.of(features, columns, robot, folder)
    every = range(len(task_of))
    if ROWS in features:
        rows, committed, kept = columns[ROWS].astype(float), columns[NUM_COMMITTED], [*every]
    else:
        assert actions is not None
        rows, is_kept = actions.rows(features, columns)
        committed, kept = np.zeros(len(rows), int), np.flatnonzero(is_kept).tolist()
        if not kept:
            only = f" with --only {actions.only}"
            raise InvalidValueError(f"{folder} has no frame to learn from{only}: {actions.why_none(columns)}")
    out, episodes_of = [], columns["episode_index"].ravel()
    shown = {camera: _late(columns, camera, episodes_of, image_age_ns) for camera in videos}
    alone = [_observation(i, columns, numbers, videos, shown, task_of[i]) for i in every]
    for i in kept:
        earlier = [j for j in range(max(0, i + 1 - n_obs_steps), i) if episodes_of[j] == episodes_of[i]]
        seen = structs.replace(alone[i], history=tuple(alone[j] for j in earlier))
        chunk = rows[i] if ROWS in features or actions is None else actions.counted_from(rows[i], seen.state)
        out.append(StoredDemonstration(observation=seen, rows=chunk, num_committed=int(committed[i])))
    return out


def _files(folder: Path, kind: str, episodes: list[dict[str, Any]], suffix: str) -> list[Path]:
    """The files of a kind that contain the episodes, in order."""
    indices = sorted({(row[f"{kind}/chunk_index"], row[f"{kind}/file_index"]) for row in episodes})
    return [folder / kind / f"chunk-{chunk:03d}/file-{file:03d}.{suffix}" for chunk, file in indices]


def _late(
    columns: Mapping[str, np.ndarray], camera: str, episodes: np.ndarray, age_ns: int
) -> Int64[np.ndarray, " n"]:
    """For each frame, the one whose image is shown: the newest of its episode that is old enough."""
    frames = np.arange(len(episodes))
    if not age_ns:
        return frames
    state, image = (columns[f"{CAPTURE}.{name}"].ravel() for name in ("state", camera))
    out = np.empty_like(frames)
    for episode in np.unique(episodes):
        own = np.flatnonzero(episodes == episode)
        at = np.searchsorted(image[own], state[own] - age_ns, side="right") - 1
        out[own] = own[np.maximum(at, 0)]
    return out


def _reduced(shape: list[int], most_pixels: int | None) -> list[int]:
    """The shape of an image whose longer side has at most so many pixels."""
    height, width, channels = shape
    share = 1.0 if most_pixels is None else min(1.0, most_pixels / max(height, width))
    return [round(share * height), round(share * width), channels]


def _decode(
    paths: list[Path], num_frames: int, shape: list[int], *, num_written: int
) -> UInt8[np.ndarray, "n h w 3"]:
    """The first images; frames of an interrupted episode may follow."""
    import av

    out = np.empty((num_frames, *shape), dtype=np.uint8)
    count, (height, width, _) = 0, shape
    for path in paths:
        with av.open(str(path)) as file:
            for frame in file.decode(video=0):
                if count < num_frames:
                    if (frame.height, frame.width) != (height, width):
                        frame = frame.reformat(width=width, height=height, interpolation="AREA")
                    out[count] = frame.to_ndarray(format="rgb24")
                count += 1
    if not num_frames <= count <= num_written:
        raise InvalidValueError(f"{paths[0].parent.parent} has {count} images for {num_frames} frames")
    return out


@dataclass(frozen=True, kw_only=True, eq=False)
class _Numbers:
    """Holds the numbers of all frames by name."""

    robot: Schema
    columns: Mapping[str, np.ndarray]

    @classmethod
    def of(
        cls,
        features: Mapping[str, Any],
        columns: Mapping[str, np.ndarray],
        robot: Schema | None,
        folder: Path,
    ) -> "_Numbers":
        """The numbers of a dataset; InvalidValueError: it lacks numbers of the robot."""
        names = names_in(features, STATE)
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidValueError(f"{folder} has two numbers of one name: {', '.join(twice)}")
        if robot is None:
            robot = Schema(parts=parts_of(names), measured=quantities_of(features))
        own = [STATE, *([BASE_POSES] * bool(robot.bases)), *(f"observation.{q}" for q in robot.measured)]
        wanted = [*state_columns(robot), *pose_columns(robot)]
        for name, size in robot.measured.items():
            wanted += quantity_columns(name, size, robot)
        there: dict[str, np.ndarray] = {}
        for column in own:
            if column in features:
                rows = columns[column].astype(float).reshape(len(columns[column]), -1)
                there |= zip(names_in(features, column), rows.T, strict=True)
        if missing := [name for name in wanted if name not in there]:
            raise InvalidValueError(
                f"{folder} has no {', '.join(missing)}; of the state it has {', '.join(names)}"
            )
        return cls(robot=robot, columns=there)

    def state(self, i: int, t_ns: int) -> RobotState:
        """The robot state at a frame."""
        measured = {
            name: self._row(i, quantity_columns(name, n, self.robot))
            for name, n in self.robot.measured.items()
        }
        parts = {name: self._part(i, name, part) for name, part in self.robot.parts.items()}
        return RobotState(t_ns=t_ns, parts=parts, measured=measured)

    def _part(self, i: int, name: str, part: PartSchema) -> PartState:
        def row(columns: Sequence[str]) -> np.ndarray:
            return self._row(i, [f"{name}.{column}" for column in columns])

        match part:
            case ArmSchema(names=joints, has_hand=has_hand):
                X_BE = None
                if has_hand:
                    hand = row(HAND)
                    X_BE = pin.SE3(rotation_from_6d(hand[3:]), hand[:3])
                return ArmState(q=row(joints), dq=row([joint + VELOCITY for joint in joints]), X_BE=X_BE)
            case GripperSchema():
                return GripperState(width=row(GripperSchema.names)[0])
            case BaseSchema():
                return BaseState(x_WB=row(POSE), V_WB_B=row(TWIST))

    def _row(self, i: int, names: Sequence[str]) -> np.ndarray:
        return np.array([self.columns[name][i] for name in names])


def parts_of(names: Sequence[str]) -> dict[str, PartSchema]:
    """The parts of the robot, inferred from the names of a recording's state."""
    of_parts: dict[str, list[str]] = {}
    for name in names:
        part, _, column = name.partition(".")
        of_parts.setdefault(part, []).append(column)
    out: dict[str, PartSchema] = {}
    for part, columns in of_parts.items():
        joints = [column for column in columns if column + VELOCITY in columns]
        if sorted(joints) == sorted(joint_names(len(joints))):
            joints = [*joint_names(len(joints))]
        if columns == [*GripperSchema.names]:
            out[part] = GripperSchema()
        elif sorted(columns) == sorted(TWIST):
            out[part] = BaseSchema()
        else:
            out[part] = ArmSchema(len(joints), tuple(joints), has_hand=HAND[-1] in columns)
    return out


def quantities_of(features: Mapping[str, Any]) -> dict[str, int]:
    out = {}
    for column in features:
        name = column.removeprefix("observation.")
        if name != column and name.isidentifier() and column not in (STATE, SCENE, BASE_POSES):
            names = names_in(features, column)
            if names == [*quantity_columns(name, len(names))]:
                out[name] = len(names)
    return out


def _observation(
    i: int,
    columns: dict[str, np.ndarray],
    numbers: _Numbers,
    videos: dict[str, np.ndarray],
    shown: Mapping[str, np.ndarray],
    task: str,
) -> Observation:
    images = {}
    for camera, frames in videos.items():
        k = shown[camera][i]
        images[camera] = Image(t_ns=int(columns[f"{CAPTURE}.{camera}"][k]), pixels=frames[k])
    scene = columns.get(SCENE)
    return Observation(
        state=numbers.state(i, int(columns[f"{CAPTURE}.state"][i])),
        images=images,
        environment_state=np.zeros(0) if scene is None else scene[i].astype(float),
        task=task,
    )
