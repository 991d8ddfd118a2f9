"""The `pick_place` expert: a rule from state to velocity, imagined 32 rows ahead.

Which part of the task it is in follows from what can be measured, every time anew:

    cube                      fingers           rule
    in the tray               narrow            open, stay
    in the tray               wide              rise
    between closed fingers    on the cube       carry: up, round the wall, over the tray, down
    anywhere else             any               fly over it, turn, come down open, close when there

Only the side on which to pass the wall is the expert's own, and only until the hand is beside the wall.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from robot_runtime.core.state import Observation
from sim.experts.motion import DT_S, HORIZON, Setpoint, limit, limit_norm
from sim.kinematics import Kinematics, solve_down
from sim.model import MAX_WIDTH
from sim.tasks.pick_place import CUBE_IN_TRAY_Z, CUBE_SIZE, TRAY_HALF, TRAY_P, WALL_P

CLOSE_WIDTH = 0.02
"""Commanded to squeeze: less than the cube [m]."""
CARRY_Z, HOVER, RETREAT_Z = 0.17, 0.09, 0.22
PASS_X = 0.165
"""How far from the middle of the wall, along x, the hand passes its end [m]."""
GATE_Y = 0.13
"""Where the hand has to be out at PASS_X [m]."""
SPEED_XY, SPEED_Z, ACCELERATION_MAX, YAW_SPEED = 0.40, 0.35, 3.0, 1.8
GAIN = 7.0
"""Approach of a goal [1/s]."""
_LOOKAHEAD = 0.10
_FINGER_SPEED = 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """What the rule looks at, measured or imagined."""

    p: Float[np.ndarray, "3"]
    """Hand E in B [m]."""
    v: Float[np.ndarray, "3"]
    yaw: float
    width: float
    p_cube: Float[np.ndarray, "3"]
    yaw_cube: float
    """Smallest turn of the hand that fits the cube, in [-pi/4, pi/4) [rad]."""

    @property
    def is_between_fingers(self) -> bool:
        d = self.p_cube - self.p
        return bool(math.hypot(d[0], d[1]) < 0.018 and abs(d[2]) < 0.018)

    @property
    def is_held(self) -> bool:
        return self.is_between_fingers and self.width < CUBE_SIZE + 0.003

    @property
    def is_in_tray(self) -> bool:
        inside = np.abs(self.p_cube[:2] - TRAY_P[:2]).max() < TRAY_HALF - CUBE_SIZE / 2
        return bool(inside and self.p_cube[2] < CUBE_IN_TRAY_Z + 0.008)


@dataclass(frozen=True, kw_only=True, eq=False)
class Intention:
    """What the rule wants now."""

    v: Float[np.ndarray, "3"]
    """Velocity of the hand [m/s]."""
    yaw: float
    width: float
    """Command to the fingers [m]."""


def ramp(x: float, low: float, high: float) -> float:
    """0 up to `low`, 1 from `high` on, straight between."""
    return limit((x - low) / (high - low), 0.0, 1.0)


def towards(p: np.ndarray, goal: np.ndarray, *, xy_share: float = 1.0) -> Float[np.ndarray, "3"]:
    """Velocity that ends in the goal, horizontal and vertical speed limited apart."""
    error = GAIN * (goal - p)
    xy = limit_norm(error[:2], SPEED_XY) * xy_share
    return np.array([xy[0], xy[1], limit(error[2], -SPEED_Z, SPEED_Z)])


def release(scene: Scene) -> Intention:
    """Open in place; rise once the fingers are clear of the cube; end above the tray."""
    goal_z = scene.p[2] + (RETREAT_Z - scene.p[2]) * ramp(scene.width, 0.060, 0.070)
    return Intention(v=towards(scene.p, np.array([*scene.p[:2], goal_z])), yaw=0.0, width=MAX_WIDTH)


def reach(scene: Scene) -> Intention:
    """Fly to the cube, come down on it within a funnel, close when the cube is between the fingers."""
    d = scene.p_cube - scene.p
    aside = math.hypot(d[0], d[1]) + 0.06 * abs(scene.yaw_cube - scene.yaw)
    goal = scene.p_cube + np.array([0.0, 0.0, HOVER * ramp(aside, 0.010, 0.035)])
    there = aside < 0.012 and abs(d[2]) < 0.010
    closing = scene.width < MAX_WIDTH - 0.012 and scene.is_between_fingers
    width = CLOSE_WIDTH if there or closing else MAX_WIDTH
    xy_share = 1.0 if scene.p[2] > scene.p_cube[2] + 0.05 else 0.6
    return Intention(v=towards(scene.p, goal, xy_share=xy_share), yaw=scene.yaw_cube, width=width)


def carry(scene: Scene, side: int) -> Intention:
    """Lift, pass the wall on the given side (+1 far end, -1 near end), lower into the tray."""
    x, y, z = scene.p
    to_tray = math.hypot(TRAY_P[0] - x, TRAY_P[1] - y)
    goal_z = CUBE_IN_TRAY_Z + 0.003 + (CARRY_Z - CUBE_IN_TRAY_Z) * ramp(to_tray, 0.012, 0.07)
    lifted = max(ramp(z, 0.05, 0.11), 1.0 - ramp(to_tray, 0.05, 0.07))
    velocity = towards(scene.p, np.array([*carrot(x, y, side), goal_z]), xy_share=lifted)
    return Intention(v=velocity, yaw=scene.yaw * (1.0 - lifted), width=CLOSE_WIDTH)


def carrot(x: float, y: float, side: int) -> Float[np.ndarray, "2"]:
    """The point to head for in the plane, round one end of the wall; continuous in x and y on each side."""
    if y > -GATE_Y / 2:
        side = 1 if x > WALL_P[0] else -1
    x_pass = WALL_P[0] + side * PASS_X
    if y < 0.02:
        out = 1.0 - ramp(abs(x_pass - x), 0.02, 0.10)
        return np.array([x_pass, -GATE_Y + out * (max(y, -GATE_Y) + GATE_Y + _LOOKAHEAD)])
    past = ramp(y, 0.02, GATE_Y + 0.02)
    return (1.0 - past) * np.array([x_pass, y + _LOOKAHEAD]) + past * TRAY_P[:2]


class PickPlaceExpert:
    """Picks, carries and places; see the table of rules on top."""

    def __init__(self, *, side: int) -> None:
        self.side = side
        """+1 passes the far end of the wall, -1 the near end."""
        self._kinematics = Kinematics()

    def intend(self, scene: Scene) -> Intention:
        """The rule that applies to a scene."""
        if scene.is_in_tray:
            return release(scene)
        if scene.is_held:
            return carry(scene, self.side)
        return reach(scene)

    def plan(self, observation: Observation) -> Float[np.ndarray, "32 8"]:
        """Rows that the rule leads to from here, if nothing disturbs it."""
        start = Setpoint(observation.state, self._kinematics)
        scene = scene_from(observation, start)
        p, yaw, width = [], [], []
        for _ in range(HORIZON):
            intention = self.intend(scene)
            p.append(scene.p)
            yaw.append(scene.yaw)
            width.append(intention.width)
            scene = imagine(scene, intention)
        q = solve_down(np.array(p), np.array(yaw))
        return np.column_stack([q, width])


def scene_from(observation: Observation, start: Setpoint) -> Scene:
    """What is measured; the hand, and a cube in it, are taken where the setpoint will bring them."""
    state, cube = observation.state, observation.environment_state
    assert state.X_BE is not None
    assert state.gripper_width is not None
    measured = Scene(
        p=state.X_BE.translation,
        v=start.v_BE,
        yaw=start.yaw,
        width=state.gripper_width,
        p_cube=cube[:3],
        yaw_cube=float(np.arctan2(cube[3], cube[4])) / 4,
    )
    lead = start.p_BE - measured.p if measured.is_held else np.zeros(3)
    return replace(measured, p=start.p_BE, p_cube=measured.p_cube + lead)


def imagine(scene: Scene, intention: Intention) -> Scene:
    """The scene one row later: bounded acceleration, fingers at their speed, the cube moves if held."""
    v = scene.v + limit_norm(intention.v - scene.v, ACCELERATION_MAX * DT_S)
    turn = limit(0.8 * GAIN * (intention.yaw - scene.yaw), -YAW_SPEED, YAW_SPEED) * DT_S
    grip = scene.width + limit(intention.width - scene.width, -_FINGER_SPEED * DT_S, _FINGER_SPEED * DT_S)
    p_cube = scene.p_cube
    if scene.is_between_fingers:
        grip = max(grip, CUBE_SIZE)
    if scene.is_held and intention.width < CUBE_SIZE:
        p_cube = p_cube + DT_S * v
    return replace(scene, p=scene.p + DT_S * v, v=v, yaw=scene.yaw + turn, width=float(grip), p_cube=p_cube)
