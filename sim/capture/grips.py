"""Where fingers take or release a thing in a demonstration, and how an end effector beside it retries.

    hand   ──╮ above              beside ○╮
             ╰──╮ begins, ends            ╰─── back over it, and down as demonstrated
    fingers  open │ closing │ holds

A person aims well and never reaches down beside a thing; a robot does, and a policy that has never seen that
state closes its fingers where they are. These are corrective rows for states off a demonstration, as SPARTN
makes them for wrist-camera images (Zhou et al., CVPR 2023), with what an expert does after a miss: up, over
it, and down.
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
"""Height above the grip from which a displaced end effector goes down again [m]."""
SPEED, TURN_SPEED, SETTLE_S = 0.25, 0.5, 0.2
"""Mean speeds of the path back, also the base's [m/s, rad/s], and the time added to it [s]."""
ROWS_BEFORE, ROWS_AFTER, ROWS_LOW = 25, 12, 100
"""Rows before and after a grip with displaced copies, and for how long the end effector may be low."""
NEAR = 0.06
"""Largest distance of a gripped thing from the end effector [m]."""
_TAKEN, _LET_GO = ("cup", "handle"), ("cup",)
"""Prefixes of the names of things that are gripped, and that can be carried elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Grip:
    """One grip or release of a demonstration, by row numbers."""

    thing: str
    above: int
    """Last row with the end effector `HOVER` above it."""
    begins: int
    """Last row before the fingers move."""
    ends: int
    """First row in which they hold, or are open."""
    takes: bool
    """Whether it takes the thing; otherwise it releases it."""
    after: int
    """First row after the previous grip."""
    before: int
    """First row of the next grip, or the end."""

    @property
    def frames(self) -> range:
        """Frames that may be displaced; a holding end effector only before it releases."""
        end = min(self.ends + ROWS_AFTER, self.before) if self.takes else self.begins
        return range(max(self.after, self.begins - ROWS_BEFORE), end)

    def rows_of(self, k: int) -> slice:
        """The demonstration's rows that a displaced frame k depends on."""
        return slice(min(k, self.above), max(k + HORIZON, self.ends + 1))


def grips_of(
    demonstration: RetargetedDemonstration, command: Float[np.ndarray, " N"], holds: Bool[np.ndarray, " N"]
) -> Iterator[Grip]:
    """Grips, and releases of cups, in order, where the end effector came from above."""
    changes = [*map(int, np.flatnonzero(np.diff(holds.astype(int)))), len(command) - 1]
    after, is_open = 0, opened_width(demonstration.width)
    for before, following in pairwise(changes):
        takes = bool(holds[before + 1])
        begins, ends = before, before + 1
        if takes:
            while begins > after and command[begins] < command[begins - 1] - 1e-4:
                begins -= 1
        else:
            while ends < following and command[ends] < is_open:
                ends += 1
        thing = _at_hand(demonstration, begins, _TAKEN if takes else _LET_GO)
        above = _above(demonstration, begins, after)
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


def _at_hand(demonstration: RetargetedDemonstration, k: int, kinds: tuple[str, ...]) -> str | None:
    off = {
        name: float(np.linalg.norm(p[k] - demonstration.p_WE[k]))
        for name, p in demonstration.things.items()
        if name.startswith(kinds) and ">" not in name
    }
    nearest = min(off, key=off.__getitem__, default=None)
    return nearest if nearest is not None and off[nearest] < NEAR else None


def _above(demonstration: RetargetedDemonstration, begins: int, after: int) -> int | None:
    """The last row with the end effector above the grip; None: it came from the side, or only just took."""
    first = max(after, begins - ROWS_LOW)
    high = np.flatnonzero(demonstration.p_WE[first : begins + 1, 2] > demonstration.p_WE[begins, 2] + HOVER)
    return first + int(high[-1]) if len(high) else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Retry:
    """A path from beside to a grip, row by row."""

    at: Float[np.ndarray, "32"]
    """Fractional row of the demonstration that each corresponds to."""
    p_WE: Float[np.ndarray, "32 3"]
    """End-effector position [m]."""
    opens: Bool[np.ndarray, "32"]
    """Whether closed fingers must open, whatever the demonstration's do."""


def retry(demonstration: RetargetedDemonstration, grip: Grip, k: int, aside: Float[np.ndarray, "3"]) -> Retry:
    """From row k, with the end effector displaced by `aside` [m]: up, over the grip, then as demonstrated."""
    over, is_late = grip.above, k > grip.above
    off = demonstration.p_WE[k] + aside - demonstration.p_WE[over] if is_late else aside
    num = max(over - k, math.ceil((_back_s(demonstration, over, k, off) + SETTLE_S) / DT_S))
    i = np.arange(HORIZON)
    waits = over + (k - over) * led_back(num) if is_late else np.minimum(k + i, over)
    at = np.where(i < num, waits, np.minimum(over + i - num, len(demonstration) - 1)).astype(float)
    left = np.column_stack([led_back(num), led_back(num), led_back(max(1, num // 2))])
    by = np.where(i < num, over, at).astype(int) if is_late else at.astype(int)
    return Retry(at=at, p_WE=demonstration.p_WE[by] + left * off, opens=(i < num) & grip.takes)


def _back_s(demonstration: RetargetedDemonstration, over: int, k: int, off: Float[np.ndarray, "3"]) -> float:
    """Time to correct the end effector's offset and to return the base from row k to above the grip [s]."""
    steps = np.abs(np.diff(demonstration.x_WB[over : k + 1], axis=0))
    base = max(float(np.hypot(steps[:, 0], steps[:, 1]).sum()) / SPEED, float(steps[:, 2].sum()) / TURN_SPEED)
    return max(float(np.linalg.norm(off)) / SPEED, base)


@cache
def led_back(rows: int) -> Float[np.ndarray, "32"]:
    """The share of an offset left in each row: 1 at first, 0 after `rows`, with minimum jerk."""
    return readonly(1.0 - min_jerk(np.arange(HORIZON) / rows))
