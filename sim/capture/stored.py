"""Demonstrations of a dataset of labels, retargeted to a robot: `retargeted_in`."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from calibration.labels.columns import ACTION_NAMES, PLACES, VALID, Kind
from robot_runtime.core.values.pose_rows import turns_about_vertical
from robot_runtime.core.values.transforms import rotation_from_6d
from robot_runtime.dataset.check import numbers
from robot_runtime.dataset.check.episode import numbers_of
from robot_runtime.dataset.recording import ACTION
from robot_runtime.dataset.run_columns import TRAINABLE
from robot_runtime.dataset.stored import StoredDataset, StoredEpisode, array_of
from robot_runtime.errors import InvalidValueError
from sim.capture.retargeted import RetargetedDemonstration, in_world
from sim.capture.things import names_of

_FARTHEST_M, _WIDEST_M = 3.0, 0.3
"""Plausible limits, at human scale, of hand distance from the base and of gripper width."""


def has_places(folder: Path) -> bool:
    """Whether `capture label --task` made the dataset, so that frames can be displaced."""
    return PLACES in StoredDataset(folder).features


def retargeted_in(folder: Path, task: str) -> list[RetargetedDemonstration]:
    """The dataset's episodes, whichever kind of labels its action has.

    InvalidValueError: it is of another task, or damaged.
    """
    import pyarrow as pa

    dataset = StoredDataset(folder)
    wanted = [f"{name}.{axis}" for name in names_of(task) for axis in "xyz"]
    if (there := dataset.names(PLACES)) != wanted:
        raise InvalidValueError(
            f"{folder}: expected positions of {', '.join(wanted)} for {task}, got {', '.join(there)}"
        )
    try:
        kind: Kind = dataset.features[ACTION]["info"]["labels"]
        return [_retargeted(dataset, episode, task, kind) for episode in dataset.episodes]
    except InvalidValueError:
        raise
    except (LookupError, TypeError, ValueError, OSError, pa.ArrowException) as error:
        raise InvalidValueError(f"the labels in {folder} are damaged: {error!r:.300}") from error


def _retargeted(
    dataset: StoredDataset, episode: StoredEpisode, task: str, kind: Kind
) -> RetargetedDemonstration:
    table, things = dataset.table(episode), names_of(task)
    rows = array_of(table, ACTION, (len(ACTION_NAMES),)).astype(float)
    places = array_of(table, PLACES, (3 * len(things),)).astype(float)
    has_width = array_of(table, "observation.valid", (len(VALID),))[:, VALID.index("gripper")].astype(bool)
    is_known = array_of(table, TRAINABLE)[:, 0].astype(bool) & has_width
    which = f"{dataset.root}, episode {episode.index}"
    if not has_width.any():
        raise InvalidValueError(
            f"{which}: the gripper's width is missing; film its tags, or have it stream its width"
        )
    _refuse_found(which, dataset, episode, is_known)
    _refuse_unlikely(which, rows[is_known], kind)
    x_WB = np.column_stack([rows[:, :2], np.unwrap(rows[:, 2])])
    p, R = rows[:, 3:6], np.array([rotation_from_6d(row) for row in rows[:, 6:12]])
    is_world = kind == "world"
    return RetargetedDemonstration(
        words=episode.tasks[0],
        task=task,
        x_WB=x_WB,
        p_WE=p if is_world else in_world(x_WB, p),
        R_BE=turns_about_vertical(-x_WB[:, 2]) @ R if is_world else R,
        width=np.where(has_width, rows[:, 12], np.nan),
        things={name: places[:, 3 * i : 3 * i + 3] for i, name in enumerate(things)},
        is_known=is_known,
        demonstration=episode.index,
    )


def _refuse_found(which: str, dataset: StoredDataset, episode: StoredEpisode, is_known: np.ndarray) -> None:
    """InvalidValueError: `dataset check` finds missing rows, or training values that are not finite."""
    all_numbers = numbers_of(dataset, episode)
    learned = {name: all_numbers.columns[name] for name in (ACTION, PLACES)}
    learned = {name: np.where(is_known[:, None], each, 0.0) for name, each in learned.items()}
    found = [*numbers.rows(all_numbers, dataset), *numbers.time(all_numbers, dataset)]
    for finding in (*found, *numbers.finite(replace(all_numbers, columns=learned))):
        if finding.check in ("rows", "time", "finite"):
            raise InvalidValueError(f"{which}: {finding.text}")


def _refuse_unlikely(which: str, rows: np.ndarray, kind: Kind) -> None:
    """InvalidValueError: training values are not in metres and radians."""
    off = np.linalg.norm(rows[:, 3:6] - (kind == "world") * np.pad(rows[:, :2], ((0, 0), (0, 1))), axis=1)
    far, widest = float(off.max(initial=0.0)), float(rows[:, 12].max(initial=0.0))
    if far > _FARTHEST_M or widest > _WIDEST_M:
        raise InvalidValueError(
            f"{which}: the hand is up to {far:.3g} from the base and its fingers {widest:.3g} apart: "
            f"expected metres, at most {_FARTHEST_M:g} and {_WIDEST_M:g}"
        )
    turn = float(np.abs(np.diff(rows[:, 2])).max(initial=0.0))
    if turn > math.pi:
        raise InvalidValueError(
            f"{which}: the base turns by {turn:.3g} from a row to the next: expected radians without jumps"
        )
