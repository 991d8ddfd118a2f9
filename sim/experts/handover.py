"""The `handover` expert: a rule from state to velocities of both end effectors, predicted 32 rows ahead.

cube                       right hand (gives)            left hand (takes)
on the table               comes down on it, closes      waits beside the exchange, open
held by the right          lifts, raises it, brings it   waits; comes in once the cube is there; closes
held by both               opens, stays                  stays
held by the left           backs off, goes home          waits until it is clear; lowers it into the tray
in the tray                goes home                     opens, rises
"""

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.state import Observation
from sim.experts.grasping import CLOSE_WIDTH, HOVER, ramp
from sim.experts.motion import limit, limit_norm
from sim.experts.two_hands import Hand, TwoHandScene, Want, Wants, rows_by_rule, see
from sim.scene.model import MAX_WIDTH
from sim.tasks.cube import CUBE_SIZE
from sim.tasks.handover import EXCHANGE, GIVER, HOME_YAW, RECEIVER
from sim.tasks.tray import TRAY_HALF

SPEED, TILT_SPEED, YAW_SPEED = 0.40, 1.6, 1.6
"""Largest speeds [m/s, rad/s]."""
GAIN = 6.0
"""Gain of the approach to a goal [1/s]."""
LEVEL = np.pi / 2
HOME = {GIVER: np.array([0.0, -0.20, 0.30]), RECEIVER: np.array([0.0, 0.20, 0.30])}
"""Idle positions, pointing down."""
WAITING = EXCHANGE + np.array([0.0, 0.15, 0.0])
"""Where the receiver waits, level."""
CLEAR = 0.10
"""Distance by which the giver backs off before the cube is carried away [m]."""
CARRY_Z = 0.17
OPEN = 0.062
"""Width above which the fingers are clear of the cube [m]."""


class HandoverExpert:
    """Picks up, hands over and puts down by the module's table of rules."""

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d 20"] | None = None
    ) -> Float[np.ndarray, "32 20"]:
        """Rows of the rule from here on, without disturbances; see `Expert.plan`."""
        seen = observation.environment_state
        yaw_cube = math.atan2(seen[6], seen[7]) / 4
        scene = see(observation.state, p_cube=seen[:3], yaw_cube=yaw_cube, tray=seen[3:6])
        return rows_by_rule(scene, intend, committed)


def intend(scene: TwoHandScene) -> Wants:
    """The rule that applies to a scene."""
    give, take, p_cube = scene.giver, scene.receiver, scene.p_cube
    if is_in_tray(scene):
        return go_home(give), let_go(take)
    if take.holds(p_cube):
        if give.is_around(p_cube) and give.width < OPEN:
            return stay(give, MAX_WIDTH), stay(take, CLOSE_WIDTH)
        return back_off(give, p_cube), put_down(scene)
    if give.holds(p_cube):
        return bring(give, p_cube), receive(scene)
    return pick(scene), wait(take)


def towards(
    hand: Hand, goal: Float[np.ndarray, "3"], *, tilt: float, yaw: float, width: float, speed: float = SPEED
) -> Want:
    """Velocities that bring a hand to a position and orientation."""
    return Want(
        v=limit_norm(GAIN * (goal - hand.p), speed),
        tilt_rate=limit(GAIN * (tilt - hand.tilt), -TILT_SPEED, TILT_SPEED),
        yaw_rate=limit(GAIN * (yaw - hand.yaw), -YAW_SPEED, YAW_SPEED),
        width=width,
    )


def stay(hand: Hand, width: float) -> Want:
    """Hold the pose and move only the fingers."""
    return Want(v=np.zeros(3), tilt_rate=0.0, yaw_rate=0.0, width=width)


def go_home(hand: Hand) -> Want:
    """Return home, open and pointing down."""
    return towards(hand, HOME[hand.name], tilt=0.0, yaw=HOME_YAW[hand.name], width=MAX_WIDTH)


def wait(hand: Hand) -> Want:
    """Wait beside the exchange, level and open."""
    return towards(hand, WAITING, tilt=LEVEL, yaw=HOME_YAW[RECEIVER], width=MAX_WIDTH)


def pick(scene: TwoHandScene) -> Want:
    """Move above the cube, descend within a funnel, close on it."""
    hand, p_cube = scene.giver, scene.p_cube
    d = p_cube - hand.p
    yaw = HOME_YAW[GIVER] + math.remainder(scene.yaw_cube, np.pi / 2)
    aside = math.hypot(d[0], d[1]) + 0.06 * abs(yaw - hand.yaw) + 0.06 * abs(hand.tilt)
    goal = p_cube + np.array([0.0, 0.0, HOVER * ramp(aside, 0.010, 0.035)])
    there = aside < 0.012 and abs(d[2]) < 0.012
    closing = hand.width < MAX_WIDTH - 0.012 and hand.is_around(p_cube)
    width = CLOSE_WIDTH if there or closing else MAX_WIDTH
    return towards(hand, goal, tilt=0.0, yaw=yaw, width=width)


def bring(hand: Hand, p_cube: Float[np.ndarray, "3"]) -> Want:
    """Lift, move to the plane of both arms, then raise the cube towards the exchange.

    In between the wrist is stretched, and a lateral motion of the arm would need high joint speeds.
    """
    lifted = ramp(p_cube[2], 0.05, 0.15)
    goal = EXCHANGE - (p_cube - hand.p)
    goal[:2] = hand.p[:2] + lifted * (goal[:2] - hand.p[:2])
    yaw = hand.yaw + lifted * (HOME_YAW[GIVER] - hand.yaw)
    raised = ramp(p_cube[2], 0.10, 0.20) * (1.0 - ramp(abs(p_cube[0] - EXCHANGE[0]), 0.02, 0.06))
    tilt = max(LEVEL * raised, min(hand.tilt, LEVEL))
    return towards(hand, goal, tilt=tilt, yaw=yaw, width=CLOSE_WIDTH)


def receive(scene: TwoHandScene) -> Want:
    """Wait until the cube is at the exchange, approach level within a funnel, close on it."""
    give, hand, p_cube = scene.giver, scene.receiver, scene.p_cube
    off = float(np.linalg.norm(p_cube - EXCHANGE)) + 0.1 * abs(give.tilt - LEVEL)
    if off > 0.04:
        return wait(hand)
    d = p_cube - hand.p
    aside = math.hypot(d[0], d[2]) + 0.06 * abs(hand.tilt - LEVEL) + 0.06 * abs(hand.yaw - HOME_YAW[RECEIVER])
    back = HOVER * ramp(aside + 0.5 * off, 0.014, 0.040)
    there = aside < 0.012 and abs(d[1]) < 0.010 and off < 0.02
    closing = hand.width < MAX_WIDTH - 0.012 and hand.is_around(p_cube)
    width = CLOSE_WIDTH if there or closing else MAX_WIDTH
    goal = p_cube + np.array([0.0, back, 0.0])
    return towards(hand, goal, tilt=LEVEL, yaw=HOME_YAW[RECEIVER], width=width, speed=0.25)


def back_off(hand: Hand, p_cube: Float[np.ndarray, "3"]) -> Want:
    """Retreat straight from the cube with open fingers, then return home."""
    d = hand.to(p_cube)
    if d[2] < CLEAR and math.hypot(d[0], d[1]) < 0.06:
        away = hand.R_BE @ np.array([0.0, 0.0, -1.0])
        return Want(v=0.3 * away, tilt_rate=0.0, yaw_rate=0.0, width=MAX_WIDTH)
    return go_home(hand)


def put_down(scene: TwoHandScene) -> Want:
    """Once the giver is clear, move above the tray, pointing down, and lower the cube into it."""
    hand, p_cube = scene.receiver, scene.p_cube
    free = ramp(float(np.linalg.norm(scene.giver.p - p_cube)), 0.04, CLEAR)
    d = scene.tray - p_cube
    to_tray = math.hypot(d[0], d[1]) + 0.1 * abs(hand.tilt)
    over = CARRY_Z * ramp(to_tray, 0.012, 0.07)
    goal = hand.p + d
    goal[0] -= d[0] * ramp(hand.tilt, 0.25, 0.6)
    goal[2] += 0.004 + over
    want = towards(hand, goal, tilt=0.0, yaw=HOME_YAW[RECEIVER], width=CLOSE_WIDTH)
    return replace(want, v=free * want.v, tilt_rate=free * want.tilt_rate, yaw_rate=free * want.yaw_rate)


def let_go(hand: Hand) -> Want:
    """Open in place and rise once the fingers are clear of the cube."""
    clear = ramp(hand.width, CUBE_SIZE + 0.010, CUBE_SIZE + 0.020)
    goal = np.array([*hand.p[:2], hand.p[2] + clear * (0.22 - hand.p[2])])
    if hand.p[2] > 0.15:
        return go_home(hand)
    return towards(hand, goal, tilt=0.0, yaw=HOME_YAW[RECEIVER], width=MAX_WIDTH)


def is_in_tray(scene: TwoHandScene) -> bool:
    """Whether the cube is over the tray and as low as in it."""
    d = scene.p_cube - scene.tray
    return bool(np.abs(d[:2]).max() < TRAY_HALF - CUBE_SIZE / 2 and d[2] < 0.009)
