"""What all experts need: where the setpoint is now, and how it may move."""

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
"""Fastest hand that is believed to move on purpose [m/s]."""


class Setpoint:
    """Where the setpoint of the servos is, and how fast it moves."""

    def __init__(self, q: Float[np.ndarray, "7"], dq: Float[np.ndarray, "7"], kinematics: Kinematics) -> None:
        self.q = np.clip(q, kinematics.q_min, kinematics.q_max)
        """(7,) [rad]"""
        X_BE = kinematics.forward(self.q)
        self.p_BE = X_BE.translation.copy()
        """(3,) [m]"""
        self.v_BE = (kinematics.jacobian(self.q) @ dq)[:3]
        """(3,) [m/s]"""
        self.yaw = hand_yaw(X_BE)
        """Turn about the vertical [rad], zero with the fingers opening along y."""


def start_setpoint(
    state: RobotState,
    committed: Float[np.ndarray, "d 8"] | None,
    kinematics: Kinematics,
    *,
    speed_max: float = MEASURED_SPEED_MAX,
) -> Setpoint:
    """Where a plan starts: where the setpoint is when the last of the committed rows is due.

    With nothing committed it is where it has to be for the arm to move as it is measured to: `q + lag * dq`.
    A hand faster than `speed_max` [m/s] is catching up with a jump of its setpoint; taking that for momentum
    would make the next plan jump further, so the velocity is cut.

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
    """Rows of a hand that follows a path [m] and turns straight at `yaw_rate` [1/s], after what is committed.

    p_BE: row by row, from where the plan starts.
    """
    yaw = start.yaw * np.exp(-yaw_rate * DT_S * np.arange(len(p_BE)))
    q = solve_down(p_BE, yaw)
    rows = np.column_stack([q, np.full(len(q), width)])
    return rows if committed is None else np.concatenate([committed, rows[1:]])


def hand_yaw(X_BE: pin.SE3) -> float:
    """Turn of the hand about the vertical; zero with the fingers opening along y [rad]."""
    return float(np.arctan2(X_BE.rotation[1, 0], X_BE.rotation[0, 0]))


def limit_norm(vector: np.ndarray, largest: float) -> np.ndarray:
    """The vector, shortened to `largest` if it is longer."""
    norm = math.sqrt(float(vector @ vector))
    return vector if norm <= largest else vector * (largest / norm)


def limit(x: float, low: float, high: float) -> float:
    """The number, not below `low` and not above `high`."""
    return min(max(x, low), high)
