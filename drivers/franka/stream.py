"""The current value of a stream of commands, independent of jitter in their arrivals: `CommandStream`.

    arrivals    |    |      | |    |     delayed by processes and networks
    due         |    |    |    |    |    a line through the last arrivals: P apart
    played     ----->----->----->---->   a playhead along the commands, which does not jump

Commands are made at a steady rate, and keep their limits at that rate. Applied at their arrivals they do not:
1 ms of jitter at 2 rad/s looks like 125 rad/s² to a loop of 250 Hz. So they are played at their own rate,
delayed as much as arrivals are late, and the playhead is only sped up or slowed down a little.
"""

from collections import deque

import numpy as np

from robot_runtime.core.values.shapes import Float

LONGEST_NS = 200_000_000
"""Commands that are farther apart than this are no stream [ns]."""
FOLLOWED_NS = 10_000_000
"""A stream is extrapolated beyond its newest command for this long, or for one and a half periods [ns]."""
_KEPT = 64
_TAU_NS = 200_000_000
"""Time constant with which the playhead is corrected [ns]."""
_OFF_NS = 40_000_000
"""Beyond this error the playhead jumps [ns]."""
_LATE = 3.0
"""Playback delay behind the line, as a multiple of the mean deviation of arrivals."""


class CommandStream:
    """The last commands and their arrivals; one thread owns it. Times are of one clock [ns]."""

    def __init__(self) -> None:
        self._index = 0
        self._indices: deque[int] = deque(maxlen=_KEPT)
        self._arrived_ns: deque[int] = deque(maxlen=_KEPT)
        self._values: deque[np.ndarray] = deque(maxlen=_KEPT)
        self._period_ns = self._line_ns = self._late_ns = 0.0
        self._played, self._played_ns = 0.0, 0

    def add(self, values: Float[np.ndarray, " n"], now_ns: int, count: int = 1) -> None:
        """Add a command that has arrived.

        count: how many were made since the previous one; those between were missed.
        """
        self._index += count
        if self._arrived_ns and not self._continues(values, now_ns):
            self._forget()
        self._indices.append(self._index)
        self._arrived_ns.append(now_ns)
        self._values.append(values)
        if len(self._indices) == 1:
            self._played, self._played_ns = float(self._index), now_ns
            return
        self._fit()

    def at(self, now_ns: int) -> Float[np.ndarray, " n"]:
        """Return the value at the playhead, moved to now; beyond the newest it is extrapolated for a
        while."""
        newest = self._values[-1]
        if self._period_ns <= 0.0:
            return newest
        due = self._index_at(now_ns - self._late_ns)
        passed_ns = max(0, now_ns - self._played_ns)
        self._played += passed_ns / self._period_ns
        self._played += (due - self._played) * min(passed_ns / _TAU_NS, 1.0)
        self._played_ns = max(now_ns, self._played_ns)
        if abs(due - self._played) * self._period_ns > _OFF_NS:
            self._played = due
        ahead = self._played - self._indices[-1]
        if ahead <= 0.0:
            return self._between(self._played)
        longest = max(1.0, FOLLOWED_NS / self._period_ns)
        if ahead > 1.5 * longest:
            return newest
        return newest + min(ahead, longest) * self._step()

    def _continues(self, values: np.ndarray, now_ns: int) -> bool:
        """Whether a command continues the stream."""
        is_finite = np.isfinite(values).all() and np.isfinite(self._values[-1]).all()
        return bool(is_finite) and 0 <= now_ns - self._arrived_ns[-1] <= LONGEST_NS

    def _forget(self) -> None:
        for kept in (self._indices, self._arrived_ns, self._values):
            kept.clear()
        self._period_ns = self._late_ns = 0.0

    def _fit(self) -> None:
        """Fit the line through the arrivals by least squares, and their deviation from it."""
        i = np.array(self._indices, dtype=float) - self._index
        t = np.array(self._arrived_ns, dtype=float) - self._arrived_ns[-1]
        away = i - i.mean()
        self._period_ns = float(away @ (t - t.mean()) / (away @ away))
        self._line_ns = float(t.mean() - self._period_ns * i.mean()) + self._arrived_ns[-1]
        self._late_ns = _LATE * float(
            np.abs(t - (self._line_ns - self._arrived_ns[-1]) - self._period_ns * i).mean()
        )

    def _index_at(self, t_ns: float) -> float:
        return self._index + (t_ns - self._line_ns) / self._period_ns

    def _between(self, index: float) -> np.ndarray:
        """Interpolate the commands around an index."""
        if index <= self._indices[0]:
            return self._values[0]
        k = len(self._indices) - 1
        while self._indices[k - 1] > index:
            k -= 1
        before, after = self._indices[k - 1], self._indices[k]
        share = (index - before) / (after - before)
        return self._values[k - 1] + share * (self._values[k] - self._values[k - 1])

    def _step(self) -> np.ndarray:
        """Return the step between commands: the smaller of the last two, so that a jump is no speed."""
        if len(self._values) < 3:
            return np.zeros_like(self._values[-1])
        (a, i), (b, j), (c, k) = list(zip(self._values, self._indices, strict=True))[-3:]
        first, last = (b - a) / (j - i), (c - b) / (k - j)
        return np.where(first * last > 0.0, np.where(np.abs(first) < np.abs(last), first, last), 0.0)
