"""The plan: `ChunkTimeline`, one smooth path through time made of the rows of chunks.

Theory of operation
-------------------
A row is a knot: the robot is commanded to be at row i when it is due, `t0 + i*dt`, and moves without corners
from knot to knot in between (`curve`). `sample(now)` returns the command for `now` and claims the past: what
was sampled has been sent. A splice therefore keeps everything up to the last sample and replaces only what
comes after it, so no row is ever rewritten once sent, and time alone decides which row is due, so none is
replayed.

    last sample          now
        |                 |
    ●───┼──●······●······●······●        old knots ● (dotted: dropped by the splice)
        └──────────○──────○──────○       new knots ○, first one due after the last sample

While a chunk streams in, the old plan continues after the chunk's last row, until the next rows come:

    ●───┼──●······●······●──────●        kept for now
        └──────────○──────○─────┘

The path and its speed stay continuous through a splice: it leaves the last command (or, if the chunk starts
later, the old plan one row before the chunk's first) at the speed it has there, and reaches the first new row
when that row is due.

A plan ends at its last knot: the command comes to rest there, `coast_ns` after that row was due, so the robot
does not stop with a jolt.

    speed   ────────╲________
                  end   end+coast      PLAN | COAST | REST
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from types import MappingProxyType

import numpy as np

from robot_runtime.core.plan.curve import Curve, Rates, Rest
from robot_runtime.core.values.command import Command, JointCommand, NumbersCommand, PoseCommand
from robot_runtime.core.values.timed_waypoints import concatenated, pick_rows
from robot_runtime.core.values.waypoints import Waypoints

_NO_SCALES: Mapping[str, float] = MappingProxyType({})
_NO_RESTS: Mapping[str, Rest] = MappingProxyType({})


class Phase(Enum):
    """Stage of a plan at an instant."""

    PLAN = "plan"
    COAST = "coast"
    """The last row was due; the command slows down and comes to rest there."""
    REST = "rest"
    """Stationary: the coast is over, or no plan has come yet."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The answer that a row belongs to."""

    request_id: int
    t_obs_ns: int
    """Capture time of the oldest part of its observation, state or image [ns]."""


class Knot:
    """A command with the time it is due; `source` and `row` are None for a knot that no policy wrote.

    A row becomes a command only when the plan gets there: most rows are replaced before.
    """

    __slots__ = ("_command", "rates", "row", "source", "t_ns", "waypoints")

    def __init__(
        self,
        t_ns: int,
        command: Command | Waypoints,
        source: Source | None,
        row: int | None,
        rates: Rates | None = None,
    ) -> None:
        """command: or the waypoints that hold it as `row`. rates: None if they follow from the neighbours."""
        self.t_ns = t_ns
        self.rates = rates
        self.source = source
        self.row = row
        self.waypoints = command if isinstance(command, Waypoints) else None
        self._command = None if isinstance(command, Waypoints) else command

    @property
    def command(self) -> Command:
        """The command that is due."""
        if self._command is None:
            assert self.waypoints is not None
            assert self.row is not None
            self._command = self.waypoints.row(self.row)
        return self._command


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """The plan at one instant."""

    command: Command
    phase: Phase
    source: Source | None
    """The answer that the motion towards the next knot comes from; None before the first."""
    row: int | None
    """The row that is due: the last one reached; None while still moving from another chunk's path."""


@dataclass(frozen=True, kw_only=True)
class Seam:
    """The result of a splice."""

    first_row: int | None
    """First row of the chunk that will run; None if all its rows were already past."""
    num_dropped: int
    """Rows dropped because their time had passed."""
    jump: float
    """Distance between old and new plan when the first row is due: `distance`."""


class ChunkTimeline:
    """Holds the plan. One thread owns it; every time argument is on the robot's clock and never goes back."""

    def __init__(
        self,
        *,
        coast_ns: int,
        scales: Mapping[str, float] = _NO_SCALES,
        rests: Mapping[str, Rest] = _NO_RESTS,
        holds_last: bool = False,
        keeps_ns: int = 0,
    ) -> None:
        """
        coast_ns: how long coming to rest takes after the last row [ns].
        scales: the unit distance of parts commanded by plain numbers.
        rests: the commands of such parts once the plan is over, see `Numbers.at_rest`.
        holds_last: the last row is sent when it is due and holds for `coast_ns`, and the plan ends then.
        keeps_ns: for how long the claimed past can still be looked up after a splice [ns].
        """
        if coast_ns <= 0:
            raise ValueError(f"coast_ns must be positive, got {coast_ns}")
        self._coast_ns, self._scales, self._rests, self._holds_last = coast_ns, scales, rests, holds_last
        self._keeps_ns = keeps_ns
        self._knots: list[Knot] = []
        self._times: list[int] = []
        self._claimed_ns = 0
        self._segment = 0
        self._curve: Curve | None = None

    def rest_at(self, command: Command, now_ns: int, *, claimed_ns: int | None = None) -> None:
        """Discard the plan and hold at `command` from now on.

        claimed_ns: up to when the hold has already been sent; None: up to now.
        """
        self._set([Knot(now_ns, command, None, None)])
        self._claimed_ns = now_ns if claimed_ns is None else claimed_ns

    def stand(self, command: Command) -> None:
        """Hold the parts of a command there, in all of the plan; the others move as planned.

        one part   ●───┼──●······●······●        the path it did not follow
                   ○───┼──○──────○──────○        where it holds: what comes next begins here
        """
        still = Waypoints.from_commands([command]).rows_of
        zeros = {what: np.zeros(3 if what[1] == "quat_BE" else np.size(row)) for what, row in still.items()}
        knots = []
        for knot in self._knots:
            rates = None if knot.rates is None else {**knot.rates, **zeros}
            held = knot.command.with_parts(command.parts)
            knots.append(Knot(knot.t_ns, held, knot.source, knot.row, rates))
        self._set(knots)

    @property
    def claimed_ns(self) -> int:
        """The time up to which everything has been sent."""
        return self._claimed_ns

    @property
    def end_ns(self) -> int:
        """When the last row is due; from then on the plan is over."""
        return self._times[-1]

    def phase(self, t_ns: int) -> Phase:
        """The plan's stage at `t_ns`."""
        if t_ns < self._times[-1]:
            return Phase.PLAN
        if len(self._times) > 1 and t_ns < self._times[-1] + self._coast_ns:
            return Phase.PLAN if self._holds_last else Phase.COAST
        return Phase.REST

    def sample(self, now_ns: int) -> Sample:
        """The command for `now_ns`, which is thereby claimed; ValueError if time goes back."""
        if now_ns < self._claimed_ns:
            raise ValueError(f"time went back: {now_ns} after {self._claimed_ns}")
        self._claimed_ns = now_ns
        i, last = self._segment, len(self._times) - 1
        while i < last and self._times[i + 1] <= now_ns:
            i += 1
        self._segment = i
        knot = self._knots[i]
        heading = self._knots[min(i + 1, last)]
        return Sample(
            command=self._path.command(now_ns),
            phase=self.phase(now_ns),
            source=heading.source,
            row=knot.row if knot.source == heading.source else None,
        )

    def command_at(self, t_ns: int) -> Command:
        """The command that will be (or, since the last splice, was) sent for `t_ns`; claims nothing."""
        return self._path.command(t_ns)

    def rates_at(self, t_ns: int) -> Rates:
        """The rate of change of `command_at`."""
        return self._path.rates(t_ns)

    def waypoints_at(self, times: Sequence[int]) -> Waypoints:
        """The plan's targets for many times, one row each.

        They equal `command_at`, but at the end of the plan: its last row counts when it is due, not when the
        robot has come to rest there.
        """
        return self._path.commands(times)

    def due_times(self, start_ns: int, end_ns: int) -> list[int]:
        """When rows are due between two times, both excluded [ns]: the path is straight in between."""
        return self._times[bisect_right(self._times, start_ns) : bisect_left(self._times, end_ns)]

    def frozen(self) -> "ChunkTimeline":
        """A copy of the plan as it is now, to look it up after the next splice."""
        out = ChunkTimeline(
            coast_ns=self._coast_ns,
            scales=self._scales,
            rests=self._rests,
            holds_last=self._holds_last,
            keeps_ns=self._keeps_ns,
        )
        out._knots, out._times = self._knots, self._times  # shared: a splice makes new lists
        out._claimed_ns, out._segment, out._curve = self._claimed_ns, self._segment, self._curve
        return out

    def splice(
        self, waypoints: Waypoints, *, t0_ns: int, dt_ns: int, source: Source, is_complete: bool = True
    ) -> Seam:
        """Replace what has not been sent by the rows of `waypoints`, row i due at `t0_ns + i*dt_ns`.

        May be called again for the same chunk with more rows while it streams in; until it is complete, the
        old plan remains for later times.
        """
        n = waypoints.num_rows
        first = max(0, (self._claimed_ns - t0_ns) // dt_ns + 1)
        placed = next((k.row for k in reversed(self._knots) if k.source == source and k.row is not None), -1)
        first = max(first, placed + 1)
        if first >= n:
            return Seam(first_row=None, num_dropped=n, jump=0.0)
        t_first_ns = t0_ns + first * dt_ns
        seam_ns = max(self._claimed_ns, t_first_ns - dt_ns)
        jump = distance(self.command_at(t_first_ns), waypoints.row(first), self._scales)
        kept = self._kept(seam_ns)
        rows = [Knot(t0_ns + i * dt_ns, waypoints, source, i) for i in range(first, n)]
        tail = [] if is_complete else self._knots[bisect_right(self._times, rows[-1].t_ns) :]
        self._set(kept + rows + tail)
        return Seam(first_row=first, num_dropped=first, jump=jump)

    def next_knot(self, now_ns: int) -> Knot | None:
        """The knot that the plan reaches next after `now_ns`; None if it is over by then."""
        i = bisect_right(self._times, now_ns)
        return self._knots[i] if i < len(self._knots) else None

    def redirect(self, knot: Knot, command: Command) -> None:
        """Move a knot that has not been reached to another command; the one after it stays.

            last sample     knot
                 |           |
            ●────┼···········●·····●      as it was
                 └───────────○─────●      straight from what was sent last

        ValueError: the knot is not in the plan, or was due at or before the last sample.
        """
        i = bisect_left(self._times, knot.t_ns)
        if knot.t_ns <= self._claimed_ns or i == len(self._knots) or self._knots[i] is not knot:
            raise ValueError(f"no knot at {knot.t_ns} is still to come after {self._claimed_ns}")
        kept = [self._on_path(each) for each in self._knots[self._first_kept : i]]
        if kept[-1].t_ns < self._claimed_ns:
            kept.append(self._knot_at(self._claimed_ns, kept[-1]))
        rates = self._passing_rates(kept[-1], knot, command, self._knots[i + 1 : i + 2])
        moved = Knot(knot.t_ns, command, knot.source, knot.row, rates)
        self._set([*kept, moved, *self._knots[i + 1 :]])

    def _passing_rates(self, here: Knot, knot: Knot, command: Command, after: list[Knot]) -> Rates | None:
        """The rates at a moved knot, as if the one after it will be moved as far."""
        if not after:
            return None
        moved = {
            (part, "q"): commanded.q - planned.q
            for part, commanded in command.parts.items()
            if isinstance(commanded, JointCommand)
            and isinstance(planned := knot.command.parts.get(part), JointCommand)
        }
        if not moved:
            return None
        rows = Waypoints.from_commands([here.command, command, after[0].command])
        for what, distance in moved.items():
            rows.rows_of[what][2] += distance
        times = [here.t_ns, knot.t_ns, after[0].t_ns]
        return Curve(rows, times, coast_ns=self._coast_ns, known={}, ends_on_time=self._holds_last).rates(
            knot.t_ns
        )

    def _kept(self, seam_ns: int) -> list[Knot]:
        """The knots to keep so that the path stays the same up to the time at which it is left.

        A plan that continues with the row after its last one does not end there: that row is reached when
        due.
        """
        knots = self._knots[self._first_kept : bisect_right(self._times, seam_ns)]
        continues = seam_ns == self.end_ns > self._claimed_ns
        kept = [self._on_path(knot) for knot in (knots[:-1] if continues else knots)]
        times = {self._claimed_ns, seam_ns, min(self.end_ns + self._coast_ns, seam_ns)}
        if continues:
            times = {self._claimed_ns}
        for t_ns in sorted(times):
            if t_ns > kept[-1].t_ns:
                kept.append(self._knot_at(t_ns, kept[-1] if t_ns == self._claimed_ns else None))
        return [*kept, knots[-1]] if continues else sorted(kept, key=lambda knot: knot.t_ns)

    @property
    def _first_kept(self) -> int:
        """Index of the first knot that shapes the path which can still be looked up."""
        if self._keeps_ns == 0:
            return self._segment
        return max(bisect_right(self._times, self._claimed_ns - self._keeps_ns) - 1, 0)

    def _on_path(self, knot: Knot) -> Knot:
        """The knot with command and rates fixed to the path, whatever comes after it."""
        command = knot.command if knot.t_ns < self.end_ns else self.command_at(knot.t_ns)
        return Knot(knot.t_ns, command, knot.source, knot.row, self._path.rates(knot.t_ns))

    def _knot_at(self, t_ns: int, like: Knot | None = None) -> Knot:
        """A new knot on the path."""
        source, row = (None, None) if like is None else (like.source, like.row)
        return Knot(t_ns, self.command_at(t_ns), source, row, self._path.rates(t_ns))

    def _set(self, knots: list[Knot]) -> None:
        self._knots = knots
        self._times = [knot.t_ns for knot in knots]
        self._segment = max(bisect_right(self._times, self._claimed_ns) - 1, 0)
        self._curve = None

    @property
    def _path(self) -> Curve:
        """The curve, made on demand: while a chunk streams in, most plans are replaced before."""
        if self._curve is None:
            known = {i: knot.rates for i, knot in enumerate(self._knots) if knot.rates is not None}
            self._curve = Curve(
                _rows_of(self._knots),
                self._times,
                coast_ns=self._coast_ns,
                known=known,
                ends_on_time=self._holds_last,
                rests=self._rests,
            )
        return self._curve


def _rows_of(knots: list[Knot]) -> Waypoints:
    """The commands of the knots as waypoints, one row each."""
    parts = []
    for waypoints, group in groupby(knots, key=lambda knot: knot.waypoints):
        if waypoints is None:
            parts.append(Waypoints.from_commands([knot.command for knot in group]))
        else:
            parts.append(pick_rows(waypoints, np.array([knot.row for knot in group])))
    return concatenated(parts)


def distance(a: Command, b: Command, scales: Mapping[str, float] = _NO_SCALES) -> float:
    """The distance of two commands: the largest joint difference [rad], end-effector distance [m], or
    difference of plain numbers as a share of their part's scale."""
    out = 0.0
    for part, commanded in a.parts.items():
        match commanded, b.parts.get(part):
            case JointCommand(q=q_a), JointCommand(q=q_b):
                out = max(out, float(np.abs(q_b - q_a).max()))
            case PoseCommand(p_BE=p_a), PoseCommand(p_BE=p_b):
                out = max(out, float(np.linalg.norm(p_b - p_a)))
            case NumbersCommand(values=x_a, is_held=False), NumbersCommand(values=x_b):
                out = max(out, float(np.abs(x_b - x_a).max()) / scales.get(part, 1.0))
    return out
