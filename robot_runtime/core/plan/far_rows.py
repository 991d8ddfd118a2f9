"""Refuses rows that are implausible for the robot, e.g. in degrees or millimetres: `refuse_far`.

beyond the range   0 ────────── a little ──────────┼────────── far ──────────►
                   goes to the end, within limits  │  refused, with the unit that it looks like
"""

import math

import numpy as np

from robot_runtime.core.plan.limits import BaseLimits, GripperLimits, JointLimits, Limits
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.waypoints import Waypoints

FAR_JOINT = 2.0 * math.pi
"""Far beyond a joint's range, if by more than the range's width, too [rad]: an angle that is wrapped
differently is nearer."""
FAR_WIDTH = 1.0
"""Far beyond a gripper's range, if by more than ten times its width, too [m]: -1 and 1 for closed and open
are nearer."""
FAR_SPEED = 10.0
"""Multiple of the largest speed."""
FAR_HAND, FAR_BASE, FAR_YAW = 10.0, 100.0, 4.0 * math.pi
"""Distances from the measured poses [m, m, rad]."""


class FarRowsError(ValueError):
    """A policy's rows are far outside the robot's ranges; the message has where, and the suspected unit."""


def refuse_far(waypoints: Waypoints, limits: Limits, state: RobotState) -> None:
    """Raise FarRowsError if a target lies far outside the declared ranges, or far from the observed state.

    Plain numbers have units of their own, and are not checked.
    """
    for (part, name), rows in waypoints.rows_of.items():
        match name, limits.parts.get(part):
            case "q", JointLimits(q_min=low, q_max=high):
                off = np.maximum(FAR_JOINT, high - low)
                _refuse_beyond(f"joint {{}} of {part}", rows, low, high, off, "rad")
            case "width", GripperLimits(low=low, high=high):
                least = max(FAR_WIDTH, 10.0 * (high - low))
                _refuse_beyond(f"the width of {part}", rows[:, None], low, high, least, "m")
            case "dq", JointLimits(dq_max=dq):
                _refuse_beyond(f"joint {{}} of {part}", rows, -dq, dq, (FAR_SPEED - 1.0) * dq, "rad/s")
            case "V_WB_B", BaseLimits(motion=motion):
                most = np.array([motion.speed[:2].max()] * 2)
                off = (FAR_SPEED - 1.0) * most
                _refuse_beyond(f"the speed of {part}", rows[:, :2], -most, most, off, "m/s")
                turn = motion.speed[2:]
                off = (FAR_SPEED - 1.0) * turn
                _refuse_beyond(f"the yaw rate of {part}", rows[:, 2:], -turn, turn, off, "rad/s")
            case "p_BE", _ if (X_BE := state.hand(part)) is not None:
                here = X_BE.translation
                _refuse_beyond(f"the end effector of {part}", rows, here, here, FAR_HAND, "m")
            case "x_WB", _ if (x_WB := state.base(part).x_WB) is not None:
                _refuse_beyond(part, rows[:, :2], x_WB[:2], x_WB[:2], FAR_BASE, "m")
                _refuse_beyond(f"the yaw of {part}", rows[:, 2:], x_WB[2:], x_WB[2:], FAR_YAW, "rad")


def _refuse_beyond(
    what: str,
    rows: np.ndarray,
    low: np.ndarray | float,
    high: np.ndarray | float,
    off: np.ndarray | float,
    unit: str,
) -> None:
    """what: with {} for the number of the column. off: the distance beyond which a row is far."""
    beyond = np.maximum(low - rows, rows - high) - off
    if not (beyond > 0.0).any():
        return
    row, column = np.unravel_index(int(beyond.argmax()), beyond.shape)
    first, last = (float(np.broadcast_to(end, rows.shape[1:])[column]) for end in (low, high))
    other = unit.replace("rad", "degrees") if "rad" in unit else unit.replace("m", "mm", 1)
    where = f"it is measured at {first:.3g}" if first == last else f"its range is {first:.3g} to {last:.3g}"
    raise FarRowsError(
        f"row {row} has {what.format(column + 1)} at {rows[row, column]:.4g} {unit}, and {where}: are the "
        f"policy's rows in {other}?"
    )
