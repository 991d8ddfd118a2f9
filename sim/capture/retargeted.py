"""A person's demonstration as a robot would have made it: `RetargetedDemonstration`.

G  the virtual base of her labels        B  the robot's base, fixed to G by an offset X_GB
kinds of labels      decoupled   hand and base apart, smooth, exact together
                     chest       the hand as the chest sees it, lean and sway in it, on the same base
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from calibration.labels.values import Labels
from robot_runtime.core.values.pose_rows import turns_about_vertical
from robot_runtime.core.values.transforms import compose_planar
from robot_runtime.errors import InvalidValueError
from sim.capture.performance import Performance
from sim.capture.things import BIN, in_words, names_of
from sim.experts.handling import STANDOFF
from sim.experts.mobile import SQUEEZE
from sim.experts.motion import DT_NS, DT_S
from sim.tasks.clear import BIN_P
from sim.tasks.household import TABLE_Z

Kind = Literal["decoupled", "chest"]
_STALL_SPEED = 0.02
_LETS_GO, _STOPS_ROWS = 0.006, 10
"""By so much fingers open or close, and do not only tremble [m]; those that stop do not for so long."""
_MOVING = ("cup", "handle", "frontier", BIN)
"""How names of things begin that do not stand still."""
_NEAR_S = 0.25
"""A moving thing's place is the mean of its sightings within so long of a row [s]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RetargetedDemonstration:
    """One demonstration, a row every `DT_NS`, as of a robot whose base is B; W is any world with z up."""

    words: str
    task: str
    x_WB: Float[np.ndarray, "N 3"]
    p_WE: Float[np.ndarray, "N 3"]
    R_BE: Float[np.ndarray, "N 3 3"]
    width: Float[np.ndarray, " N"]
    """Measured [m]."""
    things: Mapping[str, Float[np.ndarray, "N 3"]]
    """In W."""
    is_known: Bool[np.ndarray, " N"]
    """Whether a row is to be learned from: tracked, nothing lost."""
    demonstration: int = 0
    """Its number in the capture that tells it."""

    def __len__(self) -> int:
        return len(self.width)


def from_ground_truth(
    performance: Performance, *, words: str | None = None, slower: float = 1.0
) -> RetargetedDemonstration:
    """What she meant, without any device between: the base as she would have had it.

    slower: how many times as long the robot takes.
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


def opened_width(width: Float[np.ndarray, " N"]) -> float:
    """Above which fingers are open, by how far they ever are: grippers people carry open as they do [m]."""
    known = width[np.isfinite(width)]
    return 0.9 * float(known.max()) if len(known) else math.inf


def commanded_width(width: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """What fingers have to be told that are to do as measured ones did: those that something stops squeeze.

    measured    open ──╲             ╱── open
                        ╲___________╱          stopped while closing, far from closed: something is held
    command     open ──╲             ╱──
                        ╲____       ╱
                             ╲─────╱           less by `SQUEEZE`

    A width trembles as it is measured: fingers let go once it is `_LETS_GO` more than what they held, and
    hold again once they have closed by as much. Rows in which it is not known stay so.
    """
    out = np.array(width, dtype=float)
    is_open, stops = opened_width(width), _stops(width)
    opened = False
    widest = 0.0  # since they held
    held: float | None = None
    narrowest = 0.0  # while they hold
    for i, w in enumerate(width):
        if not np.isfinite(w):
            continue
        opened, widest = opened or w > is_open, max(widest, float(w))
        has_closed = opened and w <= min(is_open, widest - _LETS_GO)
        if held is not None and (w > min(is_open, held + _LETS_GO) or held > narrowest + _LETS_GO):
            held, widest = None, float(w)
        elif held is None and has_closed and stops[i]:
            held = narrowest = float(w)
        if held is not None:
            held += 0.2 * (float(w) - held)
            narrowest = min(narrowest, held)
            out[i] = max(0.0, w - SQUEEZE)
    return out


def _stops(width: Float[np.ndarray, " N"]) -> Bool[np.ndarray, " N"]:
    """Whether fingers stand still in a row, and do not only close slowly."""
    n = len(width)
    if n < 2:
        return np.zeros(n, dtype=bool)
    padded = np.append(width, np.full(_STOPS_ROWS, np.inf))
    ahead = np.fmin.reduce([padded[i : i + n] for i in range(_STOPS_ROWS + 1)])
    return np.asarray((np.abs(np.gradient(width, DT_S)) < _STALL_SPEED) & (width - ahead < _LETS_GO))


def from_labels(
    labels: Labels, x_GB: Float[np.ndarray, "3"], *, task: str, words: str, kind: Kind = "decoupled"
) -> RetargetedDemonstration:
    """What a capture says she did, told of a robot whose base stands at x_GB (x, y, yaw) from hers.

    InvalidValueError: something that the task is about was never seen.
    """
    x_WG = labels.x_WG
    x_WB = np.array([compose_planar(x, x_GB) for x in x_WG])
    x_WB[:, 2] = np.unwrap(x_WB[:, 2])
    X_GE = labels.X_GE if kind == "decoupled" else labels.X_GE_chest
    R_GE, c, s = X_GE.R, np.cos(x_WG[:, 2]), np.sin(x_WG[:, 2])
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
        R_BE=turns_about_vertical(np.full(len(R_GE), -x_GB[2])) @ R_GE,
        width=np.asarray(labels.width),
        things=places_of(labels, task),
        is_known=np.asarray(labels.is_valid & np.isfinite(labels.width)),
        demonstration=labels.demonstration,
    )


def fit_offset(labels: Sequence[Labels], *, task: str) -> Float[np.ndarray, "3"]:
    """X_GB with which the robot does in front of itself what the person did in front of her.

    What she wears at the hip is to be where the robot has it; without that, the median hand that works (low,
    over a table) is to be `STANDOFF` before the base.
    """
    if task == "clear":
        seen = [g.p_G[g.seen] for each in labels if (g := each.glimpses.get(BIN)) is not None]
        if not seen or not len(np.concatenate(seen)):
            raise InvalidValueError("nobody has seen the bin at her hip: it says how the robot stands to her")
        at, wanted = np.median(np.concatenate(seen), axis=0), np.array(BIN_P)
    else:
        hands = np.concatenate([each.X_GE.p for each in labels])
        low = hands[hands[:, 2] < TABLE_Z + 0.12]
        if not len(low):
            raise InvalidValueError("the hand is never low over a table: is the floor's height right?")
        at, wanted = np.median(low, axis=0), np.array([STANDOFF, 0.0])
    return np.array([*(at[:2] - wanted[:2]), 0.0])


def places_of(labels: Labels, task: str) -> dict[str, Float[np.ndarray, "N 3"]]:
    """Where things were, in W, by all sightings of them: before and after, for nobody is waiting.

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
    """Places that a base at (x, y, yaw) sees, row by row, in W."""
    c, s = np.cos(x_WG[:, 2]), np.sin(x_WG[:, 2])
    x, y = c * p_G[:, 0] - s * p_G[:, 1], s * p_G[:, 0] + c * p_G[:, 1]
    return np.column_stack([x_WG[:, 0] + x, x_WG[:, 1] + y, p_G[:, 2]])


def _near(
    p: Float[np.ndarray, "N 3"], weight: Float[np.ndarray, " N"], seen: Bool[np.ndarray, " N"]
) -> Float[np.ndarray, "N 3"]:
    """The mean of sightings about each row, where there are any; else the nearest one in time."""
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
