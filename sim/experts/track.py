"""The `track` expert: intercepts the target as if its velocity were constant."""

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.state import Observation
from sim.experts.motion import DT_S, HORIZON, limit_norm, plan_along, start_setpoint
from sim.scene.kinematics import Kinematics
from sim.scene.model import SERVO_LAG_S
from sim.tasks.track import WIDTH

RATE = 9.0
"""Rate of the critically damped approach [1/s]: an error shrinks to 1 % in about 0.7 s."""
SPEED_MAX, ACCELERATION_MAX = 0.5, 4.0
_SUBSTEPS = 5


class TrackExpert:
    """Setpoint x, target at constant velocity y: x'' = RATE^2 (y - x) + 2 RATE (y' - x'), both limited.

    The target is predicted one servo lag ahead, so that the end effector, not its setpoint, meets it.
    """

    def __init__(self) -> None:
        self._kinematics = Kinematics()

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d 8"] | None = None
    ) -> Float[np.ndarray, "32 8"]:
        """Rows that intercept the target and then stay on it; see `Expert.plan`."""
        first = 0 if committed is None else len(committed) - 1
        start = start_setpoint(observation.state, committed, self._kinematics)
        v_BT = observation.environment_state[3:6]
        p_BT = observation.environment_state[:3] + (SERVO_LAG_S + first * DT_S) * v_BT
        p, v, path = start.p_BE, start.v_BE, []
        step_s = DT_S / _SUBSTEPS
        for _ in range(first, HORIZON):
            path.append(p)
            for _ in range(_SUBSTEPS):
                push = RATE * RATE * (p_BT - p) + 2 * RATE * (v_BT - v)
                v = limit_norm(v + step_s * limit_norm(push, ACCELERATION_MAX), SPEED_MAX)
                p = p + step_s * v
                p_BT = p_BT + step_s * v_BT
        return plan_along(np.array(path), start, committed, yaw_rate=RATE / 2, width=WIDTH)
