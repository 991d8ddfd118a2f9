"""A robot that follows sparse targets inside its limits: `Follower`.

target   q_0 ●────────● q_1 ────────● q_2           e.g. 30 a second
aim          ╌╌╌╌╌╌╌╌╌●╌╌╌╌╌╌╌╌╌╌╌╌╌●               from one to the next in the interval between them
command  │││││││││││││││││││││││││││││││            every control period: towards the aim, never past it
silence  no target for `silence_s`: it brakes to rest
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from drivers.lerobot.tables import Numbers
from robot_runtime.clock import Clock
from robot_runtime.core.plan.limiter import Limiter
from robot_runtime.core.plan.limits import BaseLimits, NumbersLimits
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import (
    BaseTwistCommand,
    Command,
    GripperCommand,
    JointCommand,
    PartCommand,
)
from robot_runtime.core.values.state import RobotState
from robot_runtime.errors import DriverError, InvalidValueError
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.scheduling import Pacer
from robot_runtime.teleop.setpoints import Axes, Trail, axes_of, difference

logger = logging.getLogger(__name__)

_LONGEST_NS = 200_000_000
"""Targets farther apart than this are no stream: the robot moves there at once, within its limits [ns]."""
_REST_S = 5.0
"""How long coming to rest at the end may take [s]."""


@dataclass(frozen=True, kw_only=True)
class _LastCommand:
    """The last targets, and the aim at that time."""

    numbers: Mapping[str, Numbers]
    before: Mapping[str, Numbers]
    t_ns: int
    apart_ns: int


class Follower:
    """Owns the robot's drivers in its own thread from `start` to `end`."""

    def __init__(self, robot: Robot, clock: Clock, *, control_hz: float, silence_s: float) -> None:
        """InvalidValueError: a commanded part has no limits, or an invalid number."""
        if not (1.0 <= control_hz <= 2000.0 and silence_s > 0.0):
            raise InvalidValueError(
                f"control_hz is from 1 to 2000 and silence_s above 0, got {control_hz:g}, {silence_s:g}"
            )
        missing = [name for name in robot.parts if robot.limits is None or name not in robot.limits.parts]
        if missing or robot.limits is None:
            raise InvalidValueError(f"expected limits for all commanded parts, missing: {', '.join(missing)}")
        self._robot, self._clock = robot, clock
        self._period_ns, self._silence_ns = round(NS_PER_S / control_hz), round(silence_s * NS_PER_S)
        self._limiter = Limiter(robot.limits, period_ns=self._period_ns)
        self._state = robot.read()
        self._last: _LastCommand | None = None
        self._trails: dict[str, Trail] = {}
        self._is_started = False
        self._error: Exception | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def state(self) -> RobotState:
        """Return the newest state; DriverError: a driver has failed."""
        if self._error is not None:
            raise DriverError(f"the robot has stopped: {self._error}") from self._error
        return self._state

    def tell(self, numbers: Mapping[str, Numbers]) -> None:
        """Set new targets, SI, of every part. DriverError: as `state`, or a number is not finite."""
        state = self.state()
        if not all(np.isfinite(each).all() for each in numbers.values()):
            raise DriverError(f"expected finite targets, got {dict(numbers)}")
        now_ns, last = self._clock.now_ns(), self._last
        if last is None:
            before, apart_ns = _measured(state, numbers), 0
        else:
            before, apart_ns = _aims(last, now_ns), now_ns - last.t_ns
        apart_ns = apart_ns if apart_ns <= _LONGEST_NS else 0
        self._last = _LastCommand(numbers=dict(numbers), before=before, t_ns=now_ns, apart_ns=apart_ns)

    def end(self) -> None:
        """Brake to rest and stop the drivers; may be called twice."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_REST_S + 1.0)

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as error:  # an error of a driver; raised by the next `state`
            logger.exception("the robot is stopped")
            self._error = error
        finally:
            self._robot.stop()

    def _follow(self) -> None:
        pacer, last_ns = Pacer(self._clock, period_ns=self._period_ns), None
        while True:
            now_ns = self._clock.now_ns()
            if self._ending.is_set():
                last_ns = last_ns or now_ns + round(_REST_S * NS_PER_S)
                if not self._is_started or self._limiter.is_at_rest or now_ns > last_ns:
                    return
            self._state = self._robot.read()
            self._step(now_ns)
            pacer.wait()

    def _step(self, now_ns: int) -> None:
        last = self._last
        if last is None:
            return
        if not self._is_started:
            self._limiter.reset(_command(_measured(self._state, last.numbers), self._robot), now_ns)
            self._trails = {name: self._trail(name) for name in last.numbers}
            self._is_started = True
        dt_s, sent = self._period_ns / NS_PER_S, self._limiter.sent
        axes = {name: trail.at(_numbers(sent.parts[name]), dt_s) for name, trail in self._trails.items()}
        if self._ending.is_set() or now_ns - last.t_ns > self._silence_ns:
            self._robot.write(self._limiter.brake(now_ns))
        else:
            aims = _aims(last, now_ns)
            next_ = {name: _towards(aims[name], axes[name], sent.parts[name], dt_s) for name in axes}
            self._robot.write(self._limiter.limit(_command(next_, self._robot), now_ns)[0])

    def _trail(self, name: str) -> Trail:
        """Make the trail of a part by its commands; of a base by its twists."""
        assert self._robot.limits is not None
        limits = self._robot.limits.parts[name]
        assert not isinstance(limits, NumbersLimits)
        return Trail(partial(axes_of, limits), [], None if isinstance(limits, BaseLimits) else difference)


def _towards(aim: Numbers, axes: Axes, sent: PartCommand, dt_s: float) -> Numbers:
    """Return the next command of a part: as near to the aim as its limits allow, and never past it."""
    at, goal = _numbers(sent), np.asarray(aim, dtype=float)
    if isinstance(sent, BaseTwistCommand):
        return (axes.steered(goal * dt_s) / dt_s).tolist()
    return (at + axes.toward(at, goal - at)).tolist()


def _numbers(command: PartCommand) -> np.ndarray:
    match command:
        case JointCommand(q=q):
            return q
        case GripperCommand(width=width):
            return np.array([width])
        case BaseTwistCommand(V_WB_B=twist):
            return twist
    raise DriverError(f"expected joints, a gripper or a base, got {type(command).__name__}")


def _aims(last: _LastCommand, now_ns: int) -> dict[str, Numbers]:
    """Return the current point between the last two targets."""
    share = min((now_ns - last.t_ns) / last.apart_ns, 1.0) if last.apart_ns > 0 else 1.0
    return {
        part: [a + share * (b - a) for a, b in zip(last.before[part], to, strict=True)]
        for part, to in last.numbers.items()
    }


def measured_numbers(robot: Robot, state: RobotState) -> dict[str, Numbers]:
    """Return the numbers of every part, as `PartNumbers` has them: joints, width, twist."""
    out: dict[str, Numbers] = {}
    for name in robot.parts:
        part: Any = state.parts[name]
        match robot.kind(name):
            case "arm":
                out[name] = part.q.tolist()
            case "gripper":
                out[name] = [part.width]
            case _:
                out[name] = part.V_WB_B.tolist()
    return out


def _measured(state: RobotState, like: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Return the start: as measured, a base at rest."""
    out: dict[str, Numbers] = {}
    for name in like:
        part: Any = state.parts[name]
        if hasattr(part, "q"):
            out[name] = part.q.tolist()
        else:
            out[name] = [part.width] if hasattr(part, "width") else [0.0, 0.0, 0.0]
    return out


def _command(numbers: Mapping[str, Numbers], robot: Robot) -> Command:
    parts: dict[str, PartCommand] = {}
    for name, values in numbers.items():
        match robot.kind(name):
            case "arm":
                parts[name] = JointCommand(q=np.array(values))
            case "gripper":
                parts[name] = GripperCommand(width=values[0])
            case _:
                parts[name] = BaseTwistCommand(V_WB_B=np.array(values))
    return Command(parts)
