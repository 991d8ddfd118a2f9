"""One axis of the command limiter, in plain floats for speed: `Axis`.

It knows its limits, how it moves, and whether a state is safe: inside its limits, and able to brake to rest
inside them. From a safe state it can always continue by braking, so there is always a next setpoint.
"""

import math
from collections.abc import Callable

from robot_runtime.core.plan.braking import Brake

_MARGIN = 1.0 - 1e-6
"""Share of a limit that is used: differences of rounded numbers must not exceed it."""
_PLANNED = 1.0 - 1e-6
"""Share of that with which a path is planned, so that rounding does not make it unsafe."""
_ULP = 2.0**-52
_NEAR = 16.0
"""Axes without position limits: distance after which rounding is reconsidered [m] or [rad]."""
_SNAP = 0.25
"""Share of the jerk that closing the last gap may take: the two steps after it take three times that."""
_EASY = 0.8
"""Share of the acceleration planned with near the end of a range, so that the range check rarely brakes."""
_HALVINGS = 12
"""Bisection steps in `toward` and `span`."""
_LONG_RAMP = 64.0
"""Periods from no to full acceleration up to which a brake is checked against a speed curve one by one."""
_LONG_BRAKE = 400
"""More periods than such a brake takes: two ramps down, one up."""
_LONGEST = 1e9
"""Periods after which an axis is at top speed: keeps numbers sane."""
_TINY = 1e-120
_CREEP = 1e-6
"""Share of the top speed at which a range that a speed curve closes ends."""


class Axis:
    """One axis; numbers are per control period, s = u_k - u_k-1, b = s_k - s_k-1, except `path`,
    `planned`."""

    def __init__(
        self,
        speed: float,
        acceleration: float,
        jerk: float,
        *,
        period_s: float,
        low: float = -math.inf,
        high: float = math.inf,
        is_rate: bool = False,
    ) -> None:
        """low, high: position limits. is_rate: the axis is a speed itself; its jerk is unused."""
        self._limits, self._dt, self.is_rate = (speed, acceleration, jerk), period_s, is_rate
        self.low, self.high = low, high
        self.end_low, self.end_high = low, high  # the range of its targets
        self.curve_low, self.curve_high = -math.inf, math.inf
        self.gain, self.offset = math.inf, 0.0
        self._has_curve = False
        ends = [abs(end) for end in (low, high) if math.isfinite(end)]
        self.fit(max(ends) if len(ends) == 2 else _NEAR)
        self.stand()

    def fit(self, extent: float) -> None:
        """Allow for the rounding of setpoints as large as `extent`: n-th differences have 2^n of it.

        A brake sums such errors up; the part of its end beyond a limit that they cause is cut off.
        """
        speed, acceleration, jerk = self._limits
        dt, self.extent, ulp = self._dt, extent, _ULP * extent
        most, change = acceleration * dt * dt, math.inf if self.is_rate else jerk * dt * dt * dt
        periods = min(speed * dt / max(most, _TINY) + 2.0 * most / max(min(change, most), _TINY), 1e4)
        self.tolerance = ulp * (8.0 + periods) if math.isfinite(self.low) else 0.0
        slack = 4.0 * ulp + self.tolerance
        self.brake = Brake(_with_slack(most, slack), _with_slack(change, slack))
        self.speed = min(_with_slack(speed * dt, slack), _LONGEST * self.brake.most)
        self.acceleration, self.jerk = self.brake.most, self.brake.change
        self.stop = Brake(self.speed, self.acceleration)  # of rates
        self.snap = _SNAP * (self.acceleration if self.is_rate else self.jerk)
        self.planned = (
            _PLANNED * self.speed / dt,
            _PLANNED * self.acceleration / dt / dt,
            math.inf if self.is_rate else _PLANNED * _with_slack(change, slack) / dt / dt / dt,
        )
        self._ramp_s = 0.5 * acceleration / jerk if not self.is_rate else 0.0
        self._curb = 0.5 / self.jerk
        self._late = 2.0 + 0.5 * self.acceleration / self.jerk
        self._long = 0.5 / self.acceleration

    def follow_curve(self, low: float, high: float, gain: float, offset: float) -> None:
        """Limit speeds by position, as in `SpeedCurve`, less rounding; the range ends where hardly any speed
        is left."""
        dt = self._dt
        self._has_curve = True
        self.curve_low, self.curve_high = low, high
        self.gain, self.offset = gain * dt * dt, offset * dt + 8.0 * _ULP * self.extent
        creep = self.offset + _CREEP * self.speed
        closed = creep * creep / self.gain
        self.end_low, self.end_high = max(self.low, low + closed), min(self.high, high - closed)

    def stand(self) -> None:
        """Set speed and acceleration to 0."""
        self.s = self.b = 0.0
        self.path: tuple[float, float] | None = None
        """Speed and acceleration of the continuous path it follows, at the last setpoint."""

    def go(self, step: float, path: tuple[float, float] | None = None) -> None:
        """Take a step; path: as the attribute."""
        self.b, self.s = step - self.s, step
        self.path = path

    def moving(self) -> tuple[float, float]:
        """Speed and acceleration at the last setpoint, per second."""
        if self.path is not None:
            return self.path
        if self.is_rate:
            return self.s / self._dt, 0.0
        return (self.s + 0.5 * self.b) / self._dt, self.b / self._dt / self._dt

    def may_step(self, at: float, step: float) -> bool:
        """Whether that step is within all limits."""
        b = step - self.s
        return (
            abs(step) <= self.speed
            and abs(b) <= self.acceleration
            and abs(b - self.b) <= self.jerk
            and self.may_be(at + step, step, b)
        )

    def may_be(self, at: float, s: float, b: float) -> bool:
        """Whether the state is safe: beyond an end of the range, only if its brake never leads farther out.

        A quick sufficient test comes first: from w a brake takes no more than w (2 + B / 2h) + w² / 2B.
        """
        w = abs(s) + b * b * self._curb
        way = w * (abs(b) / self.jerk + self._late + w * self._long)
        up, down = self.high - at, at - self.low
        if w <= self.speed and way <= up and way <= down:
            if not self._has_curve:
                return True
            room = min(self.curve_high - at, at - self.curve_low) - way
            w += self.offset
            if w * w <= self.gain * room:
                return True
        return self._may_go_up(up + self.tolerance, self.curve_high - at, s, b) and self._may_go_up(
            down + self.tolerance, at - self.curve_low, -s, -b
        )

    def _may_go_up(self, room: float, curve_room: float, s: float, b: float) -> bool:
        """Whether the brake ends within the room above, and keeps to the speeds until then."""
        if room < 0.0:
            return not self.brake.rises(s, b)
        if not (s <= self.speed and self.brake.peak(s, b) <= self.speed):
            return False
        if room < math.inf and not self.brake.reach(s, b) <= room:
            return False
        return not self._has_curve or self._is_below_curve(curve_room, s, b)

    def _is_below_curve(self, room: float, s: float, b: float) -> bool:
        """Whether it stays below the speed curve: (s + c)² <= k times the room, in every period."""
        brake, gain, c = self.brake, self.gain, self.offset
        if not brake.rises(s, b):
            return True
        if self.acceleration > _LONG_RAMP * self.jerk:
            w = max(brake.peak(s, b), 0.0) + c
            return w * w <= gain * (room - brake.reach(s, b))
        for _ in range(_LONG_BRAKE):
            if s <= 0.0 and b <= 0.0:
                return True
            if s > 0.0 and (s + c) * (s + c) > gain * room:
                return False
            then = brake.next(s, b)
            if then == b == -brake.most and s >= brake.ramp:  # full braking: all its periods at once
                n = math.floor((s - brake.ramp) / brake.most) + 1
                if not self._is_below_curve_braked(room, s, n):
                    return False
                room -= n * s - 0.5 * brake.most * n * (n + 1)
                s -= n * brake.most
            else:
                b, s = then, s + then
                room -= s
        return False

    def _is_below_curve_braked(self, room: float, s: float, n: int) -> bool:
        """The same for n periods of full braking: the margin, k room - (s + c)², is a parabola in k."""
        most, gain, c = self.brake.most, self.gain, self.offset
        bend = 0.5 * gain * most - most * most
        slope = 2.0 * most * (s + c) - gain * (s - 0.5 * most)
        left = gain * room - (s + c) * (s + c)
        ks = [float(n)]
        if bend > 0.0 and 0.0 < -slope < 2.0 * bend * n:
            ks.append(-slope / (2.0 * bend))
        return all(left + k * (slope + bend * k) >= 0.0 for k in ks)

    def toward(self, at: float, gap: float, *, share: float = 1.0) -> float:
        """The longest step towards a target, at most `share` of the gap, from which the axis can brake to
        rest there; otherwise the braking step."""
        sign = 1.0 if gap >= 0.0 else -1.0
        s, b, gap = sign * self.s, sign * self.b, abs(gap) + self.tolerance
        least = self.brake.next(s, b)
        most = max(min(b + self.jerk, self.acceleration, share * gap - s), least)

        def is_good(b: float) -> bool:
            step = s + b
            if not self.brake.reach(step, b) <= gap - step:
                return False
            return self.may_be(at + sign * step, sign * step, sign * b)

        return sign * (s + _farthest(least, most, is_good))

    def span(self, at: float) -> tuple[float, float]:
        """The smallest and the largest safe next step; the braking step lies between them."""
        brake = self.brake.next(self.s, self.b)
        ends = max(self.b - self.jerk, -self.acceleration), min(self.b + self.jerk, self.acceleration)

        def is_good(b: float) -> bool:
            step = self.s + b
            return self.may_be(at + step, step, b)

        low, high = (self.s + _farthest(brake, end, is_good) for end in ends)
        return low, high

    def easy_speed(self, room: float) -> float:
        """Speed from which the axis stops within its room with some reserve [1/s]."""
        speed, acceleration, _ = self.planned
        if room == math.inf:
            return speed
        brake = _EASY * acceleration
        lost = brake * self._ramp_s
        return min(speed, math.sqrt(lost * lost + 2.0 * brake * max(room, 0.0)) - lost)

    def curve_speed(self, room: float) -> float:
        """Speed at which the axis keeps to its speed curve with some reserve; never quite 0 [1/s].

        A speed curve v = -c + sqrt(k d) is followed where that takes no more than k v / 2 (v + c) <= A; from
        higher speeds the axis decelerates to it with A.
        """
        speed, acceleration, _ = self.planned
        if not self._has_curve:
            return speed
        brake, gain, c = _EASY * acceleration, self.gain / self._dt / self._dt, self.offset / self._dt
        v = math.sqrt(gain * room) - c if room > 0.0 else 0.0
        if gain * v > 2.0 * brake * (v + c):
            w = 2.0 * brake * c / (gain - 2.0 * brake)
            v = math.sqrt(w * w + 2.0 * brake * (room - (w + c) * (w + c) / gain))
        return max(min(_EASY * v, speed), 1e-3 * speed)


def _with_slack(limit: float, slack: float) -> float:
    return max(_MARGIN * limit - slack, 0.5 * limit)


def _farthest(least: float, most: float, is_good: Callable[[float], bool]) -> float:
    """The good value farthest from `least` towards `most`, by bisection; `least` if none is good."""
    if is_good(most):
        return most
    if is_good(least):
        for _ in range(_HALVINGS):
            middle = 0.5 * (least + most)
            least, most = (middle, most) if is_good(middle) else (least, middle)
    return least
