"""Setpoints for the arm's tracker between two commands: `SetpointLead`, within the limits at every step.

    commands   q_0        q_1        q_2             at whatever rate they come
               ●──────────●─────╌╌╌╌ ●─────╌╌╌╌    played at their own rate (`CommandStream`), followed on
    setpoints  ││││││││││││││││││││││││││││││││││    for a while; then to the last command, to hold
    silence    no command for `silence_s`: it brakes, and holds where that ends

The runtime's command limiter keeps the limits (`Limiter`: Ruckig, and braking that is checked
before every step), from the last sent setpoint, with the period of this loop.
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
    """The setpoint to send to the tracker now."""

    command: JointCommand | PoseCommand
    speed: Float[np.ndarray, " n"]
    """Velocity of the setpoint: N joints [rad/s], or (v, w) of the end effector in B [m/s, rad/s]."""


class SetpointLead:
    """Makes setpoints from the last sent one; one thread owns it. Times are of the robot's own clock [ns]."""

    def __init__(self, limits: JointLimits, *, period_s: float = 0.004, silence_s: float = 0.1) -> None:
        """
        period_s: `step` is called once in each [s].
        silence_s: the arm is braked after this long without a command [s].

        InvalidValueError: an invalid period or silence.
        """
        if not (0.0 < period_s <= silence_s):
            raise InvalidValueError(
                f"a lead needs 0 < period_s <= silence_s, got {period_s:g} and {silence_s:g} s"
            )
        self._limits, self._period_ns = Limits({_PART: limits}), round(period_s * NS_PER_S)
        self._silence_ns = round(silence_s * NS_PER_S)
        self.stand_at(JointCommand(q=np.zeros(len(limits.q_min))))

    def stand_at(self, measured: JointCommand | PoseCommand) -> None:
        """Reset: the arm is at rest there, without a command."""
        self._limiter, self._num_steps = Limiter(self._limits, period_ns=self._period_ns), 0
        self._limiter.reset(Command({_PART: measured}), 0)
        self._sent: JointCommand | PoseCommand = measured
        self._command: ArmCommand | None = None
        self._command_ns, self._stream = 0, CommandStream()

    def tell(self, command: JointCommand | PoseCommand, now_ns: int, count: int = 1) -> None:
        """Take a new command, of the kind that `stand_at` was given.

        count: how many were sent since the last that arrived here; those between were missed.
        """
        self._command, self._command_ns = command, now_ns
        if isinstance(command, JointCommand):
            self._stream.add(command.q, now_ns, max(count, 1))

    def step(self, now_ns: int) -> Setpoint:
        """Advance one period; return the setpoint to send. Call it once a period."""
        self._num_steps += 1
        limiter_ns = self._num_steps * self._period_ns  # a late step is one step
        if self._command is None or now_ns - self._command_ns > self._silence_ns:
            out = self._limiter.brake(limiter_ns)
        else:
            out = self._limiter.limit(Command({_PART: self._aim(self._command, now_ns)}), limiter_ns)[0]
        sent: Any = out.parts[_PART]
        speed = _speed(self._sent, sent) / (self._period_ns / NS_PER_S)
        self._sent = sent
        return Setpoint(command=sent, speed=speed)

    @property
    def is_at_rest(self) -> bool:
        return self._limiter.is_at_rest

    def _aim(self, command: ArmCommand, now_ns: int) -> ArmCommand:
        """Return the current target of the stream."""
        if not isinstance(command, JointCommand):
            return command
        q = self._stream.at(now_ns)
        joints = self._limits.arm(_PART)
        return JointCommand(
            q=np.clip(q, np.minimum(joints.q_min, command.q), np.maximum(joints.q_max, command.q))
        )


def _speed(before: JointCommand | PoseCommand, after: JointCommand | PoseCommand) -> np.ndarray:
    """Return the step between two setpoints."""
    if isinstance(before, JointCommand) and isinstance(after, JointCommand):
        return after.q - before.q
    assert isinstance(before, PoseCommand)
    assert isinstance(after, PoseCommand)
    turn = pin.log3(after.X_BE.rotation @ before.X_BE.rotation.T)
    return np.concatenate([after.p_BE - before.p_BE, turn])
