"""Makes an episode from arrays and videos, without an image file for every frame: `whole_episode`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robot_runtime.dataset.recording import PICTURES
from robot_runtime.dataset.staged_episode import StagedEpisode

CHUNK_SIZE, DATA_MB, VIDEO_MB = 1000, 100, 200
"""LeRobot's own limits: files of a kind in a folder, and their maximum size."""


def whole_episode(
    *,
    features: Mapping[str, Mapping[str, Any]],
    fps: int,
    robot_type: str,
    columns: Mapping[str, np.ndarray],
    tasks: Sequence[str],
    videos: Mapping[str, Path],
    samples: Mapping[str, np.ndarray],
    about: Mapping[str, Any],
) -> StagedEpisode:
    """
    features: of the dataset, except those that LeRobot adds. columns: (frames, numbers) or texts (frames,).
    tasks: of each frame. videos, samples: by image column, as in `Filmed`.
    about: further columns of its row in meta/episodes: plain values, None if unknown.
    """
    from lerobot.datasets.video_utils import get_video_info
    from lerobot.utils.constants import DEFAULT_FEATURES

    num = len(tasks)
    all_features = {name: dict(feature) for name, feature in (*features.items(), *DEFAULT_FEATURES.items())}
    for name, path in videos.items():
        all_features[name]["info"] = get_video_info(path)
    texts = list(dict.fromkeys(tasks))
    full = {
        **columns,
        "timestamp": np.arange(num)[:, None] / fps,
        "frame_index": np.arange(num)[:, None],
        "episode_index": np.zeros((num, 1), int),
        "index": np.arange(num)[:, None],
        "task_index": np.array([texts.index(text) for text in tasks])[:, None],
    }
    full = {name: _typed(full[name], all_features[name]) for name in all_features if name not in videos}
    stats = _stats(full, all_features) | {name: _of_pictures(each) for name, each in samples.items()}
    return StagedEpisode(
        info=_info(all_features, fps, robot_type, num),
        data=_table(full, all_features),
        episode=_row(texts, num, fps, videos, stats, about),
        tasks=texts,
        videos={f"videos/{name}": path for name, path in videos.items()},
    )


def _typed(values: np.ndarray, feature: Mapping[str, Any]) -> np.ndarray:
    if feature["dtype"] == "string":
        return values
    with np.errstate(over="ignore"):
        return values.reshape(len(values), -1).astype(feature["dtype"])


def _info(features: Mapping[str, Any], fps: int, robot_type: str, num: int) -> dict[str, Any]:
    file = "chunk-{chunk_index:03d}/file-{file_index:03d}"
    return {
        "codebase_version": "v3.0",
        "fps": fps,
        "features": {name: {**each, "shape": list(each["shape"])} for name, each in features.items()},
        "total_episodes": 1,
        "total_frames": num,
        "total_tasks": 1,
        "chunks_size": CHUNK_SIZE,
        "data_files_size_in_mb": DATA_MB,
        "video_files_size_in_mb": VIDEO_MB,
        "data_path": f"data/{file}.parquet",
        "video_path": f"videos/{{video_key}}/{file}.mp4",
        "robot_type": robot_type,
        "splits": {"train": "0:1"},
    }


def _table(columns: Mapping[str, np.ndarray], features: Mapping[str, Any]) -> Any:
    import pyarrow as pa

    out = {}
    for name, values in columns.items():
        if features[name]["dtype"] == "string":
            out[name] = pa.array(values.tolist(), type=pa.string())
        elif tuple(features[name]["shape"]) == (1,):
            out[name] = pa.array(values.ravel())
        else:
            out[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    return pa.table(out)


def _stats(
    columns: Mapping[str, np.ndarray], features: Mapping[str, Any]
) -> dict[str, dict[str, np.ndarray]]:
    from lerobot.datasets.compute_stats import compute_episode_stats

    numbers = {name: values for name, values in columns.items() if features[name]["dtype"] != "string"}
    # In float64: LeRobot computes std from a difference of squares, for which float32 lacks digits.
    exact = {name: values.astype(np.float64) for name, values in numbers.items()}
    flat = {name: values.ravel() if values.shape[1] == 1 else values for name, values in exact.items()}
    out: dict[str, dict[str, np.ndarray]] = compute_episode_stats(flat, dict(features))
    return out


def _of_pictures(samples: np.ndarray) -> dict[str, np.ndarray]:
    """Statistics of each colour, 0 to 1, as in LeRobot."""
    from lerobot.datasets.compute_stats import get_feature_stats

    found = get_feature_stats(samples, axis=(0, 2, 3), keepdims=True)
    return {what: value if what == "count" else value[0] / 255.0 for what, value in found.items()}


def _row(
    tasks: Sequence[str],
    num: int,
    fps: int,
    videos: Mapping[str, Path],
    stats: Mapping[str, Mapping[str, np.ndarray]],
    about: Mapping[str, Any],
) -> Any:
    import pyarrow as pa

    row: dict[str, Any] = {"episode_index": 0, "tasks": [*tasks], "length": num}
    row |= {"data/chunk_index": 0, "data/file_index": 0, "dataset_from_index": 0, "dataset_to_index": num}
    for name in videos:
        kind = f"videos/{name}"
        row |= {f"{kind}/chunk_index": 0, f"{kind}/file_index": 0}
        row |= {f"{kind}/from_timestamp": 0.0, f"{kind}/to_timestamp": num / fps}
    for name, figures in stats.items():
        row |= {f"stats/{name}/{what}": np.asarray(value).tolist() for what, value in figures.items()}
    row |= {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}
    table = {name: pa.array([value]) for name, value in row.items()}
    for name, value in about.items():
        table[name] = pa.array([value], type=pa.string()) if value is None else pa.array([value])
    return pa.table(table)


def camera_column(camera: str) -> str:
    """chest -> observation.images.chest."""
    return f"{PICTURES}.{camera}"
