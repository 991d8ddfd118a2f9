"""Which episodes go into which part of a dataset that is split: by number, by share, by what they are."""

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from robot_runtime.dataset.edit.relabel import outcome_of
from robot_runtime.dataset.stored import StoredDataset, StoredEpisode
from robot_runtime.errors import InvalidValueError

_RANGE = re.compile(r"(\d*)(:?)(\d*)")


def indices_of(dataset: StoredDataset, ranges: Sequence[str]) -> list[int]:
    """Episodes that 0:10, 12 and 20: name, each once, in their order. InvalidValueError: there are none."""
    have = [episode.index for episode in dataset.episodes]
    out: dict[int, None] = {}
    for text in ranges:
        match = _RANGE.fullmatch(text)
        if match is None or not text:
            raise InvalidValueError(f"episodes are named as 0:10, 12 or 20:, got {text!r:.60}")
        first, is_range, last = match.groups()
        if is_range:
            found = [i for i in have if int(first or 0) <= i < int(last or len(have))]
        else:
            found = [i for i in have if i == int(first)]
        if not found:
            raise InvalidValueError(f"{dataset.root} has {len(have)} episodes, none of them is in {text}")
        out |= dict.fromkeys(found)
    return [*out]


def by_index(dataset: StoredDataset, ranges: Sequence[str]) -> dict[str, list[int]]:
    """chosen, and rest."""
    chosen = indices_of(dataset, ranges)
    rest = [episode.index for episode in dataset.episodes if episode.index not in set(chosen)]
    return {"chosen": chosen, "rest": rest}


def by_share(dataset: StoredDataset, share: float, seed: int) -> dict[str, list[int]]:
    """train, and test; the same for the same seed. InvalidValueError: one of them would have none."""
    have = [episode.index for episode in dataset.episodes]
    num = round(share * len(have))
    if not 0 < num < len(have):
        raise InvalidValueError(
            f"a share of {share:g} of {len(have)} episodes is {num}: both sides need one at least"
        )
    drawn = set(np.random.default_rng(seed).permutation(len(have))[:num].tolist())
    return {
        "train": [index for i, index in enumerate(have) if i in drawn],
        "test": [index for i, index in enumerate(have) if i not in drawn],
    }


def by_outcome(dataset: StoredDataset) -> dict[str, list[int]]:
    """A part for each outcome. InvalidValueError: nobody said how any of them ended."""
    out = _grouped(dataset.episodes, lambda episode: outcome_of(episode) or "unknown")
    if [*out] == ["unknown"]:
        raise InvalidValueError(f"nobody said how an episode of {dataset.root} ended: dataset relabel does")
    return out


def by_task(dataset: StoredDataset) -> dict[str, list[int]]:
    """A part for each task, named by its words."""
    return _grouped(dataset.episodes, lambda episode: file_name("; ".join(episode.tasks)) or "no_task")


def file_name(text: str) -> str:
    """A text as a name of a folder."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:60]


def _grouped(
    episodes: Iterable[StoredEpisode], name_of: Callable[[StoredEpisode], str]
) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for episode in episodes:
        out.setdefault(name_of(episode), []).append(episode.index)
    return out
