"""Checks of a dataset as a whole: whether its files agree."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from robot_runtime.dataset.check.episode import Numbers, Span
from robot_runtime.dataset.check.finding import Finding, Severity
from robot_runtime.dataset.recording import ACTION, STATE
from robot_runtime.dataset.stored import StoredDataset

STANDS_TO_MEAN = 1e-3
"""Tolerance of a number's figures in stats.json, as a share of its span."""


def indices(dataset: StoredDataset) -> Iterator[Finding]:
    """Episodes and frames are counted without gaps, and agree with info.json."""
    numbers = [episode.index for episode in dataset.episodes]
    stated = int(dataset.info["total_episodes"])
    if stated != len(numbers) or numbers != list(range(len(numbers))):
        there = set(numbers)
        missing = next(each for each in range(len(numbers) + 1) if each not in there)
        what = f"{missing} is missing" if missing < stated else "one is there twice"
        text = f"info.json counts {stated} episodes, meta/episodes has {len(numbers)}: {what}"
        yield Finding("index", Severity.UNUSABLE, text)
    at = 0
    for episode in dataset.episodes:
        start, end = int(episode.row["dataset_from_index"]), int(episode.row["dataset_to_index"])
        if start != at:
            text = f"the frames of episode {episode.index} begin at {start}, those before it end at {at}"
            yield Finding("index", Severity.UNUSABLE, text)
        at = end
    if (total := int(dataset.info["total_frames"])) != at:
        yield Finding("index", Severity.UNUSABLE, f"info.json counts {total} frames, its episodes have {at}")
    for episode in dataset.episodes:
        for camera in dataset.cameras:
            start_s, end_s = episode.span_s(camera)
            if abs((end_s - start_s) * dataset.fps - episode.length) > 0.5:
                text = (
                    f"episode {episode.index} has {episode.length} frames and {end_s - start_s:.3f} s of "
                    f"{camera} at {dataset.fps:g} a second"
                )
                yield Finding("index", Severity.UNUSABLE, text)


def columns(dataset: StoredDataset) -> Iterator[Finding]:
    """Columns that policies need exist, and have names."""
    for column in (STATE, ACTION):
        if column not in dataset.features:
            yield Finding("columns", Severity.DOUBTFUL, f"there is no column {column}")
        elif dataset.names(column)[0].endswith("[0]"):
            yield Finding("columns", Severity.NOTE, f"the numbers of {column} have no names")
    if not dataset.tasks:
        yield Finding("task", Severity.UNUSABLE, "there is no meta/tasks.parquet")


def stats(dataset: StoredDataset, episodes: Sequence[Numbers]) -> Iterator[Finding]:
    """min, max, mean and std of stats.json equal those of the data: policies are trained with them."""
    if not dataset.stats:
        yield Finding("stats", Severity.UNUSABLE, "there is no meta/stats.json")
        return
    for column in dataset.numbers:
        rows = [n.columns[column] for n in episodes if column in n.columns and n.num_rows]
        if not rows or len({each.shape[1] for each in rows}) > 1:
            continue
        if column not in dataset.stats:
            yield Finding("stats", Severity.DOUBTFUL, f"stats.json has no {column}")
            continue
        shape = dataset.features[column]["shape"]
        values = np.concatenate(rows).astype(float).reshape(-1, int(shape[-1]) if shape else 1)
        if not np.isfinite(values).all():
            continue
        yield from _off(column, dataset, values)


def _off(column: str, dataset: StoredDataset, values: np.ndarray) -> Iterator[Finding]:
    true = {"min": values.min(0), "max": values.max(0), "mean": values.mean(0), "std": values.std(0)}
    largest = np.abs(values).max(0, initial=0.0)  # sums of float32 are off by a share of it
    allowed = STANDS_TO_MEAN * (true["max"] - true["min"]) + 1e-4 * largest + 1e-9
    for what, now in true.items():
        if what not in dataset.stats[column]:
            continue
        stated = np.array(dataset.stats[column][what], dtype=float).ravel()
        if stated.shape != now.shape:
            text = f"stats.json has {stated.size} numbers for {column} {what}, the data {now.size}"
            yield Finding("stats", Severity.UNUSABLE, text)
            return
        off = np.abs(stated - now) / (allowed if what != "std" else allowed + 1e-3 * largest)
        if off.max(initial=0.0) > 1.0:
            i = int(off.argmax())
            names = dataset.names(column)
            where = column if len(names) != len(now) or names == [column] else f"{column} {names[i]}"
            text = f"stats.json has {what} {stated[i]:.4g} for {where}, the data {now[i]:.4g}"
            yield Finding("stats", Severity.UNUSABLE, text)
            return


def dead(spans: Mapping[str, Mapping[str, Span]]) -> Iterator[Finding]:
    """Numbers that are constant in the whole dataset: nothing can be learned from them."""
    for column, names in spans.items():
        if still := [name for name, span in names.items() if span.num_values == 1]:
            listed = ", ".join(still[:6]) + (f" and {len(still) - 6} more" if len(still) > 6 else "")
            yield Finding("dead", Severity.NOTE, f"{column} never changes: {listed}")


def repeated(episodes: Mapping[int, Numbers]) -> dict[int, str]:
    """Episodes whose numbers equal those of an earlier one, and in words which."""
    first: dict[bytes, int] = {}
    out = {}
    for index, numbers in episodes.items():
        digest = hashlib.sha256()
        for column in (STATE, ACTION):
            if column in numbers.columns:
                digest.update(np.ascontiguousarray(numbers.columns[column]).tobytes())
        if (same := first.setdefault(digest.digest(), index)) != index and numbers.num_rows:
            out[index] = f"it repeats episode {same}"
    return out


def others(values: Mapping[int, float | None], what: str, most: float) -> dict[int, str]:
    """Episodes whose figure is further than `most` from the median of all, and in words how far."""
    known = {episode: value for episode, value in values.items() if value is not None}
    if len(known) < 4:
        return {}
    middle = float(np.median(list(known.values())))
    return {
        episode: f"{what} is {value:g} here and {middle:g} in most episodes"
        for episode, value in known.items()
        if abs(value - middle) > most
    }
