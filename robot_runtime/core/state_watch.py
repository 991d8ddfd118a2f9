"""Whether what the robot measures can be trusted: `StateWatch` looks at it before anybody acts on it.

is it finite, new, of one time?              by the clock
is the base where its own speed takes it?    by the state before it
does the robot come after its setpoint?      by what is commanded
"""

from dataclasses import dataclass

import numpy as np

from robot_runtime.core.safety import Cause
from robot_runtime.core.values.action import (
    NS_PER_S,
    BasePoseCommand,
    Command,
    JointCommand,
    PoseCommand,
)
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import integrate_twist, wrap_angle


@dataclass(frozen=True, kw_only=True)
class StateLimits:
    """What is taken for a fault."""

    timeout_ns: int = 100_000_000
    """A state older than this [ns]."""
    max_gap_ns: int = 80_000_000
    """Parts of a state measured farther apart than this, or one farther in the future [ns]. Odometry
    at 20 Hz is up to 50 ms behind the arm when all is well."""
    max_jump: float = 0.10
    """Of odometry, beyond what the base's speed explains [m]."""
    max_turn: float = 0.15
    """The same of its yaw [rad]."""
    frozen_ns: int = 200_000_000
    frozen_lead: float = 0.08
    """Odometry that stays the same to the last bit for `frozen_ns` while the base is led this far [m]."""
    max_arm_error: float = 0.5
    """Any joint's distance from its setpoint [rad], or the hand's [m]."""
    max_base_error: float = 1.0
    """The base's distance from its setpoint [m]; a chunk may lead it as far as it drives under latency."""


class StateWatch:
    """Remembers the last state and where the base was led; one thread owns it."""

    def __init__(self, limits: StateLimits) -> None:
        self._limits = limits
        self._last: RobotState | None = None
        self._moved_ns = 0
        self._x_WB: Float[np.ndarray, 3] | None = None
        self._led_from: Float[np.ndarray, 2] | None = None

    def reset(self) -> None:
        """Compare with nothing that was before."""
        self._last, self._x_WB, self._led_from = None, None, None

    def look(self, state: RobotState, now_ns: int) -> Cause | None:
        """What is wrong with a state; None if nothing is. Call it once a tick."""
        limits, last = self._limits, self._last
        if not state.is_finite:
            return Cause.STATE_INVALID
        self._last = state
        if now_ns - state.t_ns > limits.timeout_ns:
            return Cause.STATE_STALE
        newest_ns = state.t_ns if state.t_newest_ns is None else state.t_newest_ns
        if max(newest_ns - state.t_ns, newest_ns - now_ns) > limits.max_gap_ns:
            return Cause.CLOCKS_DISAGREE
        if last is not None and self._has_jumped(last, state):
            return Cause.ODOMETRY_JUMPED
        return None

    def follows(self, command: Command, state: RobotState, now_ns: int) -> Cause | None:
        """What is wrong with how the robot follows its setpoint; None if nothing is."""
        if not _arm_error(command, state) <= self._limits.max_arm_error:  # NaN is no small error
            return Cause.TRACKING_LOST
        if not isinstance(command.base, BasePoseCommand) or state.x_WB is None:
            return None
        target = command.base.x_WB[:2]
        if not float(np.linalg.norm(target - state.x_WB[:2])) <= self._limits.max_base_error:
            return Cause.BASE_LOST
        return Cause.ODOMETRY_FROZEN if self._is_frozen(target, state, now_ns) else None

    def _has_jumped(self, last: RobotState, state: RobotState) -> bool:
        if last.x_WB is None or state.x_WB is None or last.V_WB_B is None:
            return False
        expected = integrate_twist(last.x_WB, last.V_WB_B, max(0, state.t_ns - last.t_ns) / NS_PER_S)
        off = state.x_WB - expected
        distance, turn = float(np.hypot(off[0], off[1])), abs(wrap_angle(off[2]))
        return distance > self._limits.max_jump or bool(turn > self._limits.max_turn)

    def _is_frozen(self, target: Float[np.ndarray, "2"], state: RobotState, now_ns: int) -> bool:
        before, now = self._x_WB, state.x_WB
        self._x_WB = now
        if self._led_from is None or before is None or now is None or not np.array_equal(before, now):
            self._moved_ns, self._led_from = now_ns, target
            return False
        led = float(np.linalg.norm(target - self._led_from))
        return now_ns - self._moved_ns > self._limits.frozen_ns and led > self._limits.frozen_lead


def _arm_error(command: Command, state: RobotState) -> float:
    match command.arm:
        case JointCommand(q=q):
            return float(np.abs(q - state.q).max())
        case PoseCommand(p_BE=p) if state.X_BE is not None:
            return float(np.linalg.norm(p - state.X_BE.translation))
    return 0.0
