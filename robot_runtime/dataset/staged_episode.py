"""A complete episode on its way into a dataset: `StagedEpisode`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from robot_runtime.errors import RobotRuntimeError

INFO, STATS, TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
EPISODES, DATA = "meta/episodes/{}.parquet", "data/{}.parquet"
FILE = "chunk-{:03d}/file-{:03d}"
"""Paths of LeRobot v3's files."""

Stats = dict[str, dict[str, np.ndarray]]
"""Statistics (min, max, mean, std, count, quantiles) by column."""


class RecordingFailedError(RobotRuntimeError):
    """An episode could not be written; reports why, and how many before it are complete."""


@dataclass(frozen=True)
class Place:
    """Position of an episode's files of each kind."""

    number: int
    files_per_chunk: int

    @property
    def indices(self) -> tuple[int, int]:
        """Index of the chunk, and of the file in it."""
        return divmod(self.number, self.files_per_chunk)

    @property
    def name(self) -> str:
        return FILE.format(*self.indices)


@dataclass(frozen=True, eq=False)
class StagedEpisode:
    """One complete episode, its videos in files of their own. RecordingFailedError: one of them has another
    length."""

    info: Mapping[str, Any]
    """The info.json of a dataset with this episode alone."""
    data: Any
    """Its rows, a pyarrow table; task_index counts its own tasks."""
    episode: Any
    """Its row of meta/episodes, a pyarrow table."""
    tasks: Sequence[str]
    videos: Mapping[str, Path]
    """Kind of file ("videos/observation.images.chest") -> the video, which is moved away."""

    def __post_init__(self) -> None:
        for name, path in self.videos.items():
            _refuse_other_length(name, path, self.length)

    @classmethod
    def read(cls, folder: Path) -> "StagedEpisode":
        """Read a dataset of one episode that LeRobot has written."""
        import pyarrow.parquet as pq

        first = FILE.format(0, 0)
        info: dict[str, Any] = json.loads((folder / INFO).read_text())
        tasks = pq.read_table(folder / TASKS).to_pandas().sort_values("task_index")
        names = [name for name, feature in info["features"].items() if feature["dtype"] == "video"]
        return cls(
            info=info,
            data=pq.read_table(folder / DATA.format(first)),
            episode=pq.read_table(folder / EPISODES.format(first)),
            tasks=[str(text) for text in tasks.index],
            videos={f"videos/{name}": folder / "videos" / name / f"{first}.mp4" for name in names},
        )

    @property
    def length(self) -> int:
        """Number of frames."""
        return int(self.data.num_rows)

    @cached_property
    def stats(self) -> Stats:
        """Statistics by column and name."""
        return stats_of(self.episode.to_pylist()[0])

    def write(
        self,
        ready: Path,
        place: Place,
        number: int,
        first_index: int,
        tasks: Mapping[str, int],
        notes: Mapping[str, int | str],
    ) -> tuple[Stats, list[tuple[Path, str]]]:
        """Its statistics, and its files with their target names, in the order in which they refer to each
        other.

        number: of the episode. first_index: of its first frame in the dataset.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        of_task = np.array([tasks[text] for text in self.tasks])
        columns = {
            "index": np.arange(first_index, first_index + self.length),
            "episode_index": np.full(self.length, number),
            "task_index": of_task[self.data["task_index"].to_numpy()],
        }
        stats = {**self.stats, **self._stats_of_numbers(columns)}
        data, episode = self.data, self.episode
        for name, values in columns.items():
            data = _with(data, name, values)
        chunk, file = place.indices
        changed: dict[str, Any] = {
            "episode_index": number,
            "dataset_from_index": first_index,
            "dataset_to_index": first_index + self.length,
        }
        for folder in ("data", "meta/episodes", *self.videos):
            changed |= {f"{folder}/chunk_index": chunk, f"{folder}/file_index": file}
        for name in columns:
            changed |= {f"stats/{name}/{what}": value.tolist() for what, value in stats[name].items()}
        for name, value in changed.items():
            episode = _with(episode, name, [value])
        for name, value in notes.items():
            episode = episode.append_column(name, pa.array([value]))
        pq.write_table(data, ready / "data.parquet")
        pq.write_table(episode, ready / "episodes.parquet")
        moves = [(path, f"{name}/{place.name}.mp4") for name, path in self.videos.items()]
        moves.append((ready / "data.parquet", DATA.format(place.name)))
        moves.append((ready / "episodes.parquet", EPISODES.format(place.name)))
        return stats, moves

    def _stats_of_numbers(self, columns: dict[str, np.ndarray]) -> Stats:
        from lerobot.datasets.compute_stats import compute_episode_stats

        features = {name: self.info["features"][name] for name in columns}
        out: Stats = compute_episode_stats(columns, features)
        return out


def _with(table: Any, name: str, values: Any) -> Any:
    """The table with one column replaced, with its type kept."""
    import pyarrow as pa

    i = table.schema.get_field_index(name)
    field = table.schema.field(i)
    return table.set_column(i, field, pa.array(values, type=field.type))


def _refuse_other_length(name: str, path: Path, num_frames: int) -> None:
    import av

    with av.open(str(path)) as file:
        num_pictures = file.streams.video[0].frames
    if num_pictures != num_frames:
        raise RecordingFailedError(f"{name} has {num_pictures} images for {num_frames} frames")


def stats_of(row: Mapping[str, Any]) -> Stats:
    """The statistics in an episode's row, by column and name."""
    out: Stats = {}
    for key, value in row.items():
        if key.startswith("stats/"):
            name, _, what = key.removeprefix("stats/").rpartition("/")
            out.setdefault(name, {})[what] = np.atleast_1d(np.array(value))
    return out
