"""Selects episodes for the parts of a split dataset: by number, by share, by outcome or task."""

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from robot_runtime.dataset.edit.relabel import outcome_of
from robot_runtime.dataset.stored import StoredDataset, StoredEpisode
from robot_runtime.errors import InvalidValueError

_RANGE = re.compile(r"(\d*)(:?)(\d*)")


def indices_of(dataset: StoredDataset, ranges: Sequence[str]) -> list[int]:
    """Episodes that 0:10, 12 and 20: select, each once, in order. InvalidValueError: there are none."""
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
    """Two parts: chosen, and rest."""
    chosen = indices_of(dataset, ranges)
    rest = [episode.index for episode in dataset.episodes if episode.index not in set(chosen)]
    return {"chosen": chosen, "rest": rest}


def by_share(dataset: StoredDataset, share: float, seed: int) -> dict[str, list[int]]:
    """Two parts: train, and test; deterministic for a seed. InvalidValueError: one of them would be empty."""
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
    """A part for each outcome. InvalidValueError: no episode has a known outcome."""
    out = _grouped(dataset.episodes, lambda episode: outcome_of(episode) or "unknown")
    if [*out] == ["unknown"]:
        raise InvalidValueError(f"no episode of {dataset.root} has an outcome: set it by dataset relabel")
    return out


def by_task(dataset: StoredDataset) -> dict[str, list[int]]:
    """A part for each task, named by its words."""
    return _grouped(dataset.episodes, lambda episode: file_name("; ".join(episode.tasks)) or "no_task")


def file_name(text: str) -> str:
    """A text as a folder name."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:60]


def _grouped(
    episodes: Iterable[StoredEpisode], name_of: Callable[[StoredEpisode], str]
) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for episode in episodes:
        out.setdefault(name_of(episode), []).append(episode.index)
    return out
