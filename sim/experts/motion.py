"""Shared by all experts: the current setpoint, and limits of its motion."""

import math

import numpy as np
import pinocchio as pin
from jaxtyping import Float

from robot_runtime.core.values.state import RobotState
from sim.scene.kinematics import Kinematics, solve_down
from sim.scene.model import SERVO_LAG_S

HORIZON = 32
DT_NS = 50_000_000
DT_S = DT_NS / 1e9
MEASURED_SPEED_MAX = 0.5
"""Largest measured end-effector speed that counts as intended [m/s]."""


class Setpoint:
    """Position and velocity of the servos' setpoint."""

    def __init__(self, q: Float[np.ndarray, "7"], dq: Float[np.ndarray, "7"], kinematics: Kinematics) -> None:
        self.q = np.clip(q, kinematics.q_min, kinematics.q_max)
        """(7,) [rad]"""
        X_BE = kinematics.forward(self.q)
        self.p_BE = X_BE.translation.copy()
        """(3,) [m]"""
        self.v_BE = (kinematics.jacobian(self.q) @ dq)[:3]
        """(3,) [m/s]"""
        self.yaw = hand_yaw(X_BE)
        """Yaw about the vertical [rad], zero with the fingers opening along y."""


def start_setpoint(
    state: RobotState,
    committed: Float[np.ndarray, "d 8"] | None,
    kinematics: Kinematics,
    *,
    speed_max: float = MEASURED_SPEED_MAX,
) -> Setpoint:
    """The setpoint at which a plan starts: that of the last committed row.

    Without committed rows it follows from the measured motion: `q + lag * dq`. An end effector faster than
    `speed_max` [m/s] is catching up with a jump of its setpoint; taking that for momentum would make the
    next plan jump further, so the velocity is limited.

    committed: row 0 is due at the state.
    """
    if committed is not None:
        q = committed[:, :7]
        return Setpoint(q[-1], state.dq if len(q) == 1 else (q[-1] - q[-2]) / DT_S, kinematics)
    speed = float(np.linalg.norm((kinematics.jacobian(state.q) @ state.dq)[:3]))
    dq = state.dq * min(1.0, speed_max / max(speed, 1e-9))
    return Setpoint(state.q + SERVO_LAG_S * dq, dq, kinematics)


def plan_along(
    p_BE: Float[np.ndarray, "n 3"],
    start: Setpoint,
    committed: Float[np.ndarray, "d 8"] | None,
    *,
    yaw_rate: float,
    width: float,
) -> Float[np.ndarray, "32 8"]:
    """Rows that follow a path and reduce the yaw to 0 at `yaw_rate` [1/s], after the committed ones.

    p_BE: the path, row by row, from where the plan starts [m].
    """
    yaw = start.yaw * np.exp(-yaw_rate * DT_S * np.arange(len(p_BE)))
    q = solve_down(p_BE, yaw)
    rows = np.column_stack([q, np.full(len(q), width)])
    return rows if committed is None else np.concatenate([committed, rows[1:]])


def hand_yaw(X_BE: pin.SE3) -> float:
    """Yaw of the end effector about the vertical; zero with the fingers opening along y [rad]."""
    return float(np.arctan2(X_BE.rotation[1, 0], X_BE.rotation[0, 0]))


def limit_norm(vector: np.ndarray, largest: float) -> np.ndarray:
    """The vector, scaled to the norm `largest` if it is longer."""
    norm = math.sqrt(float(vector @ vector))
    return vector if norm <= largest else vector * (largest / norm)


def limit(x: float, low: float, high: float) -> float:
    """The number, clipped to [low, high]."""
    return min(max(x, low), high)
