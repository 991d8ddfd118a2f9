"""How a frame of a demonstration is told otherwise than it was: drawn at random, by when the hand is busy.

draw_beside      the base, or a hand that is free, elsewhere; rows lead back
draw_off_plan    a robot that runs an older plan, which aims beside, and is off it
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from sim.experts.mobile import SQUEEZE
from sim.experts.motion import HORIZON
from sim.scene.model import MAX_WIDTH
from sim.tasks.household import TABLE_Z

BASE_ASIDE, YAW_ASIDE, HAND_ASIDE = 0.06, 0.10, 0.08
"""Deviations of what is told from beside [m, rad, m]."""
BACK_ROWS, BACK_ROWS_MIN = 26, 6
"""Rows in which they lead back; a hand that will soon be busy does so sooner, or is told where it was."""
LOW_ASIDE, LOW_UP, LOW_ROWS_MIN = 0.012, 0.04, 4
"""Deviations of a low hand whose fingers do not move yet, each way and up [m], and the rows it needs to come
back: the last centimetre is learned where nothing but what is seen of the thing can tell it. One whose
fingers do not move for long, as it wipes, is told as far off as a free one: a person seldom misses a spot and
goes back."""
DOWN_ROWS, BACK_LOW_ROWS = 6, 16
"""Rows in which a low hand is down again, and back: one that wipes on its way there misses what it passes."""
TURN_ASIDE = 0.08
"""Deviation of a hand's turn about each axis of the base [rad]; rows lead back as they do from the base's."""
OFF_BASE, OFF_YAW, OFF_HAND, OFF_UP = 0.06, 0.08, 0.05, 0.03
"""Deviations of a robot from the plan that it runs [m, rad, m, m]; a low hand is never under its plan."""
MOST_COMMITTED = 12
"""Rows of that plan that are given."""
AIM_BASE, AIM_YAW, AIM_HAND, AIM_UP = 0.05, 0.08, 0.05, 0.03
"""Deviations of that plan from hers [m, rad, m, m]; a low one is never under hers."""
WELL_AIMED, AIM_ROWS, MOST_ANEW = 0.015, 12, 16
"""So far beside is as good [m]. Else a hand that is about to grip needs so many rows first; where fewer are
left it begins anew, at most so many rows before."""
EMPTY_SHARE = 0.1
"""How many frames from beside show fingers closed on nothing, where rows open them: as after a miss."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Offset:
    """Of a robot from where it was, or from its rows."""

    base: Float[np.ndarray, "3"] = field(default_factory=lambda: np.zeros(3))
    """In B: x, y, yaw."""
    hand: Float[np.ndarray, "3"] = field(default_factory=lambda: np.zeros(3))
    """Of rows in W, of a robot off its rows in their B [m]."""
    turn: Float[np.ndarray, "3"] = field(default_factory=lambda: np.zeros(3))
    """Of the hand, a rotation vector in B [rad]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Aside:
    """How a frame is told otherwise than it was."""

    rows: Offset = field(default_factory=Offset)
    """Of its rows from hers; those that are not committed lead back."""
    robot: Offset = field(default_factory=Offset)
    """Of the robot from its first row."""
    width: float | None = None
    """Of fingers that have closed on nothing [m]; None: as they were."""
    num_committed: int = 0
    """Rows of an older plan, which the robot runs whatever is seen."""
    anew: int = 0
    """How many rows before those that would be next the rest begins."""


class BusyHand:
    """When a demonstration's hand is busy, row by row."""

    def __init__(
        self, command: Float[np.ndarray, " N"], width: Float[np.ndarray, " N"], z: Float[np.ndarray, " N"]
    ) -> None:
        """command, width: of the fingers, told and measured [m]. z: of the hand over the floor [m]."""
        self._command = command
        moves = np.abs(np.gradient(command)) > 1e-3
        busy = moves | (z < TABLE_Z + 0.13)
        self.free_rows = [_rows_until(busy[k : k + BACK_ROWS]) for k in range(len(z))]
        """How many rows from each on the hand is free, up to `BACK_ROWS`."""
        self.still_rows = [_rows_until(moves[k : k + BACK_ROWS]) for k in range(len(z))]
        """How many rows from each on the fingers stay as they are, up to `BACK_ROWS`."""
        self.holds = command < width - 0.5 * SQUEEZE
        self.back_rows = [
            free if free >= BACK_ROWS_MIN else 0 if holds else rows
            for free, rows, holds in zip(self.free_rows, self.still_rows, self.holds, strict=True)
        ]
        """How many rows from each on lead a hand back that is elsewhere; none: it is told where it was."""

    def index(self, k: int | np.ndarray) -> Any:
        """The frame itself, or the last one."""
        return np.minimum(k, len(self._command) - 1)

    def is_low(self, k: int) -> bool:
        """Whether the hand is at work, or will be in a moment."""
        return self.free_rows[k] < BACK_ROWS_MIN

    def back(self, k: int) -> Float[np.ndarray, "32 3"]:
        """How much of a hand's offset each way is left, row by row."""
        rows = max(self.back_rows[k], 1)
        if not self.is_low(k):
            return np.repeat(share_back(rows)[:, None], 3, axis=1)
        across, down = share_back(min(rows, BACK_LOW_ROWS)), share_back(min(rows, DOWN_ROWS))
        return np.column_stack([across, across, down])

    def empty(self, k: int, rng: np.random.Generator) -> float | None:
        """Now and then a width of fingers that have closed on nothing [m], where the rows open them."""
        opens = self._command[k : k + 10].min() > 0.9 * MAX_WIDTH
        return float(rng.uniform(0.0, 0.05)) if opens and rng.random() < EMPTY_SHARE else None


def draw_beside(times: BusyHand, k: int, rng: np.random.Generator) -> Aside:
    """Somewhere beside; a hand that is low is told nearer, and one that is busy where it was."""
    size = rng.random()
    base = size * rng.standard_normal(3) * [BASE_ASIDE, BASE_ASIDE, YAW_ASIDE]
    left, back = times.free_rows[k], times.back_rows[k]
    hand = rng.random() * HAND_ASIDE * min(1.0, left / 15) * rng.standard_normal(3)
    if times.is_low(k):
        across = LOW_ASIDE if back < BACK_ROWS else rng.random() * HAND_ASIDE
        hand = rng.standard_normal(3) * [across, across, LOW_UP * min(1.0, back / 15)]
        hand = hand if back >= LOW_ROWS_MIN else np.zeros(3)
        hand[2] = abs(hand[2])
    turn = rng.random() * TURN_ASIDE * rng.standard_normal(3)
    return Aside(rows=Offset(base=base, hand=hand, turn=turn), width=times.empty(k, rng))


def draw_off_plan(times: BusyHand, k: int, rng: np.random.Generator) -> Aside:
    """A robot that runs an older plan, which may aim beside, and is not where that is."""
    hand = rng.random() * rng.standard_normal(3) * [OFF_HAND, OFF_HAND, OFF_UP]
    if times.is_low(k):
        hand[2] = abs(hand[2])
    robot = Offset(
        base=rng.random() * rng.standard_normal(3) * [OFF_BASE, OFF_BASE, OFF_YAW],
        hand=hand,
        turn=rng.random() * rng.standard_normal(3) * TURN_ASIDE,
    )
    num_committed = int(rng.integers(1, MOST_COMMITTED + 1))
    rows, anew = _aim(times, k, num_committed, rng)
    return Aside(rows=rows, robot=robot, num_committed=num_committed, anew=anew)


def _aim(times: BusyHand, k: int, given: int, rng: np.random.Generator) -> tuple[Offset, int]:
    """Where an older plan aims of which so many rows are left, and how many rows before what is next it is
    to begin anew: as many as a hand needs that would grip beside."""
    size, at = rng.random(), times.index(k + given)
    base = rng.random() * rng.standard_normal(3) * [AIM_BASE, AIM_BASE, AIM_YAW]
    hand = size * rng.standard_normal(3) * [AIM_HAND, AIM_HAND, AIM_UP]
    if times.is_low(k) or times.is_low(at):
        hand[2] = abs(hand[2])
    anew = 0
    if not times.holds[at] and np.hypot(*hand[:2]) > WELL_AIMED:
        anew = min(max(AIM_ROWS - times.still_rows[at], 0), MOST_ANEW, at)
    if times.still_rows[k] < given or times.back_rows[at - anew] < LOW_ROWS_MIN:
        hand, anew = np.zeros(3), 0
    return Offset(base=base, hand=hand, turn=size * rng.standard_normal(3) * TURN_ASIDE), anew


def _rows_until(busy: Bool[np.ndarray, " n"]) -> int:
    return int(np.argmax(busy)) if busy.any() else BACK_ROWS


def share_back(rows: int) -> Float[np.ndarray, "32"]:
    """How much of an offset is left, row by row: all at first, none after so many."""
    share = np.clip(np.arange(HORIZON) / rows, 0.0, 1.0)
    return 1.0 - share**3 * (10.0 - 15.0 * share + 6.0 * share**2)
