"""Joints moved without a policy, inside their limits: `move_joints`, for going home and measuring a delay."""

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
"""Time [s] -> part -> joint positions [rad]; None: the way is over."""
REACHED = 0.02
"""A joint is where it should be if it is this near [rad]."""
SHARE = 0.2
"""Of the robot's speeds and accelerations that a move uses."""


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
    """Lead joints along a way from where they are; parts that it does not name are told nothing.

    Afterwards, and whatever happens, all drivers are stopped. should_stop: brake within the limits.
    InvalidValueError: the robot has no limits for a part of the way. DriverError: as the drivers say.
    RobotBusyError: something else on this machine drives the robot.
    """
    start = way(0.0)
    if robot.limits is None or start is None:
        raise InvalidValueError("a move needs limits, and somewhere to go")
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
            sent = {part: told.q for part, told in command.parts.items() if isinstance(told, JointCommand)}
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
    """Go straight in joint space to where the parts wait, with a share of their speeds.

    DriverError: they are not, though nobody stopped them.
    """
    state = robot.read()
    if robot.limits is None:
        raise InvalidValueError("the way home needs limits: Robot(limits=...)")
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
                f"{part} is {off:.3f} rad from where it was to go after {seconds + _SETTLE_S:.1f} s"
            )


_SETTLE_S = 0.5


def min_jerk[S: (float, np.ndarray)](share: S) -> S:
    """How far one is at a share of the time, 0 to 1, on the way that has the least jerk.

    s(x) = 10 x³ - 15 x⁴ + 6 x⁵ (Flash and Hogan 1985)
    """
    x: S = np.clip(share, 0.0, 1.0)
    return x**3 * (10.0 - 15.0 * x + 6.0 * x**2)


def duration_s(way: Float[np.ndarray, " N"], limits: JointLimits, *, share: float = SHARE) -> float:
    """The time that such a way takes within a share of the speeds and accelerations [s].

    The greatest speed is 15/8 of the mean, the greatest acceleration 10/√3 way / time².
    """
    far = np.abs(way)
    by_speed = 1.875 * far / (share * limits.dq_max)
    by_acceleration = np.sqrt(5.7735 * far / (share * limits.ddq_max))
    return float(np.maximum(by_speed, by_acceleration).max(initial=0.0))
