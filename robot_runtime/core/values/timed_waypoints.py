"""Rows with their due times, and interpolation between them: `TimedWaypoints`, `mix`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robot_runtime.core.values.pose_rows import slerp_rows
from robot_runtime.core.values.shapes import Float, Int
from robot_runtime.core.values.transforms import interpolate_planar
from robot_runtime.core.values.waypoints import HELD, Waypoints


@dataclass(frozen=True, kw_only=True, eq=False)
class TimedWaypoints:
    """Rows as the policy wrote them, with their due times."""

    waypoints: Waypoints
    t0_ns: int
    dt_ns: int

    @property
    def end_ns(self) -> int:
        return self.t0_ns + (self.waypoints.num_rows - 1) * self.dt_ns

    def covers(self, t_ns: Int[np.ndarray, " n"]) -> np.ndarray:
        """(n,) whether the chunk has rows for each time."""
        return (t_ns >= self.t0_ns) & (t_ns <= self.end_ns)

    def at(self, t_ns: Int[np.ndarray, " n"]) -> Waypoints:
        """The interpolated rows; before the first and after the last row, that row."""
        position = np.clip((t_ns - self.t0_ns) / self.dt_ns, 0, self.waypoints.num_rows - 1)
        below = np.floor(position).astype(int)
        above = np.minimum(below + 1, self.waypoints.num_rows - 1)
        first = pick_rows(self.waypoints, below)
        mixed = mix(first, pick_rows(self.waypoints, above), position - below)
        return held_as_in(first, mixed)


def held_as_in(waypoints: Waypoints, mixed: Waypoints) -> Waypoints:
    """The mixed rows, except for quantities that are never interpolated."""
    held = {what: values for what, values in waypoints.rows_of.items() if what[1] in HELD}
    return Waypoints({**mixed.rows_of, **held}) if held else mixed


def mix(a: Waypoints, b: Waypoints, share_b: Float[np.ndarray, " n"]) -> Waypoints:
    """Interpolate each row from `a` to `b` by its share: rotations on the geodesic, yaw the shorter way.

    Quantities that are held from row to row are interpolated here as well.
    """
    out = dict(b.rows_of)
    for what, value in b.rows_of.items():
        other = a.rows_of.get(what)
        if other is None:
            continue
        match what[1]:
            case "quat_BE":
                out[what] = slerp_rows(other, value, share_b)
            case "x_WB":
                out[what] = interpolate_planar(other, value, share_b)
            case _:
                share = share_b if value.ndim == 1 else share_b[:, None]
                out[what] = other + share * (value - other)
    return Waypoints(out)


def pick_rows(waypoints: Waypoints, rows: Int[np.ndarray, " k"]) -> Waypoints:
    """The waypoints of those rows, in that order."""
    return Waypoints({what: values[rows] for what, values in waypoints.rows_of.items()})


def with_rows(waypoints: Waypoints, first: int, rows: Waypoints) -> Waypoints:
    """The waypoints with the rows from `first` on overwritten by those of `rows`."""
    out = dict(waypoints.rows_of)
    for what, value in waypoints.rows_of.items():
        other = rows.rows_of.get(what)
        if other is not None:
            out[what] = np.concatenate([value[:first], other, value[first + len(other) :]])
    return Waypoints(out)


def concatenated(parts: Sequence[Waypoints]) -> Waypoints:
    """The rows of all waypoints, which command the same parts, one after the other."""
    if len(parts) <= 1:
        return parts[0] if parts else Waypoints()
    return Waypoints(
        {what: np.concatenate([part.rows_of[what] for part in parts]) for what in parts[0].rows_of}
    )
