"""The path through the rows of a plan, without corners: `Curve`, a cubic in time from row to row.

A row is passed at the speed of the parabola through it and its neighbours, but never so fast that the path
would leave the range of the rows it lies between (monotone cubic interpolation: Fritsch and Carlson 1980):

    slopes to and from row i   S0 = (r_i - r_i-1) / h0,   S1 = (r_i+1 - r_i) / h1
    speed at row i             (S0 h1 + S1 h0) / (h0 + h1), <= 3 |S0|, 3 |S1|; 0 if their signs differ

Rows on a line are passed on that line at constant speed. The path ends at the last row: it is reached at
rest, `coast` later than it was due.

    r_n-1 ┤                       _____●       ● where and when the last row is reached
          │                  .-´  x            x where the path is when it was due
          │             .-´
    r_n-2 ┤        __●
          └──────────┼────────────┼────┼── t
                   t_n-2        t_n-1  t_n-1 + coast

Twists of a base and velocities of joints are not positions: the last one is reached when it is due, then
fades to zero within the coast, as plain numbers fade to the values that they declare at rest. Held numbers
take those values when the coast is over.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.action import NS_PER_S, at_rest_or
from robot_runtime.core.values.command import Command
from robot_runtime.core.values.pose_rows import (
    quaternions_from_rotations,
    rotation_vectors,
    rotations_from_quaternions,
)
from robot_runtime.core.values.transforms import quaternion_from_rotation, wrap_angle
from robot_runtime.core.values.waypoints import HELD, Quantity, Waypoints, command_of

Rates = Mapping[Quantity, np.ndarray]
"""Rates of change of a command's numbers, by their names in `Waypoints` [1/s]; for `quat_BE` the angular
velocity, expressed in B [rad/s]."""
Rest = Sequence[float | None]
"""`Numbers.at_rest`."""
_NO_RESTS: Mapping[str, Rest] = MappingProxyType({})
_FADING = ("V_WB_B", "dq")
"""Quantities that are speeds themselves."""


class Curve:
    """The path of one plan; immutable."""

    def __init__(
        self,
        rows: Waypoints,
        due_ns: Sequence[int],
        *,
        coast_ns: int,
        known: Mapping[int, Rates],
        ends_on_time: bool = False,
        rests: Mapping[str, Rest] = _NO_RESTS,
    ) -> None:
        """
        rows: n absolute targets. due_ns: when they are due, rising. A single row is held.
        known: rates at rows where they do not follow from the neighbours.
        ends_on_time: the last row is reached when it is due, and not at the end of the coast.
        rests: `Numbers.at_rest` by part.
        """
        self._due_ns = due_ns
        rest_ns = due_ns[-1] + coast_ns if len(due_ns) > 1 else due_ns[-1]
        arrival_ns = due_ns if ends_on_time else [*due_ns[:-1], rest_ns]
        self._held = {what: values for what, values in rows.rows_of.items() if what[1] in HELD}
        self._rest_ns, self._rests = rest_ns, rests
        self._tracks: list[tuple[list[tuple[Quantity, slice]], _Track]] = []
        positions, speeds, ends = {}, {}, {}
        for what, values in rows.rows_of.items():
            if what[1] == "quat_BE":
                rates = {i: each[what] for i, each in known.items() if what in each}
                track = _RotationTrack(values, due_ns, arrival_ns, rates)
                self._tracks.append(([(what, slice(0, 4))], track))
            elif what[1] in _FADING:
                speeds[what], ends[what] = values, np.zeros(values.shape[1])
            elif what[1] == "numbers" and what[0] in rests:
                speeds[what], ends[what] = values, at_rest_or(values[-1], rests[what[0]])
            elif what[1] == "x_WB":
                positions[what] = np.column_stack([values[:, :2], np.unwrap(values[:, 2])])
            elif what[1] not in HELD:
                positions[what] = values
        if positions:
            self._add(positions, due_ns, arrival_ns, known)
        if speeds and len(due_ns) > 1:
            ending = {what: np.vstack([values, ends[what]]) for what, values in speeds.items()}
            self._add(ending, [*due_ns, rest_ns], [*due_ns, rest_ns], known)
        elif speeds:
            self._add({what: end[None] for what, end in ends.items()}, due_ns, due_ns, known)

    def _add(
        self,
        values_of: Mapping[Quantity, np.ndarray],
        due_ns: Sequence[int],
        times_ns: Sequence[int],
        known: Mapping[int, Rates],
    ) -> None:
        """Add one track for all quantities with the same times: many numbers cost no more than one."""
        columns, start = [], 0
        for what, values in values_of.items():
            columns.append((what, slice(start, start + values.shape[1])))
            start += values.shape[1]
        stacked = list(values_of.values())
        track = _Track(stacked[0] if len(stacked) == 1 else np.hstack(stacked), due_ns, times_ns, {})
        for i, rates in known.items():
            for what, own in columns:
                if what in rates:
                    track.set_rate(i, own, rates[what])
        self._tracks.append((columns, track))

    def command(self, t_ns: int) -> Command:
        """The command at a time; before the first row is due, that row."""
        at: dict[Quantity, Any] = {}
        for columns, track in self._tracks:
            numbers = track.at(t_ns)
            if len(columns) == 1:
                at[columns[0][0]] = numbers
                if columns[0][0][1] == "x_WB":
                    numbers[2] = wrap_angle(numbers[2])
                continue
            for what, own in columns:
                at[what] = numbers[own]
                if what[1] == "x_WB":
                    at[what][2] = wrap_angle(at[what][2])
        if self._held:
            last_due = max(bisect_right(self._due_ns, t_ns) - 1, 0)
            for what, values in self._held.items():
                at[what] = values[last_due]
                if what[0] in self._rests and t_ns >= self._rest_ns:
                    at[what] = at_rest_or(at[what], self._rests[what[0]])
        return command_of(at)

    def commands(self, times_ns: Sequence[int]) -> Waypoints:
        """The targets at many times: as `command`, but through the last row when it is due."""
        at: dict[Quantity, np.ndarray] = {}
        for columns, track in self._tracks:
            numbers = track.at_rows(times_ns)
            for what, own in columns:
                at[what] = numbers[:, own]
                if what[1] == "x_WB":
                    at[what][:, 2] = wrap_angle(at[what][:, 2])
        for what, values in self._held.items():
            last_due = np.searchsorted(self._due_ns, times_ns, side="right") - 1
            at[what] = values[np.maximum(last_due, 0)]
            if what[0] in self._rests and (is_over := np.array(times_ns) >= self._rest_ns).any():
                at[what][is_over] = at_rest_or(values[-1], self._rests[what[0]])
        return Waypoints(at)

    def rates(self, t_ns: int) -> Rates:
        """The rate of change of the command at a time."""
        out: dict[Quantity, np.ndarray] = {}
        for columns, track in self._tracks:
            numbers = track.rate(t_ns)
            out |= {what: numbers[own] for what, own in columns}
        return out


class _Track:
    """A piecewise cubic through n rows of m numbers."""

    def __init__(
        self,
        rows: np.ndarray,
        due_ns: Sequence[int],
        times_ns: Sequence[int],
        known: Mapping[int, np.ndarray],
    ) -> None:
        """due_ns: when the rows are due. times_ns: when the path reaches them."""
        self._rows, self._times, self._due = rows, times_ns, np.array(due_ns)
        self._steps = self._steps_of(rows)
        self._due_s = np.diff(self._due) / NS_PER_S
        self._durations = np.diff(np.array(times_ns)) / NS_PER_S
        self._rates = _rates(self._steps, self._due_s, self._durations)
        for i, rate in known.items():
            self._rates[i] = rate

    def set_rate(self, row: int, columns: slice, rate: np.ndarray) -> None:
        """Set a rate that does not follow from the neighbours."""
        self._rates[row, columns] = rate

    def _steps_of(self, rows: np.ndarray) -> np.ndarray:
        return np.diff(rows, axis=0)

    def at(self, t_ns: int) -> np.ndarray:
        i, x, duration_s = self._piece(t_ns)
        return self._rows[i].copy() if x <= 0.0 else self._moved(i, self._gone(i, x, duration_s))

    def at_rows(self, times_ns: Sequence[int]) -> np.ndarray:
        """As `at`, but on a path that passes the last row when it is due, and holds there."""
        last = len(self._due) - 1
        if last == 0:
            return np.repeat(self._rows, len(times_ns), axis=0)
        i = np.clip(np.searchsorted(self._due, times_ns, side="right") - 1, 0, last - 1)
        x = np.clip((np.array(times_ns) - self._due[i]) / NS_PER_S / self._due_s[i], 0.0, 1.0)
        a, b, c = (share[:, None] for share in _shares(x, self._due_s[i]))
        end = self._end_rates(i)
        if self._due_s[-1] != self._durations[-1]:
            end[i == last - 1] = self._steps[-1] / self._due_s[-1]
        return self._moved(i, a * self._steps[i] + b * self._rates[i] - c * end)

    def rate(self, t_ns: int) -> np.ndarray:
        i, x, duration_s = self._piece(t_ns)
        return self._rates[i].copy() if x <= 0.0 else self._growth(i, x, duration_s)

    def _gone(self, i: int, x: float, duration_s: float) -> np.ndarray:
        """The displacement from row i after a share x of a piece's time."""
        a, b, c = _shares(x, duration_s)
        return a * self._steps[i] + b * self._rates[i] - c * self._end_rates(i)

    def _growth(self, i: int, x: float, duration_s: float) -> np.ndarray:
        """The rate of change of that displacement."""
        a, b, c = 6.0 * x * (1.0 - x) / duration_s, (1.0 - x) * (1.0 - 3.0 * x), x * (2.0 - 3.0 * x)
        return a * self._steps[i] + b * self._rates[i] - c * self._end_rates(i)

    def _piece(self, t_ns: int) -> tuple[int, float, float]:
        """The piece at a time: (its first row, the share of it that has passed, its duration [s])."""
        i = bisect_right(self._times, t_ns) - 1
        if i >= len(self._times) - 1 or i < 0:
            return max(i, 0), 0.0, 0.0
        duration_s = float(self._durations[i])
        return i, (t_ns - self._times[i]) / NS_PER_S / duration_s, duration_s

    def _moved(self, i: int | np.ndarray, step: np.ndarray) -> np.ndarray:
        """Row i, or each of many, moved by a step."""
        return self._rows[i] + step

    def _end_rates(self, i: int | np.ndarray) -> np.ndarray:
        """The rate of change of the displacement from row i when row i + 1 is reached."""
        return self._rates[i + 1]


class _RotationTrack(_Track):
    """Rotations; steps are rotation vectors expressed in B, rates angular velocities w = J(r) dr/dt.

    J is the left Jacobian of SO(3): Sola et al. 2018, eq. 145 and 146.
    """

    def __init__(self, rows, due_ns, times_ns, known) -> None:
        super().__init__(rotations_from_quaternions(rows), due_ns, times_ns, known)
        self._quats = rows

    def _steps_of(self, rows: np.ndarray) -> np.ndarray:
        return rotation_vectors(rows[1:] @ rows[:-1].transpose(0, 2, 1))

    def _end_rates(self, i: int | np.ndarray) -> np.ndarray:
        """The rate of change of the rotation vector r since row i when row i + 1 is reached: J^-1(r) w."""
        r, w = self._steps[i], self._rates[i + 1]
        turned = np.cross(r, w)
        angle = _angles(r)
        share = 1.0 / angle**2 - (1.0 + np.cos(angle)) / (2.0 * angle * np.sin(angle))
        return w - 0.5 * turned + share * np.cross(r, turned)

    def at(self, t_ns: int) -> np.ndarray:
        i, x, _ = self._piece(t_ns)
        return self._quats[i].copy() if x <= 0.0 else super().at(t_ns)

    def at_rows(self, times_ns: Sequence[int]) -> np.ndarray:
        alone = len(self._quats) == 1
        return np.repeat(self._quats, len(times_ns), axis=0) if alone else super().at_rows(times_ns)

    def _moved(self, i: int | np.ndarray, step: np.ndarray) -> np.ndarray:
        if step.ndim == 1:
            return quaternion_from_rotation(pin.exp3(step) @ self._rows[i])
        turns = np.array([pin.exp3(each) for each in step]).reshape(-1, 3, 3)
        return quaternions_from_rotations(turns @ self._rows[i])

    def rate(self, t_ns: int) -> np.ndarray:
        """Angular velocity: J(r) times the rate of change of the rotation vector r since row i."""
        i, x, duration_s = self._piece(t_ns)
        if x <= 0.0:
            return self._rates[i].copy()
        r, growth = self._gone(i, x, duration_s), self._growth(i, x, duration_s)
        turned, angle = np.cross(r, growth), _angles(r)
        once, twice = (1.0 - np.cos(angle)) / angle**2, (angle - np.sin(angle)) / angle**3
        return growth + once * turned + twice * np.cross(r, turned)


def _shares[X: (float, np.ndarray)](x: X, duration_s: X) -> tuple[X, X, X]:
    """Weights of the step, of the rate at its start and, subtracted, of that at its end (cubic Hermite)."""
    left = 1.0 - x
    return x * x * (3.0 - 2.0 * x), duration_s * x * left * left, duration_s * x * x * left


def _angles(r: np.ndarray) -> np.ndarray:
    """Lengths of rotation vectors, kept off 0 and pi, where the terms that use them vanish or diverge."""
    return np.clip(np.sqrt((r * r).sum(axis=-1, keepdims=True)), 1e-3, 3.1)


def _rates(steps: np.ndarray, due_s: np.ndarray, taken_s: np.ndarray) -> np.ndarray:
    """Rates at the n = k + 1 rows; 0 at the first and the last."""
    out = np.zeros((len(steps) + 1, *steps.shape[1:]))
    if len(steps) < 2:
        return out
    slopes, steepest = steps / due_s[:, None], 3.0 * np.abs(steps / taken_s[:, None])
    h0, h1 = due_s[:-1, None], due_s[1:, None]
    parabola = np.abs(slopes[:-1] * h1 + slopes[1:] * h0) / (h0 + h1)
    rate = np.minimum(parabola, np.minimum(steepest[:-1], steepest[1:]))
    keeps_on = slopes[:-1] * slopes[1:] > 0.0
    out[1:-1] = np.where(keeps_on, np.copysign(rate, slopes[1:]), 0.0)
    return out
