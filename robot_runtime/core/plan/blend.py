"""Blends a chunk's rows with the old plan that they meet: `Blender`. `splice` decides when they are due.

last sample          now
    |                 |
●───┼──●──────●──────●──────●      old plan, as it was when the chunk's first rows came
    └───────○──────○──────○────    new rows; each is blended with the old plan at its time
"""

import numpy as np

from robot_runtime.core.method.splice_parts import (
    Blend,
    CrossFade,
    Replace,
    TemporalEnsembling,
    WeightedAverage,
)
from robot_runtime.core.plan.timeline import ChunkTimeline
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.shapes import Int
from robot_runtime.core.values.timed_waypoints import (
    TimedWaypoints,
    held_as_in,
    mix,
    pick_rows,
    with_rows,
)
from robot_runtime.core.values.waypoints import Waypoints
from robot_runtime.errors import InvalidValueError


class Blender:
    """Blends one chunk after the other, each of which may come in several parts.

    It changes no row that is due at or before the last sample.
    """

    def __init__(self, part: Blend, *, dt_ns: int) -> None:
        """InvalidValueError: a number of the part is out of range."""
        match part:
            case WeightedAverage(old_weight=weight) if not 0.0 <= weight < 1.0:
                raise InvalidValueError(f"the weight of the old plan must lie in [0, 1), got {weight}")
            case CrossFade(duration_s=duration_s) if duration_s <= 0.0:
                raise InvalidValueError(f"a cross-fade takes time, got {duration_s} s")
        self._part = part
        self._dt_ns = dt_ns
        self._seam_ns = 0
        self._t0_ns = 0
        self._old: ChunkTimeline | None = None
        self._past: list[TimedWaypoints] = []
        self._current: TimedWaypoints | None = None

    def forget(self) -> None:
        """Forget all chunks: the robot was halted or reset."""
        self._past, self._current, self._old = [], None, None

    def begin(self, timeline: ChunkTimeline, *, t0_ns: int, stood_still: bool) -> None:
        """Begin another chunk, its row 0 due at `t0_ns`; timeline: the plan that it meets.

        If the robot was stationary, there is no old plan to blend with.
        """
        if isinstance(self._part, Replace):
            return
        if stood_still:
            self.forget()
        elif self._current is not None:
            self._past.append(self._current)
        self._past = [chunk for chunk in self._past if chunk.end_ns > timeline.claimed_ns]
        self._seam_ns, self._t0_ns, self._current = timeline.claimed_ns, t0_ns, None
        self._old = None if stood_still else timeline.frozen()

    def rows(self, waypoints: Waypoints) -> Waypoints:
        """All rows of the chunk known so far, blended; call it again with more as they come."""
        match self._part:
            case Replace():
                return waypoints
            case WeightedAverage(old_weight=weight):
                return self._averaged(waypoints, weight)
            case TemporalEnsembling(m=m):
                self._current = TimedWaypoints(waypoints=waypoints, t0_ns=self._t0_ns, dt_ns=self._dt_ns)
                return self._ensembled(self._current, m)
            case CrossFade(duration_s=duration_s):
                return self._faded(waypoints, round(duration_s * NS_PER_S))

    def _averaged(self, waypoints: Waypoints, old_weight: float) -> Waypoints:
        if self._old is None:
            return waypoints
        first, times = self._open_rows(waypoints)
        times = times[times <= self._old.end_ns]
        share = np.full(len(times), 1.0 - old_weight)
        return self._mixed_with_old(waypoints, first, times, share)

    def _faded(self, waypoints: Waypoints, duration_ns: int) -> Waypoints:
        if self._old is None:
            return waypoints
        first, times = self._open_rows(waypoints)
        times = times[times < self._seam_ns + duration_ns]
        x = (times - self._seam_ns) / duration_ns
        mixed = self._mixed_with_old(waypoints, first, times, x * x * (3.0 - 2.0 * x))
        return held_as_in(waypoints, mixed)

    def _ensembled(self, chunk: TimedWaypoints, m: float) -> Waypoints:
        """The running weighted mean over the chunks, oldest first; the rank counts those that cover a
        time."""
        if not self._past:
            return chunk.waypoints
        first, times = self._open_rows(chunk.waypoints)
        if len(times) == 0:
            return chunk.waypoints
        mean = self._past[0].at(times)
        total, rank = np.zeros(len(times)), np.zeros(len(times))
        for each in (*self._past, chunk):
            covers = each.covers(times)
            weight = np.where(covers, np.exp(-m * rank), 0.0)
            rank, total = rank + covers, total + weight
            share = np.divide(weight, total, out=np.zeros(len(times)), where=total > 0.0)
            mean = mix(mean, each.at(times), share)
        return with_rows(chunk.waypoints, first, mean)

    def _open_rows(self, waypoints: Waypoints) -> tuple[int, Int[np.ndarray, " n"]]:
        """The first row that is due after the last sample, and the due times from there on."""
        first = max(0, (self._seam_ns - self._t0_ns) // self._dt_ns + 1)
        return first, self._t0_ns + np.arange(first, waypoints.num_rows) * self._dt_ns

    def _mixed_with_old(
        self, waypoints: Waypoints, first: int, times: np.ndarray, share: np.ndarray
    ) -> Waypoints:
        """The rows with those from `first` on mixed with the old plan at their times; share: the new
        one's."""
        assert self._old is not None
        if len(times) == 0:
            return waypoints
        old = self._old.waypoints_at(times.tolist())
        new = pick_rows(waypoints, np.arange(first, first + len(times)))
        return with_rows(waypoints, first, mix(old, new, share))
