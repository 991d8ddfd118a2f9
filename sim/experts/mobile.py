"""What the household experts share: an imagined scene of base, hand and objects, and rows from a rule.

Everything is told in O, the frame of the base at the observation, in which the rows of a chunk count too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from robot_runtime.core.action import ActionSpec
from robot_runtime.core.state import Observation
from robot_runtime.core.transforms import rotation_to_6d, turn_planar, wrap_angle
from sim.experts.motion import DT_NS, DT_S, HORIZON, limit, limit_norm
from sim.kinematics import R_DOWN
from sim.mobile_base import P_BA
from sim.tasks.household import CUP_RADIUS, in_base, mobile_schema

MOBILE_SPEC = ActionSpec(fields=mobile_schema(0).action_fields, horizon=HORIZON, dt_ns=DT_NS)
"""32 rows at 20 Hz: base pose from the observed one (3), hand in the base (9), gripper width (1)."""
DRIVE_SPEED, TURN_SPEED, DRIVE_ACCELERATION, TURN_ACCELERATION = 0.6, 1.1, 0.7, 2.0
HAND_SPEED, HAND_ACCELERATION, HAND_GAIN, DRIVE_GAIN = 0.45, 2.0, 5.0, 1.8
CLOSE_WIDTH = 0.035
"""Commanded to squeeze: less than the cup [m]."""
READY = np.array([0.48, 0.0, 0.98])
"""Where the hand waits and carries, in B [m]."""
REACH_MIN, REACH_MAX = 0.30, 0.64
"""Of the hand from the arm's axis, horizontally [m]."""
_FINGER_SPEED = 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class MobileScene:
    """What a rule looks at, measured or imagined."""

    x: Float[np.ndarray, "3"]
    """Base in O (x, y, yaw)."""
    v: Float[np.ndarray, "3"]
    """Its velocity in O."""
    p: Float[np.ndarray, "3"]
    """Hand in B [m]."""
    v_hand: Float[np.ndarray, "3"]
    """Relative to B [m/s]."""
    width: float
    cup: Float[np.ndarray, "3"]
    """Object in O [m]."""

    @property
    def is_between_fingers(self) -> bool:
        d = in_base(self.x, self.cup) - self.p
        return bool(math.hypot(d[0], d[1]) < 0.02 and abs(d[2]) < 0.045)

    @property
    def is_held(self) -> bool:
        return self.is_between_fingers and self.width < 2 * CUP_RADIUS + 0.004


@dataclass(frozen=True, kw_only=True, eq=False)
class MobileIntention:
    """What a rule wants now."""

    v: Float[np.ndarray, "3"]
    """Of the base in O (vx, vy, wz)."""
    v_hand: Float[np.ndarray, "3"]
    """Of the hand relative to B [m/s]."""
    width: float


def see(observation: Observation) -> MobileScene:
    """The scene at the observation."""
    state = observation.state
    assert state.X_BE is not None
    assert state.gripper_width is not None
    assert state.V_WB_B is not None
    return MobileScene(
        x=np.zeros(3),
        v=np.array(state.V_WB_B),
        p=np.array(state.X_BE.translation),
        v_hand=np.zeros(3),
        width=state.gripper_width,
        cup=observation.environment_state[:3],
    )


def drive_to(scene: MobileScene, goal: Float[np.ndarray, "3"], *, speed: float = DRIVE_SPEED) -> np.ndarray:
    """Velocity in O that ends in a pose of the base."""
    v = limit_norm(DRIVE_GAIN * (goal[:2] - scene.x[:2]), speed)
    turn = limit(2.0 * wrap_angle(goal[2] - scene.x[2]), -TURN_SPEED, TURN_SPEED)
    return np.array([v[0], v[1], turn])


def hand_to(scene: MobileScene, goal_B: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
    """Velocity relative to B that ends in a point of B."""
    return limit_norm(HAND_GAIN * (goal_B - scene.p), HAND_SPEED)


def hand_to_still(scene: MobileScene, goal_O: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
    """The same for a point that stands in the world while the base moves under the hand."""
    goal = in_base(scene.x, goal_O)
    v_B = turn_planar(scene.v[:2], -scene.x[2])
    passing = -np.array([v_B[0] - scene.v[2] * goal[1], v_B[1] + scene.v[2] * goal[0], 0.0])
    return limit_norm(HAND_GAIN * (goal - scene.p) + passing, 1.6 * HAND_SPEED)


def can_reach(scene: MobileScene, goal_O: Float[np.ndarray, "3"]) -> bool:
    """Whether the arm gets to a point from where the base stands."""
    goal = in_base(scene.x, goal_O)
    return REACH_MIN < math.hypot(goal[0] - P_BA[0], goal[1]) < REACH_MAX and goal[0] > P_BA[0] + 0.15


def imagine(scene: MobileScene, want: MobileIntention) -> MobileScene:
    """The scene one row later, with bounded accelerations; what is held goes with the hand."""
    dv = want.v - scene.v
    dv[:2] = limit_norm(dv[:2], DRIVE_ACCELERATION * DT_S)
    dv[2] = limit(dv[2], -TURN_ACCELERATION * DT_S, TURN_ACCELERATION * DT_S)
    v_hand = scene.v_hand + limit_norm(want.v_hand - scene.v_hand, HAND_ACCELERATION * DT_S)
    return advance(scene, v=scene.v + dv, v_hand=v_hand, width=want.width)


def advance(
    scene: MobileScene, *, v: Float[np.ndarray, "3"], v_hand: Float[np.ndarray, "3"], width: float
) -> MobileScene:
    """The scene one row later: the fingers move at their speed; what is held goes with the hand."""
    x = scene.x + DT_S * v
    x[2] = wrap_angle(x[2])
    p = scene.p + DT_S * v_hand
    grip = scene.width + limit(width - scene.width, -_FINGER_SPEED * DT_S, _FINGER_SPEED * DT_S)
    if scene.is_between_fingers:
        grip = max(grip, 2 * CUP_RADIUS)
    cup = _carried(scene, x, p, width)
    return replace(scene, x=x, v=v, p=p, v_hand=v_hand, width=float(grip), cup=cup)


def _carried(
    scene: MobileScene, x: Float[np.ndarray, "3"], p: Float[np.ndarray, "3"], width: float
) -> Float[np.ndarray, "3"]:
    """Where the object is once base and hand have come to x and p."""
    if not scene.is_held or width >= 2 * CUP_RADIUS:
        return scene.cup
    held = in_base(scene.x, scene.cup) - scene.p + p
    return turn_planar(held, x[2]) + np.array([x[0], x[1], 0.0])


def follow(
    scene: MobileScene, row: Float[np.ndarray, "13"], next_row: Float[np.ndarray, "13"]
) -> MobileScene:
    """The scene one row later if the robot is led from one row to the next."""
    v = (next_row[:3] - row[:3]) / DT_S
    v[2] = wrap_angle(next_row[2] - row[2]) / DT_S
    v_hand = (next_row[3:6] - row[3:6]) / DT_S
    led = replace(scene, x=row[:3], p=row[3:6], cup=_carried(scene, row[:3], row[3:6], row[12]))
    return replace(advance(led, v=v, v_hand=v_hand, width=row[12]), x=next_row[:3], p=next_row[3:6])


def rows_by_rule(
    scene: MobileScene,
    rule: Callable[[MobileScene], MobileIntention],
    committed: Float[np.ndarray, "d 13"] | None = None,
) -> Float[np.ndarray, "32 13"]:
    """The rows that a rule leads to from a scene, after those that are committed.

    The hand points down, its fingers opening along y of B.
    """
    down = rotation_to_6d(R_DOWN)
    rows = [] if committed is None else list(committed)
    for row, next_row in pairwise(rows):
        scene = follow(scene, row, next_row)
    if rows:
        scene = imagine(scene, replace(rule(scene), width=rows[-1][12]))
    while len(rows) < HORIZON:
        want = rule(scene)
        rows.append(np.concatenate([scene.x, scene.p, down, [want.width]]))
        scene = imagine(scene, want)
    return np.array(rows)
