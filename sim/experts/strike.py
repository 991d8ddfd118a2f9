"""The `strike` expert: moves to where the ball will pass, and swings when it does.

    x of the blade      -A sin(w tau), tau = time until the ball is at HIT_X

    +A  ........................________  follow through
     0  ....................../.........  the ball is met at A w
    -A  ____________________/...........  ready
        tau   large        0       < 0

Laterally and vertically the blade moves to where the ball will pass, as fast as the arm allows; before the
bounce that is the middle of the window, as the bounce cannot be predicted.
"""

import math

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.state import Observation
from sim.experts.motion import DT_S, HORIZON, limit_norm, plan_along, start_setpoint
from sim.scene.kinematics import Kinematics
from sim.scene.model import SERVO_LAG_S
from sim.tasks.strike import BALL_GRAVITY, BALL_RADIUS, FLIGHT_S, HIT_MAX, HIT_MIN, HIT_X, P_EP, WIDTH

RATE = 14.0
"""Rate of the critically damped approach [1/s]."""
SPEED_MAX, ACCELERATION_MAX = 1.0, 4.0
SWING, SWING_RATE = 0.07, 7.0
"""Amplitude of a swing [m], and its angular frequency [rad/s]: their product is the speed at contact."""
_SUBSTEPS = 5
_UP = np.array([0.0, 0.0, P_EP[2]])
"""Offset from the blade to E in B when pointing down [m]."""
_BLADE_X = HIT_X - BALL_RADIUS - 0.006
"""x of the blade's centre at contact [m]."""


class StrikeExpert:
    """Setpoint x, reference r: x'' = r'' + RATE^2 (r - x) + 2 RATE (r' - x'), limited."""

    def __init__(self) -> None:
        self._kinematics = Kinematics()

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d 8"] | None = None
    ) -> Float[np.ndarray, "32 8"]:
        """Rows that meet the ball; see `Expert.plan`."""
        first = 0 if committed is None else len(committed) - 1
        start = start_setpoint(observation.state, committed, self._kinematics, speed_max=SPEED_MAX)
        ball = observation.environment_state
        tau, target = passing(ball[:3], ball[3:6])
        tau -= SERVO_LAG_S + first * DT_S
        p, v, path = start.p_BE - _UP, start.v_BE, []
        step_s = DT_S / _SUBSTEPS
        for _ in range(first, HORIZON):
            path.append(p)
            for _ in range(_SUBSTEPS):
                v = limit_norm(v + step_s * _push(p, v, tau, target), SPEED_MAX)
                p = p + step_s * v
                tau -= step_s
        return plan_along(np.array(path) + _UP, start, committed, yaw_rate=RATE / 2, width=WIDTH)


def passing(p: Float[np.ndarray, "3"], v: Float[np.ndarray, "3"]) -> tuple[float, Float[np.ndarray, "2"]]:
    """Time until the ball passes x = HIT_X [s], and where it does, (y, z) [m].

    Returns inf and the middle of the window for a receding ball. A ball before its bounce is expected after
    the mean flight time in the middle of the window.
    """
    middle = (HIT_MIN + HIT_MAX) / 2
    if v[0] >= 0.0:
        return math.inf, middle
    tau = (HIT_X - p[0]) / v[0]
    z = p[2] + v[2] * tau - BALL_GRAVITY * tau * tau / 2
    if tau > 0.0 and z < BALL_RADIUS:
        height = max(p[2] - BALL_RADIUS, 0.0)
        to_bounce = (v[2] + math.sqrt(v[2] ** 2 + 2 * BALL_GRAVITY * height)) / BALL_GRAVITY
        return to_bounce + sum(FLIGHT_S) / 2, middle
    y = p[1] + v[1] * tau
    return tau, np.clip(np.array([y, z]), HIT_MIN, HIT_MAX)


def _push(
    p: Float[np.ndarray, "3"], v: Float[np.ndarray, "3"], tau: float, target: Float[np.ndarray, "2"]
) -> Float[np.ndarray, "3"]:
    """Acceleration of the blade's setpoint, limited along the swing and across it."""
    phase = SWING_RATE * tau
    swinging = abs(phase) < math.pi / 2
    sine, cosine = (math.sin(phase), math.cos(phase)) if swinging else (math.copysign(1.0, phase), 0.0)
    x = _BLADE_X - SWING * sine
    x_push = SWING * SWING_RATE**2 * sine * swinging
    x_push += RATE**2 * (x - p[0]) + 2 * RATE * (SWING * SWING_RATE * cosine - v[0])
    across = RATE**2 * (target - p[1:]) - 2 * RATE * v[1:]
    along = float(np.clip(x_push, -ACCELERATION_MAX, ACCELERATION_MAX))
    return np.array([along, *limit_norm(across, ACCELERATION_MAX)])
