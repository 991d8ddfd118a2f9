"""A LeRobot v3 dataset that grows by whole episodes: `DatasetFolder`. At any moment stock LeRobot can read
the episodes finished so far.

    .unfinished/      the current episode, a dataset of its own until it is complete
    data/ videos/ meta/episodes/    one file each per episode: complete when they get their names
    meta/tasks.parquet, stats.json, info.json    replaced atomically; info.json last: it has the episode count

A kill between two of these leaves files that info.json does not count. Readers skip them, and the next
process that opens the folder removes them.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from robot_runtime.dataset.staged_episode import (
    FILE,
    INFO,
    STATS,
    TASKS,
    Place,
    StagedEpisode,
    Stats,
    stats_of,
)
from robot_runtime.dataset.stored import refuse_no_dataset
from robot_runtime.errors import InvalidValueError

UNFINISHED = ".unfinished"


class DatasetFolder:
    """One process at a time has it open; only finished episodes are ever visible in it."""

    def __init__(self, root: Path, *, resume: bool = False) -> None:
        """
        resume: continue an existing dataset; what a killed run has left of its last episode is removed and
            named in `leftovers`.
        InvalidValueError: the folder exists (or, to resume, is no dataset, is damaged or is being written).
        """
        self.root, self.leftovers = root, list[str]()
        self.info: dict[str, Any] | None = None
        self._tasks: dict[str, int] = {}
        self._stats: Stats | None = None
        self._notes: list[dict[str, Any]] = []
        self._there: list[dict[str, Any]] = []
        self._next_file = 0
        if root.exists() and not resume:
            raise InvalidValueError(
                f"a dataset is written into a folder of its own, {root} exists (--resume goes on in one)"
            )
        try:
            root.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise InvalidValueError(f"cannot write a dataset into {root}: {error.strerror}") from error
        try:
            self._take_lock()
            self._open()
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, OSError):
                raise InvalidValueError(f"cannot go on in {root}: {error}") from error
            raise

    @property
    def num_episodes(self) -> int:
        return 0 if self.info is None else int(self.info["total_episodes"])

    @property
    def num_frames(self) -> int:
        return 0 if self.info is None else int(self.info["total_frames"])

    @property
    def is_full(self) -> bool:
        """Whether its disk has no free block for this user."""
        return os.fstatvfs(self._lock).f_bavail == 0

    def notes(self, name: str) -> list[Any]:
        """The notes under `name` of the finished episodes, oldest first; None for episodes without one."""
        return [note.get(f"note/{name}") for note in self._notes]

    def column(self, name: str) -> list[Any]:
        """A column of meta/episodes for the episodes that existed when it was opened; None for episodes
        without one."""
        return [note.get(name) for note in self._there]

    def staging(self) -> Path:
        """A path on the same disk for the current episode; does not exist yet."""
        unfinished = self.root / UNFINISHED
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        return unfinished / "episode"

    def take(self, staged: StagedEpisode, notes: Mapping[str, int | str]) -> None:
        """Append an episode whose files are in `staging` to this dataset.

        notes: kept with it, by names that all episodes have in common.
        OSError: it cannot be written; this dataset is unchanged.
        """
        ready = self.root / UNFINISHED / "ready"
        ready.mkdir()
        tasks = dict(self._tasks)
        for text in staged.tasks:
            tasks.setdefault(text, len(tasks))
        place = Place(self._next_file, int(staged.info["chunks_size"]))
        noted = {f"note/{name}": value for name, value in notes.items()}
        if self._notes:
            noted = {name: noted[name] for name in self._notes[0] if name in noted}
        stats, moves = staged.write(ready, place, self.num_episodes, self.num_frames, tasks, noted)
        total = _added(self._stats, stats)
        info = self._counted(staged, tasks)
        write_tasks(ready / "tasks.parquet", tasks)
        (ready / "stats.json").write_text(json.dumps(_listed(total), indent=4))
        (ready / "info.json").write_text(json.dumps(info, indent=4))
        tasks_first, *rest = [(ready / Path(name).name, name) for name in (TASKS, STATS, INFO)]
        self._publish([tasks_first, *moves, *rest])  # references follow what they refer to
        self._next_file += 1
        self.info, self._tasks, self._stats = info, tasks, total
        self._notes.append(noted)

    def close(self) -> None:
        """Remove the unfinished episode; a folder without a single episode is removed, too."""
        if self._lock < 0:
            return
        shutil.rmtree(self.root / UNFINISHED, ignore_errors=True)
        if self.info is None:
            for name in ("data", "videos", "meta"):
                shutil.rmtree(self.root / name, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.root.rmdir()
        os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InvalidValueError(f"another process is writing into {self.root}") from error
        except OSError:
            return  # a file system without locks

    def _open(self) -> None:
        import pyarrow as pa

        unfinished = self.root / UNFINISHED
        if not (self.root / INFO).is_file():
            if any(self.root.iterdir()) and not unfinished.exists():
                raise InvalidValueError(f"{self.root} is no LeRobot dataset to go on with: no {INFO} in it")
            named, per_chunk = set[Path](), 1
        else:
            refuse_no_dataset(self.root)
        try:
            if (self.root / INFO).is_file():
                named, per_chunk = self._load()
            self._remove_leftovers(named, Place(self._next_file, per_chunk))
        except KeyError as error:
            raise InvalidValueError(f"the dataset in {self.root} is damaged: there is no {error}") from error
        except (TypeError, ValueError, AttributeError, OSError, pa.ArrowException) as error:
            raise InvalidValueError(f"the dataset in {self.root} is damaged: {error}") from error
        if unfinished.exists():
            self._remove([unfinished])

    def _load(self) -> tuple[set[Path], int]:
        """The files of the counted episodes, and the chunk size of the files."""
        import pyarrow.parquet as pq

        info = _checked(json.loads((self.root / INFO).read_text()))
        count, per_chunk = info["total_episodes"], info["chunks_size"]
        paths = sorted((self.root / "meta/episodes").glob("*/*.parquet"))
        rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
        rows = [row for row in rows if row["episode_index"] < count]
        if [row["episode_index"] for row in rows] != list(range(count)):
            raise ValueError(f"{INFO} counts {count} episodes, meta/episodes has {len(rows)} of them")
        if info["total_frames"] != (end := rows[-1]["dataset_to_index"] if rows else 0):
            raise ValueError(f"{INFO} counts {info['total_frames']} frames, its episodes have {end}")
        named = set[Path]()
        for row in rows:
            for path in self._paths_of(row):
                if not path.is_file():
                    raise ValueError(f"{path.relative_to(self.root)} is missing")
                if path.suffix == ".parquet" and path not in named:
                    pq.read_metadata(path)
                named.add(path)
        numbers = [
            row[key] * per_chunk + row[key.replace("chunk", "file")]
            for row in rows
            for key in row
            if key.endswith("/chunk_index")
        ]
        self._next_file = max(numbers, default=-1) + 1
        self._there = rows
        self._notes = [{k: v for k, v in row.items() if k.startswith("note/")} for row in rows]
        for row in rows:
            self._stats = _added(self._stats, stats_of(row))
        if count:
            table = pq.read_table(self.root / TASKS).to_pandas()
            texts = {str(text): int(row["task_index"]) for text, row in table.iterrows()}
            # One more may be that of an episode that did not get there.
            self._tasks = {text: i for text, i in texts.items() if i < info["total_tasks"]}
        self.info = info
        return named, per_chunk

    def _remove_leftovers(self, named: set[Path], place: Place) -> None:
        """Remove files of the one episode that a kill may have left, in the next place. Other files are never
        removed: ValueError."""
        left = [path for path in _files_in(self.root) if path not in named]
        for path in left:
            if str(path.relative_to(path.parents[1]).with_suffix("")) != place.name:
                raise ValueError(
                    f"{path.relative_to(self.root)} belongs to none of the {self.num_episodes} episodes that "
                    f"{INFO} counts, and no run that was killed has left it"
                )
        self._remove(left)

    def _paths_of(self, row: Mapping[str, Any]) -> list[Path]:
        """The files that an episode's row names."""
        out = []
        for key in row:
            if key.endswith("/chunk_index"):
                folder = key.removesuffix("/chunk_index")
                name = FILE.format(row[key], row[f"{folder}/file_index"])
                suffix = ".mp4" if folder.startswith("videos/") else ".parquet"
                out.append(self.root / folder / f"{name}{suffix}")
        return out

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            self.leftovers.append(str(path.relative_to(self.root)))
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _counted(self, staged: StagedEpisode, tasks: Mapping[str, int]) -> dict[str, Any]:
        info = dict(staged.info if self.info is None else self.info)
        info["total_episodes"] = self.num_episodes + 1
        info["total_frames"] = self.num_frames + staged.length
        info["total_tasks"] = len(tasks)
        info["splits"] = {"train": f"0:{info['total_episodes']}"}
        return info

    def _publish(self, moves: list[tuple[Path, str]]) -> None:
        """Rename finished files, in order; each is synced to the disk before."""
        for source, _ in moves:
            _sync(source)
        for source, name in moves:
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(source, target)
            for folder in target.parents:
                _sync(folder)
                if folder == self.root:
                    break


def _checked(info: dict[str, Any]) -> dict[str, Any]:
    """Check the used fields of an info.json; KeyError, TypeError, AttributeError or ValueError if invalid."""
    for name, least in (("total_episodes", 0), ("total_frames", 0), ("total_tasks", 0), ("chunks_size", 1)):
        if not isinstance(info[name], int) or info[name] < least:
            raise ValueError(f"{name} in {INFO} is a whole number from {least}, got {info[name]!r:.100}")
    if not isinstance(info["fps"], int | float):
        raise ValueError(f"fps in {INFO} is a number, got {info['fps']!r:.100}")
    for name, feature in info["features"].items():
        if not {"dtype", "shape", "names"} <= feature.keys() or not isinstance(feature["shape"], list):
            raise ValueError(f"column {name!r:.100} in {INFO} has no type, shape and names")
    return info


def _added(total: Stats | None, stats: Stats) -> Stats:
    from lerobot.datasets.compute_stats import aggregate_stats

    out: Stats = stats if total is None else aggregate_stats([total, stats])
    return out


def _listed(stats: Stats) -> dict[str, dict[str, Any]]:
    return {name: {what: value.tolist() for what, value in of.items()} for name, of in stats.items()}


def write_tasks(path: Path, tasks: Mapping[str, int]) -> None:
    import pandas as pd

    frame = pd.DataFrame({"task_index": list(tasks.values())}, index=pd.Index(list(tasks), name="task"))
    frame.to_parquet(path)


def _files_in(root: Path) -> list[Path]:
    """The files of episodes, complete or not."""
    found = [root.glob("data/*/*"), root.glob("videos/*/*/*"), root.glob("meta/episodes/*/*")]
    return sorted(path for paths in found for path in paths if path.is_file())


def _sync(path: Path) -> None:
    """Sync a file to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
