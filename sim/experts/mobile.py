"""What the household experts share: an imagined scene of base, hand and objects, and rows from a rule.

Everything is told in O, the frame of the base at the observation, in which the rows of a chunk count too.
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
"""32 rows at 20 Hz: base pose from the observed one (3), hand in the base (9), gripper width (1)."""
WORLD_SPEC = replace(MOBILE_SPEC, fields=(BasePose(), WorldEndEffectorPose(), GripperWidth()))
"""The same told in odometry's world, as a policy does that has no base of its own to count from."""
DRIVE_ACCELERATION, TURN_ACCELERATION, HAND_ACCELERATION = 0.7, 2.0, 2.0
"""Bounds on what is imagined [m/s², rad/s², m/s²]."""
SQUEEZE = 0.025
"""By how much less than its width a held thing's width is commanded [m]."""
_FINGER_SPEED = 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class Thing:
    """Something that fingers can hold, told in O."""

    p: Float[np.ndarray, "3"]
    """Its middle [m]."""
    radius: float = CUP_RADIUS
    half_height: float = CUP_HALF_HEIGHT
    way: Float[np.ndarray, "2"] | None = None
    """Direction on the floor along which alone it can be led, as a drawer's handle; None: anywhere."""

    @property
    def close_width(self) -> float:
        """Of fingers that hold it, as commanded [m]."""
        return max(0.0, 2 * self.radius - SQUEEZE)


@dataclass(frozen=True, kw_only=True, eq=False)
class Deck:
    """A box on the robot, told in B: what lies in it goes with the base."""

    lower: Float[np.ndarray, "3"]
    upper: Float[np.ndarray, "3"]

    def contains(self, p_B: Float[np.ndarray, "3"]) -> bool:
        """Whether a point is in it [m]."""
        return bool((p_B > self.lower).all() and (p_B < self.upper).all())


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
    things: tuple[Thing, ...] = ()
    deck: Deck | None = None

    def is_around(self, thing: Thing) -> bool:
        """Whether the fingers are on both sides of a thing."""
        d = in_base(self.x, thing.p) - self.p
        return bool(math.hypot(d[0], d[1]) < 0.03 and abs(d[2]) < thing.half_height)

    def holds(self, thing: Thing) -> bool:
        """Whether they have closed on it: stopped at its width, with it somewhere near."""
        if abs(self.width - 2 * thing.radius) > 0.005:
            return False
        d = in_base(self.x, thing.p) - self.p
        return bool(math.hypot(d[0], d[1]) < 0.05 and abs(d[2]) < thing.half_height + 0.03)

    def is_on_deck(self, thing: Thing) -> bool:
        """Whether a thing that nobody holds lies, or falls, into the box on the robot."""
        if self.deck is None or self.holds(thing):
            return False
        return self.deck.contains(in_base(self.x, thing.p))


@dataclass(frozen=True, kw_only=True, eq=False)
class MobileIntention:
    """What a rule wants now."""

    v: Float[np.ndarray, "3"]
    """Of the base in O (vx, vy, wz)."""
    v_hand: Float[np.ndarray, "3"]
    """Of the hand relative to B [m/s]."""
    width: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Errand:
    """What an expert, or a person who does as it would, makes of what is seen: the things, and its rule."""

    intend: Callable[[MobileScene], MobileIntention]
    """What is wanted in a scene of these things, seen or imagined."""
    things: tuple[Thing, ...] = ()
    deck: Deck | None = None

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d 13"] | None
    ) -> Float[np.ndarray, "32 13"]:
        """The rows that the rule leads to from an observation; see `rows_by_rule`."""
        return rows_by_rule(see(observation, *self.things, deck=self.deck), self.intend, committed)


@cache
def _kinematics() -> Kinematics:
    return Kinematics(p_BA=P_BA)


def see(observation: Observation, *things: Thing, deck: Deck | None = None) -> MobileScene:
    """The scene at the observation, with the things in it.

    Rows are setpoints: the hand is taken to be where its own is, a lag ahead of what is measured. The base
    keeps up with its setpoint, and a guessed lag would feed back what it adds.
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
    for thing in scene.things:
        if scene.is_around(thing) or scene.holds(thing):
            grip = max(grip, 2 * thing.radius)
    things = _led(scene, x, p, width)
    return replace(scene, x=x, v=v, p=p, v_hand=v_hand, width=float(grip), things=things)


def _led(
    scene: MobileScene, x: Float[np.ndarray, "3"], p: Float[np.ndarray, "3"], width: float
) -> tuple[Thing, ...]:
    """The things once base and hand have come to x and p: held ones with the hand, the box's with x."""
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
    """The scene one row later if the robot is led from one row to the next."""
    v = (next_row[:3] - row[:3]) / DT_S
    v[2] = wrap_angle(next_row[2] - row[2]) / DT_S
    v_hand = (next_row[3:6] - row[3:6]) / DT_S
    led = replace(scene, x=row[:3], p=row[3:6], things=_led(scene, row[:3], row[3:6], row[12]))
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
