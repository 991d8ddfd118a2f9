"""Merges and splits datasets: `merge`, `split`. An output is complete once it has its name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from robot_runtime.dataset.dataset_folder import DatasetFolder
from robot_runtime.dataset.edit.annotations import Annotation, annotate, annotations_of
from robot_runtime.dataset.edit.columns import RowColumns, in_order_of, refuse_others
from robot_runtime.dataset.edit.cut import cut_episode
from robot_runtime.dataset.staged_episode import StagedEpisode
from robot_runtime.dataset.stored import StoredDataset, StoredEpisode
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.staging import whole_folder

Progress = Callable[[int, int], object]


def merge(
    sources: Sequence[StoredDataset], output: Path, progress: Progress = lambda done, total: None
) -> int:
    """Write all episodes of the sources, one source after the other; returns their number.

    Columns are matched by name, in the order of the first source. InvalidValueError: they are of different
    robots, or the output exists.
    """
    for other in sources[1:]:
        refuse_others(sources[0], other)
    chosen = [(source, [episode.index for episode in source.episodes]) for source in sources]
    total = sum(len(indices) for _, indices in chosen)
    with whole_folder(_new(output)) as part:
        return _write(chosen, part, lambda done: progress(done, total))


def split(
    source: StoredDataset,
    parts: Mapping[str, Sequence[int]],
    output: Path,
    progress: Progress = lambda done, total: None,
) -> None:
    """Write a dataset for each part, `output`/NAME, of the episodes with these indices; empty parts are left
    out. InvalidValueError: there is no such episode, or the output exists."""
    known = {episode.index for episode in source.episodes}
    for name, indices in parts.items():
        if unknown := sorted(set(indices) - known):
            raise InvalidValueError(f"{source.root} has {len(known)} episodes, {name} asks for {unknown[0]}")
    total, before = sum(map(len, parts.values())), 0
    with whole_folder(_new(output)) as folder:
        folder.mkdir()
        for name, indices in parts.items():
            if indices:
                _write([(source, indices)], folder / name, _after(before, total, progress))
                before += len(indices)


def _after(before: int, total: int, progress: Progress) -> Callable[[int], object]:
    return lambda done: progress(before + done, total)


def _write(
    chosen: Sequence[tuple[StoredDataset, Sequence[int]]], target: Path, progress: Callable[[int], object]
) -> int:
    first = chosen[0][0]
    columns, notes = RowColumns([source for source, _ in chosen]), list[Annotation]()
    with DatasetFolder(target) as folder:
        for source, indices in chosen:
            episodes = {episode.index: episode for episode in source.episodes}
            annotations = annotations_of(source.root)
            for index in indices:
                place = folder.staging()
                place.mkdir()
                staged = in_order_of(first, source, _cut(source, episodes[index], place))
                notes += [
                    replace(each, episode=folder.num_episodes)
                    for each in annotations
                    if each.episode == index
                ]
                folder.take(replace(staged, episode=columns.of(staged.episode)), {})
                progress(folder.num_episodes)
        annotate(target, notes)
        return folder.num_episodes


def _cut(source: StoredDataset, episode: StoredEpisode, place: Path) -> StagedEpisode:
    try:
        return cut_episode(source, episode, place)
    except RobotRuntimeError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise InvalidValueError(
            f"episode {episode.index} of {source.root} cannot be copied, see dataset check: {what:.200}"
        ) from error


def _new(output: Path) -> Path:
    """InvalidValueError: the output exists already."""
    if output.exists():
        raise InvalidValueError(f"{output} exists: write into a new folder")
    return output
