"""Measures the latency from command to motion: one joint moves a little and back, and its encoder is read.

sent      ╭╮   ╭╮          q0 + a (1 - cos 2πt/T) / 2, a few times
measured   ╭╮   ╭╮         the same later: the shift that fits best is the delay
"""

from typing import Any

import numpy as np

from robot_runtime.clock import Clock
from robot_runtime.core.plan.limits import JointLimits
from robot_runtime.core.values.state import ArmState
from robot_runtime.errors import InvalidValueError
from robot_runtime.providers import provider
from robot_runtime.robot.joint_move import Moved, move_joints
from robot_runtime.robot.robot import Robot

_PERIOD_S, _COUNT = 1.0, 3


def measure_motion(
    robot: Robot,
    part: str,
    *,
    clock: Clock,
    joint: int | None = None,
    amplitude: float = 0.05,
    control_hz: float = 500.0,
) -> tuple[Any, int]:
    """Move one joint of a part to and fro; return its `calibration.latency.Latency`, and the joint's index.

    joint: from 0; None: the last of the joints that are far from the ends of their ranges.
    amplitude: [rad]. InvalidValueError: there is no room, or the joint does not follow.
    """
    calibration = provider("calibration")
    state = robot.read()
    measured = state.parts.get(part)
    if not isinstance(measured, ArmState) or robot.limits is None:
        has = ", ".join(name for name, each in state.parts.items() if isinstance(each, ArmState))
        raise InvalidValueError(f"{part} has no joints that can be moved; parts with joints: {has or 'none'}")
    limits, q = robot.limits.arm(part), measured.q
    joint = _roomiest(q, limits) if joint is None else joint
    up = amplitude if limits.q_max[joint] - q[joint] > q[joint] - limits.q_min[joint] else -amplitude
    if not limits.q_min[joint] < q[joint] + up < limits.q_max[joint]:
        raise InvalidValueError(f"joint {joint + 1} of {part} has no room for {amplitude:g} rad")

    def path(t_s: float) -> dict[str, np.ndarray] | None:
        if t_s > _COUNT * _PERIOD_S + calibration.LONGEST_S:
            return None
        target = np.array(q)
        if t_s < _COUNT * _PERIOD_S:
            target[joint] += 0.5 * up * (1.0 - np.cos(2.0 * np.pi * t_s / _PERIOD_S))
        return {part: target}

    moved = move_joints(robot, path, clock=clock, control_hz=control_hz)
    found = calibration.latency_of(*_series(moved, part, joint))
    if found.problem:
        raise InvalidValueError(f"joint {joint + 1} of {part}: {found.problem}; no delay can be measured")
    return found, joint


def _series(
    moved: list[Moved], part: str, joint: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    began_ns = moved[0].now_ns
    sent = [((each.now_ns - began_ns) / 1e9, each.sent[part][joint]) for each in moved]
    seen: dict[float, float] = {}
    for each in moved:
        arm = each.state.arm(part)
        t_ns = each.state.t_ns if arm.t_ns is None else arm.t_ns
        seen[(t_ns - began_ns) / 1e9] = arm.q[joint]
    sent_s, targets = np.array(sent).T
    return sent_s, targets, np.array([*seen]), np.array([*seen.values()])


def _roomiest(q: np.ndarray, limits: JointLimits) -> int:
    """Return the last of the joints with much room to both sides: it moves the least of the arm."""
    room = np.minimum(q - limits.q_min, limits.q_max - q)
    return int(np.flatnonzero(room >= 0.5 * room.max())[-1])
