"""Building blocks of the household experts: motion of base and end effector, and when the fingers close."""

import math

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.transforms import turn_planar, wrap_angle
from sim.experts.grasping import ramp
from sim.experts.mobile import MobileIntention, MobileScene, Thing
from sim.experts.motion import limit_norm
from sim.scene.mobile_base import P_BA
from sim.scene.model import MAX_WIDTH
from sim.tasks.household import TABLE_Z, in_base

DRIVE_SPEED, TURN_SPEED, HAND_SPEED = 0.6, 1.1, 0.45
"""Largest speeds [m/s, rad/s, m/s]."""
DRIVE_GAIN, TURN_GAIN, HAND_GAIN = 3.0, 4.0, 7.0
"""Gains of the final approach to a goal [1/s]."""
DRIVE_BRAKING, TURN_BRAKING, HAND_BRAKING = 0.55, 1.6, 1.6
"""Decelerations before it; below the predicted bounds, or goals would be overshot [m/s², rad/s², m/s²]."""
GRASP_ABOVE, HOVER, LIFT = 0.022, 0.14, 0.16
"""Height above a grasped thing's centre; additional heights before grasping and before placing [m]."""
READY = np.array([0.48, 0.0, 0.98])
"""Position in B for waiting and carrying [m]."""
REACH_MIN, REACH_MAX = 0.30, 0.64
"""Horizontal distance range of the end effector from the arm's axis [m]."""
STANDOFF = 0.60
"""Distance from the base's centre to what it works at [m]."""


def approach_speed(distance: float, *, most: float, braking: float, gain: float) -> float:
    """Speed of approach to a goal: decelerates at less than `braking` and ends exponentially.

    Solves distance = v^2 / (2 braking) + v / gain, so that |v'| = braking v / (v + braking / gain).
    """
    v = braking * (math.sqrt(1.0 / gain**2 + 2.0 * distance / braking) - 1.0 / gain)
    return min(v, most)


def _towards(
    step: Float[np.ndarray, " n"], *, most: float, braking: float, gain: float
) -> Float[np.ndarray, " n"]:
    distance = float(np.linalg.norm(step))
    return step * (approach_speed(distance, most=most, braking=braking, gain=gain) / max(distance, 1e-9))


def drive_to(scene: MobileScene, goal: Float[np.ndarray, "3"], *, speed: float = DRIVE_SPEED) -> np.ndarray:
    """Velocity in O that drives the base to a pose."""
    v = _towards(goal[:2] - scene.x[:2], most=speed, braking=DRIVE_BRAKING, gain=DRIVE_GAIN)
    angle = wrap_angle(goal[2] - scene.x[2])
    turn = approach_speed(abs(angle), most=TURN_SPEED, braking=TURN_BRAKING, gain=TURN_GAIN)
    return np.array([v[0], v[1], math.copysign(turn, angle)])


def hand_to(scene: MobileScene, goal_B: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
    """Velocity relative to B that moves the end effector to a point in B."""
    return _towards(goal_B - scene.p, most=HAND_SPEED, braking=HAND_BRAKING, gain=HAND_GAIN)


def hand_to_still(scene: MobileScene, goal_O: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
    """The same for a point fixed in the world, compensating the motion of the base."""
    goal = in_base(scene.x, goal_O)
    v_B = turn_planar(scene.v[:2], -scene.x[2])
    relative = -np.array([v_B[0] - scene.v[2] * goal[1], v_B[1] + scene.v[2] * goal[0], 0.0])
    return limit_norm(hand_to(scene, goal) + relative, 1.6 * HAND_SPEED)


def can_reach(scene: MobileScene, goal_O: Float[np.ndarray, "3"]) -> bool:
    """Whether the arm reaches a point from the base's current pose."""
    goal = in_base(scene.x, goal_O)
    return REACH_MIN < math.hypot(goal[0] - P_BA[0], goal[1]) < REACH_MAX and goal[0] > P_BA[0] + 0.15


def stand_before(p: Float[np.ndarray, "3"], facing: Float[np.ndarray, "2"]) -> Float[np.ndarray, "3"]:
    """The base pose from which to reach a point in a direction."""
    return np.array([*(p[:2] - STANDOFF * facing), math.atan2(facing[1], facing[0])])


def grasp(scene: MobileScene, thing: Thing, v: Float[np.ndarray, "3"]) -> MobileIntention:
    """Move above a thing, descend around it and close, while the base drives with velocity v."""
    if not can_reach(scene, thing.p):
        return MobileIntention(v=v, v_hand=hand_to(scene, READY), width=MAX_WIDTH)
    d = in_base(scene.x, thing.p) - scene.p
    aside = math.hypot(d[0], d[1])
    over = GRASP_ABOVE + HOVER * ramp(aside, 0.007, 0.035)
    low = abs(d[2] + GRASP_ABOVE) < 0.012
    closing = scene.width < MAX_WIDTH - 0.01 and scene.is_around(thing)
    goal = thing.p + np.array([0.0, 0.0, over])
    width = thing.close_width if (aside < 0.009 and low) or closing else MAX_WIDTH
    return MobileIntention(v=v, v_hand=hand_to_still(scene, goal), width=width)


def let_go(scene: MobileScene, thing: Thing, v: Float[np.ndarray, "3"]) -> MobileIntention:
    """Open, then rise from a thing that is in place."""
    clear = ramp(scene.width, 2 * thing.radius + 0.004, 2 * thing.radius + 0.012)
    goal = thing.p + np.array([0.0, 0.0, GRASP_ABOVE + LIFT * clear])
    return MobileIntention(v=v, v_hand=hand_to_still(scene, goal), width=MAX_WIDTH)


def carry(scene: MobileScene, thing: Thing, v: Float[np.ndarray, "3"]) -> MobileIntention:
    """Lift a held thing straight up, then drive with it in front of the base."""
    lifted = ramp(in_base(scene.x, thing.p)[2] - TABLE_Z - thing.half_height, 0.04, 0.12)
    goal = np.array([*scene.p[:2], READY[2]]) if lifted < 1.0 else READY
    return MobileIntention(v=lifted * v, v_hand=hand_to(scene, goal), width=thing.close_width)


def place(
    scene: MobileScene, thing: Thing, target: Float[np.ndarray, "3"], v: Float[np.ndarray, "3"]
) -> MobileIntention:
    """Move a held thing above a target and lower it."""
    d = in_base(scene.x, target) - in_base(scene.x, thing.p)
    over = 0.003 + LIFT * ramp(math.hypot(d[0], d[1]), 0.015, 0.06)
    goal = target + np.array([0.0, 0.0, GRASP_ABOVE + over])
    return MobileIntention(v=v, v_hand=hand_to_still(scene, goal), width=thing.close_width)
