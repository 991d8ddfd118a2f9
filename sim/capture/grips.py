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

import numpy as np
from jaxtyping import Bool, Float, Int

from sim.capture.told import Told
from sim.experts.motion import DT_S, HORIZON
from sim.scene.model import MAX_WIDTH

HOVER = 0.07
"""Over where it grips a hand that was beside begins to go down again [m]."""
SPEED, SETTLE_S = 0.25, 0.2
"""Of its way back there: mean [m/s], and what comes to that [s]."""
ROWS_BEFORE, ROWS_AFTER = 25, 12
"""From where on, and until when, a hand may be told beside its grip."""
NEAR = 0.06
"""What a hand grips is within so much of it [m]."""
_OPEN = 0.9 * MAX_WIDTH
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

    @property
    def frames(self) -> range:
        """In which the hand may be told beside; one that holds is told so before it lets go only."""
        end = self.ends + ROWS_AFTER if self.takes else self.begins
        return range(max(0, self.begins - ROWS_BEFORE), end)

    def rows_of(self, k: int) -> slice:
        """Of the demonstration, by which frame k is told beside."""
        return slice(min(k, self.above), max(k + HORIZON, self.ends + 1))


def grips_of(told: Told, command: Float[np.ndarray, " N"], holds: Bool[np.ndarray, " N"]) -> Iterator[Grip]:
    """What it takes, and the cups that it lets go of, in their order."""
    for before in map(int, np.flatnonzero(np.diff(holds.astype(int)))):
        takes = bool(holds[before + 1])
        begins, ends = before, before + 1
        if takes:
            while begins > 0 and command[begins] < command[begins - 1] - 1e-4:
                begins -= 1
        else:
            while ends < len(command) - 1 and command[ends] < _OPEN:
                ends += 1
        if (thing := _at_hand(told, begins, _TAKEN if takes else _LET_GO)) is not None:
            yield Grip(thing=thing, above=_above(told, begins), begins=begins, ends=ends, takes=takes)


def _at_hand(told: Told, k: int, kinds: tuple[str, ...]) -> str | None:
    off = {
        name: float(np.linalg.norm(p[k] - told.p_WE[k]))
        for name, p in told.things.items()
        if name.startswith(kinds) and ">" not in name
    }
    nearest = min(off, key=off.__getitem__, default=None)
    return nearest if nearest is not None and off[nearest] < NEAR else None


def _above(told: Told, begins: int) -> int:
    first = max(0, begins - ROWS_BEFORE)
    high = np.flatnonzero(told.p_WE[first : begins + 1, 2] > told.p_WE[begins, 2] + HOVER)
    return first + int(high[-1]) if len(high) else max(first, begins - ROWS_BEFORE // 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class Retry:
    """A way from beside to a grip, row by row."""

    at: Int[np.ndarray, "32"]
    """The demonstration's row that each goes by."""
    p_WE: Float[np.ndarray, "32 3"]
    """Where the hand is [m]."""
    opens: Bool[np.ndarray, "32"]
    """Whether fingers that were closed have to be open, whatever the demonstration's do."""


def retry(told: Told, grip: Grip, k: int, aside: Float[np.ndarray, "3"]) -> Retry:
    """From row k, the hand aside by so much [m]: back over the grip, up first, and then as she went."""
    over, is_late = grip.above, k > grip.above
    off = told.p_WE[k] + aside - told.p_WE[over] if is_late else aside
    num = max(over - k, math.ceil((float(np.linalg.norm(off)) / SPEED + SETTLE_S) / DT_S))
    i = np.arange(HORIZON)
    waits = np.rint(over + (k - over) * led_back(num)).astype(int) if is_late else np.minimum(k + i, over)
    at = np.where(i < num, waits, np.minimum(over + i - num, len(told) - 1))
    left = np.column_stack([led_back(num), led_back(num), led_back(max(1, num // 2))])
    by = np.where(i < num, over, at) if is_late else at
    return Retry(at=at, p_WE=told.p_WE[by] + left * off, opens=(i < num) & grip.takes)


def led_back(rows: int) -> Float[np.ndarray, "32"]:
    """How much of an offset is left, row by row: all at first, none after so many, with the least jerk."""
    s = np.clip(np.arange(HORIZON) / rows, 0.0, 1.0)
    return 1.0 - s**3 * (10.0 - 15.0 * s + 6.0 * s**2)
