"""Training samples of demonstrations retargeted to a robot: `samples`.

    rows of frame k      base of k, k+1, ... from the base of k; hand in those bases; width of the fingers

A person is never pushed off course as a scripted expert is. But base, end effector and things are known in
one world, so a frame can be perturbed: base, or free end effector, are displaced, and the rows correct that.
A person hardly tilts the gripper, so every frame is tilted as well: a network that knows tilt only as label
noise predicts arbitrary rows once a robot's end effector leans by some degrees.

A person is always where the rows are, a robot never: each frame is repeated for a robot that runs an older
plan and deviates from it; the first rows are that plan's.

A person is above a thing before reaching down for it, a robot not always: frames around each grip are
repeated with the end effector beside it. These are corrective rows for states off a demonstration, as SPARTN
makes them for wrist-camera images (Zhou et al., CVPR 2023), with what an expert does after a miss: up, over
it, and down.

    hand   ──╮ above              beside ○╮
             ╰──╮ begins, ends            ╰─── back over it, and down as demonstrated
    fingers  open │ closing │ holds
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import pinocchio as pin
from jaxtyping import Bool, Float

from calibration.labels.grip import SQUEEZE_M, commanded_width, opened_width
from policies.flow.demonstrations import StoredDemonstration
from robot_runtime.core.values.pose_rows import (
    quaternions_from_rotations,
    rotations_from_quaternions,
    slerp_rows,
    turns_about_vertical,
)
from robot_runtime.core.values.state import (
    ARM,
    BASE,
    GRIPPER,
    ArmState,
    BaseState,
    GripperState,
    Observation,
    RobotState,
    readonly,
)
from robot_runtime.core.values.transforms import rotation_to_6d, turn_planar
from robot_runtime.robot.joint_move import min_jerk
from sim.capture.retargeted import RetargetedDemonstration, in_world
from sim.capture.things import environment_state
from sim.experts.motion import DT_NS, DT_S, HORIZON
from sim.scene.kinematics import solve_down
from sim.scene.mobile_base import P_BA
from sim.scene.model import MAX_WIDTH, SERVO_LAG_S
from sim.tasks.household import TABLE_Z

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


Planar = Float[np.ndarray, "*n 3"]
BASE_ASIDE, YAW_ASIDE, HAND_ASIDE = 0.06, 0.10, 0.08
"""Standard deviations of a perturbed frame: base, yaw, end effector [m, rad, m]."""
BACK_ROWS, BACK_ROWS_MIN = 26, 6
"""Rows within which they correct it; an end effector that is soon busy takes fewer, or is not displaced."""
LOW_ASIDE, LOW_UP, LOW_ROWS_MIN = 0.012, 0.04, 4
"""Deviations of a low end effector whose fingers do not move yet, sideways and up [m], and the rows that it
needs to return: there the policy learns the last centimetre from the observed thing alone. One whose fingers
do not move for long, as when it wipes, is displaced as far as a free one: a person seldom misses a spot and
goes back."""
DOWN_ROWS, BACK_LOW_ROWS = 6, 16
"""Rows until a low end effector is down again, and back: wiping on the way would miss what it passes."""
TURN_ASIDE = 0.08
"""Deviation of the end effector's rotation about each base axis [rad]; corrected as the base's is."""
OFF_BASE, OFF_YAW, OFF_HAND, OFF_UP = 0.06, 0.08, 0.05, 0.03
"""Deviations of a robot from its plan [m, rad, m, m]; a low end effector is never below the plan."""
MOST_COMMITTED = 12
"""Most rows of that plan that a sample gives."""
EMPTY_SHARE = 0.1
"""Share of perturbed frames with fingers closed on nothing where the rows open them, as after a miss."""
MISS_MIN, MISS_MAX, MISS_UP = 0.015, 0.08, 0.05
"""Offset of the end effector from what it grips, and the most by which it is raised [m]."""


def samples(
    demonstration: RetargetedDemonstration,
    rng: np.random.Generator,
    *,
    beside: int = 0,
    off_plan: int = 0,
    missed: int = 0,
) -> list[StoredDemonstration]:
    """Every frame as a training sample, and its perturbed copies.

    beside, off_plan: copies of each frame displaced, and off its plan. missed: copies of each frame around a
    grip with the end effector beside it. Frames near the end repeat the last row; frames whose rows are not
    all known are left out.
    """
    if (n := len(demonstration)) < 2:
        return []
    planned = _Plan(demonstration)
    known = [k for k in range(n) if demonstration.is_known[k : k + HORIZON].all()]
    out = [planned.sample(k, _Aside()) for k in known]
    for _ in range(beside):
        out += [planned.sample(k, _aside(planned, k, rng)) for k in known]
    for _ in range(off_plan):
        out += [planned.sample(k, _off_plan(planned, k, rng)) for k in known]
    for grip in grips_of(demonstration, planned.command, planned.holds):
        frames = [k for k in known if k in grip.frames and demonstration.is_known[grip.rows_of(k)].all()]
        out += [planned.missed(k, grip, rng) for k in frames for _ in range(missed)]
    return out


def led_rows(demonstration: RetargetedDemonstration) -> Float[np.ndarray, "N 13"]:
    """The demonstration as one plan of absolute rows, which `sim.demonstrations.rollout_robot` executes."""
    planned = _Plan(demonstration)
    hand = seen_from(demonstration.x_WB, planned.p_ahead)
    return np.hstack([demonstration.x_WB, hand, rotation_to_6d(demonstration.R_BE), planned.command[:, None]])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Aside:
    """The perturbation of a frame."""

    base: Float[np.ndarray, "3"] = field(default_factory=lambda: np.zeros(3))
    """Displacement in B: x, y, yaw."""
    hand: Float[np.ndarray, "3"] = field(default_factory=lambda: np.zeros(3))
    """Displacement in W, or in B of a robot that is off its plan [m]."""
    turn: Float[np.ndarray, "3"] = field(default_factory=lambda: np.zeros(3))
    """Rotation vector of the end effector in B [rad]."""
    width: float | None = None
    """Width of fingers that have closed on nothing [m]; None: unchanged."""
    num_committed: int = 0
    """Rows of an older plan that the robot deviates from; 0: the rows correct the displacement."""


def _aside(planned: "_Plan", k: int, rng: np.random.Generator) -> _Aside:
    """A random displacement: smaller for a low end effector, none for one that is busy."""
    size = rng.random()
    base = size * rng.standard_normal(3) * [BASE_ASIDE, BASE_ASIDE, YAW_ASIDE]
    left, back = planned.free_rows[k], planned.back_rows[k]
    hand = rng.random() * HAND_ASIDE * min(1.0, left / 15) * rng.standard_normal(3)
    if planned.is_low(k):
        across = LOW_ASIDE if back < BACK_ROWS else rng.random() * HAND_ASIDE
        hand = rng.standard_normal(3) * [across, across, LOW_UP * min(1.0, back / 15)]
        hand = hand if back >= LOW_ROWS_MIN else np.zeros(3)
        hand[2] = abs(hand[2])
    turn = rng.random() * TURN_ASIDE * rng.standard_normal(3)
    return _Aside(base=base, hand=hand, turn=turn, width=planned.empty(k, rng))


def _off_plan(planned: "_Plan", k: int, rng: np.random.Generator) -> _Aside:
    """A robot that runs the rows but is not where they are."""
    hand = rng.random() * rng.standard_normal(3) * [OFF_HAND, OFF_HAND, OFF_UP]
    if planned.is_low(k):
        hand[2] = abs(hand[2])
    return _Aside(
        base=rng.random() * rng.standard_normal(3) * [OFF_BASE, OFF_BASE, OFF_YAW],
        hand=hand,
        turn=rng.random() * rng.standard_normal(3) * TURN_ASIDE,
        num_committed=int(rng.integers(1, MOST_COMMITTED + 1)),
    )


class _Plan:
    """The rows of a demonstration, and the observation at each."""

    def __init__(self, demonstration: RetargetedDemonstration) -> None:
        self._demonstration = demonstration
        self.command, self._is_open = (
            commanded_width(demonstration.width, DT_S),
            opened_width(demonstration.width),
        )
        lag = SERVO_LAG_S / DT_S
        self.p_ahead = demonstration.p_WE + lag * np.gradient(demonstration.p_WE, axis=0)
        v = np.gradient(demonstration.x_WB, DT_S, axis=0)
        self._v_B = np.array(
            [[*turn_planar(u[:2], -x[2]), u[2]] for u, x in zip(v, demonstration.x_WB, strict=True)]
        )
        moves = np.abs(np.gradient(self.command)) > 1e-3
        busy = moves | (demonstration.p_WE[:, 2] < TABLE_Z + 0.13)
        self.free_rows = [_rows_until(busy[k : k + BACK_ROWS]) for k in range(len(demonstration))]
        """For each row, how many rows from there the end effector stays free, up to `BACK_ROWS`."""
        still = [_rows_until(moves[k : k + BACK_ROWS]) for k in range(len(demonstration))]
        self.holds = self.command < demonstration.width - 0.5 * SQUEEZE_M
        self.back_rows = [
            free if free >= BACK_ROWS_MIN else 0 if holds else rows
            for free, rows, holds in zip(self.free_rows, still, self.holds, strict=True)
        ]
        """For each row, how many rows bring back a displaced end effector; 0: it is not displaced."""

    def _moved_with_hand(
        self, p_W: Float[np.ndarray, "3"], k: int, moved: Float[np.ndarray, "3"]
    ) -> Float[np.ndarray, "3"]:
        """A thing's position when the end effector is displaced: it moves along if it is held."""
        off = float(np.linalg.norm(p_W - self._demonstration.p_WE[k]))
        return p_W + moved if self.holds[k] and off < NEAR else p_W

    def is_low(self, k: int) -> bool:
        """Whether the end effector is at work, or is about to be."""
        return self.free_rows[k] < BACK_ROWS_MIN

    def _hand_back(self, k: int) -> Float[np.ndarray, "32 3"]:
        """The share of the end effector's offset that is left per axis, row by row."""
        rows = max(self.back_rows[k], 1)
        if not self.is_low(k):
            return np.repeat(led_back(rows)[:, None], 3, axis=1)
        across, down = led_back(min(rows, BACK_LOW_ROWS)), led_back(min(rows, DOWN_ROWS))
        return np.column_stack([across, across, down])

    def empty(self, k: int, rng: np.random.Generator) -> float | None:
        """At times, a width of fingers that have closed on nothing [m], where the rows open them."""
        opens = self.command[k : k + 10].min() > self._is_open
        return float(rng.uniform(0.0, 0.05)) if opens and rng.random() < EMPTY_SHARE else None

    def sample(self, k: int, aside: _Aside) -> StoredDemonstration:
        """Frame k, displaced or off its plan."""
        demonstration, base, hand = self._demonstration, aside.base, aside.hand
        at = np.minimum(k + np.arange(HORIZON), len(demonstration) - 1)
        off_W = np.array([*turn_planar(base[:2], demonstration.x_WB[k, 2]), base[2]])
        x_now = demonstration.x_WB[k] + off_W
        corrects = aside.num_committed == 0
        back = led_back(BACK_ROWS) if corrects else np.zeros(HORIZON)
        x = demonstration.x_WB[at] + back[:, None] * off_W
        p_W = self.p_ahead[at] + corrects * self._hand_back(k) * hand
        R_B = turns_about_vertical(-back * base[2]) @ demonstration.R_BE[at]
        p_B, R_B = seen_from(x, p_W), np.array([pin.exp3(b * aside.turn) for b in back]) @ R_B
        rows = np.hstack([_relative(x_now, x), p_B, rotation_to_6d(R_B), self.command[at][:, None]])
        if corrects:
            now, R_now = seen_from(x_now[None], demonstration.p_WE[[k]] + hand)[0], R_B[0]
        else:
            now, R_now = seen_from(x[:1], demonstration.p_WE[[k]])[0] + hand, pin.exp3(aside.turn) @ R_B[0]
        moved = in_world(x_now[None], now[None])[0] - demonstration.p_WE[k]
        things = {name: self._moved_with_hand(p[k], k, moved) for name, p in demonstration.things.items()}
        width = float(demonstration.width[k]) if aside.width is None else aside.width
        return self._seen(k, x_now, now, R_now, width, things, rows, num_committed=aside.num_committed)

    def missed(self, k: int, grip: Grip, rng: np.random.Generator) -> StoredDemonstration:
        """Frame k with end effector and base beside a grip, and rows that retry it."""
        demonstration = self._demonstration
        base = rng.random() * rng.standard_normal(3) * [BASE_ASIDE, BASE_ASIDE, YAW_ASIDE]
        off_W = np.array([*turn_planar(base[:2], demonstration.x_WB[k, 2]), base[2]])
        distance, angle = rng.uniform(MISS_MIN, MISS_MAX), rng.uniform(0.0, 2.0 * math.pi)
        aside = np.array([distance * math.cos(angle), distance * math.sin(angle), MISS_UP * rng.random()])
        again = retry(demonstration, grip, k, aside)
        back = led_back(BACK_ROWS)
        x_now, x = (
            demonstration.x_WB[k] + off_W,
            _between(demonstration.x_WB, again.at) + back[:, None] * off_W,
        )
        turn = rng.random() * TURN_ASIDE * rng.standard_normal(3)
        R_B = turns_about_vertical(-back * base[2]) @ _turned_between(demonstration.R_BE, again.at)
        R_B = np.array([pin.exp3(b * turn) for b in back]) @ R_B
        p_ahead = again.p_WE + SERVO_LAG_S / DT_S * np.gradient(again.p_WE, axis=0)
        command = np.where(again.opens, MAX_WIDTH, self.command[np.rint(again.at).astype(int)])
        rows = np.hstack([_relative(x_now, x), seen_from(x, p_ahead), rotation_to_6d(R_B), command[:, None]])
        p_now = demonstration.p_WE[k] + aside
        seen_at = min(k, grip.begins) if grip.takes else k  # what it takes has not moved yet
        things = {name: p[seen_at] for name, p in demonstration.things.items()}
        if not grip.takes:
            things[grip.thing] = things[grip.thing] + aside
        width = (
            min(float(demonstration.width[k]), float(self.command[k]))
            if grip.takes
            else float(demonstration.width[k])
        )
        return self._seen(k, x_now, seen_from(x_now[None], p_now[None])[0], R_B[0], width, things, rows)

    def _seen(
        self,
        k: int,
        x_now: Float[np.ndarray, "3"],
        p_BE: Float[np.ndarray, "3"],
        R_BE: Float[np.ndarray, "3 3"],
        width: float,
        things: Mapping[str, Float[np.ndarray, "3"]],
        rows: Float[np.ndarray, "32 13"],
        *,
        num_committed: int = 0,
    ) -> StoredDemonstration:
        """The sample of a robot whose base and end effector are there. things: positions in W."""
        demonstration = self._demonstration
        seen = {name: seen_from(x_now[None], p[None])[0] for name, p in things.items()}
        v_B = turn_planar(self._v_B[k, :2], demonstration.x_WB[k, 2] - x_now[2])
        state = RobotState(
            t_ns=k * DT_NS,
            parts={
                ARM: ArmState(q=_posture(p_BE, R_BE), dq=np.zeros(7), X_BE=pin.SE3(R_BE, p_BE)),
                GRIPPER: GripperState(width=width),
                BASE: BaseState(x_WB=x_now, V_WB_B=np.array([*v_B, self._v_B[k, 2]])),
            },
        )
        return StoredDemonstration(
            observation=Observation(
                state=state,
                environment_state=environment_state(demonstration.task, seen),
                task=demonstration.words,
            ),
            rows=rows,
            num_committed=num_committed,
        )


def _between(rows: Float[np.ndarray, "N m"], at: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n m"]:
    """Rows at fractional indices, by linear interpolation."""
    return np.column_stack([np.interp(at, np.arange(len(rows)), column) for column in rows.T])


def _turned_between(R: Float[np.ndarray, "N 3 3"], at: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 3 3"]:
    first = np.floor(at).astype(int)
    ends = (first, np.minimum(first + 1, len(R) - 1))
    before, after = (quaternions_from_rotations(R[each]) for each in ends)
    return rotations_from_quaternions(slerp_rows(before, after, at - first))


def _rows_until(busy: Bool[np.ndarray, " n"]) -> int:
    return int(np.argmax(busy)) if busy.any() else BACK_ROWS


def _posture(p_BE: Float[np.ndarray, "3"], R_BE: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "7"]:
    """Arm joints with the end effector there, pointing straight down; used for drawing only."""
    yaw = math.atan2(R_BE[1, 0], R_BE[0, 0])
    return solve_down((p_BE - P_BA)[None], np.array([yaw]))[0]


def seen_from(x_WB: Float[np.ndarray, "n 3"], p_W: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """Positions in W seen from a base at (x, y, yaw), row by row."""
    d = p_W - np.column_stack([x_WB[:, :2], np.zeros(len(x_WB))])
    c, s = np.cos(x_WB[:, 2]), np.sin(x_WB[:, 2])
    return np.column_stack([c * d[:, 0] + s * d[:, 1], c * d[:, 1] - s * d[:, 0], d[:, 2]])


def _relative(x: Float[np.ndarray, "3"], rows: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    d, (c, s) = rows - x, (math.cos(x[2]), math.sin(x[2]))
    return np.column_stack([c * d[:, 0] + s * d[:, 1], c * d[:, 1] - s * d[:, 0], d[:, 2]])
