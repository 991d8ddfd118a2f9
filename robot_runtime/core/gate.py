"""The arithmetic of the last gate: `AxisGate` leads n axes to a moving target, never beyond their limits.

What counts is what was sent: with u_k the k-th setpoint and dt the control period,

    v_k = (u_k - u_k-1) / dt     a_k = (v_k - v_k-1) / dt     j_k = (a_k - a_k-1) / dt

stay within speed, acceleration and jerk at every k, whatever is asked for. A target that keeps to them passes
untouched. Any other is approached along a time-optimal path (Ruckig: Berscheid and Kroeger, RSS 2021), in the
frame that moves with the target, so that a moving target is met at its own speed:

    x = u - target,   x' = u' - target'    to (0, 0), with the bounds of u' shifted by target'

Samples of a path whose third derivative keeps to a bound have third differences that keep to it, too.

Every state that is left behind can still be braked to a stand within the limits: a step after which it could
not is not taken, and the axis brakes instead. So braking begins early enough to stand at a position limit.
"""

import math
from dataclasses import dataclass

import numpy as np
from ruckig import (
    ControlInterface,
    InputParameter,
    OutputParameter,
    Result,
    Ruckig,
    RuckigError,
    Synchronization,
)

from robot_runtime.core.limits import EASY_BRAKE, MotionLimits, SpeedCurve
from robot_runtime.core.shapes import Float

_MARGIN = 1.0 - 1e-6
"""Share of a limit that is used: differences of rounded numbers must not pass it."""
_RESERVE = 0.7
"""Share of the acceleration that coming to the target's speed plans with, so that stopping there never needs
all of it: the target may lose speed meanwhile."""
_FRAME = 0.98
"""Share of the speed up to which a target is followed at its own; the rest is left for catching up."""
_ROOM = 1e-9
"""That is left before a position limit while moving: rounded numbers must not pass it [rad] or [m]."""
_SNAP = 0.25
"""Share of the jerk that closing the last gap may take: the two steps after it take three times that."""
_FAR_S = 10.0
"""A target farther away than top speed for so long is as far as that [s]; keeps numbers sane."""


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """What a setpoint lost to the limits."""

    distance: float
    """How far short of the target it stays, the worst axis [rad] or [m]."""
    position: bool = False
    """The target lies beyond a position limit."""
    velocity: bool = False
    """To be at the target now would take more speed; so too for the next two, catching up included."""
    acceleration: bool = False
    jerk: bool = False
    not_finite: bool = False
    """The target was NaN or infinite: the axes brake."""


class _Axis:
    """One axis in plain numbers, with which arithmetic is quicker: its limits, and how it moves."""

    __slots__ = (
        "a",
        "a_sent",
        "acceleration",
        "gain",
        "jerk",
        "offset",
        "ramp_s",
        "snap",
        "speed",
        "v",
        "v_sent",
    )

    def __init__(self, speed: float, acceleration: float, jerk: float, period_s: float) -> None:
        self.speed, self.acceleration, self.jerk = speed, acceleration, jerk
        self.gain, self.offset = math.inf, 0.0  # of the speed curve
        self.ramp_s = 0.5 * acceleration / jerk
        self.snap = _SNAP * (acceleration * period_s**2 if math.isinf(jerk) else jerk * period_s**3)
        self.stand()

    def stand(self) -> None:
        self.v = self.a = 0.0  # of the continuous path, at the last setpoint
        self.v_sent = self.a_sent = 0.0  # divided differences of the setpoints

    def can_stop(self, v: float, a: float, room: float, curve_room: float) -> bool:
        """Whether an axis that moves at v, a can be braked before its room is used up, and below its curve.

        The acceleration first has to go, in t = a / J, and the speed rises to w = v + a² / 2J meanwhile.
        Braking from w without acceleration takes a distance of at most w² / 2A + w A / 2J (Lambrechts et
        al. 2005), so w (t + A / 2J) + w² / 2A does in all. A speed curve falls no faster than the axis brakes
        once it brakes fully, which takes t + A / J from now.
        """
        delay_s = a / self.jerk if a > 0.0 else 0.0
        w = v + 0.5 * a * delay_s
        if w <= 0.0:
            return True
        if w > self.speed or w * (delay_s + self.ramp_s + 0.5 * w / self.acceleration) > room:
            return False
        return w <= self.curve_speed(curve_room - w * (delay_s + 2.0 * self.ramp_s))

    def curve_speed(self, room: float) -> float:
        """Largest speed that the speed curve allows with so much room to its end; any, without one."""
        return math.sqrt(self.gain * room) - self.offset if room > 0.0 else 0.0

    def easy_speed(self, room: float, curve_room: float) -> float:
        """Speed from which the axis still comes to a stand with some ease; never quite none."""
        out = min(self.speed, EASY_BRAKE * self.curve_speed(curve_room))
        if room < math.inf:
            brake = EASY_BRAKE * self.acceleration
            lost = brake * self.ramp_s
            out = min(out, math.sqrt(lost * lost + 2.0 * brake * max(room, 0.0)) - lost)
        return max(out, 1e-3 * self.speed)


class AxisGate:
    """Remembers how its axes move; where they are, and in what coordinates, is their owner's affair."""

    def __init__(
        self,
        limits: MotionLimits,
        *,
        period_s: float,
        low: Float[np.ndarray, " n"] | None = None,
        high: Float[np.ndarray, " n"] | None = None,
        curve: SpeedCurve | None = None,
        has_jerk: bool = True,
    ) -> None:
        """
        period_s: of the control loop [s]; every step is one period, however long it really took.
        low, high: position limits; None: the axes have none.
        curve: speeds by position.
        has_jerk: False for axes that are speeds themselves: `limits` are then of what a speed is (as a
            position), of its rate (as `speed`) and of the rate's rate (as `acceleration`).
        """
        n = len(limits.speed)
        self._dt, self._has_jerk = period_s, has_jerk
        jerks = limits.jerk.tolist() if has_jerk else [math.inf] * n
        self._axes = [
            _Axis(_MARGIN * v, _MARGIN * a, _MARGIN * j, period_s)
            for v, a, j in zip(limits.speed.tolist(), limits.acceleration.tolist(), jerks, strict=True)
        ]
        self._low = [-math.inf] * n if low is None else low.tolist()
        self._high = [math.inf] * n if high is None else high.tolist()
        self._curve_low, self._curve_high = [-math.inf] * n, [math.inf] * n
        if curve is not None:
            self._curve_low, self._curve_high = curve.low.tolist(), curve.high.tolist()
            for axis, gain, offset in zip(
                self._axes, curve.braked_gain(limits).tolist(), curve.offset.tolist(), strict=True
            ):
                axis.gain, axis.offset = gain, offset
        self._otg, self._out = Ruckig(n, period_s), OutputParameter(n)
        self._lead_in, self._brake_in = (self._parameters() for _ in range(2))
        self._brake_in.control_interface = ControlInterface.Velocity

    def _parameters(self) -> InputParameter:
        """Every axis by itself to position, speed and acceleration 0."""
        out, zeros = InputParameter(len(self._axes)), [0.0] * len(self._axes)
        out.synchronization = Synchronization.No
        out.max_velocity = [axis.speed for axis in self._axes]
        out.max_acceleration = [axis.acceleration for axis in self._axes]
        out.max_jerk = [axis.jerk for axis in self._axes]
        out.current_position = out.current_acceleration = zeros
        out.target_position = out.target_velocity = out.target_acceleration = zeros
        return out

    def reset(self) -> None:
        """Stand."""
        for axis in self._axes:
            axis.stand()

    @property
    def is_at_rest(self) -> bool:
        return not any(axis.v or axis.a or axis.v_sent for axis in self._axes)

    def step(
        self, position: list[float], gap: list[float], lag: list[float], speed: list[float]
    ) -> tuple[list[float], Shortfall | None]:
        """One period on: how far every axis goes from where it was sent last, and what that falls short of.

        position: that was sent last; of axes without position limits it does not matter.
        gap: from there to the target now. lag: from there to the target of the period before.
        speed: of the target, per second.
        """
        if not all(map(math.isfinite, gap)):
            return self.brake(), Shortfall(distance=math.inf, not_finite=True)
        dt = self._dt
        passing: list[tuple[float, float] | None] = []  # speed and acceleration after the step
        velocity = acceleration = jerk = False
        for i, axis in enumerate(self._axes):
            v = gap[i] / dt
            a = (v - axis.v_sent) / dt
            too_fast, too_hard = abs(v) > axis.speed, abs(a) > axis.acceleration
            velocity, acceleration = velocity or too_fast, acceleration or too_hard
            too_sudden = self._has_jerk and abs(a - axis.a_sent) > axis.jerk * dt
            jerk = jerk or too_sudden
            after = (v + 0.5 * dt * a, a) if self._has_jerk else (v, 0.0)
            passes = not (too_fast or too_hard or too_sudden) and abs(lag[i]) <= axis.snap
            passing.append(after if passes and self._can_stop(i, position[i] + gap[i], *after) else None)
        if all(passing):
            self._move(gap, [state for state in passing if state])
            return gap, None
        aims = [
            min(max(p + g, low), high) - p
            for p, g, low, high in zip(position, gap, self._low, self._high, strict=True)
        ]
        outside = any(abs(aim - g) > 1e-12 for aim, g in zip(aims, gap, strict=True))
        led, then = self._lead(position, aims, speed)
        out = [g if state else s for g, state, s in zip(gap, passing, led, strict=True)]
        self._move(out, [state or other for state, other in zip(passing, then, strict=True)])
        return out, Shortfall(
            distance=max(abs(g - s) for g, s in zip(gap, out, strict=True)),
            position=outside,
            velocity=velocity,
            acceleration=acceleration,
            jerk=jerk,
        )

    def brake(self) -> list[float]:
        """One period on, losing speed as fast as the limits allow: how far every axis goes."""
        steps, after = self._braked()
        self._move(steps, after)
        return steps

    def _move(self, steps: list[float], after: list[tuple[float, float]]) -> None:
        for axis, step, state in zip(self._axes, steps, after, strict=True):
            axis.v, axis.a = state
            v = step / self._dt
            axis.a_sent, axis.v_sent = (v - axis.v_sent) / self._dt, v

    def _can_stop(self, i: int, position: float, v: float, a: float) -> bool:
        """Whether axis i at that position, speed and acceleration can be braked within its limits."""
        can_stop = self._axes[i].can_stop
        up, down = self._high[i] - position - _ROOM, position - self._low[i] - _ROOM
        return can_stop(v, a, up, self._curve_high[i] - position) and can_stop(
            -v, -a, down, position - self._curve_low[i]
        )

    def _lead(
        self, position: list[float], aims: list[float], speeds: list[float]
    ) -> tuple[list[float], list[tuple[float, float]]]:
        """(steps, speeds and accelerations after them) towards targets that move."""
        given, x, v, frames, ups, downs = self._lead_in, [], [], [], [], []
        for i, (axis, p, aim, speed) in enumerate(zip(self._axes, position, aims, speeds, strict=True)):
            up = axis.easy_speed(self._high[i] - p, self._curve_high[i] - p)
            down = axis.easy_speed(p - self._low[i], p - self._curve_low[i])
            is_inside = self._low[i] < p + aim < self._high[i]
            frame = min(max(speed, -_FRAME * down), _FRAME * up) if is_inside else 0.0
            far = _FAR_S * axis.speed
            x.append(min(max(frame * self._dt - aim, -far), far))
            v.append(axis.v - frame)
            frames.append(frame)
            ups.append(up - frame)
            downs.append(-down - frame)
        given.current_position, given.current_velocity = x, v
        given.current_acceleration = [axis.a for axis in self._axes]
        given.max_velocity, given.min_velocity = ups, downs
        hard = [axis.acceleration for axis in self._axes]
        given.max_acceleration = [a if gap < 0.0 else _RESERVE * a for a, gap in zip(hard, x, strict=True)]
        given.min_acceleration = [-a if gap > 0.0 else -_RESERVE * a for a, gap in zip(hard, x, strict=True)]
        if not self._update(given):
            return self._braked()
        out = self._out
        steps = [
            new - old + frame * self._dt for new, old, frame in zip(out.new_position, x, frames, strict=True)
        ]
        after = self._after([new + frame for new, frame in zip(out.new_velocity, frames, strict=True)])
        safe = [
            self._can_stop(i, p + step, *state)
            for i, (p, step, state) in enumerate(zip(position, steps, after, strict=True))
        ]
        if all(safe):
            return steps, after
        stops, stopped = self._braked()
        return (
            [a if ok else b for ok, a, b in zip(safe, steps, stops, strict=True)],
            [a if ok else b for ok, a, b in zip(safe, after, stopped, strict=True)],
        )

    def _braked(self) -> tuple[list[float], list[tuple[float, float]]]:
        given = self._brake_in
        given.current_velocity = [axis.v for axis in self._axes]
        given.current_acceleration = [axis.a for axis in self._axes]
        if not self._update(given):
            raise ArithmeticError(
                f"no way to brake from {given.current_velocity}, {given.current_acceleration}"
            )
        return self._out.new_position, self._after(self._out.new_velocity)

    def _after(self, speeds: list[float]) -> list[tuple[float, float]]:
        """Speeds and accelerations that the last update ends with."""
        accelerations = self._out.new_acceleration if self._has_jerk else [0.0] * len(speeds)
        return list(zip(speeds, accelerations, strict=True))

    def _update(self, given: InputParameter) -> bool:
        self._otg.reset()
        try:
            return self._otg.update(given, self._out) in (Result.Working, Result.Finished)
        except RuckigError:
            return False
