"""The fastest exact braking law of an axis in discrete time, in plain floats: `Brake`.

Limits apply to what is sent, so everything is in differences of setpoints u, per control period:

    s_k = u_k - u_k-1   speed         b_k = s_k - s_k-1   acceleration         |b_k - b_k-1| <= h   jerk

An axis that moves at s > 0 brakes with the lowest possible b: no lower than -B, nor than h below the last,
nor so low that it would reverse before b, rising by h a period, is 0 again. From b = -β that takes

    R(β) = β + (β - h) + (β - 2h) + ...      while the terms are positive

of the speed, so b is never below -α(s) where R(α) = s. It is the discrete form of the time-optimal brake with
three pieces (jerk -J, none, +J; Lambrechts et al. 2005). No other way to rest without reversing is slower in
any period, so none is shorter: an axis that can stop before a limit at all can brake there. Only an axis that
already decelerates too hard to stop at 0 reverses: it passes 0, and brakes from there.

             b ┤──╲
             0 ┼───╲──────────────────────╱──  s = 0
               │    ╲                   ╱
            -B ┤     ╲_________________╱
               └──────┼────────────────┼──── k
                  -h each   -B      +h each
"""

import math

_LONGEST = 1e6
"""Periods after which an axis has its top speed and full acceleration: keeps numbers sane."""
_LEAST = 1e-120
"""Least change of acceleration; far below the resolution of setpoints."""


class Brake:
    """The braking law of one axis; numbers per period."""

    __slots__ = ("change", "most", "ramp")

    def __init__(self, most: float, change: float) -> None:
        """most: largest acceleration, B. change: its largest change in one period, h."""
        self.change = min(max(change, _LEAST), 2.0 * max(most, _LEAST))
        self.most = min(max(most, _LEAST), _LONGEST * self.change)
        n = math.ceil(self.most / self.change)
        self.ramp = n * self.most - 0.5 * self.change * n * (n - 1)
        """R(B): the speed below which it does not brake fully."""

    def next(self, s: float, b: float) -> float:
        """Acceleration of the next period; the speed is then s + that. Ends with s and b exactly 0."""
        h = self.change
        if s < 0.0:
            return max(min(self._ending(-s), b + h), b - h)
        return min(max(-self._ending(s), b - h), b + h)

    def _ending(self, s: float) -> float:
        """α(s) of a speed s >= 0, or B: the hardest deceleration from which it still stops at 0."""
        if s >= self.ramp:
            return self.most
        n = self._periods(s)
        return s / n + 0.5 * self.change * (n - 1)

    def _periods(self, s: float) -> int:
        """Number of periods of the final piece, in which b rises to 0."""
        return max(math.ceil(0.5 * (math.sqrt(1.0 + 8.0 * s / self.change) - 1.0)), 1)

    def peak(self, s: float, b: float) -> float:
        """The highest speed until rest."""
        if b <= 0.0:
            return s
        k = math.floor(b / self.change)
        return s + k * b - 0.5 * self.change * k * (k + 1)

    def rises(self, s: float, b: float) -> bool:
        """Whether the axis moves up at all until rest."""
        return s > 0.0 or b - self.change > self._ending(-s)

    def reach(self, s: float, b: float) -> float:
        """The largest distance upwards until rest; 0 if the axis only moves down."""
        h = self.change
        if s < 0.0:
            if not self.rises(s, b):
                return 0.0
            rise = b - 0.5 * h  # it reverses: up from 0 in the period in which it passes 0
            m = math.ceil((rise - math.sqrt(max(rise * rise + 2.0 * h * s, 0.0))) / h)
            gone = m * s + 0.5 * m * (m + 1) * (b - h * (m + 2) / 3.0)
            return max(gone + self._to_stand(s + m * b - 0.5 * h * m * (m + 1), b - m * h), 0.0)
        if b + h < -self._ending(s):
            fall = -b - 0.5 * h
            m = math.floor((fall - math.sqrt(max(fall * fall - 2.0 * h * s, 0.0))) / h)
            return m * s + 0.5 * m * (m + 1) * (b + h * (m + 2) / 3.0)
        return self._to_stand(s, b)

    def _to_stand(self, s: float, b: float) -> float:
        """The distance to rest of an axis that does not reverse; s >= 0."""
        h = self.change
        x = b / h
        k = math.floor(x)
        f = x - k
        # b falls by h as long as R(-b) is no more than the speed before: a square inequality in n = m - k
        root = math.sqrt(max(f * f + s / h + 0.5 * k * (k - 1) + f * (k - 1), 0.0))
        m = max(min(math.floor(f + root) + k, math.floor((b + self.most) / h)), 0)
        way = m * s + 0.5 * m * (m + 1) * (b - h * (m + 2) / 3.0)
        s += m * b - 0.5 * h * m * (m + 1)
        if s >= self.ramp:
            n = math.floor((s - self.ramp) / self.most) + 1
            way += n * s - 0.5 * self.most * n * (n + 1)
            s -= n * self.most
        if s <= 0.0:
            return way
        n = self._periods(s)
        least = s / n + 0.5 * h * (n - 1)
        return way + 0.5 * n * (n - 1) * (least - h * (2 * n - 1) / 3.0)
