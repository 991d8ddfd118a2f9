"""Rows with the times they are for, and what lies between two of them: `TimedWaypoints`, `mix`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from robot_runtime.core.values.pose_rows import slerp_rows
from robot_runtime.core.values.shapes import Float, Int
from robot_runtime.core.values.transforms import interpolate_planar
from robot_runtime.core.values.waypoints import Waypoints


@dataclass(frozen=True, kw_only=True, eq=False)
class TimedWaypoints:
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
        mixed = mix(pick_rows(self.waypoints, below), pick_rows(self.waypoints, above), position - below)
        held = {name: getattr(self.waypoints, name) for name in ("gripper", "held_numbers")}
        return replace(mixed, **{name: values[below] for name, values in held.items() if values is not None})


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
                out[name] = slerp_rows(other, value, share_b)
            case "x_WB":
                out[name] = interpolate_planar(other, value, share_b)
            case _:
                share = share_b if value.ndim == 1 else share_b[:, None]
                out[name] = other + share * (value - other)
    return replace(b, **out)


def pick_rows(waypoints: Waypoints, rows: Int[np.ndarray, " k"]) -> Waypoints:
    """Those rows, in that order."""
    parts = {name: value for name, value in vars(waypoints).items() if value is not None}
    return replace(waypoints, **{name: value[rows] for name, value in parts.items()})


def with_rows(waypoints: Waypoints, first: int, rows: Waypoints) -> Waypoints:
    """The waypoints with the rows from `first` on overwritten by those of `rows`."""
    out: dict[str, np.ndarray] = {}
    for name, value in vars(waypoints).items():
        other = getattr(rows, name)
        if value is not None and other is not None:
            out[name] = np.concatenate([value[:first], other, value[first + len(other) :]])
    return replace(waypoints, **out)


def concatenated(parts: Sequence[Waypoints]) -> Waypoints:
    """The rows of all, which command the same parts of the robot, one after the other."""
    if len(parts) <= 1:
        return parts[0] if parts else Waypoints()
    names = [name for name, value in vars(parts[0]).items() if value is not None]
    return Waypoints(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
