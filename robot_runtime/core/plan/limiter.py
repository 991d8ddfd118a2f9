"""The command limiter before the drivers: `Limiter` turns targets into commands within the limits.

Whatever comes in, its output is finite and within position, speed, acceleration and jerk, counted from the
last command (`axis_limiter`). It counts control periods, not wall time: after a stall it continues from the
last command. Every command comes with its shortfall, which is summed up by part and kind (`ClipTally`).
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from robot_runtime.core.plan.axis_limiter import Shortfall
from robot_runtime.core.plan.clip import NOTHING, Clip, ClipTally
from robot_runtime.core.plan.limits import Limits
from robot_runtime.core.plan.part_limiter import BasePoseLimiter, PartLimiter, make_part
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
    PartCommand,
    PoseCommand,
)
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import BASE
from robot_runtime.core.values.transforms import compose_planar, inverse_planar
from robot_runtime.errors import InvalidValueError

_UNIT_OF: dict[type, str] = {
    JointCommand: "rad",
    JointVelocityCommand: "rad/s",
    PoseCommand: "m or rad",
    GripperCommand: "m",
    BasePoseCommand: "m or rad",
    BaseTwistCommand: "m/s or rad/s",
}
"""Unit of a command's numbers; plain numbers have units of their own."""


class Limiter:
    """Applies `Limits` tick by tick; one thread owns it."""

    def __init__(
        self, limits: Limits, *, period_ns: int, rests: Mapping[str, Sequence[float | None]] | None = None
    ) -> None:
        """
        period_ns: of the control loop: `limit` or `brake` is called once in each [ns].
        rests: where braking ends for parts commanded by plain numbers, see `Numbers.at_rest`.
        """
        if period_ns <= 0:
            raise InvalidValueError(f"the control period has to be positive, got {period_ns} ns")
        self._limits, self._period_ns, self._rests = limits, period_ns, rests or {}
        self._part_limiters: dict[tuple[str, type], PartLimiter] = {}
        self._sent = Command()
        self._sent_ns: int | None = None
        self.tally = ClipTally(period_ns=period_ns)
        self.num_stalls = 0
        """Times that `limit` or `brake` came half a period late or more."""
        self.stalled_ns = 0
        """Total delay of those [ns]."""

    def reset(self, command: Command, now_ns: int, *, holds: Collection[str] = ()) -> None:
        """Start at rest at a command; a part in motion, or in `holds`, continues from the last command."""
        kinds = {(name, type(part)) for name, part in command.parts.items()}
        self._part_limiters = {
            key: part
            for key, part in self._part_limiters.items()
            if key in kinds and (key[0] in holds or not part.is_at_rest)
        }
        sent = self._sent.parts
        parts = {
            name: sent[name] if (name, type(part)) in self._part_limiters else part
            for name, part in command.parts.items()
        }
        self._sent, self._sent_ns = Command(parts), now_ns
        for name, part in parts.items():
            self._part(name, part)

    @property
    def sent(self) -> Command:
        """The last command."""
        return self._sent

    @property
    def is_at_rest(self) -> bool:
        """Whether all parts are at rest: without a new target the next command equals the last."""
        return all(part.is_at_rest for part in self._part_limiters.values())

    def rests(self, parts: Collection[str]) -> bool:
        """Whether these parts are at rest."""
        return all(limiter.is_at_rest for (name, _), limiter in self._part_limiters.items() if name in parts)

    def limit(self, command: Command, now_ns: int, *, braking: Collection[str] = ()) -> tuple[Command, Clip]:
        """The command to send, and its shortfalls; call once a control period.

        braking: parts that come to rest instead, whatever the command's target for them.
        """
        elapsed_s = self._elapsed_s(now_ns)
        if braking:
            slowed = {name: self._part(name, self._sent.parts[name]).brake() for name in braking}
            command = command.with_parts(slowed)
        sent: dict[str, PartCommand] = {}
        shorts: dict[str, Shortfall] = {}
        for name, wanted in command.parts.items():
            if name in braking:
                sent[name] = wanted
                continue
            limiter = self._part_limiters.get((name, type(wanted))) or self._part(name, wanted)
            sent[name], short = limiter.limit(wanted, elapsed_s)
            if short is not None:
                shorts[name] = short
        if not shorts:
            self._sent = command
            return command, NOTHING
        self._sent, clip = Command(sent), Clip(shorts)
        self.tally.add(clip)
        return self._sent, clip

    def brake(self, now_ns: int) -> Command:
        """The command that brings every part to rest soonest; call it as `limit`."""
        self._elapsed_s(now_ns)
        self._sent = Command(
            {name: self._part(name, sent).brake() for name, sent in self._sent.parts.items()}
        )
        return self._sent

    def move_odometry(
        self, x_before: Float[np.ndarray, "3"], x_after: Float[np.ndarray, "3"], *, part: str = BASE
    ) -> None:
        """Move the base's setpoint, in motion, to a new odometry frame in which `x_before` is `x_after`."""
        sent = self._sent.parts.get(part)
        if isinstance(sent, BasePoseCommand):
            limiter = self._part(part, sent)
            assert isinstance(limiter, BasePoseLimiter)
            x_WB = compose_planar(x_after, compose_planar(inverse_planar(x_before), sent.x_WB))
            limiter.go_on_from(x_WB)
            self._sent = self._sent.with_parts({part: BasePoseCommand(x_WB=x_WB)})

    def _elapsed_s(self, now_ns: int) -> float:
        """Time since the last command [s]; a period if the clock stopped or went back."""
        elapsed_ns = self._period_ns if self._sent_ns is None else now_ns - self._sent_ns
        self._sent_ns = now_ns
        if elapsed_ns <= 0:
            return self._period_ns / NS_PER_S
        if 2 * elapsed_ns >= 3 * self._period_ns:
            self.num_stalls += 1
            self.stalled_ns += elapsed_ns - self._period_ns
        return elapsed_ns / NS_PER_S

    def _part(self, name: str, command: PartCommand) -> PartLimiter:
        """The limiter of such commands; made with the first of them, at rest there."""
        key = name, type(command)
        part = self._part_limiters.get(key)
        if part is None:
            part = make_part(
                name,
                command,
                self._limits.parts.get(name),
                self._period_ns / NS_PER_S,
                at_rest=self._rests.get(name),
            )
            self._part_limiters[key] = part
            self.tally.units[name] = _UNIT_OF.get(type(command), "")
        return part
