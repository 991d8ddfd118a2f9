"""The last gate before a driver: `Limiter` turns what is asked for into what is sent, inside the limits.

Whatever comes in, what goes out is finite and within position, speed, acceleration and jerk, counted from
what was sent last (`gate`). It works by the control period, not by the wall: after a stall it goes on from
where it was. What falls short is told with every command and summed up by part and kind (`ClipTally`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol, TypedDict, Unpack, runtime_checkable

import numpy as np
import pinocchio as pin

from robot_runtime.core.plan.gate import AxisGate, Shortfall
from robot_runtime.core.plan.limits import (
    BaseLimits,
    GripperLimits,
    JointLimits,
    Limits,
    MotionLimits,
    NumbersLimits,
    PartLimits,
)
from robot_runtime.core.values.action import NS_PER_S, at_rest_or
from robot_runtime.core.values.command import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
    NumbersCommand,
    PartCommand,
    PoseCommand,
)
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import ARM, BASE
from robot_runtime.core.values.transforms import (
    compose_planar,
    inverse_planar,
    quaternion_from_rotation,
    wrap_angle,
)
from robot_runtime.errors import InvalidValueError


class _OfDefaultParts(TypedDict, total=False):
    arm: Shortfall | None
    gripper: Shortfall | None
    base: Shortfall | None


@dataclass(frozen=True, init=False)
class Clip:
    """What a command lost to the limits, part by part; nothing if it passed as it came."""

    parts: Mapping[str, Shortfall]
    """Of the parts that lost something, by name."""

    def __init__(
        self, parts: Mapping[str, Shortfall] | None = None, **of_default_parts: Unpack[_OfDefaultParts]
    ) -> None:
        """of_default_parts: `arm`, `gripper`, `base`."""
        mine: dict[str, Any] = {} if parts is None else dict(parts)
        mine |= {name: short for name, short in of_default_parts.items() if short is not None}
        self.__dict__["parts"] = MappingProxyType(mine)

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def arm(self) -> Shortfall | None:
        """Of the part "arm"."""
        return self.parts.get(ARM)

    @property
    def distance(self) -> float:
        """How far short of its target the worst part stays [rad] or [m]."""
        return max((part.distance for part in self.parts.values()), default=0.0)

    def has(self, kind: str) -> bool:
        """Whether any part gave way to that kind of limit: a name of `Shortfall`'s."""
        return any(getattr(part, kind) for part in self.parts.values())


_NOTHING = Clip()
UNSEEN = 1e-3
"""How far behind its target a part may be led with nothing said of it [rad] or [m]."""
_KINDS = ("position", "velocity", "acceleration", "jerk", "not_finite")


@dataclass(kw_only=True)
class ClipTally:
    """How often each kind of limit held a part back, and how far behind its target that left it."""

    period_ns: int
    num_ticks: dict[tuple[str, str], int] = field(default_factory=dict)
    """By part and kind."""
    farthest: dict[tuple[str, str], float] = field(default_factory=dict)
    """In the unit of what the part is told."""
    units: dict[str, str] = field(default_factory=dict)
    """Part -> unit of what it is told."""

    def add(self, clip: Clip) -> None:
        for part, short in clip.parts.items():
            for kind in _KINDS:
                if getattr(short, kind):
                    self._count(part, kind, 1, short.distance)

    def _count(self, part: str, kind: str, num_ticks: int, farthest: float) -> None:
        key = part, kind
        self.num_ticks[key] = self.num_ticks.get(key, 0) + num_ticks
        self.farthest[key] = max(self.farthest.get(key, 0.0), farthest)

    def figures(self) -> dict[str, tuple[int, float]]:
        """For how many ticks, and by how much at most [rad] or [m], by "part kind"."""
        return {" ".join(key): (count, self.farthest[key]) for key, count in self.num_ticks.items()}

    def add_figures(self, figures: Mapping[str, tuple[int, float]]) -> None:
        """What `figures` gave of another run."""
        for name, (count, farthest) in figures.items():
            part, kind = name.split()
            self._count(part, kind, count, farthest)

    def sentences(self) -> list[str]:
        """One for each part and kind that had to give, but for corners that were rounded off unseen."""
        out = []
        for (part, kind), count in sorted(self.num_ticks.items()):
            seconds, far = count * self.period_ns / NS_PER_S, self.farthest[part, kind]
            if far < UNSEEN and kind in ("acceleration", "jerk"):
                continue
            if kind == "not_finite":
                out.append(f"{part}: braked for {seconds:.2f} s because its target was not finite")
            else:
                out.append(
                    f"{part}: held back by its {kind} limit for {seconds:.2f} s, by up to {far:.3g}"
                    f" {self.units.get(part, '')}".rstrip()
                )
        return out


_UNIT_OF: dict[type, str] = {
    JointCommand: "rad",
    JointVelocityCommand: "rad/s",
    PoseCommand: "m or rad",
    GripperCommand: "m",
    BasePoseCommand: "m or rad",
    BaseTwistCommand: "m/s or rad/s",
}
"""What the largest of a command's numbers is in; plain numbers have units of their own."""


@runtime_checkable
class _Part(Protocol):
    """What leads one part of the robot; commands are of one kind."""

    @property
    def is_at_rest(self) -> bool: ...

    def limit(self, command: Any, elapsed_s: float) -> tuple[Any, Shortfall | None]:
        """What to send instead, and what that falls short of; None if the command may pass as it is."""
        ...

    def brake(self) -> Any: ...


class Limiter:
    """Applies `Limits` tick by tick; one thread owns it."""

    def __init__(
        self, limits: Limits, *, period_ns: int, rests: Mapping[str, Sequence[float | None]] | None = None
    ) -> None:
        """
        period_ns: of the control loop: `limit` or `brake` is called once in each [ns].
        rests: of parts that are told plain numbers, where braking leads them, see `Numbers.at_rest`.
        """
        if period_ns <= 0:
            raise InvalidValueError(f"the control period has to be positive, got {period_ns} ns")
        self._limits, self._period_ns, self._rests = limits, period_ns, rests or {}
        self._leaders: dict[tuple[str, type], _Part] = {}
        self._sent = Command()
        self._sent_ns: int | None = None
        self.tally = ClipTally(period_ns=period_ns)
        self.num_stalls = 0
        """Times that `limit` or `brake` came half a period late or more."""
        self.stalled_ns = 0
        """By how much in all [ns]."""

    def reset(self, command: Command, now_ns: int) -> None:
        """Start at rest at a command; a part in motion stays where it was sent, to go on as it moves."""
        kinds = {(name, type(part)) for name, part in command.parts.items()}
        self._leaders = {k: part for k, part in self._leaders.items() if k in kinds and not part.is_at_rest}
        sent = self._sent.parts
        parts = {
            name: sent[name] if (name, type(part)) in self._leaders else part
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
        """Whether the next command of a robot that is not asked to move will be the last one again."""
        return all(part.is_at_rest for part in self._leaders.values())

    def limit(self, command: Command, now_ns: int) -> tuple[Command, Clip]:
        """The command to send, and what it lost; call once a control period."""
        elapsed_s = self._elapsed_s(now_ns)
        sent: dict[str, PartCommand] = {}
        shorts: dict[str, Shortfall] = {}
        for name, wanted in command.parts.items():
            leader = self._leaders.get((name, type(wanted))) or self._part(name, wanted)
            sent[name], short = leader.limit(wanted, elapsed_s)
            if short is not None:
                shorts[name] = short
        if not shorts:
            self._sent = command
            return command, _NOTHING
        self._sent, clip = Command(sent), Clip(shorts)
        self.tally.add(clip)
        return self._sent, clip

    def brake(self, now_ns: int) -> Command:
        """The command with which every part that was sent comes to rest soonest; call it as `limit`."""
        self._elapsed_s(now_ns)
        self._sent = Command(
            {name: self._part(name, sent).brake() for name, sent in self._sent.parts.items()}
        )
        return self._sent

    def move_odometry(
        self, x_before: Float[np.ndarray, "3"], x_after: Float[np.ndarray, "3"], *, part: str = BASE
    ) -> None:
        """Odometry calls `x_after` what was `x_before`: the base goes on as it went, in the new frame."""
        sent = self._sent.parts.get(part)
        if isinstance(sent, BasePoseCommand):
            leader = self._part(part, sent)
            assert isinstance(leader, _BasePose)
            x_WB = compose_planar(x_after, compose_planar(inverse_planar(x_before), sent.x_WB))
            leader.go_on_from(x_WB)
            self._sent = self._sent.with_parts({part: BasePoseCommand(x_WB=x_WB)})

    def _elapsed_s(self, now_ns: int) -> float:
        """Since the last command; a period, by a clock that stands or goes back."""
        elapsed_ns = self._period_ns if self._sent_ns is None else now_ns - self._sent_ns
        self._sent_ns = now_ns
        if elapsed_ns <= 0:
            return self._period_ns / NS_PER_S
        if 2 * elapsed_ns >= 3 * self._period_ns:
            self.num_stalls += 1
            self.stalled_ns += elapsed_ns - self._period_ns
        return elapsed_ns / NS_PER_S

    def _part(self, name: str, command: PartCommand) -> _Part:
        """What leads such commands; made with the first of them, at rest there."""
        key = name, type(command)
        part = self._leaders.get(key)
        if part is None:
            part = _make_part(name, command, self._limits.parts.get(name), self._period_ns / NS_PER_S)
            if name in self._rests and isinstance(command, NumbersCommand):
                part = _Resting(part, command, self._rests[name], self._period_ns / NS_PER_S)
            self._leaders[key] = part
            self.tally.units[name] = _UNIT_OF.get(type(command), "")
        return part


class _Numbers:
    """A part whose commands are n numbers, each an axis."""

    def __init__(self, gate: AxisGate, start: list[float], make: Callable[[list[float]], Any]) -> None:
        self._gate, self._sent, self._planned, self._make = gate, start, start, make

    @property
    def is_at_rest(self) -> bool:
        return self._gate.is_at_rest

    def limit(self, command: Any, elapsed_s: float) -> tuple[Any, Shortfall | None]:
        wanted = _numbers(command)
        if not all(map(math.isfinite, wanted)):
            return self.brake(), Shortfall(distance=math.inf, not_finite=True)
        gap, lag = self._between(self._sent, wanted), self._between(self._sent, self._planned)
        speed = [d / elapsed_s for d in self._between(self._planned, wanted)]
        steps, short = self._gate.step(self._where(), gap, lag, speed)
        self._planned = wanted
        if short is None and self._gate.may_pass(self._where(), wanted):
            self._sent = wanted
            return command, None
        self._go(steps)
        return self._make(self._sent), short or Shortfall(distance=0.0, position=True)

    def brake(self) -> Any:
        self._go(self._gate.brake(self._where()))
        self._planned = self._sent
        return self._make(self._sent)

    def _where(self) -> list[float]:
        """Where the axes are, or how far from the origin."""
        return self._sent

    def _go(self, steps: list[float]) -> None:
        self._sent = self._gate.placed(self._sent, steps)

    def _between(self, a: list[float], b: list[float]) -> list[float]:
        """From one to the other, along the axes."""
        return [y - x for x, y in zip(a, b, strict=True)]


class _BasePose(_Numbers):
    """A base by pose; its axes are the base's own, where it was sent last."""

    def go_on_from(self, x_WB: Float[np.ndarray, "3"]) -> None:
        """The same place by another name."""
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
    """A part commanded by velocities: it stands when they are 0."""

    def limit(self, command: Any, elapsed_s: float) -> tuple[Any, Shortfall | None]:
        sent, short = super().limit(command, elapsed_s)
        return sent, None if short is None else short.of_rates()

    @property
    def is_at_rest(self) -> bool:
        return self._gate.is_at_rest and not any(self._sent)


class _Hand:
    """The hand by pose: three axes along B's and three about them, from where it was sent last."""

    def __init__(self, translation: AxisGate, rotation: AxisGate, start: PoseCommand) -> None:
        self._translation, self._rotation = translation, rotation
        self._sent = self._planned = start.X_BE

    @property
    def is_at_rest(self) -> bool:
        return self._translation.is_at_rest and self._rotation.is_at_rest

    def limit(self, command: PoseCommand, elapsed_s: float) -> tuple[PoseCommand, Shortfall | None]:
        if not (np.isfinite(command.p_BE).all() and np.isfinite(command.quat_BE).all()):
            return self.brake(), Shortfall(distance=math.inf, not_finite=True)
        wanted, zeros = command.X_BE, [0.0, 0.0, 0.0]
        place = self._sent.translation.tolist()
        (gap, turn), (lag, late) = _between(self._sent, wanted), _between(self._sent, self._planned)
        speed, spin = ([d / elapsed_s for d in ds] for ds in _between(self._planned, wanted))
        step, moved = self._translation.step(place, gap, lag, speed)
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
    """Both in one: metres and radians count alike."""
    if a is None or b is None:
        return a or b
    return Shortfall(
        distance=max(a.distance, b.distance),
        **{kind: getattr(a, kind) or getattr(b, kind) for kind in _KINDS},
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
    """Plain numbers of which some are no places: braking leads those to where they are at rest."""

    def __init__(
        self, part: _Part, start: NumbersCommand, at_rest: Sequence[float | None], period_s: float
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


def _make_part(name: str, command: PartCommand, limits: PartLimits | None, period_s: float) -> _Part:
    match command, limits:
        case JointCommand(q=q), JointLimits():
            gate = AxisGate(
                limits.joints, period_s=period_s, low=limits.q_min, high=limits.q_max, curve=limits.dq_curve
            )
            return _Numbers(gate, q.tolist(), lambda numbers: JointCommand(q=np.array(numbers)))
        case JointVelocityCommand(dq=dq), JointLimits():
            speed = limits.dq_max
            gate = _gate_of_rates(limits.joints, period_s)
            start = np.clip(dq, -speed, speed).tolist()
            return _Rates(gate, start, lambda n: JointVelocityCommand(dq=np.array(n)))
        case PoseCommand(), JointLimits(hand_translation=MotionLimits(), hand_rotation=MotionLimits()):
            assert limits.hand_translation is not None
            assert limits.hand_rotation is not None
            translation = AxisGate(limits.hand_translation, period_s=period_s)
            return _Hand(translation, AxisGate(limits.hand_rotation, period_s=period_s), command)
        case GripperCommand(width=width), GripperLimits(motion=MotionLimits() as motion):
            low, high = np.array([limits.low]), np.array([limits.high])
            gate = AxisGate(motion, period_s=period_s, low=low, high=high)
            start = [min(max(width, limits.low), limits.high)]
            return _Numbers(gate, start, lambda numbers: GripperCommand(width=numbers[0]))
        case BasePoseCommand(x_WB=x), BaseLimits():
            gate = AxisGate(limits.motion, period_s=period_s)
            return _BasePose(gate, x.tolist(), lambda n: BasePoseCommand(x_WB=np.array(n)))
        case BaseTwistCommand(V_WB_B=twist), BaseLimits():
            speed = limits.motion.speed
            start = np.clip(twist, -speed, speed).tolist()
            gate = _gate_of_rates(limits.motion, period_s)
            return _Rates(gate, start, lambda n: BaseTwistCommand(V_WB_B=np.array(n)))
        case NumbersCommand(), NumbersLimits(motion=None):
            return _FreeNumbers(limits, command)
        case NumbersCommand(values=values, is_held=is_held), NumbersLimits(motion=MotionLimits() as motion):
            gate = AxisGate(motion, period_s=period_s, low=limits.low, high=limits.high)
            start = np.clip(values, limits.low, limits.high).tolist()
            return _Numbers(gate, start, lambda n: NumbersCommand(values=np.array(n), is_held=is_held))
    raise InvalidValueError(
        f"{name} is commanded ({type(command).__name__}), but the robot's limits declare none for it"
    )


def _gate_of_rates(limits: MotionLimits, period_s: float) -> AxisGate:
    """Of speeds that are commanded as such."""
    rates = MotionLimits(speed=limits.acceleration, acceleration=limits.jerk, jerk=limits.jerk)
    return AxisGate(rates, period_s=period_s, low=-limits.speed, high=limits.speed, is_rate=True)
