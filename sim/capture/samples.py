"""Training samples of demonstrations told as a robot's: `samples`.

    rows of frame k      base of k, k+1, ... from the base of k; hand in those bases; width of the fingers

A person is never pushed off course as a scripted expert is; but as base, hand and things are known in one
world, a frame can be told from beside: the base, or a hand that is free, elsewhere, and rows that lead back.
Hands of people are hardly turned, so every hand is told turned as well: what a network has seen only as the
noise of its labels it takes for anything, once a robot's hand leans by some degrees.

And a person is always where her rows are, a robot never: each frame is told once more as of a robot that
runs an older plan and is off it, whose first rows are that plan's. Such a plan aims beside, too, and rows
after its own lead back: a network that has only seen plans that aim well takes from them where things are.
"""

import math
from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from jaxtyping import Float

from policies.flow.demonstrations import StoredDemonstration
from robot_runtime.core.values.pose_rows import turns_about_vertical
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
from sim.capture.aside import BACK_ROWS, Aside, BusyHand, draw_beside, draw_off_plan, share_back
from sim.capture.things import environment_state
from sim.capture.told import Told, commanded_width, in_world
from sim.experts.motion import DT_NS, DT_S, HORIZON
from sim.scene.kinematics import solve_down
from sim.scene.mobile_base import P_BA
from sim.scene.model import SERVO_LAG_S

HELD_WITHIN = 0.06
"""What is so near to closed fingers goes with the hand [m]."""


def samples(
    told: Told, rng: np.random.Generator, *, beside: int = 0, off_plan: int = 0
) -> list[StoredDemonstration]:
    """Every frame as a training sample, so many times from beside, and so many times off its plan.

    A frame near the end repeats the last row; frames are left out whose rows are not all known.
    """
    planned, n = _Plan(told), len(told)
    known = [k for k in range(n) if told.is_known[k : k + HORIZON].all()]
    out = [planned.sample(k, Aside()) for k in known]
    for _ in range(beside):
        out += [planned.sample(k, draw_beside(planned.hand, k, rng)) for k in known]
    for _ in range(off_plan):
        out += [planned.sample(k, draw_off_plan(planned.hand, k, rng)) for k in known]
    return out


def led_rows(told: Told) -> Float[np.ndarray, "N 13"]:
    """All of it as one plan of absolute rows, as `sim.demonstrations.rollout_robot` leads a robot."""
    planned = _Plan(told)
    hand = seen_from(told.x_WB, planned.p_led)
    return np.hstack([told.x_WB, hand, rotation_to_6d(told.R_BE), planned.command[:, None]])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Led:
    """Where rows lead."""

    x_WB: Float[np.ndarray, "32 3"]
    p_B: Float[np.ndarray, "32 3"]
    """The hand, in the base of its own row."""
    R_B: Float[np.ndarray, "32 3 3"]
    width: Float[np.ndarray, "32"]

    def rows_from(self, x_now: Float[np.ndarray, "3"]) -> Float[np.ndarray, "32 13"]:
        """Seen from a base there."""
        base = _relative(x_now, self.x_WB)
        return np.hstack([base, self.p_B, rotation_to_6d(self.R_B), self.width[:, None]])


class _Plan:
    """The rows of a demonstration, and what is seen at each."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self.command = commanded_width(told.width)
        lag = SERVO_LAG_S / DT_S
        self.p_led = told.p_WE + lag * np.gradient(told.p_WE, axis=0)
        v = np.gradient(told.x_WB, DT_S, axis=0)
        self._v_B = np.array([[*turn_planar(u[:2], -x[2]), u[2]] for u, x in zip(v, told.x_WB, strict=True)])
        self.hand = BusyHand(self.command, told.width, told.p_WE[:, 2])

    def _place(
        self, p_W: Float[np.ndarray, "3"], k: int, moved: Float[np.ndarray, "3"]
    ) -> Float[np.ndarray, "3"]:
        """Of a thing, where the hand is elsewhere by so much: with it, if it is held."""
        off = float(np.linalg.norm(p_W - self._told.p_WE[k]))
        return p_W + moved if self.hand.holds[k] and off < HELD_WITHIN else p_W

    def _led_back(self, k: int, aside: Aside) -> _Led:
        """Rows as far aside as said, those that are committed throughout, the others ever less."""
        told, off, d = self._told, aside.rows, aside.num_committed
        i, next_row = np.arange(HORIZON), int(self.hand.index(k + d))
        begins, is_given = next_row - aside.anew, (i < d)[:, None]
        at = self.hand.index(np.where(i < d, k + i, begins + i - d))
        back = _after(d, share_back(BACK_ROWS))
        off_W = np.array([*turn_planar(off.base[:2], told.x_WB[k, 2]), off.base[2]])
        x = told.x_WB[at] + back[:, None] * np.where(
            is_given, off_W, off_W + told.x_WB[next_row] - told.x_WB[begins]
        )
        p_W = self.p_led[at] + _after(d, self.hand.back(begins)) * np.where(
            is_given, off.hand, off.hand + self.p_led[next_row] - self.p_led[begins]
        )
        R_B = turns_about_vertical(told.x_WB[at, 2] - x[:, 2]) @ told.R_BE[at]
        turned = np.array([pin.exp3(share * off.turn) for share in back])
        return _Led(x_WB=x, p_B=seen_from(x, p_W), R_B=turned @ R_B, width=self.command[at])

    def sample(self, k: int, aside: Aside) -> StoredDemonstration:
        """Frame k, told from beside or off its plan."""
        told, led, robot = self._told, self._led_back(k, aside), aside.robot
        x = led.x_WB[0]
        x_now = x + np.array([*turn_planar(robot.base[:2], x[2]), robot.base[2]])
        now = seen_from(x[None], told.p_WE[[k]] + aside.rows.hand)[0] + robot.hand
        R_now = pin.exp3(robot.turn) @ led.R_B[0]
        moved = in_world(x_now[None], now[None])[0] - told.p_WE[k]
        things = {
            name: seen_from(x_now[None], self._place(p[k], k, moved)[None])[0]
            for name, p in told.things.items()
        }
        V_WB_B = np.array([*turn_planar(self._v_B[k, :2], told.x_WB[k, 2] - x_now[2]), self._v_B[k, 2]])
        state = RobotState(
            t_ns=k * DT_NS,
            parts={
                ARM: ArmState(q=_posture(now, R_now), dq=np.zeros(7), X_BE=pin.SE3(R_now, now)),
                GRIPPER: GripperState(width=float(told.width[k]) if aside.width is None else aside.width),
                BASE: BaseState(x_WB=x_now, V_WB_B=V_WB_B),
            },
        )
        seen = environment_state(told.task, things)
        return StoredDemonstration(
            observation=Observation(state=state, environment_state=seen, task=told.words),
            rows=led.rows_from(x_now),
            num_committed=aside.num_committed,
        )


def _after(num_rows: int, share: Float[np.ndarray, "32 *n"]) -> Float[np.ndarray, "32 *n"]:
    """The same after so many rows of all of it."""
    return np.concatenate([np.ones_like(share[:num_rows]), share[: HORIZON - num_rows]])


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
