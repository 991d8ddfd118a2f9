"""A person's demonstration retargeted to a robot: `RetargetedDemonstration`.

G  the virtual base of the labels       B  the robot's base, fixed to G by an offset X_GB
kinds of labels      decoupled   hand and base apart, smooth, exact together
                     chest       the hand as the chest sees it, lean and sway in it, on the same base
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from calibration.labels.columns import ACTION_NAMES, PLACES, VALID, WIDTH_NAMES
from calibration.labels.columns import Kind as LabelKind
from calibration.labels.grip import SQUEEZE_M, commanded_width
from calibration.labels.values import Labels
from robot_runtime.core.values.pose_rows import turns_about_vertical
from robot_runtime.core.values.transforms import compose_planar, rotation_from_6d
from robot_runtime.dataset.check import numbers
from robot_runtime.dataset.check.episode import numbers_of
from robot_runtime.dataset.recording import ACTION, STATE
from robot_runtime.dataset.run_columns import TRAINABLE
from robot_runtime.dataset.stored import StoredDataset, StoredEpisode, array_of
from robot_runtime.errors import InvalidValueError
from sim.capture.performance import Performance
from sim.capture.things import BIN, in_words, names_of
from sim.experts.handling import STANDOFF
from sim.experts.motion import DT_NS, DT_S
from sim.tasks.clear import BIN_P
from sim.tasks.household import TABLE_Z

Kind = Literal["decoupled", "chest"]
_MOVING = ("cup", "handle", "frontier", BIN)
"""Prefixes of the names of moving things."""
_NEAR_S = 0.25
"""A moving thing's position is the mean of its sightings within this time of a row [s]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RetargetedDemonstration:
    """One demonstration of a robot with base B, a row every `DT_NS`; W is any world with z up."""

    words: str
    task: str
    x_WB: Float[np.ndarray, "N 3"]
    p_WE: Float[np.ndarray, "N 3"]
    R_BE: Float[np.ndarray, "N 3 3"]
    width: Float[np.ndarray, " N"]
    """Measured gripper width [m]."""
    things: Mapping[str, Float[np.ndarray, "N 3"]]
    """Positions in W."""
    is_known: Bool[np.ndarray, " N"]
    """Whether a row can be learned from: tracked throughout."""
    demonstration: int = 0
    """Its number in the capture."""

    def __len__(self) -> int:
        return len(self.width)


def from_ground_truth(
    performance: Performance, *, words: str | None = None, slower: float = 1.0
) -> RetargetedDemonstration:
    """Retarget the ground truth, without devices; the base is the intended one.

    slower: the robot's duration divided by the person's.
    """
    at = np.searchsorted(performance.t_ns, np.arange(0, performance.t_ns[-1] - DT_NS, DT_NS / slower))
    x = performance.x_WB[at]
    R_WE = np.array([performance.X_WE[int(i)].rotation for i in at])
    return RetargetedDemonstration(
        words=words or performance.words,
        task=performance.task,
        x_WB=x,
        p_WE=performance.X_WE.p[at],
        R_BE=turns_about_vertical(-x[:, 2]) @ R_WE,
        width=performance.width[at],
        things={name: p[at] for name, p in performance.things.items()},
        is_known=np.ones(len(at), dtype=bool),
    )


def from_labels(
    labels: Labels,
    x_GB: Float[np.ndarray, "3"],
    *,
    task: str,
    words: str,
    kind: Kind = "decoupled",
    with_things: bool = True,
) -> RetargetedDemonstration:
    """Retarget a capture's labels to a robot whose base is at x_GB (x, y, yaw) in the virtual base.

    with_things: with positions of the task's things, from their sightings.
    InvalidValueError: a thing of the task was never seen.
    """
    x_WG = labels.x_WG
    x_WB = np.array([compose_planar(x, x_GB) for x in x_WG])
    x_WB[:, 2] = np.unwrap(x_WB[:, 2])
    X_GE = labels.X_GE if kind == "decoupled" else labels.X_GE_chest
    c, s = np.cos(x_WG[:, 2]), np.sin(x_WG[:, 2])
    p_WE = np.column_stack(
        [
            x_WG[:, 0] + c * X_GE.p[:, 0] - s * X_GE.p[:, 1],
            x_WG[:, 1] + s * X_GE.p[:, 0] + c * X_GE.p[:, 1],
            X_GE.p[:, 2],
        ]
    )
    return RetargetedDemonstration(
        words=words,
        task=task,
        x_WB=x_WB,
        p_WE=p_WE,
        R_BE=turns_about_vertical(np.full(len(x_WG), -x_GB[2])) @ X_GE.R,
        width=np.asarray(labels.width),
        things=places_of(labels, task) if with_things else {},
        is_known=np.asarray(labels.is_valid & np.isfinite(labels.width)),
        demonstration=labels.demonstration,
    )


def fit_offset(labels: Sequence[Labels], *, task: str) -> Float[np.ndarray, "3"]:
    """X_GB such that the robot works in front of its base as the person did.

    The bin at the person's hip is aligned with the robot's, by its sightings or by where the hand lets go;
    in tasks without a bin, the median pose of the working hand
    (low, over a table) is put `STANDOFF` in front of the base.
    """
    if task == "clear":
        seen = [g.p_G[g.seen] for each in labels if (g := each.glimpses.get(BIN)) is not None]
        if not seen or not len(np.concatenate(seen)):
            seen = [_released(each) for each in labels]
        if not len(np.concatenate(seen)):
            raise InvalidValueError(
                "the robot's base is placed by the bin at the person's hip, where the hand lets go: expected "
                "a hand that opens with a thing in it, got none; check the gripper's width"
            )
        at, wanted = np.median(np.concatenate(seen), axis=0), np.array(BIN_P)
    else:
        hands = np.concatenate([each.X_GE.p for each in labels])
        low = hands[hands[:, 2] < TABLE_Z + 0.12]
        if not len(low):
            raise InvalidValueError(
                "expected a hand that is low over a table at times, got none; check the floor's height"
            )
        at, wanted = np.median(low, axis=0), np.array([STANDOFF, 0.0])
    return np.array([*(at[:2] - wanted[:2]), 0.0])


def _released(labels: Labels) -> Float[np.ndarray, "N 3"]:
    """Positions of the hand in G where it lets go of what it holds."""
    width = np.asarray(labels.width)
    holds = commanded_width(width, labels.period_s) < width - 0.5 * SQUEEZE_M
    return np.asarray(labels.X_GE.p[np.flatnonzero(holds[:-1] & ~holds[1:]) + 1])


def places_of(labels: Labels, task: str) -> dict[str, Float[np.ndarray, "N 3"]]:
    """Positions of things in W from all sightings, past and future, as this runs offline.

    InvalidValueError: one was never seen.
    """
    out = {}
    for name in names_of(task):
        found = labels.glimpses.get(name)
        if found is None or not found.seen.any():
            raise InvalidValueError(f"{in_words(name)} was never seen: no camera has had it in view")
        p_W = in_world(labels.x_WG, found.p_G)
        weight = found.seen / (0.3 + np.linalg.norm(found.p_G, axis=1)) ** 2
        if name.partition(">")[0].startswith(_MOVING):
            out[name] = _near(p_W, weight, found.seen)
        else:
            mean = (weight[:, None] * p_W).sum(axis=0) / weight.sum()
            out[name] = np.tile(mean, (len(p_W), 1))
    return out


def in_world(x_WG: Float[np.ndarray, "N 3"], p_G: Float[np.ndarray, "N 3"]) -> Float[np.ndarray, "N 3"]:
    """Positions in a base at (x, y, yaw), row by row, expressed in W."""
    c, s = np.cos(x_WG[:, 2]), np.sin(x_WG[:, 2])
    x, y = c * p_G[:, 0] - s * p_G[:, 1], s * p_G[:, 0] + c * p_G[:, 1]
    return np.column_stack([x_WG[:, 0] + x, x_WG[:, 1] + y, p_G[:, 2]])


def _near(
    p: Float[np.ndarray, "N 3"], weight: Float[np.ndarray, " N"], seen: Bool[np.ndarray, " N"]
) -> Float[np.ndarray, "N 3"]:
    """The mean of sightings around each row, or the nearest one in time if there are none."""
    half = round(_NEAR_S / DT_S)
    kernel = np.hanning(2 * half + 3)[1:-1]
    total = np.convolve(weight, kernel, mode="same")
    means = np.column_stack([np.convolve(weight * p[:, i], kernel, mode="same") for i in range(3)])
    at = np.flatnonzero(seen)
    rows = np.arange(len(p))
    right = np.clip(np.searchsorted(at, rows), 0, len(at) - 1)
    left = np.maximum(right - 1, 0)
    nearest = np.where(np.abs(at[left] - rows) < np.abs(at[right] - rows), at[left], at[right])
    is_near = total > 0.0
    return np.where(is_near[:, None], means / np.where(is_near, total, 1.0)[:, None], p[nearest])


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
        kind: LabelKind = dataset.features[ACTION]["info"]["labels"]
        return [_retargeted(dataset, episode, task, kind) for episode in dataset.episodes]
    except InvalidValueError:
        raise
    except (LookupError, TypeError, ValueError, OSError, pa.ArrowException) as error:
        raise InvalidValueError(f"the labels in {folder} are damaged: {error!r:.300}") from error


def _retargeted(
    dataset: StoredDataset, episode: StoredEpisode, task: str, kind: LabelKind
) -> RetargetedDemonstration:
    table, things = dataset.table(episode), names_of(task)
    rows = array_of(table, ACTION, (len(ACTION_NAMES),)).astype(float)
    names = dataset.names(STATE)
    measured = array_of(table, STATE, (len(names),)).astype(float)[:, names.index(WIDTH_NAMES[0])]
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
        width=np.where(has_width, measured, np.nan),
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


def _refuse_unlikely(which: str, rows: np.ndarray, kind: LabelKind) -> None:
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
