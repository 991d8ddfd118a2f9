"""Checks whether measured states can be trusted: `StateWatch` looks at each before anything acts on it.

is it finite, new, of one time?              against the clock
is the base where its own speed takes it?    against the state before
does the robot follow its setpoint?          against the commands
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np
import pinocchio as pin

from robot_runtime.core.safety import Cause
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    JointCommand,
    NumbersCommand,
    PartCommand,
    PoseCommand,
)
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import ArmState, BaseState, GripperState, PartState, RobotState
from robot_runtime.core.values.transforms import integrate_twist, wrap_angle
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class StateLimits:
    """Thresholds beyond which a measured state counts as a fault."""

    timeout_ns: int = 100_000_000
    """The greatest age of a state [ns]."""
    max_gap_ns: int = 80_000_000
    """How far apart parts of a state may be measured, or how far in the future one may lie [ns]. Odometry
    at 20 Hz is up to 50 ms behind the arm when all is well."""
    max_jump: float = 0.10
    """The largest jump of odometry beyond what the base's speed explains [m]."""
    max_turn: float = 0.15
    """The same for its yaw [rad]."""
    frozen_ns: int = 200_000_000
    frozen_lead: float = 0.08
    """Odometry is frozen if it stays the same to the last bit for `frozen_ns` while the command moves this
    far [m]."""
    stuck_ns: int = 1_000_000_000
    stuck_lead: float = 0.04
    stuck_share: float = 0.1
    """A base is stuck if its odometry trembles, but in `stuck_ns` covers less than this share of the
    commanded path, if that is `stuck_lead` or more [m]. Wheels that spin in the air move odometry and go
    undetected."""
    max_arm_error: float = 0.5
    """The largest distance of a joint [rad] or an end effector [m] from its setpoint."""
    max_base_error: float = 1.0
    """The base's distance from its setpoint [m]; a chunk may be ahead by as much as it drives under
    latency."""
    max_error_of: Mapping[str, float] = field(default_factory=dict)
    """The same for single parts by name, in their own units, e.g. a lift [m]. Plain numbers that are measured
    under their part's name are watched only if they are named here."""

    def __post_init__(self) -> None:
        """InvalidValueError: a limit is not a number above 0; NaN would let everything pass."""
        if not isinstance(self.max_error_of, Mapping):
            raise InvalidValueError(f"max_error_of is a table, part to number, got {self.max_error_of!r:.60}")
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        own |= {f"max_error_of {part}": most for part, most in own.pop("max_error_of").items()}
        for name, value in own.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (is_number and value > 0):
                raise InvalidValueError(f"{name} takes a number above 0, got {value!r:.60}")


Jump = tuple[np.ndarray | None, np.ndarray]
"""Where a base was expected (x, y, yaw), and where its odometry has it [m, m, rad]; None: unknown, as nothing
was measured for a while, so it is taken to be where it was commanded."""
_HELD = 0.1
"""The largest error that a position controller leaves, of a joint [rad] or an end effector [m and rad]."""
_SHARES_OF_PATH = tuple(i / 16 for i in range(16))


class StateWatch:
    """Remembers the last state and where bases were commanded; one thread owns it."""

    def __init__(self, limits: StateLimits) -> None:
        self._limits = limits
        self._last: RobotState | None = None
        self._bases: dict[str, _CommandedBase] = {}
        self.jumps: dict[str, Jump] = {}
        """The bases whose odometry jumped at the last look, whatever else was wrong with the state."""

    def reset(self) -> None:
        """Forget the last state and all commands."""
        self._last, self._bases = None, {}

    def look(self, state: RobotState, now_ns: int) -> Cause | None:
        """What is wrong with a state; None if nothing is. Call it once a tick."""
        limits, last, self.jumps = self._limits, self._last, {}
        if not state.is_finite:
            return Cause.STATE_INVALID
        self._last = state
        if last is not None:
            bases = [name for name, part in state.parts.items() if isinstance(part, BaseState)]
            found = {name: self._jump(last, state, name) for name in bases}
            self.jumps = {name: jump for name, jump in found.items() if jump is not None}
        if self.is_stale(state, now_ns):
            return Cause.STATE_STALE
        newest_ns = state.t_ns if state.t_newest_ns is None else state.t_newest_ns
        if max(newest_ns - state.t_ns, newest_ns - now_ns) > limits.max_gap_ns:
            return Cause.CLOCKS_DISAGREE
        return Cause.ODOMETRY_JUMPED if self.jumps else None

    def is_stale(self, state: RobotState, now_ns: int) -> bool:
        """Whether the state is older than `timeout_ns`."""
        return now_ns - state.t_ns > self._limits.timeout_ns

    def is_silent(self, ticked_ns: int, now_ns: int) -> bool:
        """Whether the last tick is more than `timeout_ns` ago, or lies in the future."""
        return not 0 <= now_ns - ticked_ns <= self._limits.timeout_ns

    def held_by(self, command: Command, state: RobotState) -> list[str]:
        """The parts that are as near to their commands as an active controller keeps them.

        An arm that was guided by hand, or lost power, is farther away. A gripper always counts as held: on an
        object its width differs from the command.
        """
        return [name for name, part in command.parts.items() if self._is_held(name, part, state)]

    def _is_held(self, name: str, command: PartCommand, state: RobotState) -> bool:
        match command:
            case JointCommand() | PoseCommand():
                error, turn = (
                    _arm_error(command, state.parts.get(name)),
                    _turn_error(command, state.parts.get(name)),
                )
                return error is not None and max(error, turn) <= _HELD
            case BasePoseCommand(x_WB=x):
                x_WB = state.base(name).x_WB
                return x_WB is not None and self._is_near_pose(x_WB, x)
            case NumbersCommand():
                return self._is_near(name, command, state)
        return True

    def follows(self, command: Command, state: RobotState, now_ns: int) -> Cause | None:
        """What is wrong with how the robot follows its setpoint; None if nothing is."""
        limits, bases = self._limits, False
        for name, commanded in command.parts.items():
            error: float | None = None
            if isinstance(commanded, JointCommand | PoseCommand):
                error = _arm_error(commanded, state.parts.get(name))
            elif isinstance(commanded, BasePoseCommand | BaseTwistCommand):
                bases = True
            elif isinstance(commanded, NumbersCommand) and not self._is_near(name, commanded, state):
                return Cause.TRACKING_LOST
            if error is not None and not error <= limits.max_error_of.get(name, limits.max_arm_error):
                return Cause.TRACKING_LOST  # NaN is no small error
        if bases:
            for name, commanded in command.parts.items():
                if not isinstance(commanded, BasePoseCommand | BaseTwistCommand):
                    continue
                if cause := self._base(name, commanded, state, now_ns):
                    return cause
        return None

    def _is_near(self, name: str, commanded: NumbersCommand, state: RobotState) -> bool:
        """Whether plain numbers are near their command; True if they are not measured or have no limit."""
        most, measured = self._limits.max_error_of.get(name), state.measured.get(name)
        if most is None or measured is None or measured.shape != commanded.values.shape:
            return True
        return bool(np.abs(commanded.values - measured).max() <= most)

    def _base(
        self, name: str, commanded: BasePoseCommand | BaseTwistCommand, state: RobotState, now_ns: int
    ) -> Cause | None:
        x_WB = state.base(name).x_WB
        if x_WB is None:
            return None
        base = self._bases.setdefault(name, _CommandedBase())
        if isinstance(commanded, BasePoseCommand):
            if self.is_lost(name, commanded, x_WB):
                return Cause.BASE_LOST
            target = commanded.x_WB[:2]
        else:
            target = base.driven_to(commanded, x_WB, now_ns)
        return Cause.ODOMETRY_FROZEN if base.is_stationary(self._limits, target, x_WB, now_ns) else None

    def is_lost(self, name: str, commanded: BasePoseCommand, x_WB: Float[np.ndarray, "3"]) -> bool:
        """Whether a base is measured farther from its setpoint than it can be."""
        most = self._limits.max_error_of.get(name, self._limits.max_base_error)
        return not float(np.linalg.norm(commanded.x_WB[:2] - x_WB[:2])) <= most

    def _jump(self, last: RobotState, state: RobotState, name: str) -> Jump | None:
        """Where a base was expected, and where it is, if its odometry has jumped.

        After a time without measurements it may have stopped anywhere on its path.
        """
        before, now = last.base(name), state.base(name)
        if before.x_WB is None or now.x_WB is None or before.V_WB_B is None:
            return None
        passed_ns = max(0, state.t_ns - last.t_ns)
        expected = integrate_twist(before.x_WB, before.V_WB_B, passed_ns / NS_PER_S)
        if self._is_near_pose(now.x_WB, expected):
            return None
        if passed_ns <= self._limits.timeout_ns:
            return expected, now.x_WB
        for share in _SHARES_OF_PATH:
            on_path = integrate_twist(before.x_WB, before.V_WB_B, share * passed_ns / NS_PER_S)
            if self._is_near_pose(now.x_WB, on_path):
                return None
        return None, now.x_WB

    def _is_near_pose(self, x_WB: Float[np.ndarray, "3"], expected: Float[np.ndarray, "3"]) -> bool:
        off = x_WB - expected
        distance, turn = float(np.hypot(off[0], off[1])), abs(wrap_angle(off[2]))
        return distance <= self._limits.max_jump and bool(turn <= self._limits.max_turn)


@dataclass(kw_only=True, eq=False)
class _CommandedBase:
    """Where odometry saw a base last, and from where it has been commanded since that changed."""

    x_WB: Float[np.ndarray, "3"] | None = None
    commanded_from: Float[np.ndarray, "2"] | None = None
    moved_ns: int = 0
    position: Float[np.ndarray, "2"] = field(default_factory=lambda: np.zeros(2))
    """Where its commanded twists take it so far, whatever odometry reports."""
    driven_ns: int | None = None
    seen: deque[tuple[int, np.ndarray]] = field(default_factory=deque)
    """When, where it was commanded, and where it was measured (4,), some twenty times in `stuck_ns`."""

    def driven_to(
        self, commanded: BaseTwistCommand, x_WB: Float[np.ndarray, "3"], now_ns: int
    ) -> Float[np.ndarray, "2"]:
        """Where the commanded twists take it; each holds until the next."""
        passed_s = 0.0 if self.driven_ns is None else max(0, now_ns - self.driven_ns) / NS_PER_S
        self.driven_ns = now_ns
        at = np.array([*self.position, x_WB[2]])
        self.position = integrate_twist(at, commanded.V_WB_B, passed_s)[:2]
        return self.position

    def is_stationary(
        self,
        limits: StateLimits,
        target: Float[np.ndarray, "2"],
        x_WB: Float[np.ndarray, "3"],
        now_ns: int,
    ) -> bool:
        """Whether odometry stays the same or hardly moves while the command moves on."""
        before, self.x_WB = self.x_WB, x_WB
        if self.commanded_from is None or before is None or not np.array_equal(before, x_WB):
            self.moved_ns, self.commanded_from = now_ns, target
            return self._is_stuck(limits, target, x_WB, now_ns)
        distance = float(np.linalg.norm(target - self.commanded_from))
        return now_ns - self.moved_ns > limits.frozen_ns and distance > limits.frozen_lead

    def _is_stuck(
        self,
        limits: StateLimits,
        target: Float[np.ndarray, "2"],
        x_WB: Float[np.ndarray, "3"],
        now_ns: int,
    ) -> bool:
        seen = self.seen
        if seen and now_ns - seen[-1][0] < limits.stuck_ns // _LOOKS:
            return False
        seen.append((now_ns, np.array([*target, *x_WB[:2]])))
        if now_ns - seen[0][0] < limits.stuck_ns:
            return False
        spans = np.ptp([positions for _, positions in seen], axis=0)
        seen.popleft()
        distance, moved = float(np.hypot(spans[0], spans[1])), float(np.hypot(spans[2], spans[3]))
        return distance > limits.stuck_lead and moved < limits.stuck_share * distance


_LOOKS = 20


def _arm_error(commanded: JointCommand | PoseCommand, measured: PartState | None) -> float | None:
    """How far a part is from its setpoint [rad] or [m]; None if that is unknown."""
    if not isinstance(measured, ArmState):
        return None
    if isinstance(commanded, JointCommand):
        return float(np.abs(commanded.q - measured.q).max())
    if measured.X_BE is None:
        return None
    return float(np.linalg.norm(commanded.p_BE - measured.X_BE.translation))


def _turn_error(command: JointCommand | PoseCommand, measured: PartState | None) -> float:
    """The angle of an end effector from its setpoint [rad]; 0 where that is not measured."""
    if isinstance(command, JointCommand) or not isinstance(measured, ArmState) or measured.X_BE is None:
        return 0.0
    return float(np.linalg.norm(pin.log3(command.X_BE.rotation @ measured.X_BE.rotation.T)))


def not_finite(state: RobotState) -> str:
    """The measured numbers that are NaN or infinite, by name: `left_arm.q[2] = nan`; empty if none is."""
    found: list[str] = []
    for name, part in state.parts.items():
        match part:
            case ArmState(q=q, dq=dq, X_BE=X_BE):
                read = {"q": q, "dq": dq} | ({} if X_BE is None else {"X_BE": X_BE.homogeneous})
            case GripperState(width=width):
                read = {"width": np.array(width)}
            case BaseState(x_WB=x_WB, V_WB_B=V_WB_B):
                both = {"x_WB": x_WB, "V_WB_B": V_WB_B}
                read = {key: value for key, value in both.items() if value is not None}
        found += [each for key, value in read.items() for each in _bad_numbers(f"{name}.{key}", value)]
    found += [each for name, value in state.measured.items() for each in _bad_numbers(name, value)]
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(found[:_MOST_NAMED]) + more


_MOST_NAMED = 4


def _bad_numbers(name: str, values: np.ndarray) -> list[str]:
    return [
        f"{name}{list(map(int, at)) or ''} = {values[tuple(at)]}" for at in np.argwhere(~np.isfinite(values))
    ]
