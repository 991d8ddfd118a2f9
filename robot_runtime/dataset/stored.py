"""Any LeRobot v3 dataset on the disk, our own or another's, read only: `StoredDataset`.

meta/info.json            the columns, and the frame rate
meta/tasks.parquet        the texts of tasks
meta/episodes/*/*.parquet one row per episode: its length, its files, its time span in videos
data/*/*.parquet          the numbers, of one or many episodes a file
videos/NAME/*/*.mp4       the images, the same
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from robot_runtime.dataset.recording import ACTION, LEROBOT_COLUMNS
from robot_runtime.dataset.staged_episode import FILE, INFO, STATS, TASKS
from robot_runtime.errors import InvalidValueError

VERSION = "v3.0"
"""Version of LeRobot's format."""
MAX_FPS = 100_000
NUMBERS = "fiub"
"""numpy's kinds that are numbers or flags."""


@dataclass(frozen=True, eq=False)
class StoredEpisode:
    """One row of meta/episodes."""

    row: Mapping[str, Any]
    """The row without its statistics."""
    path: Path
    """The file with the row."""

    @property
    def index(self) -> int:
        return int(self.row["episode_index"])

    @property
    def length(self) -> int:
        """Number of frames, as the row declares."""
        return int(self.row["length"])

    @property
    def tasks(self) -> list[str]:
        return [str(text) for text in self.row.get("tasks") or ()]

    def file(self, kind: str) -> str:
        """Name of its file without the suffix; kind: "data", or "videos/observation.images.chest"."""
        return f"{kind}/{FILE.format(self.row[f'{kind}/chunk_index'], self.row[f'{kind}/file_index'])}"

    def span_s(self, camera: str) -> tuple[float, float]:
        """Its time span in a column's video [s]."""
        kind = f"videos/{camera}"
        return float(self.row[f"{kind}/from_timestamp"]), float(self.row[f"{kind}/to_timestamp"])


def slower_of(features: Mapping[str, Any]) -> float:
    """How many times slower than the person the robot of these labels moves; 1 for all other datasets."""
    feature = features.get(ACTION)
    info = feature.get("info") if isinstance(feature, Mapping) else None
    slower = info.get("slower", 1.0) if isinstance(info, Mapping) else 1.0
    is_pace = isinstance(slower, int | float) and not isinstance(slower, bool) and 0.0 < slower < math.inf
    return float(slower) if is_pace else 1.0


def refuse_no_dataset(root: Path) -> None:
    """InvalidValueError: a folder lacks the file that every LeRobot dataset has, or is of another version
    than 3; its text explains how to convert it."""
    if not (root / INFO).is_file():
        what = "; it is a raw capture: see capture label" if (root / "capture.json").is_file() else ""
        raise InvalidValueError(f"{root} is no LeRobot dataset: it has no {INFO}{what}")
    try:
        version = json.loads((root / INFO).read_text())["codebase_version"]
    except (OSError, KeyError, ValueError, TypeError, RecursionError):
        return  # without a version, or damaged: the reader checks what it needs
    if version != VERSION:
        raise InvalidValueError(f"{root} is a LeRobot dataset of {_other_version(root, str(version))}")


def _other_version(root: Path, version: str) -> str:
    """The version, and how to convert it."""
    numbers = re.fullmatch(r"v?(\d+)\.(\d+).*", version)
    if numbers is None:
        return f"an unknown version, {version!r:.40}; expected {VERSION}"
    at = (int(numbers[1]), int(numbers[2]))
    if at > (3, 0):
        return f"a newer version, {version}; expected {VERSION}: update robot-runtime"
    first = "convert it to v2.1 first, with LeRobot 0.3, then" if at < (2, 1) else "convert it:"
    return (
        f"the old version {version}; expected {VERSION}: {first} python -m "
        f"lerobot.scripts.convert_dataset_v21_to_v30 --repo-id={root.name} --root={root} --push-to-hub=false"
    )


class StoredDataset:
    """A dataset that no process writes while it is read."""

    def __init__(self, root: Path) -> None:
        """InvalidValueError: it is not a LeRobot dataset of version 3, or its metadata cannot be read."""
        import pyarrow as pa

        self.root = root
        refuse_no_dataset(root)
        try:
            self.info: dict[str, Any] = json.loads((root / INFO).read_text())
            self.fps, self.features = float(self.info["fps"]), dict(self.info["features"])
            _check_info(self.fps, self.features)
            self.episodes, self.tasks = self._read_episodes(), self._read_tasks()
            path = root / STATS
            self.stats: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
        except (KeyError, TypeError, ValueError, AttributeError, OSError, pa.ArrowException) as error:
            reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            raise InvalidValueError(f"the dataset in {root} is damaged: {reason:.500}") from error
        self._open: tuple[str, Any] | None = None

    @property
    def capture_fps(self) -> float:
        """Frames per second of the recorded person: more than `fps` for labels that are slowed down."""
        return self.fps * slower_of(self.features)

    @cached_property
    def cameras(self) -> tuple[str, ...]:
        """Image columns that are stored in videos."""
        return tuple(name for name, feature in self.features.items() if feature["dtype"] == "video")

    @cached_property
    def pictures(self) -> tuple[str, ...]:
        """Image columns that are stored among the numbers."""
        return tuple(name for name, feature in self.features.items() if feature["dtype"] == "image")

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """Columns of numbers, except those that LeRobot adds itself."""
        return tuple(
            name
            for name, feature in self.features.items()
            if name not in LEROBOT_COLUMNS and np.dtype(_dtype(feature["dtype"])).kind in NUMBERS
        )

    def row(self, episode: StoredEpisode) -> Any:
        """Its row of meta/episodes, with its statistics, as a pyarrow table."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        table = pq.read_table(episode.path)
        return table.filter(pc.equal(table["episode_index"], episode.index))

    def table(self, episode: StoredEpisode) -> Any:
        """Its rows as a pyarrow table, all columns. OSError, ArrowException: it is damaged."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        name = f"{episode.file('data')}.parquet"
        if self._open is None or self._open[0] != name:
            self._open = name, pq.read_table(self.root / name)
        table = self._open[1]
        return table.filter(pc.equal(table["episode_index"], episode.index))

    def video(self, episode: StoredEpisode, camera: str) -> Path:
        """The file with its images, among those of others."""
        return self.root / f"{episode.file(f'videos/{camera}')}.mp4"

    def names(self, column: str) -> list[str]:
        """Names of the numbers of a column: its own names, where it has one for each."""
        feature = self.features[column]
        size = int(np.prod(feature["shape"], dtype=int))
        names = feature.get("names")
        if isinstance(names, dict):  # {"motors": [...]}, of older robots
            names = next((value for value in names.values() if isinstance(value, list)), None)
        if isinstance(names, list) and len(names) == size and size:
            return [str(name) for name in names]
        return [column] if size == 1 else [f"{column}[{i}]" for i in range(size)]

    def _read_episodes(self) -> list[StoredEpisode]:
        import pyarrow.parquet as pq

        found = []
        for path in sorted((self.root / "meta/episodes").glob("*/*.parquet")):
            schema = pq.read_schema(path)
            wanted = [name for name in schema.names if not name.startswith("stats/")]
            rows = pq.read_table(path, columns=wanted).to_pylist()
            for row in rows:
                if not all(isinstance(row[name], int) for name in ("episode_index", "length")):
                    raise ValueError(f"{path.name} has an episode without an index or a length")
            found += [StoredEpisode(row, path) for row in rows]
        found.sort(key=lambda episode: episode.index)
        return [episode for episode in found if episode.index < self.info["total_episodes"]]

    def _read_tasks(self) -> dict[int, str]:
        import pyarrow.parquet as pq

        path = self.root / TASKS
        if not path.is_file():
            return {}
        return {int(row["task_index"]): str(text) for text, row in pq.read_table(path).to_pandas().iterrows()}


def array_of(table: Any, column: str, shape: tuple[int, ...] = ()) -> np.ndarray:
    """A column of a table as (rows, numbers); ValueError: its rows differ in size."""
    flat = _flat(table[column])
    numbers = flat.to_numpy(zero_copy_only=False)
    if table.num_rows == 0:
        return numbers.reshape(0, max(1, int(np.prod(shape, dtype=int))))
    if numbers.size % table.num_rows:
        raise ValueError(f"the rows of {column} differ in size")
    return numbers.reshape(table.num_rows, -1)


def _flat(column: Any) -> Any:
    """All its numbers in one row, however its lists are nested."""
    import pyarrow as pa

    flat = column.combine_chunks()
    if isinstance(flat, pa.ChunkedArray):  # as returned by some versions of pyarrow
        flat = pa.concat_arrays(flat.chunks) if flat.num_chunks else pa.array([], type=flat.type)
    while True:
        if isinstance(flat, pa.ExtensionArray):
            flat = flat.storage
        elif pa.types.is_list(flat.type) or pa.types.is_large_list(flat.type) or _is_fixed(flat.type):
            flat = flat.flatten()
        else:
            return flat


def _is_fixed(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_fixed_size_list(kind))


def _dtype(name: str) -> str:
    return name if name not in ("video", "image", "string", "language", "audio") else "S1"


def _check_info(fps: float, features: Mapping[str, Any]) -> None:
    """ValueError: the columns or the rate of meta/info.json are invalid."""
    if not 0.0 < fps <= MAX_FPS:
        raise ValueError(f"its fps is {fps:g}, not above 0 and at most {MAX_FPS}")
    if missing := sorted(LEROBOT_COLUMNS - features.keys()):
        raise ValueError(f"its features lack {', '.join(missing)}, which every LeRobot dataset has")
    for name, feature in features.items():
        if ".." in name.split("/") or name.startswith("/"):
            raise ValueError(f"column {name!r} is no name of a folder below it")
        if not isinstance(feature, dict) or not {"dtype", "shape"} <= feature.keys():
            raise ValueError(f"column {name!r} has no dtype and shape: {feature!r:.100}")
        shape, dtype = feature["shape"], feature["dtype"]
        if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"the shape of column {name!r} is a list of sizes, got {shape!r:.100}")
        try:
            np.dtype(_dtype(str(dtype)))
        except TypeError:
            raise ValueError(f"the dtype of column {name!r} is none: {dtype!r:.100}") from None
