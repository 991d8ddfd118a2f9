"""Row 10, on an ideal robot: drivers that are silent, late, go back in time, return NaN, or raise."""

import time
from collections.abc import Iterator
from functools import partial
from itertools import cycle, islice

import numpy as np

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.robot import ArmState
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.core.values.command import JointCommand
from robot_runtime.errors import DriverError
from robot_runtime.robot.robot import Robot
from scripts.bench.faults.rig import (
    ORDINARY,
    PERIOD_S,
    Run,
    Running,
    ideal_robot,
    run,
    surprises,
)
from scripts.bench.faults.table import Injection

BLOCK_S = 0.05
WRONG_S = 0.3


class WrongArm:
    """Arm that follows commands exactly; `way` is the fault of its driver."""

    num_joints = 7

    def __init__(self, clock: MonotonicClock) -> None:
        from drivers.ideal import Q_HOME

        self._clock, self._q = clock, Q_HOME
        self._last = self._measured(clock.now_ns())
        self.way, self.since_ns = "", 0
        self.stopped_ns = 0
        """Time of the last call of `stop` [ns]."""

    def read(self) -> ArmState:
        t_ns = self._clock.now_ns()
        if self.way and not self.since_ns:
            self.since_ns = t_ns
        match self.way:
            case "silent":
                return self._last
            case "back in time":
                t_ns = 2 * self.since_ns - t_ns
            case "blocks":
                time.sleep(BLOCK_S)
                self.way, t_ns = "", self._clock.now_ns()
            case "raises":
                raise DriverError("the arm is not there any more")
            case "no numbers":
                return ArmState(t_ns=t_ns, q=np.full(7, np.nan), dq=np.zeros(7))
        self._last = self._measured(t_ns)
        return self._last

    def _measured(self, t_ns: int) -> ArmState:
        return ArmState(t_ns=t_ns, q=self._q, dq=np.zeros(7))

    def write(self, command: JointCommand) -> None:
        self._q = command.q

    def stop(self) -> None:
        self.stopped_ns = self._clock.now_ns()


def _robot(arms: list[WrongArm], clock: MonotonicClock) -> Robot:
    arms.append(WrongArm(clock))
    ideal = ideal_robot(clock)
    return Robot(dict(ideal.parts) | {"arm": arms[0]}, limits=ideal.limits)


def drivers_that_hold(address: str, times: int) -> Iterator[Injection]:
    """Run once with a driver that in turn is silent, goes back in time, or blocks."""
    arms: list[WrongArm] = []
    found: list[tuple[str, int]] = []

    def interfere(running: Running) -> None:
        for way in islice(cycle(("silent", "back in time", "blocks")), times):
            assert running.wait_until_it_moves()
            time.sleep(0.2)
            arms[0].since_ns, arms[0].way = 0, way
            time.sleep(WRONG_S)
            found.append((way, arms[0].since_ns))
            arms[0].way = ""
        assert running.wait_until_it_moves()

    of = run(address, interfere, make_robot=partial(_robot, arms))
    for way, since_ns in found:
        if way == "blocks":
            yield Injection(figures={"commands beyond after 50 ms": _beyond(of, since_ns)})
            continue
        held = of.first_tick(since_ns, lambda tick: tick.mode is Mode.HOLD)
        assert held is not None
        yield Injection(figures={f"{way} to HOLD": (held.now_ns - since_ns) / NS_PER_MS})
    yield Injection(surprises=surprises(of, causes=ORDINARY | {Cause.STATE_STALE}), count=0)


def _beyond(of: Run, since_ns: int) -> float:
    """Return the largest step of the commands around a block, relative to what one period allows."""
    ticks = of.between(since_ns - NS_PER_S // 50, since_ns + NS_PER_S // 5)
    commands = [tick.command.arm for tick in ticks]
    q = np.array([each.q for each in commands if isinstance(each, JointCommand)])
    return float((np.abs(np.diff(q, axis=0)) / (of.limits.dq_max * PERIOD_S)).max())


def driver_that_ends(address: str, way: str) -> Injection:
    """Run once with a driver that ends the run."""
    arms: list[WrongArm] = []

    def interfere(running: Running) -> None:
        assert running.wait_until_it_moves()
        time.sleep(0.1)
        arms[0].way = way
        running.wait(lambda: running.mode is Mode.STOP, 2.0)
        running.wait_until_it_stands()

    of = run(address, interfere, make_robot=partial(_robot, arms), raises=DriverError)
    since_ns = arms[0].since_ns
    if way == "raises":
        figures = {"raised to stopped": (arms[0].stopped_ns - since_ns) / NS_PER_MS}
        found = () if of.error is not None else ("a driver's error did not go out",)
        return Injection(figures=figures, surprises=(*surprises(of), *found))
    stopped = of.first_tick(since_ns - round(PERIOD_S * NS_PER_S), _is_stopped)  # the tick that read it
    assert stopped is not None
    return Injection(
        figures={"no numbers to STOP": max(0, stopped.now_ns - since_ns) / NS_PER_S / PERIOD_S},
        surprises=surprises(of, causes=ORDINARY | {Cause.STATE_INVALID}),
    )


def _is_stopped(tick: Tick) -> bool:
    return tick.mode is Mode.STOP
