"""Training samples of demonstrations told as a robot's: `samples`.

    rows of frame k      base of k, k+1, ... from the base of k; hand in those bases; width of the fingers

A person is never pushed off course as a scripted expert is; but as base, hand and things are known in one
world, a frame can be told from beside: the base, or a hand that is free, elsewhere, and rows that lead back.
Hands of people are hardly turned, so every hand is told turned as well: what a network has seen only as the
noise of its labels it takes for anything, once a robot's hand leans by some degrees.

And a person is always where her rows are, a robot never: each frame is told once more as of a robot that
runs an older plan and is off it, whose first rows are that plan's.

And a person who takes something is over it before she goes down, a robot not always: frames around each grip
are told once more with the hand beside it (`sim.capture.grips`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pinocchio as pin
from jaxtyping import Bool, Float

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
)
from robot_runtime.core.values.transforms import rotation_to_6d, turn_planar
from sim.capture.grips import NEAR, Grip, grips_of, led_back, retry
from sim.capture.retargeted import RetargetedDemonstration, commanded_width, in_world, opened_width
from sim.capture.things import environment_state
from sim.experts.mobile import SQUEEZE
from sim.experts.motion import DT_NS, DT_S, HORIZON
from sim.scene.kinematics import solve_down
from sim.scene.mobile_base import P_BA
from sim.scene.model import MAX_WIDTH, SERVO_LAG_S
from sim.tasks.household import TABLE_Z

Planar = Float[np.ndarray, "*n 3"]
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
EMPTY_SHARE = 0.1
"""How many frames from beside show fingers closed on nothing, where rows open them: as after a miss."""
MISS_MIN, MISS_MAX, MISS_UP = 0.015, 0.08, 0.05
"""How far a hand is told beside what it grips, and at most how much higher than it was [m]."""


def samples(
    told: RetargetedDemonstration,
    rng: np.random.Generator,
    *,
    beside: int = 0,
    off_plan: int = 0,
    missed: int = 0,
) -> list[StoredDemonstration]:
    """Every frame as a training sample, so many times from beside, and so many times off its plan; and those
    around its grips so many times with the hand beside them.

    A frame near the end repeats the last row; frames are left out whose rows are not all known.
    """
    if (n := len(told)) < 2:
        return []
    planned = _Plan(told)
    known = [k for k in range(n) if told.is_known[k : k + HORIZON].all()]
    out = [planned.sample(k, _Aside()) for k in known]
    for _ in range(beside):
        out += [planned.sample(k, _aside(planned, k, rng)) for k in known]
    for _ in range(off_plan):
        out += [planned.sample(k, _off_plan(planned, k, rng)) for k in known]
    for grip in grips_of(told, planned.command, planned.holds):
        frames = [k for k in known if k in grip.frames and told.is_known[grip.rows_of(k)].all()]
        out += [planned.missed(k, grip, rng) for k in frames for _ in range(missed)]
    return out


def led_rows(told: RetargetedDemonstration) -> Float[np.ndarray, "N 13"]:
    """All of it as one plan of absolute rows, as `sim.demonstrations.rollout_robot` leads a robot."""
    planned = _Plan(told)
    hand = seen_from(told.x_WB, planned.p_led)
    return np.hstack([told.x_WB, hand, rotation_to_6d(told.R_BE), planned.command[:, None]])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Aside:
    """How a frame is told otherwise than it was."""

    base: Float[np.ndarray, "3"] = field(default_factory=lambda: np.zeros(3))
    """In B: x, y, yaw."""
    hand: Float[np.ndarray, "3"] = field(default_factory=lambda: np.zeros(3))
    """In W, or in B of a robot that is off its plan [m]."""
    turn: Float[np.ndarray, "3"] = field(default_factory=lambda: np.zeros(3))
    """Of the hand, a rotation vector in B [rad]."""
    width: float | None = None
    """Of fingers that have closed on nothing [m]; None: as they were."""
    num_committed: int = 0
    """Rows of an older plan that the robot runs and is off; 0: rows lead back from where it is."""


def _aside(planned: "_Plan", k: int, rng: np.random.Generator) -> _Aside:
    """Somewhere beside; a hand that is low is told nearer, and one that is busy where it was."""
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
    """A robot that runs the rows and is not where they are."""
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
    """The rows of a demonstration, and what is seen at each."""

    def __init__(self, told: RetargetedDemonstration) -> None:
        self._told = told
        self.command, self._is_open = commanded_width(told.width), opened_width(told.width)
        lag = SERVO_LAG_S / DT_S
        self.p_led = told.p_WE + lag * np.gradient(told.p_WE, axis=0)
        v = np.gradient(told.x_WB, DT_S, axis=0)
        self._v_B = np.array([[*turn_planar(u[:2], -x[2]), u[2]] for u, x in zip(v, told.x_WB, strict=True)])
        moves = np.abs(np.gradient(self.command)) > 1e-3
        busy = moves | (told.p_WE[:, 2] < TABLE_Z + 0.13)
        self.free_rows = [_rows_until(busy[k : k + BACK_ROWS]) for k in range(len(told))]
        """How many rows from each on the hand is free, up to `BACK_ROWS`."""
        still = [_rows_until(moves[k : k + BACK_ROWS]) for k in range(len(told))]
        self.holds = self.command < told.width - 0.5 * SQUEEZE
        self.back_rows = [
            free if free >= BACK_ROWS_MIN else 0 if holds else rows
            for free, rows, holds in zip(self.free_rows, still, self.holds, strict=True)
        ]
        """How many rows from each on lead a hand back that is elsewhere; none: it is told where it was."""

    def _place(
        self, p_W: Float[np.ndarray, "3"], k: int, moved: Float[np.ndarray, "3"]
    ) -> Float[np.ndarray, "3"]:
        """Of a thing, where the hand is elsewhere by so much: with it, if it is held."""
        off = float(np.linalg.norm(p_W - self._told.p_WE[k]))
        return p_W + moved if self.holds[k] and off < NEAR else p_W

    def is_low(self, k: int) -> bool:
        """Whether the hand is at work, or will be in a moment."""
        return self.free_rows[k] < BACK_ROWS_MIN

    def _hand_back(self, k: int) -> Float[np.ndarray, "32 3"]:
        """How much of a hand's offset each way is left, row by row."""
        rows = max(self.back_rows[k], 1)
        if not self.is_low(k):
            return np.repeat(led_back(rows)[:, None], 3, axis=1)
        across, down = led_back(min(rows, BACK_LOW_ROWS)), led_back(min(rows, DOWN_ROWS))
        return np.column_stack([across, across, down])

    def empty(self, k: int, rng: np.random.Generator) -> float | None:
        """Now and then a width of fingers that have closed on nothing [m], where the rows open them."""
        opens = self.command[k : k + 10].min() > self._is_open
        return float(rng.uniform(0.0, 0.05)) if opens and rng.random() < EMPTY_SHARE else None

    def sample(self, k: int, aside: _Aside) -> StoredDemonstration:
        """Frame k, told from beside or off its plan."""
        told, base, hand = self._told, aside.base, aside.hand
        at = np.minimum(k + np.arange(HORIZON), len(told) - 1)
        off_W = np.array([*turn_planar(base[:2], told.x_WB[k, 2]), base[2]])
        x_now = told.x_WB[k] + off_W
        leads_back = aside.num_committed == 0
        back = led_back(BACK_ROWS) if leads_back else np.zeros(HORIZON)
        x = told.x_WB[at] + back[:, None] * off_W
        p_W = self.p_led[at] + leads_back * self._hand_back(k) * hand
        R_B = turns_about_vertical(-back * base[2]) @ told.R_BE[at]
        p_B, R_B = seen_from(x, p_W), np.array([pin.exp3(b * aside.turn) for b in back]) @ R_B
        rows = np.hstack([_relative(x_now, x), p_B, rotation_to_6d(R_B), self.command[at][:, None]])
        if leads_back:
            now, R_now = seen_from(x_now[None], told.p_WE[[k]] + hand)[0], R_B[0]
        else:
            now, R_now = seen_from(x[:1], told.p_WE[[k]])[0] + hand, pin.exp3(aside.turn) @ R_B[0]
        moved = in_world(x_now[None], now[None])[0] - told.p_WE[k]
        things = {name: self._place(p[k], k, moved) for name, p in told.things.items()}
        width = float(told.width[k]) if aside.width is None else aside.width
        return self._seen(k, x_now, now, R_now, width, things, rows, num_committed=aside.num_committed)

    def missed(self, k: int, grip: Grip, rng: np.random.Generator) -> StoredDemonstration:
        """Frame k with the hand, and the base, beside a grip, and rows that try it again."""
        told = self._told
        base = rng.random() * rng.standard_normal(3) * [BASE_ASIDE, BASE_ASIDE, YAW_ASIDE]
        off_W = np.array([*turn_planar(base[:2], told.x_WB[k, 2]), base[2]])
        way, angle = rng.uniform(MISS_MIN, MISS_MAX), rng.uniform(0.0, 2.0 * math.pi)
        aside = np.array([way * math.cos(angle), way * math.sin(angle), MISS_UP * rng.random()])
        led = retry(told, grip, k, aside)
        back = led_back(BACK_ROWS)
        x_now, x = told.x_WB[k] + off_W, _between(told.x_WB, led.at) + back[:, None] * off_W
        turn = rng.random() * TURN_ASIDE * rng.standard_normal(3)
        R_B = turns_about_vertical(-back * base[2]) @ _turned_between(told.R_BE, led.at)
        R_B = np.array([pin.exp3(b * turn) for b in back]) @ R_B
        p_led = led.p_WE + SERVO_LAG_S / DT_S * np.gradient(led.p_WE, axis=0)
        command = np.where(led.opens, MAX_WIDTH, self.command[np.rint(led.at).astype(int)])
        rows = np.hstack([_relative(x_now, x), seen_from(x, p_led), rotation_to_6d(R_B), command[:, None]])
        p_now = told.p_WE[k] + aside
        seen_at = min(k, grip.begins) if grip.takes else k  # nothing that it takes has moved yet
        things = {name: p[seen_at] for name, p in told.things.items()}
        if not grip.takes:
            things[grip.thing] = things[grip.thing] + aside
        width = min(float(told.width[k]), float(self.command[k])) if grip.takes else float(told.width[k])
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
        """As a robot sees it whose base and hand are there. things: in W."""
        told = self._told
        seen = {name: seen_from(x_now[None], p[None])[0] for name, p in things.items()}
        v_B = turn_planar(self._v_B[k, :2], told.x_WB[k, 2] - x_now[2])
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
                state=state, environment_state=environment_state(told.task, seen), task=told.words
            ),
            rows=rows,
            num_committed=num_committed,
        )


def _between(rows: Float[np.ndarray, "N m"], at: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n m"]:
    """Rows, and what is between them."""
    return np.column_stack([np.interp(at, np.arange(len(rows)), column) for column in rows.T])


def _turned_between(R: Float[np.ndarray, "N 3 3"], at: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 3 3"]:
    first = np.floor(at).astype(int)
    ends = (first, np.minimum(first + 1, len(R) - 1))
    before, after = (quaternions_from_rotations(R[each]) for each in ends)
    return rotations_from_quaternions(slerp_rows(before, after, at - first))


def _rows_until(busy: Bool[np.ndarray, " n"]) -> int:
    return int(np.argmax(busy)) if busy.any() else BACK_ROWS


def _posture(p_BE: Float[np.ndarray, "3"], R_BE: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "7"]:
    """Joints of the robot's arm with its hand there, pointing straight down: for whoever draws it."""
    yaw = math.atan2(R_BE[1, 0], R_BE[0, 0])
    return solve_down((p_BE - P_BA)[None], np.array([yaw]))[0]


def seen_from(x_WB: Float[np.ndarray, "n 3"], p_W: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """Places in W as they are in a base at (x, y, yaw), row by row."""
    d = p_W - np.column_stack([x_WB[:, :2], np.zeros(len(x_WB))])
    c, s = np.cos(x_WB[:, 2]), np.sin(x_WB[:, 2])
    return np.column_stack([c * d[:, 0] + s * d[:, 1], c * d[:, 1] - s * d[:, 0], d[:, 2]])


def _relative(x: Float[np.ndarray, "3"], rows: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    d, (c, s) = rows - x, (math.cos(x[2]), math.sin(x[2]))
    return np.column_stack([c * d[:, 0] + s * d[:, 1], c * d[:, 1] - s * d[:, 0], d[:, 2]])
