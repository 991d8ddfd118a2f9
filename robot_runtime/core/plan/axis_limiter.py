"""The arithmetic of the command limiter: `AxisLimiter` moves n axes to a moving target within their limits.

The limits apply to what is sent: with u_k the k-th setpoint and dt the control period,

    v_k = (u_k - u_k-1) / dt     a_k = (v_k - v_k-1) / dt     j_k = (a_k - a_k-1) / dt

stay within speed, acceleration and jerk at every k, whatever the target. A target that keeps to them passes
unchanged. Any other is approached along a time-optimal path (Ruckig: Berscheid and Kroeger, RSS 2021), in the
frame that moves with the target, so that a moving target is met at its own speed:

    x = u - target,   x' = u' - target'    to (0, 0), with the bounds of u' shifted by target'

Samples of a path whose third derivative keeps to a bound have third differences that keep to it, too.

Ruckig only proposes setpoints. Each is checked as it would be sent, and one from which the axis could not
brake to rest inside all its limits is never sent (`axis`, `braking`): so braking begins early enough to stop
at a position limit, and there is always a next setpoint.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from ruckig import (
    InputParameter,
    OutputParameter,
    Result,
    Ruckig,
    RuckigError,
    Synchronization,
)

from robot_runtime.core.plan.axis import Axis
from robot_runtime.core.plan.limits import MotionLimits, SpeedCurve
from robot_runtime.core.values.shapes import Float

_RESERVE = 0.7
"""Share of the acceleration with which matching the target's speed is planned, so that stopping there never
needs all of it: the target may slow down meanwhile."""
_FRAME = 0.98
"""Share of the speed up to which a target is followed at its own; the rest is left for catching up."""
_FAR_S = 10.0
"""Targets farther away than top speed for this long are clipped to that distance [s]; keeps numbers sane."""


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """How far a setpoint falls short of its target, and because of which limits."""

    distance: float
    """Distance to the target, the worst axis [rad] or [m]."""
    position: bool = False
    """Whether the target lies beyond a position limit."""
    velocity: bool = False
    """Whether being at the target now would take more speed; so too for the next two, catching up
    included."""
    acceleration: bool = False
    jerk: bool = False
    not_finite: bool = False
    """Whether the target was NaN or infinite: the axes brake."""

    def of_rates(self) -> "Shortfall":
        """The same for axes that are speeds: the limiter's position is a speed, and so on."""
        return replace(
            self, position=False, velocity=self.position, acceleration=self.velocity, jerk=self.acceleration
        )


class AxisLimiter:
    """Remembers the motion of its axes; their positions and coordinates are kept by the caller."""

    def __init__(
        self,
        limits: MotionLimits,
        *,
        period_s: float,
        low: Float[np.ndarray, " n"] | None = None,
        high: Float[np.ndarray, " n"] | None = None,
        curve: SpeedCurve | None = None,
        is_rate: bool = False,
    ) -> None:
        """
        period_s: of the control loop [s]; every step is one period, however long it really took.
        low, high: position limits; None: the axes have none.
        curve: speed limits by position.
        is_rate: the axes are speeds themselves: position limits then bound a speed, `limits.speed` its rate
            and `limits.acceleration` the rate's rate, and braking leads to 0.
        """
        n = len(limits.speed)
        self._dt, self._is_rate, self._has_ends = period_s, is_rate, low is not None and high is not None
        lows = [-math.inf] * n if low is None else low.tolist()
        highs = [math.inf] * n if high is None else high.tolist()
        self._axes = [
            Axis(*most, period_s=period_s, low=low, high=high, is_rate=is_rate)
            for *most, low, high in zip(
                limits.speed.tolist(),
                limits.acceleration.tolist(),
                limits.jerk.tolist(),
                lows,
                highs,
                strict=True,
            )
        ]
        if curve is not None:
            numbers = curve.low, curve.high, curve.gain, curve.offset
            for axis, *each in zip(self._axes, *(array.tolist() for array in numbers), strict=True):
                axis.follow_curve(*each)
        self._otg, self._out, self._given = Ruckig(n, period_s), OutputParameter(n), self._parameters()

    def _parameters(self) -> InputParameter:
        """Ruckig's input: every axis by itself to position, speed and acceleration 0."""
        out, zeros = InputParameter(len(self._axes)), [0.0] * len(self._axes)
        out.synchronization = Synchronization.No
        out.max_jerk = [axis.planned[2] for axis in self._axes]
        out.target_position = out.target_velocity = out.target_acceleration = zeros
        return out

    def reset(self) -> None:
        """Set all axes to rest."""
        for axis in self._axes:
            axis.stand()

    @property
    def is_at_rest(self) -> bool:
        """Whether no axis moves."""
        return not any(axis.s or axis.b for axis in self._axes)

    def may_pass(self, position: list[float], wanted: list[float]) -> bool:
        """Whether no axis exceeds a position limit, not even by a last bit that is lost in a gap."""
        return all(
            min(axis.low, p) <= to <= max(axis.high, p)
            for axis, p, to in zip(self._axes, position, wanted, strict=True)
        )

    def placed(self, position: list[float], steps: list[float]) -> list[float]:
        """The positions after steps, not beyond a position limit by the last bit of a rounded number."""
        return [
            min(max(p + step, min(axis.low, p)), max(axis.high, p))
            for axis, p, step in zip(self._axes, position, steps, strict=True)
        ]

    def step(
        self, position: list[float], gap: list[float], lag: list[float], speed: list[float]
    ) -> tuple[list[float], Shortfall | None]:
        """Advance one period: the step of every axis from its last setpoint, and the shortfall.

        position: the last setpoint; of axes without position limits, their distance from the origin.
        gap: from there to the target now. lag: from there to the target of the period before.
        speed: of the target, per second.
        """
        if not all(map(math.isfinite, gap)):
            return self.brake(position), Shortfall(distance=math.inf, not_finite=True)
        if not self._has_ends:
            self._look_at_rounding(position)
        velocity = acceleration = jerk = False
        passing = []
        for axis, p, to_go, late in zip(self._axes, position, gap, lag, strict=True):
            b = to_go - axis.s
            too_fast, too_hard = abs(to_go) > axis.speed, abs(b) > axis.acceleration
            too_sudden = abs(b - axis.b) > axis.jerk
            velocity, acceleration = velocity or too_fast, acceleration or too_hard
            jerk = jerk or (too_sudden and not self._is_rate)
            is_slow = not (too_fast or too_hard or too_sudden) and abs(late) <= axis.snap
            passing.append(is_slow and axis.may_be(p + to_go, to_go, b))
        if all(passing):
            for axis, to_go in zip(self._axes, gap, strict=True):
                axis.go(to_go)
            return gap, None
        aims = [
            min(max(to_go, axis.end_low - p), axis.end_high - p)
            for axis, p, to_go in zip(self._axes, position, gap, strict=True)
        ]
        out = self._approach(position, gap, aims, speed, passing)
        return out, Shortfall(
            distance=max(abs(to_go - step) for to_go, step in zip(gap, out, strict=True)),
            position=any(abs(aim - to_go) > 1e-12 for aim, to_go in zip(aims, gap, strict=True)),
            velocity=velocity,
            acceleration=acceleration,
            jerk=jerk,
        )

    def brake(self, position: list[float]) -> list[float]:
        """Advance one period, braking as hard as the limits allow: the step of every axis."""
        steps = []
        for axis, p in zip(self._axes, position, strict=True):
            step = axis.stop.next(p, axis.s) if self._is_rate else axis.s + axis.brake.next(axis.s, axis.b)
            axis.go(step)
            steps.append(step)
        return steps

    def _look_at_rounding(self, position: list[float]) -> None:
        """Allow for rounding in the differences of setpoints: far from the origin numbers are coarse."""
        for axis, p in zip(self._axes, position, strict=True):
            if abs(p) > axis.extent:
                axis.fit(2.0 * abs(p))
                self._given = self._parameters()

    def _approach(
        self,
        position: list[float],
        gap: list[float],
        aims: list[float],
        speed: list[float],
        passing: list[bool],
    ) -> list[float]:
        """Steps towards moving targets, for the axes that cannot pass unchanged.

        Where the path to a target is not safe, e.g. because the target moves beyond a limit, or there is no
        path, the axis goes as far as it can and still stop at the target.
        """
        x, frames = self._ask(position, aims, speed)
        is_found = self._update()
        where, speeds, rates = self._out.new_position, self._out.new_velocity, self._out.new_acceleration
        out = []
        for i, (axis, p, aim) in enumerate(zip(self._axes, position, aims, strict=True)):
            step, path = gap[i], None
            if not passing[i]:
                step = where[i] - x[i] + frames[i] * self._dt
                path = speeds[i] + frames[i], 0.0 if self._is_rate else rates[i]
                if abs(aim) <= axis.snap and axis.may_step(p, aim):
                    step, path = aim, None
                elif not (is_found and axis.may_step(p, step)):
                    step, path = axis.toward(p, aim), None
            axis.go(step, path)
            out.append(step)
        return out

    def _ask(
        self, position: list[float], aims: list[float], speeds: list[float]
    ) -> tuple[list[float], list[float]]:
        """Set Ruckig's input in the frame of each target: returns (positions, frames' speeds)."""
        x, v, a, frames, ups, downs, most, least = [], [], [], [], [], [], [], []
        for axis, p, aim, speed in zip(self._axes, position, aims, speeds, strict=True):
            up, down = axis.curve_speed(axis.curve_high - p), axis.curve_speed(p - axis.curve_low)
            frame, high, low = 0.0, axis.end_high - p, axis.end_low - p
            if speed and low < aim < high and math.isfinite(speed):
                fastest = _FRAME * min(up, axis.easy_speed(high))
                frame = min(max(speed, -_FRAME * min(down, axis.easy_speed(-low))), fastest)
            far, hard = _FAR_S * axis.planned[0], axis.planned[1]
            behind = min(max(frame * self._dt - aim, -far), far)
            v_now, a_now = axis.moving()
            x.append(behind)
            v.append(v_now - frame)
            a.append(a_now)
            frames.append(frame)
            ups.append(up - frame)
            downs.append(-down - frame)
            most.append(hard if behind < 0.0 else _RESERVE * hard)
            least.append(-hard if behind > 0.0 else -_RESERVE * hard)
        given = self._given
        given.current_position, given.current_velocity, given.current_acceleration = x, v, a
        given.max_velocity, given.min_velocity = ups, downs
        given.max_acceleration, given.min_acceleration = most, least
        return x, frames

    def _update(self) -> bool:
        """Whether Ruckig found a path; in some states it fails, also by results that it cannot name."""
        self._otg.reset()
        try:
            return self._otg.update(self._given, self._out) in (Result.Working, Result.Finished)
        except (RuckigError, ValueError, ArithmeticError, RuntimeError):
            return False
