"""Changes the task or outcome of recorded episodes: `relabel`.

Each change and its author are added to meta/annotations.jsonl, which keeps the old label; then the columns
that stock LeRobot and Evo-RL read are updated, each file completely or not at all.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from robot_runtime.dataset.dataset_folder import write_tasks
from robot_runtime.dataset.edit.annotations import Annotation, annotate, now
from robot_runtime.dataset.run_columns import OUTCOME, SUCCESS, success_of
from robot_runtime.dataset.staged_episode import INFO, STATS, TASKS, stats_of
from robot_runtime.dataset.stored import StoredDataset, StoredEpisode
from robot_runtime.errors import InvalidValueError


def relabel(
    root: Path,
    episodes: Iterable[int],
    *,
    task: str | None = None,
    outcome: str | None = None,
    by: str,
    why: str = "",
) -> list[Annotation]:
    """Give episodes another task, outcome or both; returns the changes.

    InvalidValueError: there is no such episode or outcome, or another process writes into the dataset.
    """
    if outcome is not None:
        success_of(outcome)
    with _locked(root):
        dataset = StoredDataset(root)
        known = {episode.index: episode for episode in dataset.episodes}
        if unknown := sorted(set(episodes := [*episodes]) - known.keys()):
            raise InvalidValueError(f"{root} has {len(known)} episodes, none of them is {unknown[0]}")
        changes: list[Annotation] = []
        for episode in (known[index] for index in episodes):
            for field, old, new in (
                ("task", "; ".join(episode.tasks), task),
                ("outcome", outcome_of(episode), outcome),
            ):
                if new is not None and new != old:
                    label = Annotation(
                        episode=episode.index, field=field, old=old, new=new, by=by, at=now(), why=why
                    )
                    changes.append(label)
        annotate(root, changes)
        if task is not None:
            _set_task(dataset, [known[each.episode] for each in changes if each.field == "task"], task)
        if outcome is not None:
            _set_outcome(
                dataset, [known[each.episode] for each in changes if each.field == "outcome"], outcome
            )
        return changes


def outcome_of(episode: StoredEpisode) -> str | None:
    """Its outcome: success, failure, timeout, ...; None: unknown."""
    value = episode.row.get(OUTCOME) or episode.row.get(SUCCESS)
    return None if value is None else str(value).lower()


def _set_task(dataset: StoredDataset, changed: Sequence[StoredEpisode], task: str) -> None:
    texts = {text: index for index, text in dataset.tasks.items()}
    index = texts.setdefault(task, max(dataset.tasks, default=-1) + 1)
    _replace(dataset.root / TASKS, lambda path: write_tasks(path, texts))
    indices = {episode.index for episode in changed}
    for name in dict.fromkeys(f"{episode.file('data')}.parquet" for episode in changed):
        _rewrite(dataset.root / name, indices, {"task_index": index})
    stats: dict[str, Any] = {f"stats/task_index/{what}": [index] for what in ("min", "max", "mean")}
    stats |= {f"stats/task_index/{what}": [index] for what in ("q01", "q10", "q50", "q90", "q99")}
    stats["stats/task_index/std"] = [0.0]
    for path in dict.fromkeys(episode.path for episode in changed):
        _rewrite(path, indices, {"tasks": [task], **stats})
    _set_stats(dataset, "task_index")
    info = {**dataset.info, "total_tasks": len(texts)}
    _replace(dataset.root / INFO, lambda path: path.write_text(json.dumps(info, indent=4)))


def _set_outcome(dataset: StoredDataset, changed: Sequence[StoredEpisode], outcome: str) -> None:
    indices = {episode.index for episode in changed}
    values = {OUTCOME: outcome, SUCCESS: success_of(outcome)}
    for path in dict.fromkeys(episode.path for episode in dataset.episodes):  # all get the columns
        _rewrite(path, indices, values)


def _rewrite(path: Path, episodes: set[int], values: dict[str, Any]) -> None:
    """Set columns of these episodes' rows; missing ones are created if they are texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    rows = np.isin(table["episode_index"].to_numpy(), [*episodes])
    for name, value in values.items():
        i = table.schema.get_field_index(name)
        if i < 0 and not isinstance(value, str):
            continue
        if i < 0:
            table = table.append_column(name, pa.nulls(table.num_rows, pa.string()))
            i = table.schema.get_field_index(name)
        field, now_there = table.schema.field(i), table[name].to_pylist()
        if rows.any():
            changed = [value if row else old for row, old in zip(rows, now_there, strict=True)]
            table = table.set_column(i, field, pa.array(changed, type=field.type))
    _replace(path, lambda part: pq.write_table(table, part))


def _set_stats(dataset: StoredDataset, column: str) -> None:
    """Recompute statistics of a column in stats.json from those of the episodes."""
    from lerobot.datasets.compute_stats import aggregate_stats

    if column not in dataset.stats:
        return
    rows = [dataset.row(episode).to_pylist()[0] for episode in dataset.episodes]
    each = [{column: stats[column]} for stats in map(stats_of, rows) if column in stats]
    if not each:
        return
    total = {what: value.tolist() for what, value in aggregate_stats(each)[column].items()}
    updated = {**dataset.stats, column: total}
    _replace(dataset.root / STATS, lambda path: path.write_text(json.dumps(updated, indent=4)))


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    part = path.with_name(path.name + ".part")
    try:
        write(part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Lock the dataset against other writers, as `DatasetFolder` does."""
    if not (root / INFO).is_file():
        raise InvalidValueError(f"{root} is no LeRobot dataset: it has no {INFO}")
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InvalidValueError(f"another process is writing into {root}") from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(handle)
