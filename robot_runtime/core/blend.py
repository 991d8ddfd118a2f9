"""Blends: what becomes of a chunk's rows where they meet an old plan. When they are due is `splice`'s affair.

last sample          now
    |                 |
●───┼──●──────●──────●──────●      old plan, as it was when the chunk's first rows came
    └───────○──────○──────○────    new rows; each is blended with what the old plan says for its time
"""

from dataclasses import dataclass, replace

import numpy as np

from robot_runtime.core.action import NS_PER_S
from robot_runtime.core.shapes import Float, Int
from robot_runtime.core.splice_parts import Blend, CrossFade, Replace, TemporalEnsembling, WeightedAverage
from robot_runtime.core.timeline import ChunkTimeline
from robot_runtime.core.transforms import interpolate_planar, slerp
from robot_runtime.core.waypoints import Waypoints
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class _Chunk:
    """Rows as the policy wrote them, with the times they are for."""

    waypoints: Waypoints
    t0_ns: int
    dt_ns: int

    @property
    def end_ns(self) -> int:
        return self.t0_ns + (self.waypoints.num_rows - 1) * self.dt_ns

    def covers(self, t_ns: Int[np.ndarray, " n"]) -> np.ndarray:
        """(n,) whether the chunk says something about a time."""
        return (t_ns >= self.t0_ns) & (t_ns <= self.end_ns)

    def at(self, t_ns: Int[np.ndarray, " n"]) -> Waypoints:
        """What it says; before its first and after its last row, that row."""
        position = np.clip((t_ns - self.t0_ns) / self.dt_ns, 0, self.waypoints.num_rows - 1)
        below = np.floor(position).astype(int)
        above = np.minimum(below + 1, self.waypoints.num_rows - 1)
        mixed = mix(_rows(self.waypoints, below), _rows(self.waypoints, above), position - below)
        gripper = self.waypoints.gripper
        return mixed if gripper is None else replace(mixed, gripper=gripper[below])


class Blender:
    """Blends one chunk after the other, each of which may come in several parts.

    What has been sent is not its business: it writes no row that is due at or before the last sample.
    """

    def __init__(self, part: Blend, *, dt_ns: int) -> None:
        """InvalidValueError: a part's number makes no sense."""
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
        self._past: list[_Chunk] = []
        self._current: _Chunk | None = None

    def forget(self) -> None:
        """The robot was halted or reset: what earlier chunks said is void."""
        self._past, self._current, self._old = [], None, None

    def begin(self, timeline: ChunkTimeline, *, t0_ns: int, stood_still: bool) -> None:
        """Another chunk comes, its row 0 due at `t0_ns`; the timeline is what it meets.

        A robot that stood still has no plan that the chunk would have to agree with.
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
                self._current = _Chunk(waypoints=waypoints, t0_ns=self._t0_ns, dt_ns=self._dt_ns)
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
        return replace(mixed, gripper=waypoints.gripper)

    def _ensembled(self, chunk: _Chunk, m: float) -> Waypoints:
        """A running mean over the chunks, oldest first; i counts those that cover a time."""
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
        return _with_rows(chunk.waypoints, first, mean)

    def _open_rows(self, waypoints: Waypoints) -> tuple[int, Int[np.ndarray, " n"]]:
        """(first row that is due after what has been sent, due times from there on)."""
        first = max(0, (self._seam_ns - self._t0_ns) // self._dt_ns + 1)
        return first, self._t0_ns + np.arange(first, waypoints.num_rows) * self._dt_ns

    def _mixed_with_old(
        self, waypoints: Waypoints, first: int, times: np.ndarray, share: np.ndarray
    ) -> Waypoints:
        """Rows from `first` on mixed with the old plan at their times; `share` is the new one's."""
        assert self._old is not None
        if len(times) == 0:
            return waypoints
        old = Waypoints.from_commands([self._old.command_at(t) for t in times.tolist()])
        new = _rows(waypoints, np.arange(first, first + len(times)))
        return _with_rows(waypoints, first, mix(old, new, share))


def mix(a: Waypoints, b: Waypoints, share_b: Float[np.ndarray, " n"]) -> Waypoints:
    """Row by row a fraction of the way from `a` to `b`: rotations on the geodesic, yaw the shorter way.

    The gripper's width is a number like any other here.
    """
    out: dict[str, np.ndarray] = {}
    for name, value in vars(b).items():
        other = getattr(a, name)
        if value is None or other is None:
            continue
        match name:
            case "quat_BE":
                out[name] = np.array([slerp(*each) for each in zip(other, value, share_b, strict=True)])
            case "x_WB":
                rows = zip(other, value, share_b, strict=True)
                out[name] = np.array([interpolate_planar(*each) for each in rows])
            case _:
                share = share_b if value.ndim == 1 else share_b[:, None]
                out[name] = other + share * (value - other)
    return replace(b, **out)


def _rows(waypoints: Waypoints, rows: Int[np.ndarray, " k"]) -> Waypoints:
    parts = {name: value for name, value in vars(waypoints).items() if value is not None}
    return replace(waypoints, **{name: value[rows] for name, value in parts.items()})


def _with_rows(waypoints: Waypoints, first: int, rows: Waypoints) -> Waypoints:
    """The waypoints with the rows from `first` on overwritten by those of `rows`."""
    out: dict[str, np.ndarray] = {}
    for name, value in vars(waypoints).items():
        other = getattr(rows, name)
        if value is not None and other is not None:
            out[name] = np.concatenate([value[:first], other, value[first + len(other) :]])
    return replace(waypoints, **out)
