"""Where fingers take a thing or let it go in a demonstration, and how a hand that is beside tries again.

    hand   ──╮ above              beside ○╮
             ╰──╮ begins, ends            ╰─── back over it, and down as she went
    fingers  open │ closing │ holds

A person aims well, so her hand is never low and beside; a robot's is, and a policy that has never seen that
closes its fingers where it is. These are corrective rows for states off a demonstration, as SPARTN makes them
for pictures of a wrist camera (Zhou et al., CVPR 2023), with what an expert does after a miss: up, over it,
and down.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float

from robot_runtime.core.values.state import readonly
from robot_runtime.robot.joint_move import min_jerk
from sim.capture.retargeted import RetargetedDemonstration, opened_width
from sim.experts.motion import DT_S, HORIZON

HOVER = 0.07
"""Over where it grips a hand that was beside begins to go down again [m]."""
SPEED, TURN_SPEED, SETTLE_S = 0.25, 0.5, 0.2
"""Of its way back there, and the base's: means [m/s, rad/s], and what comes to that [s]."""
ROWS_BEFORE, ROWS_AFTER, ROWS_LOW = 25, 12, 100
"""From where on, and until when, a hand may be told beside its grip; and how long it may have been low."""
NEAR = 0.06
"""What a hand grips is within so much of it [m]."""
_TAKEN, _LET_GO = ("cup", "handle"), ("cup",)
"""How names of things begin that are gripped, and that a hand can hold elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Grip:
    """One of a demonstration; rows of it."""

    thing: str
    above: int
    """The last in which the hand is `HOVER` over it."""
    begins: int
    """The last before fingers move."""
    ends: int
    """The first in which they hold, or are open."""
    takes: bool
    """Or lets go."""
    after: int
    """The first after the grip before it."""
    before: int
    """The first of the next, or behind all."""

    @property
    def frames(self) -> range:
        """In which the hand may be told beside; one that holds is told so before it lets go only."""
        end = min(self.ends + ROWS_AFTER, self.before) if self.takes else self.begins
        return range(max(self.after, self.begins - ROWS_BEFORE), end)

    def rows_of(self, k: int) -> slice:
        """Of the demonstration, by which frame k is told beside."""
        return slice(min(k, self.above), max(k + HORIZON, self.ends + 1))


def grips_of(
    told: RetargetedDemonstration, command: Float[np.ndarray, " N"], holds: Bool[np.ndarray, " N"]
) -> Iterator[Grip]:
    """What it takes, and the cups that it lets go of, in their order: those over which the hand has been."""
    changes = [*map(int, np.flatnonzero(np.diff(holds.astype(int)))), len(command) - 1]
    after, is_open = 0, opened_width(told.width)
    for before, following in pairwise(changes):
        takes = bool(holds[before + 1])
        begins, ends = before, before + 1
        if takes:
            while begins > after and command[begins] < command[begins - 1] - 1e-4:
                begins -= 1
        else:
            while ends < following and command[ends] < is_open:
                ends += 1
        thing = _at_hand(told, begins, _TAKEN if takes else _LET_GO)
        above = _above(told, begins, after)
        if thing is not None and above is not None:
            yield Grip(
                thing=thing,
                above=above,
                begins=begins,
                ends=ends,
                takes=takes,
                after=after,
                before=following + 1,
            )
        after = ends


def _at_hand(told: RetargetedDemonstration, k: int, kinds: tuple[str, ...]) -> str | None:
    off = {
        name: float(np.linalg.norm(p[k] - told.p_WE[k]))
        for name, p in told.things.items()
        if name.startswith(kinds) and ">" not in name
    }
    nearest = min(off, key=off.__getitem__, default=None)
    return nearest if nearest is not None and off[nearest] < NEAR else None


def _above(told: RetargetedDemonstration, begins: int, after: int) -> int | None:
    """The last row in which the hand was over where it grips; none: it came from aside, or only just took."""
    first = max(after, begins - ROWS_LOW)
    high = np.flatnonzero(told.p_WE[first : begins + 1, 2] > told.p_WE[begins, 2] + HOVER)
    return first + int(high[-1]) if len(high) else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Retry:
    """A way from beside to a grip, row by row."""

    at: Float[np.ndarray, "32"]
    """Where in the demonstration each is, counted in its rows: on the way back between two of them."""
    p_WE: Float[np.ndarray, "32 3"]
    """Where the hand is [m]."""
    opens: Bool[np.ndarray, "32"]
    """Whether fingers that were closed have to be open, whatever the demonstration's do."""


def retry(told: RetargetedDemonstration, grip: Grip, k: int, aside: Float[np.ndarray, "3"]) -> Retry:
    """From row k, the hand aside by so much [m]: back over the grip, up first, and then as she went."""
    over, is_late = grip.above, k > grip.above
    off = told.p_WE[k] + aside - told.p_WE[over] if is_late else aside
    num = max(over - k, math.ceil((_back_s(told, over, k, off) + SETTLE_S) / DT_S))
    i = np.arange(HORIZON)
    waits = over + (k - over) * led_back(num) if is_late else np.minimum(k + i, over)
    at = np.where(i < num, waits, np.minimum(over + i - num, len(told) - 1)).astype(float)
    left = np.column_stack([led_back(num), led_back(num), led_back(max(1, num // 2))])
    by = np.where(i < num, over, at).astype(int) if is_late else at.astype(int)
    return Retry(at=at, p_WE=told.p_WE[by] + left * off, opens=(i < num) & grip.takes)


def _back_s(told: RetargetedDemonstration, over: int, k: int, off: Float[np.ndarray, "3"]) -> float:
    """What a hand so far off and a base that goes from row k back to one over the grip take [s]."""
    way = np.abs(np.diff(told.x_WB[over : k + 1], axis=0))
    base = max(float(np.hypot(way[:, 0], way[:, 1]).sum()) / SPEED, float(way[:, 2].sum()) / TURN_SPEED)
    return max(float(np.linalg.norm(off)) / SPEED, base)


@cache
def led_back(rows: int) -> Float[np.ndarray, "32"]:
    """How much of an offset is left, row by row: all at first, none after so many, with the least jerk."""
    return readonly(1.0 - min_jerk(np.arange(HORIZON) / rows))
