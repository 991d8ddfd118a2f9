"""Shared by the experts that grasp a cube: the predicted scene, its dynamics, and the approach."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.state import Observation, RobotState
from sim.experts.motion import DT_S, HORIZON, Setpoint, limit, limit_norm, start_setpoint
from sim.scene.kinematics import Kinematics, solve_down
from sim.scene.model import MAX_WIDTH, SERVO_LAG_S
from sim.tasks.cube import CUBE_SIZE

CLOSE_WIDTH = 0.02
"""Commanded width for squeezing, below the cube's [m]."""
HOVER = 0.09
"""Height above the cube during the approach [m]."""
SPEED_XY, SPEED_Z, ACCELERATION_MAX, YAW_SPEED = 0.40, 0.35, 3.0, 1.8
GAIN = 7.0
"""Gain of the approach to a goal [1/s]."""
_FINGER_SPEED = 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """Input of a rule, measured or predicted."""

    p: Float[np.ndarray, "3"]
    """Position of E in B [m]."""
    v: Float[np.ndarray, "3"]
    yaw: float
    width: float
    p_cube: Float[np.ndarray, "3"]
    yaw_cube: float
    """Yaw of the end effector that fits the cube [rad]."""
    v_belt: float = 0.0
    """Velocity along y of the belt under the cube [m/s]."""

    @property
    def is_between_fingers(self) -> bool:
        d = self.p_cube - self.p
        return bool(math.hypot(d[0], d[1]) < 0.018 and abs(d[2]) < 0.018)

    @property
    def is_held(self) -> bool:
        return self.is_between_fingers and self.width < CUBE_SIZE + 0.003


@dataclass(frozen=True, kw_only=True, eq=False)
class Intention:
    """Desired velocity, yaw and width."""

    v: Float[np.ndarray, "3"]
    """Velocity of the end effector [m/s]."""
    yaw: float
    width: float
    """Commanded gripper width [m]."""


def scene_at(
    start: Setpoint,
    state: RobotState,
    *,
    p_cube: Float[np.ndarray, "3"],
    yaw_cube: float,
    v_belt: float = 0.0,
) -> Scene:
    """The measured scene, with end effector and cube predicted one servo lag ahead."""
    assert state.X_BE is not None
    assert state.gripper_width is not None
    measured = Scene(
        p=state.X_BE.translation,
        v=start.v_BE,
        yaw=start.yaw,
        width=state.gripper_width,
        p_cube=p_cube,
        yaw_cube=yaw_cube,
        v_belt=v_belt,
    )
    ride = np.array([0.0, SERVO_LAG_S * v_belt, 0.0])
    lead = start.p_BE - measured.p if measured.is_held else ride
    return replace(measured, p=start.p_BE, p_cube=p_cube + lead)


def ramp(x: float, low: float, high: float) -> float:
    """0 up to `low`, 1 from `high` on, linear between."""
    return limit((x - low) / (high - low), 0.0, 1.0)


def towards(p: np.ndarray, goal: np.ndarray, *, xy_share: float = 1.0) -> Float[np.ndarray, "3"]:
    """Velocity towards a goal, with separate limits of horizontal and vertical speed."""
    error = GAIN * (goal - p)
    xy = limit_norm(error[:2], SPEED_XY) * xy_share
    return np.array([xy[0], xy[1], limit(error[2], -SPEED_Z, SPEED_Z)])


def reach(scene: Scene) -> Intention:
    """Move above the cube, following it if it moves, descend within a funnel, close on it."""
    d = scene.p_cube - scene.p
    aside = math.hypot(d[0], d[1]) + 0.06 * abs(scene.yaw_cube - scene.yaw)
    goal = scene.p_cube + np.array([0.0, 0.0, HOVER * ramp(aside, 0.010, 0.035)])
    there = aside < 0.012 and abs(d[2]) < 0.010
    closing = scene.width < MAX_WIDTH - 0.012 and scene.is_between_fingers
    width = CLOSE_WIDTH if there or closing else MAX_WIDTH
    xy_share = 1.0 if scene.p[2] > scene.p_cube[2] + 0.05 else 0.6
    v = towards(scene.p, goal, xy_share=xy_share) + np.array([0.0, scene.v_belt, 0.0])
    return Intention(v=v, yaw=scene.yaw_cube, width=width)


def imagine(scene: Scene, intention: Intention) -> Scene:
    """Predict the scene one row later under an intention, with bounded acceleration."""
    v = scene.v + limit_norm(intention.v - scene.v, ACCELERATION_MAX * DT_S)
    turn = limit(0.8 * GAIN * (intention.yaw - scene.yaw), -YAW_SPEED, YAW_SPEED) * DT_S
    return advance(scene, v=v, yaw=scene.yaw + turn, width=intention.width)


def advance(scene: Scene, *, v: Float[np.ndarray, "3"], yaw: float, width: float) -> Scene:
    """Predict the scene one row later: fingers move at their own speed, the cube with hand or belt."""
    grip = scene.width + limit(width - scene.width, -_FINGER_SPEED * DT_S, _FINGER_SPEED * DT_S)
    p_cube = scene.p_cube
    if scene.is_between_fingers:
        grip = max(grip, CUBE_SIZE)
    if scene.is_held and width < CUBE_SIZE:
        p_cube = p_cube + DT_S * v
    else:
        p_cube = p_cube + DT_S * np.array([0.0, scene.v_belt, 0.0])
    return replace(scene, p=scene.p + DT_S * v, v=v, yaw=yaw, width=float(grip), p_cube=p_cube)


def plan_by_rule(
    observation: Observation,
    committed: Float[np.ndarray, "d 8"] | None,
    kinematics: Kinematics,
    *,
    see: Callable[[Observation, Setpoint], Scene],
    rule: Callable[[Scene], Intention],
) -> Float[np.ndarray, "32 8"]:
    """Predict rows by a rule, after the committed ones, without disturbances.

    see: gives the scene at the observation, with the end effector at its setpoint.
    """
    first = None if committed is None else committed[:1]
    scene = see(observation, start_setpoint(observation.state, first, kinematics))
    if committed is None:
        return _rows_by_rule(scene, rule, HORIZON)
    for row, next_row in pairwise(committed):
        there = Setpoint(next_row[:7], np.zeros(7), kinematics)
        scene = advance(scene, v=(there.p_BE - scene.p) / DT_S, yaw=there.yaw, width=row[7])
    if len(committed) == HORIZON:
        return committed
    scene = imagine(scene, replace(rule(scene), width=committed[-1, 7]))
    return np.concatenate([committed, _rows_by_rule(scene, rule, HORIZON - len(committed))])


def _rows_by_rule(
    scene: Scene, rule: Callable[[Scene], Intention], num_rows: int
) -> Float[np.ndarray, "n 8"]:
    p, yaw, width = [], [], []
    for _ in range(num_rows):
        intention = rule(scene)
        p.append(scene.p)
        yaw.append(scene.yaw)
        width.append(intention.width)
        scene = imagine(scene, intention)
    return np.column_stack([solve_down(np.array(p), np.array(yaw)), width])
