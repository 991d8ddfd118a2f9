"""Demonstrations out of a LeRobot v3 dataset that `robot-runtime record` has written: `load_dataset`."""

from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from jaxtyping import UInt8

from policies.files import read_json
from policies.flow.demonstrations import StoredDemonstration
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.core.values.transforms import rotation_from_6d
from robot_runtime.errors import CheckpointError, InvalidValueError

ROWS, NUM_COMMITTED = "expert.rows", "expert.num_committed"
"""Columns that `record` adds: the chunk planned from a frame, and how many of its rows were given."""


def load_dataset(folder: Path) -> list[StoredDemonstration]:
    """Every frame, with its pictures and the expert's plan from there, in order; videos front to back.

    What was left of an episode whose saving was interrupted is passed over: info.json says how many there
    are, and they say in which files they are.
    InvalidValueError: what is missing, damaged or does not fit.
    """
    import pyarrow as pa

    if not (folder / "meta" / "info.json").is_file():
        raise InvalidValueError(f"{folder} is no LeRobot dataset: it has no meta/info.json")
    try:
        return _loaded(folder)
    except InvalidValueError:
        raise
    except (pa.ArrowException, CheckpointError, OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidValueError(f"the dataset {folder} is damaged: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"it has no {lines[0]}" if isinstance(error, KeyError) else lines[0][:500]


def _loaded(folder: Path) -> list[StoredDemonstration]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    info = read_json(folder / "meta" / "info.json")
    features = info["features"]
    if ROWS not in features:
        raise InvalidValueError(f"{folder} has no column {ROWS}: robot-runtime record makes datasets with it")
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
    prefix = "observation.images."
    pictures = {}
    for name in features:
        if name.startswith(prefix):
            camera = name.removeprefix(prefix)
            pictures[camera] = _decode(
                _files(folder, f"videos/{name}", episodes, "mp4"),
                len(task_of),
                features[name]["shape"],
                num_written=num_written,
            )
    names = features["observation.state"]["names"]
    return [_frame(i, columns, names, pictures, task_of[i]) for i in range(len(task_of))]


def _files(folder: Path, kind: str, episodes: list[dict[str, Any]], suffix: str) -> list[Path]:
    """Those of a kind that the episodes are in, in order."""
    places = sorted({(row[f"{kind}/chunk_index"], row[f"{kind}/file_index"]) for row in episodes})
    return [folder / kind / f"chunk-{chunk:03d}/file-{file:03d}.{suffix}" for chunk, file in places]


def _decode(
    paths: list[Path], num_frames: int, shape: list[int], *, num_written: int
) -> UInt8[np.ndarray, "n h w 3"]:
    """The first pictures; of the frames that an interrupted episode has written, some may follow."""
    import av

    out = np.empty((num_frames, *shape), dtype=np.uint8)
    count = 0
    for path in paths:
        with av.open(str(path)) as file:
            for frame in file.decode(video=0):
                if count < num_frames:
                    out[count] = frame.to_ndarray(format="rgb24")
                count += 1
    if not num_frames <= count <= num_written:
        raise InvalidValueError(f"{paths[0].parent.parent} has {count} pictures for {num_frames} frames")
    return out


def _frame(
    i: int,
    columns: dict[str, np.ndarray],
    names: list[str],
    pictures: dict[str, np.ndarray],
    task: str,
) -> StoredDemonstration:
    numbers = dict(zip(names, columns["observation.state"][i].astype(float), strict=True))
    num_joints = sum(name.startswith("joint_velocity_") for name in names)
    hand = np.array([numbers[f"hand_{name}"] for name in ("x", "y", "z")])
    rotation = rotation_from_6d(np.array([numbers[f"hand_rotation_{k}"] for k in range(6)]))
    has_base = "base_vx" in numbers
    state = RobotState(
        t_ns=int(columns["capture.time_ns.state"][i]),
        q=np.array([numbers[f"joint_{k}"] for k in range(num_joints)]),
        dq=np.array([numbers[f"joint_velocity_{k}"] for k in range(num_joints)]),
        X_BE=pin.SE3(rotation, hand),
        gripper_width=numbers.get("gripper_width"),
        x_WB=columns["observation.pose_world_base"][i].astype(float) if has_base else None,
        V_WB_B=np.array([numbers[f"base_{k}"] for k in ("vx", "vy", "wz")]) if has_base else None,
    )
    images = {
        camera: Image(t_ns=int(columns[f"capture.time_ns.{camera}"][i]), pixels=frames[i])
        for camera, frames in pictures.items()
    }
    scene = columns.get("observation.environment_state")
    observation = Observation(
        state=state,
        images=images,
        environment_state=np.zeros(0) if scene is None else scene[i].astype(float),
        task=task,
    )
    rows = columns[ROWS][i].astype(float)
    return StoredDemonstration(
        observation=observation, rows=rows, num_committed=int(columns[NUM_COMMITTED][i])
    )
