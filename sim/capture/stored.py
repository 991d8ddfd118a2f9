"""Demonstrations of a dataset of labels, told as a robot's: `told_in`."""

from pathlib import Path

import numpy as np

from calibration.labels.columns import ACTION_NAMES, PLACES, Kind
from robot_runtime.core.values.pose_rows import turns_about_vertical
from robot_runtime.core.values.transforms import rotation_from_6d
from robot_runtime.dataset.recording import ACTION
from robot_runtime.dataset.run_columns import TRAINABLE
from robot_runtime.dataset.stored import StoredDataset, StoredEpisode, array_of
from robot_runtime.errors import InvalidValueError
from sim.capture.things import names_of
from sim.capture.told import Told, in_world


def has_places(folder: Path) -> bool:
    """Whether `capture label --task` has made it: frames can be told from beside."""
    return PLACES in StoredDataset(folder).features


def told_in(folder: Path, task: str) -> list[Told]:
    """Its episodes, whichever labels are its action. InvalidValueError: it is of another task, or damaged."""
    import pyarrow as pa

    dataset = StoredDataset(folder)
    wanted = [f"{name}.{axis}" for name in names_of(task) for axis in "xyz"]
    if (there := dataset.names(PLACES)) != wanted:
        raise InvalidValueError(
            f"{folder} knows where these are: {', '.join(there)}; {task} needs {', '.join(wanted)}"
        )
    try:
        kind: Kind = dataset.features[ACTION]["info"]["labels"]
        return [_told(dataset, episode, task, kind) for episode in dataset.episodes]
    except (KeyError, TypeError, ValueError, OSError, pa.ArrowException) as error:
        raise InvalidValueError(f"the labels in {folder} are damaged: {error!r:.300}") from error


def _told(dataset: StoredDataset, episode: StoredEpisode, task: str, kind: Kind) -> Told:
    table, things = dataset.table(episode), names_of(task)
    rows = array_of(table, ACTION, (len(ACTION_NAMES),)).astype(float)
    places = array_of(table, PLACES, (3 * len(things),)).astype(float)
    x_WB = np.column_stack([rows[:, :2], np.unwrap(rows[:, 2])])
    p, R = rows[:, 3:6], np.array([rotation_from_6d(row) for row in rows[:, 6:12]])
    is_world = kind == "world"
    return Told(
        words=episode.tasks[0],
        task=task,
        x_WB=x_WB,
        p_WE=p if is_world else in_world(x_WB, p),
        R_BE=turns_about_vertical(-x_WB[:, 2]) @ R if is_world else R,
        width=rows[:, 12],
        things={name: places[:, 3 * i : 3 * i + 3] for i, name in enumerate(things)},
        is_known=array_of(table, TRAINABLE)[:, 0].astype(bool),
        demonstration=episode.index,
    )
