"""Moves joints without a policy, inside their limits: `move_joints`, for going home and measuring a delay."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robot_runtime.clock import Clock
from robot_runtime.core.plan.limiter import Limiter
from robot_runtime.core.plan.limits import JointLimits
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import Command, JointCommand
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import RobotState
from robot_runtime.errors import DriverError, InvalidValueError
from robot_runtime.robot.lease import Lease
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.scheduling import Pacer

Way = Callable[[float], Mapping[str, Float[np.ndarray, " N"]] | None]
"""Time [s] -> part -> joint positions [rad]; None: the trajectory is over."""
REACHED = 0.02
"""A joint has reached its target within this distance [rad]."""
SHARE = 0.2
"""Share of the robot's speeds and accelerations that a move uses."""


@dataclass(frozen=True, eq=False)
class Moved:
    """One tick of a move."""

    now_ns: int
    sent: Mapping[str, Float[np.ndarray, " N"]]
    state: RobotState


def move_joints(
    robot: Robot,
    way: Way,
    *,
    clock: Clock,
    control_hz: float,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Moved]:
    """Move joints along a trajectory from where they are; parts that it does not name get no command.

    All drivers are stopped afterwards, also after an error. should_stop: brake within the limits.
    InvalidValueError: the robot has no limits for a part of the trajectory. DriverError: as the drivers raise
    it. RobotBusyError: something else on this machine drives the robot.
    """
    start = way(0.0)
    if robot.limits is None or start is None:
        raise InvalidValueError("a move needs limits, and a trajectory")
    limiter = Limiter(robot.limits, period_ns=round(NS_PER_S / control_hz))
    moved: list[Moved] = []
    with Lease(robot), contextlib.ExitStack() as opened:
        opened.callback(robot.stop)
        state, began_ns = robot.read(), clock.now_ns()
        here = {part: JointCommand(q=state.arm(part).q) for part in start}
        limiter.reset(Command(here), began_ns)
        pacer = Pacer(clock, period_ns=round(NS_PER_S / control_hz))
        is_over = False
        while not (is_over and limiter.is_at_rest):
            now_ns = pacer.wait().now_ns
            state = robot.read()
            if not state.is_finite:
                raise DriverError("the robot measures NaN or infinite numbers in the middle of a move")
            wanted = None if is_over or should_stop() else way((now_ns - began_ns) / NS_PER_S)
            is_over = wanted is None
            if wanted is None:
                command = limiter.brake(now_ns)
            else:
                command, _ = limiter.limit(Command({k: JointCommand(q=q) for k, q in wanted.items()}), now_ns)
            robot.write(command)
            sent = {part: each.q for part, each in command.parts.items() if isinstance(each, JointCommand)}
            moved.append(Moved(now_ns, sent, state))
    return moved


def go_home(
    robot: Robot,
    home: Mapping[str, Sequence[float] | Float[np.ndarray, " N"]],
    *,
    clock: Clock,
    control_hz: float = 500.0,
    share: float = SHARE,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Move straight in joint space to the home positions, with a share of the speeds.

    DriverError: a part is not there, although the move was not stopped.
    """
    state = robot.read()
    if robot.limits is None:
        raise InvalidValueError("the move home needs limits: Robot(limits=...)")
    starts = {part: state.arm(part).q for part in home}
    ends = {part: np.array(q) for part, q in home.items()}
    seconds = max(duration_s(ends[part] - starts[part], robot.limits.arm(part), share=share) for part in home)

    def way(t_s: float) -> Mapping[str, np.ndarray] | None:
        if t_s > seconds + _SETTLE_S:
            return None
        s = min_jerk(t_s / max(seconds, 1e-9))
        return {part: starts[part] + s * (ends[part] - starts[part]) for part in home}

    moved = move_joints(robot, way, clock=clock, control_hz=control_hz, should_stop=should_stop)
    if should_stop():
        return
    for part, q in ends.items():
        off = float(np.abs(moved[-1].state.arm(part).q - q).max())
        if off > REACHED:
            raise DriverError(
                f"{part} is {off:.3f} rad from its home position after {seconds + _SETTLE_S:.1f} s"
            )


_SETTLE_S = 0.5


def min_jerk[S: (float, np.ndarray)](share: S) -> S:
    """Return the share of the minimum-jerk path that is done at a share of the time, 0 to 1.

    s(x) = 10 x³ - 15 x⁴ + 6 x⁵ (Flash and Hogan 1985)
    """
    x: S = np.clip(share, 0.0, 1.0)
    return x**3 * (10.0 - 15.0 * x + 6.0 * x**2)


def duration_s(way: Float[np.ndarray, " N"], limits: JointLimits, *, share: float = SHARE) -> float:
    """Return the duration of such a path within a share of the speeds and accelerations [s].

    The greatest speed is 15/8 of the mean, the greatest acceleration 10/√3 distance / time².
    """
    far = np.abs(way)
    by_speed = 1.875 * far / (share * limits.dq_max)
    by_acceleration = np.sqrt(5.7735 * far / (share * limits.ddq_max))
    return float(np.maximum(by_speed, by_acceleration).max(initial=0.0))
