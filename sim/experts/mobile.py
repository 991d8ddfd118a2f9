"""Shared by the household experts: a predicted scene of base, end effector and objects, and rows from a rule.

Everything is expressed in O, the frame of the base at the observation, as are the rows of a chunk.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.action import ActionSpec, BasePose, GripperWidth, WorldEndEffectorPose
from robot_runtime.core.values.state import Observation
from robot_runtime.core.values.transforms import rotation_to_6d, turn_planar, wrap_angle
from sim.experts.motion import DT_NS, DT_S, HORIZON, limit, limit_norm
from sim.scene.kinematics import R_DOWN, Kinematics
from sim.scene.mobile_base import P_BA
from sim.scene.model import SERVO_LAG_S
from sim.tasks.household import CUP_HALF_HEIGHT, CUP_RADIUS, in_base, mobile_schema

MOBILE_SPEC = ActionSpec(fields=mobile_schema().action_fields, horizon=HORIZON, dt_ns=DT_NS)
"""32 rows at 20 Hz: base pose in the observed one (3), end effector in the base (9), gripper width (1)."""
WORLD_SPEC = replace(MOBILE_SPEC, fields=(BasePose(), WorldEndEffectorPose(), GripperWidth()))
"""The same rows in the odometry frame, for policies without a base to express them in."""
DRIVE_ACCELERATION, TURN_ACCELERATION, HAND_ACCELERATION = 0.7, 2.0, 2.0
"""Bounds of the predicted motion [m/s², rad/s², m/s²]."""
SQUEEZE = 0.025
"""Difference between a held thing's width and the commanded one [m]."""
_FINGER_SPEED = 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class Thing:
    """An object that fingers can hold, in O."""

    p: Float[np.ndarray, "3"]
    """Position of its centre [m]."""
    radius: float = CUP_RADIUS
    half_height: float = CUP_HALF_HEIGHT
    way: Float[np.ndarray, "2"] | None = None
    """The only horizontal direction in which it can move, as a drawer's handle; None: any."""

    @property
    def close_width(self) -> float:
        """Commanded width of fingers that hold it [m]."""
        return max(0.0, 2 * self.radius - SQUEEZE)


@dataclass(frozen=True, kw_only=True, eq=False)
class Deck:
    """A box on the robot, in B: what lies in it moves with the base."""

    lower: Float[np.ndarray, "3"]
    upper: Float[np.ndarray, "3"]

    def contains(self, p_B: Float[np.ndarray, "3"]) -> bool:
        """Whether it contains a point [m]."""
        return bool((p_B > self.lower).all() and (p_B < self.upper).all())


@dataclass(frozen=True, kw_only=True, eq=False)
class MobileScene:
    """Input of a rule, measured or predicted."""

    x: Float[np.ndarray, "3"]
    """Pose of the base in O (x, y, yaw)."""
    v: Float[np.ndarray, "3"]
    """Velocity of the base in O."""
    p: Float[np.ndarray, "3"]
    """Position of the end effector in B [m]."""
    v_hand: Float[np.ndarray, "3"]
    """Velocity of the end effector relative to B [m/s]."""
    width: float
    things: tuple[Thing, ...] = ()
    deck: Deck | None = None

    def is_around(self, thing: Thing) -> bool:
        """Whether the fingers are on both sides of a thing."""
        d = in_base(self.x, thing.p) - self.p
        return bool(math.hypot(d[0], d[1]) < 0.03 and abs(d[2]) < thing.half_height)

    def holds(self, thing: Thing) -> bool:
        """Whether the fingers have closed on it: stopped at its width, with it near."""
        if abs(self.width - 2 * thing.radius) > 0.005:
            return False
        d = in_base(self.x, thing.p) - self.p
        return bool(math.hypot(d[0], d[1]) < 0.05 and abs(d[2]) < thing.half_height + 0.03)

    def is_on_deck(self, thing: Thing) -> bool:
        """Whether a released thing lies in, or falls into, the box on the robot."""
        if self.deck is None or self.holds(thing):
            return False
        return self.deck.contains(in_base(self.x, thing.p))


@dataclass(frozen=True, kw_only=True, eq=False)
class MobileIntention:
    """Desired velocities and width."""

    v: Float[np.ndarray, "3"]
    """Velocity of the base in O (vx, vy, wz)."""
    v_hand: Float[np.ndarray, "3"]
    """Velocity of the end effector relative to B [m/s]."""
    width: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Errand:
    """The things in an observed scene and the rule of an expert, or of a person who acts alike."""

    intend: Callable[[MobileScene], MobileIntention]
    """Maps a scene of these things, observed or predicted, to an intention."""
    things: tuple[Thing, ...] = ()
    deck: Deck | None = None

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d 13"] | None
    ) -> Float[np.ndarray, "32 13"]:
        """Predict rows from an observation; see `rows_by_rule`."""
        return rows_by_rule(see(observation, *self.things, deck=self.deck), self.intend, committed)


@cache
def _kinematics() -> Kinematics:
    return Kinematics(p_BA=P_BA)


def see(observation: Observation, *things: Thing, deck: Deck | None = None) -> MobileScene:
    """The scene at the observation, with the things in it.

    Rows are setpoints: the end effector is taken at its setpoint, one lag ahead of the measurement. The base
    keeps up with its setpoint; compensating an assumed lag would feed back on itself.
    """
    state = observation.state
    assert state.X_BE is not None
    assert state.gripper_width is not None
    assert state.V_WB_B is not None
    v_hand = (_kinematics().jacobian(state.q) @ state.dq)[:3]
    return MobileScene(
        x=np.zeros(3),
        v=np.array(state.V_WB_B),
        p=state.X_BE.translation + SERVO_LAG_S * v_hand,
        v_hand=v_hand,
        width=state.gripper_width,
        things=things,
        deck=deck,
    )


def imagine(scene: MobileScene, want: MobileIntention) -> MobileScene:
    """Predict the scene one row later, with bounded accelerations; held things move with the hand."""
    dv = want.v - scene.v
    dv[:2] = limit_norm(dv[:2], DRIVE_ACCELERATION * DT_S)
    dv[2] = limit(dv[2], -TURN_ACCELERATION * DT_S, TURN_ACCELERATION * DT_S)
    v_hand = scene.v_hand + limit_norm(want.v_hand - scene.v_hand, HAND_ACCELERATION * DT_S)
    return advance(scene, v=scene.v + dv, v_hand=v_hand, width=want.width)


def advance(
    scene: MobileScene, *, v: Float[np.ndarray, "3"], v_hand: Float[np.ndarray, "3"], width: float
) -> MobileScene:
    """Predict the scene one row later at given velocities; the fingers move at their own speed."""
    x = scene.x + DT_S * v
    x[2] = wrap_angle(x[2])
    p = scene.p + DT_S * v_hand
    grip = scene.width + limit(width - scene.width, -_FINGER_SPEED * DT_S, _FINGER_SPEED * DT_S)
    for thing in scene.things:
        if scene.is_around(thing) or scene.holds(thing):
            grip = max(grip, 2 * thing.radius)
    things = _moved(scene, x, p, width)
    return replace(scene, x=x, v=v, p=p, v_hand=v_hand, width=float(grip), things=things)


def _moved(
    scene: MobileScene, x: Float[np.ndarray, "3"], p: Float[np.ndarray, "3"], width: float
) -> tuple[Thing, ...]:
    """The things once base and hand have moved to x and p: held ones move with p, the deck's with x."""
    out = []
    for thing in scene.things:
        at = in_base(scene.x, thing.p)
        if scene.holds(thing) and width < 2 * thing.radius:
            at = at - scene.p + p
        elif not scene.is_on_deck(thing):
            out.append(thing)
            continue
        moved = turn_planar(at, x[2]) + np.array([x[0], x[1], 0.0])
        if thing.way is not None:
            along = float((moved - thing.p)[:2] @ thing.way)
            moved = thing.p + np.array([*(along * thing.way), 0.0])
        out.append(replace(thing, p=moved))
    return tuple(out)


def follow(
    scene: MobileScene, row: Float[np.ndarray, "13"], next_row: Float[np.ndarray, "13"]
) -> MobileScene:
    """Predict the scene one row later if the robot executes one row and then the next."""
    v = (next_row[:3] - row[:3]) / DT_S
    v[2] = wrap_angle(next_row[2] - row[2]) / DT_S
    v_hand = (next_row[3:6] - row[3:6]) / DT_S
    now = replace(scene, x=row[:3], p=row[3:6], things=_moved(scene, row[:3], row[3:6], row[12]))
    return replace(advance(now, v=v, v_hand=v_hand, width=row[12]), x=next_row[:3], p=next_row[3:6])


def rows_by_rule(
    scene: MobileScene,
    rule: Callable[[MobileScene], MobileIntention],
    committed: Float[np.ndarray, "d 13"] | None = None,
) -> Float[np.ndarray, "32 13"]:
    """Predict rows by a rule from a scene, after the committed ones.

    The end effector points down, its fingers opening along y of B.
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
