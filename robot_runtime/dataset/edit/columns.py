"""Checks that datasets are of one robot, and reorders the columns of an episode to those of another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from robot_runtime.dataset.recording import LEROBOT_COLUMNS, refuse_other_names
from robot_runtime.dataset.staged_episode import StagedEpisode
from robot_runtime.dataset.stored import StoredDataset, array_of
from robot_runtime.errors import InvalidValueError


def refuse_others(first: StoredDataset, other: StoredDataset) -> None:
    """InvalidValueError: they cannot be one dataset; names the difference."""
    for what, one, two in (
        ("frames a second", first.fps, other.fps),
        ("robot", first.info.get("robot_type"), other.info.get("robot_type")),
    ):
        if one != two:
            raise InvalidValueError(
                f"{first.root} and {other.root} cannot be one dataset: {what}: {one} and {two}"
            )
    for name in sorted((first.features.keys() ^ other.features.keys()) - LEROBOT_COLUMNS):
        side = first if name in first.features else other
        raise InvalidValueError(f"only {side.root} has a column {name!r}: columns are those of one robot")
    for name, feature in first.features.items():
        if name in LEROBOT_COLUMNS:
            continue
        has = other.features[name]
        if _is_named(first, name) and _is_named(other, name):
            refuse_other_names(
                f"column {name!r}", other.names(name), first.names(name), sides=(other.root, first.root)
            )
        elif (feature.get("names") is None) != (has.get("names") is None):
            raise InvalidValueError(
                f"only one of {first.root} and {other.root} names the numbers of {name!r}"
            )
        one, two = ((each["dtype"], list(each["shape"])) for each in (feature, has))
        if one != two:
            raise InvalidValueError(
                f"column {name!r} is {one[0]} {tuple(one[1])} in {first.root}, {two[0]} {tuple(two[1])} in "
                f"{other.root}"
            )
        if feature.get("info", {}).get("timing") != has.get("info", {}).get("timing"):
            raise InvalidValueError(f"column {name!r} means other times in {first.root} than in {other.root}")


def _is_named(dataset: StoredDataset, column: str) -> bool:
    feature = dataset.features[column]
    return feature["dtype"] not in ("video", "image", "string") and bool(feature.get("names"))


class RowColumns:
    """The columns of meta/episodes that all episodes of a new dataset have: statistics that all sources have,
    and other columns that any of them has, empty where unknown."""

    def __init__(self, sources: Sequence[StoredDataset]) -> None:
        import pyarrow.parquet as pq

        self._types: dict[str, Any] = {}
        self._stats: set[str] | None = None
        for path in dict.fromkeys(episode.path for source in sources for episode in source.episodes):
            schema = pq.read_schema(path)
            stats = {name for name in schema.names if name.startswith("stats/")}
            self._stats = stats if self._stats is None else self._stats & stats
            for field in schema:
                self._types.setdefault(field.name, field.type)

    def of(self, row: Any) -> Any:
        """A row with these columns, in one order."""
        import pyarrow as pa

        columns = {}
        for name, kind in self._types.items():
            if name.startswith("stats/") and name not in (self._stats or ()):
                continue
            if name in row.column_names:
                columns[name] = row[name].combine_chunks().cast(kind)
            else:
                columns[name] = pa.nulls(row.num_rows, kind)
        return pa.table(columns)


def in_order_of(first: StoredDataset, other: StoredDataset, staged: StagedEpisode) -> StagedEpisode:
    """An episode of the other with its numbers, and their statistics, in the order of the first."""
    data, row = staged.data, staged.episode
    for column in first.numbers:
        if not _is_named(first, column) or first.names(column) == other.names(column):
            continue
        has = other.names(column)
        order = [has.index(name) for name in first.names(column)]
        data = _put(data, column, array_of(data, column)[:, order])
        for name in row.column_names:
            if name.startswith(f"stats/{column}/") and not name.endswith("/count"):
                row = _put(row, name, array_of(row, name)[:, order])
    return replace(staged, data=data, episode=row, info=_info(first, staged.info))


def _info(first: StoredDataset, info: Mapping[str, Any]) -> dict[str, Any]:
    return {**info, "features": first.info["features"], "chunks_size": first.info["chunks_size"]}


def _put(table: Any, column: str, values: np.ndarray) -> Any:
    import pyarrow as pa

    i = table.schema.get_field_index(column)
    field = table.schema.field(i)
    return table.set_column(i, field, pa.array([*values], type=field.type))
