"""Command limiters of single parts: `make_part` makes one for each kind of command."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pinocchio as pin

from robot_runtime.core.plan.axis_limiter import AxisLimiter, Shortfall
from robot_runtime.core.plan.clip import KINDS
from robot_runtime.core.plan.limits import (
    BaseLimits,
    GripperLimits,
    JointLimits,
    MotionLimits,
    NumbersLimits,
    PartLimits,
)
from robot_runtime.core.values.action import at_rest_or
from robot_runtime.core.values.command import (
    BasePoseCommand,
    BaseTwistCommand,
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
    NumbersCommand,
    PartCommand,
    PoseCommand,
)
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.transforms import quaternion_from_rotation, wrap_angle
from robot_runtime.errors import InvalidValueError


@runtime_checkable
class PartLimiter(Protocol):
    """Limits the commands of one part; they are of one kind."""

    @property
    def is_at_rest(self) -> bool: ...

    def limit(self, command: Any, elapsed_s: float) -> tuple[Any, Shortfall | None]:
        """The command to send instead, and its shortfall; None if the command passes unchanged."""
        ...

    def brake(self) -> Any:
        """The command that brakes."""
        ...


class _Numbers:
    """A part whose commands are n numbers, each an axis."""

    def __init__(self, axes: AxisLimiter, start: list[float], make: Callable[[list[float]], Any]) -> None:
        self._axes, self._sent, self._planned, self._make = axes, start, start, make

    @property
    def is_at_rest(self) -> bool:
        return self._axes.is_at_rest

    def limit(self, command: Any, elapsed_s: float) -> tuple[Any, Shortfall | None]:
        wanted = _numbers(command)
        if not all(map(math.isfinite, wanted)):
            return self.brake(), Shortfall(distance=math.inf, not_finite=True)
        gap, lag = self._between(self._sent, wanted), self._between(self._sent, self._planned)
        speed = [d / elapsed_s for d in self._between(self._planned, wanted)]
        steps, short = self._axes.step(self._where(), gap, lag, speed)
        self._planned = wanted
        if short is None and self._axes.may_pass(self._where(), wanted):
            self._sent = wanted
            return command, None
        self._go(steps)
        return self._make(self._sent), short or Shortfall(distance=0.0, position=True)

    def brake(self) -> Any:
        self._go(self._axes.brake(self._where()))
        self._planned = self._sent
        return self._make(self._sent)

    def _where(self) -> list[float]:
        """The positions of the axes, or their distances from the origin."""
        return self._sent

    def _go(self, steps: list[float]) -> None:
        self._sent = self._axes.placed(self._sent, steps)

    def _between(self, a: list[float], b: list[float]) -> list[float]:
        """The difference from a to b along the axes."""
        return [y - x for x, y in zip(a, b, strict=True)]


class BasePoseLimiter(_Numbers):
    """A base commanded by pose; its axes are those of the base at its last setpoint."""

    def go_on_from(self, x_WB: Float[np.ndarray, "3"]) -> None:
        """Set the coordinates of the last setpoint in another odometry frame."""
        self._sent = self._planned = x_WB.tolist()

    def _where(self) -> list[float]:
        x, y, yaw = self._sent
        far = max(abs(x), abs(y))
        return [far, far, yaw]

    def _go(self, steps: list[float]) -> None:
        x, y, yaw = self._sent
        c, s = math.cos(yaw), math.sin(yaw)
        along, across, turn = steps
        self._sent = [x + c * along - s * across, y + s * along + c * across, wrap_angle(yaw + turn)]

    def _between(self, a: list[float], b: list[float]) -> list[float]:
        dx, dy, turn = (q - p for p, q in zip(a, b, strict=True))
        c, s = math.cos(self._sent[2]), math.sin(self._sent[2])
        return [c * dx + s * dy, c * dy - s * dx, wrap_angle(turn) if math.isfinite(turn) else turn]


class _Rates(_Numbers):
    """A part commanded by velocities: it is at rest when they are 0."""

    def limit(self, command: Any, elapsed_s: float) -> tuple[Any, Shortfall | None]:
        sent, short = super().limit(command, elapsed_s)
        return sent, None if short is None else short.of_rates()

    @property
    def is_at_rest(self) -> bool:
        return self._axes.is_at_rest and not any(self._sent)


class _Hand:
    """An end effector commanded by pose: three axes along B's and three about them, from the last
    setpoint."""

    def __init__(self, translation: AxisLimiter, rotation: AxisLimiter, start: PoseCommand) -> None:
        self._translation, self._rotation = translation, rotation
        self._sent = self._planned = start.X_BE

    @property
    def is_at_rest(self) -> bool:
        return self._translation.is_at_rest and self._rotation.is_at_rest

    def limit(self, command: PoseCommand, elapsed_s: float) -> tuple[PoseCommand, Shortfall | None]:
        if not (np.isfinite(command.p_BE).all() and np.isfinite(command.quat_BE).all()):
            return self.brake(), Shortfall(distance=math.inf, not_finite=True)
        wanted, zeros = command.X_BE, [0.0, 0.0, 0.0]
        position = self._sent.translation.tolist()
        (gap, turn), (lag, late) = _between(self._sent, wanted), _between(self._sent, self._planned)
        speed, spin = ([d / elapsed_s for d in ds] for ds in _between(self._planned, wanted))
        step, moved = self._translation.step(position, gap, lag, speed)
        angles, turned = self._rotation.step(zeros, turn, late, spin)
        self._planned = wanted
        if moved is None and turned is None:
            self._sent = wanted
            return command, None
        return self._go(step, angles), _worse(moved, turned)

    def brake(self) -> PoseCommand:
        zeros = [0.0, 0.0, 0.0]
        out = self._go(self._translation.brake(zeros), self._rotation.brake(zeros))
        self._planned = self._sent
        return out

    def _go(self, step: list[float], angles: list[float]) -> PoseCommand:
        R_BE = pin.exp3(np.array(angles)) @ self._sent.rotation
        self._sent = pin.SE3(R_BE, self._sent.translation + np.array(step))
        return PoseCommand(p_BE=self._sent.translation.copy(), quat_BE=quaternion_from_rotation(R_BE))


def _between(a: pin.SE3, b: pin.SE3) -> tuple[list[float], list[float]]:
    """Translation [m] and rotation vector [rad], both expressed in B."""
    translation = [y - x for x, y in zip(a.translation.tolist(), b.translation.tolist(), strict=True)]
    return translation, pin.log3(b.rotation @ a.rotation.T).tolist()


def _worse(a: Shortfall | None, b: Shortfall | None) -> Shortfall | None:
    """Both shortfalls in one, with metres and radians compared as equals."""
    if a is None or b is None:
        return a or b
    return Shortfall(
        distance=max(a.distance, b.distance),
        **{kind: getattr(a, kind) or getattr(b, kind) for kind in KINDS},
    )


def _numbers(command: object) -> list[float]:
    match command:
        case JointCommand(q=q):
            return q.tolist()
        case GripperCommand(width=width):
            return [width]
        case BasePoseCommand(x_WB=x):
            return x.tolist()
        case BaseTwistCommand(V_WB_B=twist):
            return twist.tolist()
        case JointVelocityCommand(dq=dq):
            return dq.tolist()
        case NumbersCommand(values=values):
            return values.tolist()
    raise TypeError(f"{type(command).__name__} is not made of independent numbers")


class _FreeNumbers:
    """Plain numbers that may jump within their range."""

    is_at_rest = True

    def __init__(self, limits: NumbersLimits, start: NumbersCommand) -> None:
        self._low, self._high = limits.low, limits.high
        self._sent = self._within(start)

    def limit(self, command: NumbersCommand, elapsed_s: float) -> tuple[NumbersCommand, Shortfall | None]:
        if not np.isfinite(command.values).all():
            return self._sent, Shortfall(distance=math.inf, not_finite=True)
        self._sent = self._within(command)
        if self._sent is command:
            return command, None
        return self._sent, Shortfall(
            distance=float(np.abs(command.values - self._sent.values).max()), position=True
        )

    def brake(self) -> NumbersCommand:
        return self._sent

    def _within(self, command: NumbersCommand) -> NumbersCommand:
        values = np.minimum(np.maximum(command.values, self._low), self._high)
        return command if np.array_equal(values, command.values) else replace(command, values=values)


class _Resting:
    """Plain numbers some of which are not positions: braking leads those to their values at rest."""

    def __init__(
        self, part: PartLimiter, start: NumbersCommand, at_rest: Sequence[float | None], period_s: float
    ) -> None:
        self._part, self._at_rest, self._period_s = part, at_rest, period_s
        self._sent = start

    @property
    def is_at_rest(self) -> bool:
        return self._part.is_at_rest and np.array_equal(self._sent.values, self._rest.values)

    @property
    def _rest(self) -> NumbersCommand:
        return replace(self._sent, values=at_rest_or(self._sent.values, self._at_rest))

    def limit(self, command: NumbersCommand, elapsed_s: float) -> tuple[NumbersCommand, Shortfall | None]:
        if not np.isfinite(command.values).all():
            return self.brake(), Shortfall(distance=math.inf, not_finite=True)
        self._sent, short = self._part.limit(command, elapsed_s)
        return self._sent, short

    def brake(self) -> NumbersCommand:
        self._sent, _ = self._part.limit(self._rest, self._period_s)
        return self._sent


def make_part(
    name: str,
    command: PartCommand,
    limits: PartLimits | None,
    period_s: float,
    *,
    at_rest: Sequence[float | None] | None = None,
) -> PartLimiter:
    """The limiter of such commands, at rest at the first of them.

    at_rest: of plain numbers, see `Numbers.at_rest`; None: they rest where they are.
    InvalidValueError: the limits do not cover such commands to that part.
    """
    part = _make_part(name, command, limits, period_s)
    if at_rest is None or not isinstance(command, NumbersCommand):
        return part
    return _Resting(part, command, at_rest, period_s)


def _make_part(name: str, command: PartCommand, limits: PartLimits | None, period_s: float) -> PartLimiter:
    match command, limits:
        case JointCommand(q=q), JointLimits():
            axes = AxisLimiter(
                limits.joints, period_s=period_s, low=limits.q_min, high=limits.q_max, curve=limits.dq_curve
            )
            return _Numbers(axes, q.tolist(), lambda numbers: JointCommand(q=np.array(numbers)))
        case JointVelocityCommand(dq=dq), JointLimits():
            speed = limits.dq_max
            axes = _rate_limiter(limits.joints, period_s)
            start = np.clip(dq, -speed, speed).tolist()
            return _Rates(axes, start, lambda n: JointVelocityCommand(dq=np.array(n)))
        case PoseCommand(), JointLimits(hand_translation=MotionLimits(), hand_rotation=MotionLimits()):
            assert limits.hand_translation is not None
            assert limits.hand_rotation is not None
            translation = AxisLimiter(limits.hand_translation, period_s=period_s)
            return _Hand(translation, AxisLimiter(limits.hand_rotation, period_s=period_s), command)
        case GripperCommand(width=width), GripperLimits(motion=MotionLimits() as motion):
            low, high = np.array([limits.low]), np.array([limits.high])
            axes = AxisLimiter(motion, period_s=period_s, low=low, high=high)
            return _Numbers(axes, [width], lambda numbers: GripperCommand(width=numbers[0]))
        case BasePoseCommand(x_WB=x), BaseLimits():
            axes = AxisLimiter(limits.motion, period_s=period_s)
            return BasePoseLimiter(axes, x.tolist(), lambda n: BasePoseCommand(x_WB=np.array(n)))
        case BaseTwistCommand(V_WB_B=twist), BaseLimits():
            speed = limits.motion.speed
            start = np.clip(twist, -speed, speed).tolist()
            axes = _rate_limiter(limits.motion, period_s)
            return _Rates(axes, start, lambda n: BaseTwistCommand(V_WB_B=np.array(n)))
        case NumbersCommand(), NumbersLimits(motion=None):
            return _FreeNumbers(limits, command)
        case NumbersCommand(values=values, is_held=is_held), NumbersLimits(motion=MotionLimits() as motion):
            axes = AxisLimiter(motion, period_s=period_s, low=limits.low, high=limits.high)
            make = lambda n: NumbersCommand(values=np.array(n), is_held=is_held)  # noqa: E731
            return _Numbers(axes, values.tolist(), make)
    raise InvalidValueError(
        f"{name} is commanded ({type(command).__name__}), but the robot's limits declare none for it"
    )


def _rate_limiter(limits: MotionLimits, period_s: float) -> AxisLimiter:
    """The limiter of axes that are commanded by velocity."""
    rates = MotionLimits(speed=limits.acceleration, acceleration=limits.jerk, jerk=limits.jerk)
    return AxisLimiter(rates, period_s=period_s, low=-limits.speed, high=limits.speed, is_rate=True)
