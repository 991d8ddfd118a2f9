"""Where a stream of commands is meant to be now, whatever its arrivals do: `CommandStream`.

    arrivals    |    |      | |    |     late by what processes and networks add
    due         |    |    |    |    |    a line through the last arrivals: P apart
    played     ----->----->----->---->   a playhead along the commands, that never jumps

Commands are made at a steady rate, and keep their limits at that rate. Taken at their arrivals they do not:
1 ms of jitter at 2 rad/s looks like 125 rad/s² to a loop of 250 Hz. So they are played at their own rate, as
much later as arrivals are late, and the playhead is only ever made a little quicker or slower.
"""

from collections import deque

import numpy as np

from robot_runtime.core.values.shapes import Float

LONGEST_NS = 200_000_000
"""Commands that are farther apart than this are no stream [ns]."""
FOLLOWED_NS = 10_000_000
"""A stream is followed on beyond its newest command for so long, or for one and a half periods [ns]."""
_KEPT = 64
_TAU_NS = 200_000_000
"""How soon the playhead is where it should be [ns]."""
_OFF_NS = 40_000_000
"""Farther off than this it jumps [ns]."""
_LATE = 3.0
"""Played later than the line by so many times what arrivals deviate from it at the mean."""


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
        """A command has arrived.

        count: how many were made since the one before; those between were missed.
        """
        self._index += count
        if self._arrived_ns and not self._goes_on(values, now_ns):
            self._forget()
        self._indices.append(self._index)
        self._arrived_ns.append(now_ns)
        self._values.append(values)
        if len(self._indices) == 1:
            self._played, self._played_ns = float(self._index), now_ns
            return
        self._fit()

    def at(self, now_ns: int) -> Float[np.ndarray, " n"]:
        """The commands at the playhead, moved to now; beyond the newest at the speed it has, for a while."""
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

    def _goes_on(self, values: np.ndarray, now_ns: int) -> bool:
        """Whether a command belongs to the stream."""
        is_finite = np.isfinite(values).all() and np.isfinite(self._values[-1]).all()
        return bool(is_finite) and 0 <= now_ns - self._arrived_ns[-1] <= LONGEST_NS

    def _forget(self) -> None:
        for kept in (self._indices, self._arrived_ns, self._values):
            kept.clear()
        self._period_ns = self._late_ns = 0.0

    def _fit(self) -> None:
        """The line through the arrivals, by least squares, and how far they are from it."""
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
        """The commands around an index, mixed."""
        if index <= self._indices[0]:
            return self._values[0]
        k = len(self._indices) - 1
        while self._indices[k - 1] > index:
            k -= 1
        before, after = self._indices[k - 1], self._indices[k]
        share = (index - before) / (after - before)
        return self._values[k - 1] + share * (self._values[k] - self._values[k - 1])

    def _step(self) -> np.ndarray:
        """From one command to the next: the smaller of the last two steps, so that a jump is no speed."""
        if len(self._values) < 3:
            return np.zeros_like(self._values[-1])
        (a, i), (b, j), (c, k) = list(zip(self._values, self._indices, strict=True))[-3:]
        first, last = (b - a) / (j - i), (c - b) / (k - j)
        return np.where(first * last > 0.0, np.where(np.abs(first) < np.abs(last), first, last), 0.0)
