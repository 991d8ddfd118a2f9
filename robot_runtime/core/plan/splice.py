"""Splice parts: where in time a chunk enters the plan. `blend` decides what its rows become there.

capture        arrival
   |              |
   0   1   2   3  |             TimeAligned: row i due at capture + i*dt, rows 0..3 are past and drop out
                  0   1   2     FromRowZero: row i due at arrival + i*dt
          1   2   | 3           StateMatched: the robot is just past row 2, so it continues from there
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from robot_runtime.core.method.splice_parts import (
    FromRowZero,
    NotBeforePlanned,
    SplicePart,
    StateMatched,
    TimeAligned,
)
from robot_runtime.core.plan.counts import Counts
from robot_runtime.core.values.action import NS_PER_S, ActionChunk, scales_of
from robot_runtime.core.values.command import Command, GripperCommand
from robot_runtime.core.values.pose_rows import rotation_vectors, rotations_from_quaternions
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import wrap_angle
from robot_runtime.core.values.waypoints import Waypoints


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrival:
    """The robot when the first rows of a chunk arrive."""

    now_ns: int
    """Earliest time of motion that it can change: the time plus how far ahead rows are sent."""
    state: RobotState
    """Newest measured state."""
    claimed_ns: int
    """Time up to which everything has been sent."""
    commanded: Command
    """The last command."""
    stood_still: bool
    """Whether the robot was stationary when the first row that was not committed was due, and has been since.
    Then no row from that one on has been overtaken, and dropping rows would make the arm jump across the gap:
    that row is due on arrival, unless it was due later anyway."""
    inference_delay: int = 0
    """Rows of the chunk that were committed, d: row d is the first that was not."""


def has_enough_rows(part: SplicePart, chunk: ActionChunk, num_rows: int, arrival: Arrival) -> bool:
    """Whether the rows of a chunk that streams in are enough to decide when row 0 is due.

    A match needs the path up to its window's end; the other parts need no row at all.
    """
    if not isinstance(part, StateMatched) or arrival.stood_still:
        return True
    return num_rows > _row_by_time(part, chunk, arrival) + part.window_rows


def first_row_due_ns(
    part: SplicePart, chunk: ActionChunk, waypoints: Waypoints, arrival: Arrival, counts: Counts
) -> int:
    """When row 0 of a chunk is due [ns]; decided once, with the rows that come first."""
    if arrival.stood_still:
        return max(chunk.t_obs_ns, arrival.now_ns - arrival.inference_delay * chunk.spec.dt_ns)
    match part:
        case FromRowZero():
            return arrival.now_ns
        case TimeAligned():
            return chunk.t_obs_ns
        case NotBeforePlanned():
            return max(arrival.now_ns, chunk.t_obs_ns)
        case StateMatched():
            return _matched_start_ns(part, chunk, waypoints, arrival, counts)


def _matched_start_ns(
    part: StateMatched, chunk: ActionChunk, waypoints: Waypoints, arrival: Arrival, counts: Counts
) -> int:
    """Row 0's due time such that the setpoint is `lead_s` beyond the row that the robot is at.

    Rows are matched to the measured state, which lags its setpoint by the lead: by time it is at row
    i_t = (t_state - t_obs - lead) / dt.
    """
    dt_ns, state, n = chunk.spec.dt_ns, arrival.state, waypoints.num_rows
    lead_ns = round(part.lead_s * NS_PER_S)
    expected = _row_by_time(part, chunk, arrival)
    lowest, highest = max(0.0, expected - part.window_rows), min(n - 1.0, expected + part.window_rows)
    events = _gripper_events(part, waypoints, arrival.commanded, highest)
    lowest = max(lowest, events.done_row - lead_ns / dt_ns)
    t0_ns = chunk.t_obs_ns
    if lowest <= highest:
        row, distance = nearest_on_path(
            offsets_from(part, waypoints, state, scales_of(chunk.spec)),
            lowest=lowest,
            highest=highest,
            expected=expected,
            row_weight=part.time_weight / part.row_scale**2,
        )
        if distance <= part.max_distance:
            t0_ns = state.t_ns - lead_ns - round(row * dt_ns)
        else:
            counts.matches_refused += 1
    if events.next_row is not None:  # that row is due only after what has been sent
        t0_ns = max(t0_ns, arrival.claimed_ns + 1 - events.next_row * dt_ns)
    return t0_ns


def _row_by_time(part: StateMatched, chunk: ActionChunk, arrival: Arrival) -> float:
    """The row that the robot is at by time, lagging its setpoint by the lead."""
    lead_ns = round(part.lead_s * NS_PER_S)
    return (arrival.state.t_ns - lead_ns - chunk.t_obs_ns) / chunk.spec.dt_ns


def nearest_on_path(
    offsets: Float[np.ndarray, "n m"], *, lowest: float, highest: float, expected: float, row_weight: float
) -> tuple[float, float]:
    """(row u, distance) of the point of a polyline that is nearest to the origin, lowest <= u <= highest.

    Minimises |w(u)|^2 + row_weight (u - expected)^2, on each segment in closed form:

        w(u) = w_i + a (w_i+1 - w_i),   u = i + a
        a = (row_weight (expected - i) - <w_i, w_i+1 - w_i>) / (|w_i+1 - w_i|^2 + row_weight), within [0, 1]
    """
    if len(offsets) == 1:
        return 0.0, float(np.linalg.norm(offsets[0]))
    first = min(int(lowest), len(offsets) - 2)
    last = max(first, min(int(np.ceil(highest)), len(offsets) - 1) - 1)
    rows = np.arange(first, last + 1)
    start, step = offsets[rows], offsets[rows + 1] - offsets[rows]
    curvature = (step * step).sum(axis=1) + row_weight
    pull = row_weight * (expected - rows) - (start * step).sum(axis=1)
    alpha = np.divide(pull, curvature, out=np.zeros(len(rows)), where=curvature > 0.0)
    alpha = np.clip(alpha, np.clip(lowest - rows, 0.0, 1.0), np.clip(highest - rows, 0.0, 1.0))
    squared = ((start + alpha[:, None] * step) ** 2).sum(axis=1)
    best = int(np.argmin(squared + row_weight * (rows + alpha - expected) ** 2))
    return float(rows[best] + alpha[best]), float(np.sqrt(squared[best]))


_ORDER = {"q": 1, "p_BE": 2, "x_WB": 3, "numbers": 4}
"""Order of quantities in a sum of squares, on which its last bit depends."""


def offsets_from(
    part: StateMatched, waypoints: Waypoints, state: RobotState, scales: Mapping[str, float]
) -> Float[np.ndarray, "n m"]:
    """The offset of every row from the state, in the part's scales; ValueError if the state lacks a pose.

    scales: of plain numbers, by part; numbers that are not measured are left out.

    Rotations as rotation vectors from the state's own, so that a straight line between two rows is close to
    the geodesic wherever the robot is close to them.
    """
    parts: list[np.ndarray] = [np.zeros((waypoints.num_rows, 0))]
    in_order = sorted(waypoints.rows_of.items(), key=lambda each: _ORDER.get(each[0][1], 0))
    for (name, quantity), values in in_order:
        match quantity:
            case "q":
                parts.append((values - state.arm(name).q) / part.joint_scale)
            case "p_BE":
                X_BE = state.hand(name)
                if X_BE is None:
                    raise ValueError("matching end-effector poses needs X_BE in the robot state")
                quats = waypoints.rows_of[name, "quat_BE"]
                turns = rotation_vectors(X_BE.rotation.T @ rotations_from_quaternions(quats))
                parts.append((values - X_BE.translation) / part.position_scale)
                parts.append(turns / part.rotation_scale)
            case "x_WB":
                x_WB = state.base(name).x_WB
                if x_WB is None:
                    raise ValueError("matching base poses needs x_WB in the robot state")
                parts.append((values[:, :2] - x_WB[:2]) / part.base_scale)
                parts.append(wrap_angle(values[:, 2:] - x_WB[2]) / part.rotation_scale)
            case "numbers" if (measured := state.measured.get(name)) is not None:
                parts.append((values - measured) / scales.get(name, 1.0))
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True, kw_only=True)
class _GripperEvents:
    done_row: int = 0
    """First row of the width that is commanded now: entering before it would undo a change."""
    next_row: int | None = None
    """The row at or before which the chunk has to be entered; entering later would skip a change."""


def _gripper_events(
    part: StateMatched, waypoints: Waypoints, commanded: Command, highest: float
) -> _GripperEvents:
    """Which changes of the grippers in a chunk have been commanded already.

    row     0   1   2   3   4   5           commanded open: enter at row 3 or before
    width   open . . .  shut. . .           commanded shut: enter at row 3 or later
    """
    done, following = 0, None
    for (name, quantity), widths in waypoints.rows_of.items():
        gripper = commanded.parts.get(name)
        if quantity != "width" or not isinstance(gripper, GripperCommand):
            continue
        events = _events_of(part, widths, gripper.width, highest)
        done = max(done, events.done_row)
        if events.next_row is not None:
            following = events.next_row if following is None else min(following, events.next_row)
    return _GripperEvents(done_row=done, next_row=following)


def _events_of(
    part: StateMatched, widths: Float[np.ndarray, " n"], commanded: float, highest: float
) -> _GripperEvents:
    """The events of one gripper."""
    starts, width = [0], float(widths[0])
    for i, row_width in enumerate(widths.tolist()):
        if abs(row_width - width) > part.gripper_step:
            starts.append(i)
            width = row_width
    gaps = [abs(float(widths[i]) - commanded) for i in starts]
    done = next((k for k, i in enumerate(starts) if i <= highest and gaps[k] <= part.gripper_step), None)
    if done is None:  # even the first width was not commanded yet: at least one of its rows has to run
        return _GripperEvents(next_row=starts[1] - 1 if len(starts) > 1 else None)
    after = starts[done + 1 : done + 2]
    return _GripperEvents(done_row=starts[done], next_row=after[0] if after else None)
