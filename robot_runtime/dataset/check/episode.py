"""The numbers of an episode for checks, and the spans of a dataset's numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robot_runtime.core.values.columns import TWIST, VELOCITY
from robot_runtime.dataset.recording import ACTION, LEROBOT_COLUMNS, STATE
from robot_runtime.dataset.stored import StoredDataset, StoredEpisode, array_of


@dataclass(frozen=True, eq=False)
class Numbers:
    """All columns of numbers of one episode, in the order of its rows."""

    episode: StoredEpisode
    columns: Mapping[str, np.ndarray]
    """Column -> (rows, numbers); also LeRobot's own columns."""
    names: Mapping[str, Sequence[str]]

    @property
    def num_rows(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def series(self, column: str) -> dict[str, np.ndarray]:
        """Each number of a column over the episode, by name."""
        if column not in self.columns:
            return {}
        return dict(zip(self.names[column], self.columns[column].T.astype(float), strict=False))


@dataclass(frozen=True)
class Span:
    """Range of a number in a whole dataset."""

    low: float
    high: float
    num_values: int
    """Number of distinct values, counted up to 9."""

    @property
    def size(self) -> float:
        return self.high - self.low


@dataclass(frozen=True)
class Bounds:
    """A robot's limits for one of its numbers."""

    low: float
    high: float
    speed: float = np.inf
    """Maximum change per second."""


def numbers_of(dataset: StoredDataset, episode: StoredEpisode) -> Numbers:
    """ValueError, KeyError, OSError or ArrowException: it cannot be read."""
    table = dataset.table(episode)
    wanted = [name for name in (*dataset.numbers, *sorted(LEROBOT_COLUMNS)) if name in table.column_names]
    columns = {name: array_of(table, name) for name in wanted}
    return Numbers(episode, columns, {name: dataset.names(name) for name in wanted})


def spans_of(all_numbers: Sequence[Numbers], column: str) -> dict[str, Span]:
    """Ranges without the outer 0.5 % at each end, so that a spike does not widen them."""
    rows = [n.columns[column] for n in all_numbers if column in n.columns and n.num_rows]
    if not rows or len({each.shape[1] for each in rows}) > 1:
        return {}
    names = next(n.names[column] for n in all_numbers if column in n.columns)
    out = {}
    for name, values in zip(names, np.concatenate(rows).T.astype(float), strict=False):
        finite = values[np.isfinite(values)]
        if finite.size:
            low, high = np.quantile(finite, (0.005, 0.995))
            out[name] = Span(float(low), float(high), len(np.unique(finite[:100_000])[:9]))
    return out


def pairs(numbers: Numbers) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Numbers that are measured and commanded under one name: name, action, state."""
    state = numbers.series(STATE)
    for name, action in numbers.series(ACTION).items():
        if name in state and not is_velocity(name):
            yield name, action, state[name]


def is_velocity(name: str) -> bool:
    """Whether a number may jump, as velocities do; by its name."""
    return name.endswith((VELOCITY, ".vel", "_vel", "_velocity")) or name.rpartition(".")[2] in TWIST


def is_gripper(name: str) -> bool:
    """Whether a number is a gripper's; by its name."""
    return "gripper" in name.lower()
