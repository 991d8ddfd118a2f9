"""`run`: runs a robot while a function interferes; `surprises`: finds undefined behaviour in the run.

this thread     the control loop of `robot_runtime.robot.runner`, as it runs on a robot
beside it       `interfere`, which breaks things and notes the times
processes       servers, proxies and devices
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.method.table import method_named
from robot_runtime.core.plan.limits import BaseLimits, JointLimits, Limits, MotionLimits
from robot_runtime.core.plan.timeline import Phase
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.safety import ENDS, Cause, Mode
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import (
    NS_PER_S,
    ActionSpec,
    BasePoseCommand,
    BaseTwistCommand,
    JointCommand,
)
from robot_runtime.core.values.transforms import compose_planar, inverse_planar
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.link import ServerLink
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.runner import Runner
from robot_runtime.robot.telemetry import RunRecord
from robot_runtime.wire.events import Event

CONTROL_HZ = 500.0
PERIOD_S = 1.0 / CONTROL_HZ
EXIT_S = 2.0
"""How long the end may take once the robot is stationary, or was stopped [s]."""
LONG_S = 120.0
"""Upper bound of a run [s]; the interference ends it earlier."""
ORDINARY = frozenset({Cause.FRESH_CHUNK, Cause.PLAN_ENDED, Cause.RESET, *ENDS})
"""Causes that change the mode of a robot that only lacks answers."""
_SLACK = 1.0 + 1e-6


class Asking:
    """Whether a link could send a request at the last tick, and since when [ns]."""

    def __init__(self, link: ServerLink, clock: MonotonicClock) -> None:
        self.can, self.since_ns = True, clock.now_ns()
        can_ask = link.can_ask

        def noted(now_ns: int) -> bool:
            can = can_ask(now_ns)
            if can is not self.can:
                self.since_ns, self.can = now_ns, can
            return can

        link.can_ask = noted  # type: ignore[method-assign]


@dataclass(kw_only=True, eq=False)
class Running:
    """A run as `interfere` sees it."""

    runner: Runner
    clock: MonotonicClock
    moments: dict[str, list[int]] = field(default_factory=dict)
    is_over: bool = False

    def mark(self, name: str) -> int:
        """Note an event by name; return the time [ns]."""
        now_ns = self.clock.now_ns()
        self.moments.setdefault(name, []).append(now_ns)
        return now_ns

    @property
    def mode(self) -> Mode:
        return self.runner.executor.mode

    def wait(self, is_so: Callable[[], bool], timeout_s: float = 5.0) -> bool:
        """Wait for a condition; return whether it became true in time."""
        end_s = time.monotonic() + timeout_s
        while not is_so():
            if self.is_over or time.monotonic() > end_s:
                return False
            time.sleep(0.001)
        return True

    def watch_asking(self) -> "Asking":
        """Record from now on whether the policy could be asked."""
        return Asking(self.runner.link, self.clock)

    def wait_until_it_moves(self, timeout_s: float = 5.0) -> bool:
        return self.wait(lambda: self.mode is Mode.RUN, timeout_s)

    def wait_until_it_stands(self, timeout_s: float = 5.0) -> bool:
        executor = self.runner.executor
        return self.wait(lambda: self.mode is not Mode.RUN and executor.is_at_rest, timeout_s)


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """Result of a run."""

    record: RunRecord
    moments: Mapping[str, list[int]]
    spec: ActionSpec
    limits: Limits
    exit_s: float
    """Time from the stop command to the end, less the time that the robot took to rest [s]."""
    most_in_flight: int
    """Largest number of simultaneous requests."""
    error: Exception | None
    """Error of a driver that ended the run."""
    events: Mapping[str, int]
    """Number of the client's events, by type."""

    def first_tick(self, since_ns: int, is_so: Callable[[Tick], bool]) -> Tick | None:
        return next((tick for tick in self.record.ticks if tick.now_ns >= since_ns and is_so(tick)), None)

    def between(self, start_ns: int, end_ns: int) -> list[Tick]:
        return [tick for tick in self.record.ticks if start_ns <= tick.now_ns < end_ns]

    def said(self, start: str, since_ns: int = 0) -> int | None:
        """Return when a line with this beginning was written after `since_ns` [ns]."""
        return next((t for t, text in self.record.log if t >= since_ns and text.startswith(start)), None)


def ideal_robot(clock: MonotonicClock) -> Robot:
    """Return an FR3 that follows commands exactly."""
    from drivers.fr3 import FR3_LIMITS
    from drivers.ideal import IdealArm, IdealGripper

    return Robot(arm=IdealArm(clock=clock), gripper=IdealGripper(), limits=FR3_LIMITS)


class _Client(PolicyClient):
    """Counts open requests and their events."""

    most_in_flight = 0
    happened: Counter[str]
    on_request: Callable[[ChunkRequest], None]

    def events(self) -> list[Event]:
        found = super().events()
        self.happened.update(type(event).__name__ for event in found)
        return found

    def submit(self, request: ChunkRequest) -> None:
        self.on_request(request)
        self.most_in_flight = max(self.most_in_flight, len(request.in_flight) + 1)
        super().submit(request)


def run(
    address: str,
    interfere: Callable[[Running], object],
    *,
    make_robot: Callable[[MonotonicClock], Robot] = ideal_robot,
    method: str = "time-aligned",
    on_tick: Callable[[Tick], None] = lambda tick: None,
    on_request: Callable[[ChunkRequest], None] = lambda request: None,
    connect_s: float = 10.0,
    raises: type[Exception] | tuple[()] = (),
    **options: Any,
) -> Run:
    """Run a robot until `interfere` returns, which may raise.

    raises: error that a driver is expected to raise. options: of `RunConfig`.
    """
    clock = MonotonicClock()
    robot = make_robot(clock)
    assert robot.limits is not None
    usual: dict[str, Any] = {
        "duration_s": LONG_S,
        "keep_ticks": None,
        "clock": clock,
        "control_hz": CONTROL_HZ,
    }
    config = RunConfig(robot, **usual | options)
    with _Client(address, robot="faults", schema=robot.schema()) as client:
        assert isinstance(client, _Client)
        client.happened, client.on_request = Counter(), on_request
        welcome = client.wait_until_ready(connect_s)
        runner = Runner(config, client, welcome, method=method_named(method))
        running = Running(runner=runner, clock=clock)
        with ThreadPoolExecutor(1) as beside:
            interference = beside.submit(interfere, running)
            error: Exception | None = None
            try:
                runner.run(on_tick=on_tick, should_stop=interference.done)
            except raises as raised:
                error = raised
            finally:
                running.mark("ended")
                running.is_over = True
        interference.result()
    record = runner.record
    return Run(
        record=record,
        moments=running.moments,
        spec=welcome.info.action_spec,
        limits=robot.limits,
        exit_s=(running.moments["ended"][0] - record.ticks[-1].now_ns) / NS_PER_S,
        most_in_flight=client.most_in_flight,
        error=error,
        events=dict(client.happened),
    )


def surprises(
    of: Run,
    *,
    causes: Collection[Cause] = ORDINARY,
    fault: str = "",
) -> tuple[str, ...]:
    """Return the undefined behaviour in a run.

    causes: allowed causes of mode changes in this row. fault: beginning of the sentence with which the run
    ends by itself; empty: it does not.
    """
    found: list[str] = []
    if bad := int((~np.isfinite(of.record.sent()[:, 1:])).any(axis=1).sum()):
        found.append(f"{bad} commands that are not finite")
    found += [f"{count} commands beyond {kind}" for kind, count in beyond_limits(of).items() if count]
    if stale := num_stale(of):
        found.append(f"{stale} ticks of a chunk that was past")
    if other := {tick.cause for tick in of.record.ticks} - {*causes, Cause.RESET}:
        found.append(f"modes changed for: {', '.join(sorted(cause.value for cause in other))}")
    if not of.record.fault.startswith(fault) or bool(of.record.fault) != bool(fault):
        found.append(f"the run ended by itself: {of.record.fault or 'no'}")
    last = of.record.ticks[-1]
    is_at_rest = last.mode is not Mode.RUN and last.phase is Phase.REST
    has_not_moved = np.array_equal(*of.record.sent()[-2:, 1:])  # stopped before it had begun to move
    if of.error is None and not (is_at_rest or has_not_moved):
        found.append(f"it ended in {last.mode.name}, {last.phase.name}")
    if of.exit_s > EXIT_S:
        found.append(f"its end took {of.exit_s:.1f} s")
    return tuple(found)


def joints(ticks: Iterable[Tick]) -> np.ndarray:
    """Return the arm's commands (T, N) [rad]."""
    sent = [(tick.sent or tick.command).arm for tick in ticks]
    return np.array([each.q for each in sent if isinstance(each, JointCommand)])


def beyond_limits(of: Run) -> dict[str, int]:
    """Count commands of arm and base beyond each kind of limit, by differences from command to command."""
    counts: Counter[str] = Counter()
    is_moved = np.array([tick.cause is Cause.ODOMETRY_JUMPED for tick in of.record.ticks])
    moved = np.flatnonzero(
        np.diff(is_moved, prepend=False) & is_moved
    )  # a reported jump moves the commands with it
    counted = np.setdiff1d(np.arange(len(is_moved)), moved[:, None] + np.arange(3))
    for name, path, limits in _paths(of):
        if isinstance(limits, JointLimits):
            inside = (path >= limits.q_min - 1e-9) & (path <= limits.q_max + 1e-9)
            counts[f"position of {name}"] += int((~inside).any(axis=1).sum())
        for kind, share in shares(path, motion_of(limits)).items():
            counts[f"{kind} of {name}"] += int((share[counted] > _SLACK).any(axis=1).sum())
    return counts


def _paths(of: Run) -> Iterator[tuple[str, np.ndarray, JointLimits | BaseLimits]]:
    """Yield each part's commands as a path from its start: joints, or a base along its own axes."""
    sent = [tick.sent or tick.command for tick in of.record.ticks]
    for name, limits in of.limits.parts.items():
        parts = [each.parts[name] for each in sent if name in each.parts]
        if isinstance(limits, JointLimits) and parts:
            yield name, np.array([each.q for each in parts if isinstance(each, JointCommand)]), limits
        elif isinstance(limits, BaseLimits) and parts:
            poses = [each.x_WB for each in parts if isinstance(each, BasePoseCommand)]
            steps = [compose_planar(inverse_planar(a), b) for a, b in pairwise(poses)]
            steps += [each.V_WB_B * PERIOD_S for each in parts if isinstance(each, BaseTwistCommand)]
            yield name, np.cumsum([np.zeros(3), *steps], axis=0), limits


def motion_of(limits: JointLimits | BaseLimits) -> MotionLimits:
    return limits.joints if isinstance(limits, JointLimits) else limits.motion


def shares(path: np.ndarray, limits: MotionLimits) -> dict[str, np.ndarray]:
    """Return speed, acceleration and jerk of a path (T, N) from rest, as shares of their limits (T, N)."""
    path, out = np.concatenate([np.repeat(path[:1], 3, axis=0), path]), {}
    for kind in ("speed", "acceleration", "jerk"):
        path = np.diff(path, axis=0) / PERIOD_S
        out[kind] = np.abs(path) / getattr(limits, kind)
    return out


def num_stale(of: Run) -> int:
    """Count ticks that ran a row after the next one was due."""
    t0_ns = {splice.source.request_id: splice.t0_ns for splice in of.record.splices}
    num = 0
    for tick in of.record.ticks:
        if tick.phase is Phase.PLAN and tick.source is not None and tick.row is not None:
            over_ns = t0_ns[tick.source.request_id] + (tick.row + 1) * of.spec.dt_ns
            num += tick.now_ns > over_ns + round(PERIOD_S * NS_PER_S)
    return num


def missed_ticks(of: Run, start_ns: int = 0, end_ns: int = 1 << 62) -> float:
    """Return the largest number of control periods without a command between two commands."""
    times = np.array([tick.now_ns for tick in of.between(start_ns, end_ns)])
    return float(np.round(np.diff(times).max() / NS_PER_S / PERIOD_S) - 1.0)


def standing_s(of: Run) -> float:
    """Return how long the arm got the same command again and again, until the stop command [s]."""
    ticks = [tick for tick in of.record.ticks if tick.mode is not Mode.STOP]
    q, t_ns = joints(ticks), np.array([tick.now_ns for tick in ticks])
    return float(np.diff(t_ns)[(np.diff(q, axis=0) == 0.0).all(axis=1)].sum() / NS_PER_S)
