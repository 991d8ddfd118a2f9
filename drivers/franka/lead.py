"""What the arm's tracker is told between two commands: `SetpointLead`, within the limits at every step.

    told      q_0        q_1        q_2              commands, at whatever rate they come
               ●──────────●─────╌╌╌╌ ●─────╌╌╌╌     a steady stream is followed on, at the speed it has,
    lead      ││││││││││││││││││││││││││││││││││     for as long as commands were apart before
                                                     then it goes where it was told last, and stands
    silence   nothing told for `silence_s`: it brakes, and stands where that ends

A stream is steady if two differences in a row have the same sign; the smaller counts, so that a jump is not
taken for a speed. The limits are kept by the runtime's last gate (`Limiter`: Ruckig, and braking that is
looked at before every step), from the setpoint that was sent last, with the period of this loop.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pinocchio as pin

from robot_runtime.core.plan.limiter import Limiter
from robot_runtime.core.plan.limits import JointLimits, Limits
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import ArmCommand, Command, JointCommand, PoseCommand
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

_PART = "arm"
_LONGEST_NS = 200_000_000
"""Commands that are farther apart than this are no stream [ns]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Setpoint:
    """What to send to the tracker now."""

    command: JointCommand | PoseCommand
    speed: Float[np.ndarray, " n"]
    """Of the setpoint: of N joints [rad/s], or (v, w) of the hand in B [m/s, rad/s]. 0 where it stands."""


class SetpointLead:
    """Remembers what was sent; one thread owns it. Times are of the robot's own clock [ns]."""

    def __init__(self, limits: JointLimits, *, period_s: float = 0.004, silence_s: float = 0.1) -> None:
        """
        period_s: `step` is called once in each [s].
        silence_s: after so long without a command the arm is braked [s].

        InvalidValueError: a period or a silence that is none.
        """
        if not (0.0 < period_s <= silence_s):
            raise InvalidValueError(
                f"a lead needs 0 < period_s <= silence_s, got {period_s:g} and {silence_s:g} s"
            )
        self._limits, self._period_ns = Limits({_PART: limits}), round(period_s * NS_PER_S)
        self._silence_ns = round(silence_s * NS_PER_S)
        self.stand_at(JointCommand(q=np.zeros(len(limits.q_min))))

    def stand_at(self, measured: JointCommand | PoseCommand) -> None:
        """Forget everything: the arm stands there, and is told nothing."""
        self._limiter, self._num_steps = Limiter(self._limits, period_ns=self._period_ns), 0
        self._limiter.reset(Command({_PART: measured}), 0)
        self._sent: JointCommand | PoseCommand = measured
        self._told: ArmCommand | None = None
        self._told_ns = self._apart_ns = 0
        self._speed = self._slope = np.zeros(0)

    def tell(self, command: JointCommand | PoseCommand, now_ns: int) -> None:
        """A new command, of the kind that `stand_at` was given."""
        before, apart_ns = self._told, now_ns - self._told_ns
        self._told, self._told_ns = command, now_ns
        self._speed = np.zeros(0)
        if not (isinstance(before, JointCommand) and isinstance(command, JointCommand)):
            return
        with np.errstate(invalid="ignore"):
            way = command.q - before.q
        if not (0 < apart_ns <= _LONGEST_NS and np.isfinite(way).all()):
            self._slope, self._apart_ns = np.zeros(len(command.q)), 0
            return
        slope = way / (apart_ns / NS_PER_S)
        if len(self._slope) == len(slope):
            self._speed = _smaller(slope, self._slope)
        self._slope, self._apart_ns = slope, apart_ns

    def step(self, now_ns: int) -> Setpoint:
        """One period on: what to send; call it once a period."""
        self._num_steps += 1
        limiter_ns = self._num_steps * self._period_ns  # a late step is one step
        if self._told is None or now_ns - self._told_ns > self._silence_ns:
            out = self._limiter.brake(limiter_ns)
        else:
            out = self._limiter.limit(Command({_PART: self._aim(self._told, now_ns)}), limiter_ns)[0]
        sent: Any = out.parts[_PART]
        speed = _speed(self._sent, sent) / (self._period_ns / NS_PER_S)
        self._sent = sent
        return Setpoint(command=sent, speed=speed)

    @property
    def is_at_rest(self) -> bool:
        return self._limiter.is_at_rest

    def _aim(self, told: ArmCommand, now_ns: int) -> ArmCommand:
        """Where the stream is now, if it goes on as it went."""
        ahead_ns = now_ns - self._told_ns
        if not isinstance(told, JointCommand) or not len(self._speed) or ahead_ns > 1.5 * self._apart_ns:
            return told
        joints = self._limits.arm(_PART)
        speed = np.clip(self._speed, -joints.dq_max, joints.dq_max)
        q = told.q + speed * (min(ahead_ns, self._apart_ns) / NS_PER_S)
        return JointCommand(q=np.clip(q, np.minimum(joints.q_min, told.q), np.maximum(joints.q_max, told.q)))


def _smaller(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The one nearer to 0 of each two, 0 where they differ in sign or are no numbers."""
    with np.errstate(invalid="ignore", over="ignore"):
        out = np.where(a * b > 0.0, np.where(np.abs(a) < np.abs(b), a, b), 0.0)
    return np.where(np.isfinite(out), out, 0.0)


def _speed(before: JointCommand | PoseCommand, after: JointCommand | PoseCommand) -> np.ndarray:
    """From one setpoint to the next."""
    if isinstance(before, JointCommand) and isinstance(after, JointCommand):
        return after.q - before.q
    assert isinstance(before, PoseCommand)
    assert isinstance(after, PoseCommand)
    turn = pin.log3(after.X_BE.rotation @ before.X_BE.rotation.T)
    return np.concatenate([after.p_BE - before.p_BE, turn])
