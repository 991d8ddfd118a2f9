"""What the arm's tracker is told between two commands: `SetpointLead`, within the limits at every step.

    told      q_0        q_1        q_2              commands, at whatever rate they come
               ●──────────●─────╌╌╌╌ ●─────╌╌╌╌     played at their own rate (`CommandStream`), followed on
    lead      ││││││││││││││││││││││││││││││││││     for a while; then it goes where told last, and stands
    silence   nothing told for `silence_s`: it brakes, and stands where that ends

The limits are kept by the runtime's last gate (`Limiter`: Ruckig, and braking that is
looked at before every step), from the setpoint that was sent last, with the period of this loop.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pinocchio as pin

from drivers.franka.stream import CommandStream
from robot_runtime.core.plan.limiter import Limiter
from robot_runtime.core.plan.limits import JointLimits, Limits
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import ArmCommand, Command, JointCommand, PoseCommand
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

_PART = "arm"


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
        self._told_ns, self._stream = 0, CommandStream()

    def tell(self, command: JointCommand | PoseCommand, now_ns: int, count: int = 1) -> None:
        """A new command, of the kind that `stand_at` was given.

        count: how many have been given since the last that came here; those between were missed.
        """
        self._told, self._told_ns = command, now_ns
        if isinstance(command, JointCommand):
            self._stream.add(command.q, now_ns, max(count, 1))

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
        """Where the stream is now."""
        if not isinstance(told, JointCommand):
            return told
        q = self._stream.at(now_ns)
        joints = self._limits.arm(_PART)
        return JointCommand(q=np.clip(q, np.minimum(joints.q_min, told.q), np.maximum(joints.q_max, told.q)))


def _speed(before: JointCommand | PoseCommand, after: JointCommand | PoseCommand) -> np.ndarray:
    """From one setpoint to the next."""
    if isinstance(before, JointCommand) and isinstance(after, JointCommand):
        return after.q - before.q
    assert isinstance(before, PoseCommand)
    assert isinstance(after, PoseCommand)
    turn = pin.log3(after.X_BE.rotation @ before.X_BE.rotation.T)
    return np.concatenate([after.p_BE - before.p_BE, turn])
