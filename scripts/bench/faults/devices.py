"""Rows 10, 11 and 16: drivers that fail, robots that disappear or go into reflex, a killed runtime."""

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.robot import ArmState
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.core.values.command import BaseTwistCommand, JointCommand
from robot_runtime.errors import DriverError
from robot_runtime.robot.robot import Robot
from scripts.bench.faults.rig import (
    EXIT_S,
    ORDINARY,
    PERIOD_S,
    Run,
    Running,
    ideal_robot,
    run,
    surprises,
)
from scripts.bench.faults.servers import PolicyProcess, Swing
from scripts.bench.faults.table import Injection, fault

if TYPE_CHECKING:
    from drivers.franka import FrankaArm
    from sim.devices.franka import FrankaRobot


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


PATIENT_S = 0.5
"""How long a simulated robot may be silent without a fault, as the machine is busy [s]."""
SILENT_S = 1.0
"""Time after which its connection has ended [s]."""
STANDS = 0.05
"""Joints that are slower than this are stationary [rad/s]."""


def no_franka() -> str:
    there = all(importlib.util.find_spec(name) for name in ("franky", "franky_sim"))
    return "" if there else "needs the extra franka, and franky-sim"


@contextmanager
def franka(folder: Path) -> "Iterator[FrankaRobot]":
    """Start a simulated FR3 behind its real protocol."""
    from sim.devices.franka import FrankaRobot

    robot = FrankaRobot(folder)
    try:
        yield robot.wait()
    finally:
        robot.kill()


@contextmanager
def driven(robot: "FrankaRobot", folder: Path, **options: Any) -> "Iterator[FrankaArm]":
    """Open its driver, as on a robot except for the real-time kernel."""
    from drivers.franka import FrankaArm

    arm = FrankaArm(robot.host, needs_real_time=False, log_folder=folder, **options)
    try:
        yield arm
    finally:
        arm.close()


def until(is_so: Callable[[], bool], timeout_s: float) -> float | None:
    """Return how long it took [ms]; None: longer than the timeout."""
    start_s = time.monotonic()
    while not is_so():
        if time.monotonic() - start_s > timeout_s:
            return None
        time.sleep(0.0005)
    return (time.monotonic() - start_s) * 1e3


def rest_ms(robot: "FrankaRobot") -> float | None:
    """Return the time until the robot is stationary for 0.2 s, or its connection ends while it is stationary
    [ms of its own time]; None: it moves for more than 3 s."""
    first = last = seen = robot.num_states
    seen_s = time.monotonic()
    while (now := robot.num_states) - last < 200 and now - first < 3000:
        if robot.speed > STANDS:
            last = now
        if now > seen:
            seen, seen_s = now, time.monotonic()
        elif time.monotonic() - seen_s > SILENT_S:
            break
        time.sleep(0.0005)
    return float(last - first) if robot.speed <= STANDS else None


def swing_until(arm: "FrankaArm", is_over: Callable[[float], bool]) -> None:
    """Move the arm to and fro from where it is; raises any DriverError."""
    start, start_s = arm.read().q, time.monotonic()
    while not is_over(passed_s := time.monotonic() - start_s):
        q = start + np.array([0.1 * np.sin(4.0 * passed_s), 0, 0, 0, 0, 0, 0])
        arm.read()
        arm.write(JointCommand(q=q))
        time.sleep(0.002)


# ---- 10: the robot is gone ---------------------------------------------------------------------------------


@fault(
    10,
    "driver or robot gone",
    how="a driver that repeats itself, goes back in time, blocks for 50 ms, raises, gives NaN; a "
    "simulated FR3 that is stopped or killed",
    behaviour="HOLD on an old state, RUN when it is new; STOP on NaN; an error ends the run, all drivers "
    "stopped",
    figures={
        "silent to HOLD [ms]": 105.0,
        "back in time to HOLD [ms]": 105.0,
        "commands beyond after 50 ms [of a period's step]": 1.0,
        "raised to stopped [ms]": 10.0,
        "no numbers to STOP [ticks]": 1.0,
        "Franka stopped to noticed [ms]": 100.0,
        "Franka killed to noticed [ms]": 100.0,
    },
    times=56,
    missing=no_franka,
)
def lost_drivers(times: int) -> Iterator[Injection]:
    """Lose the driver of an ideal robot, then stop or kill a Franka's process in the middle of a run."""
    with PolicyProcess(Swing) as server:
        yield from drivers_that_hold(server.address, times * 3 // 5)
        for i in range(max(2, times // 5)):
            yield driver_that_ends(server.address, ("raises", "no numbers")[i % 2])
        with tempfile.TemporaryDirectory() as folder:
            for i in range(max(2, times // 8)):
                with franka(Path(folder)) as robot, driven(robot, Path(folder)) as arm:
                    yield gone(server.address, robot, arm, is_killed=bool(i % 2))


def gone(address: str, robot: "FrankaRobot", arm: "FrankaArm", *, is_killed: bool) -> Injection:
    """Kill or stop a Franka's side of the connection while a policy moves it."""

    def make_robot(clock: MonotonicClock) -> Robot:
        ideal = ideal_robot(clock)
        return Robot(dict(ideal.parts) | {"arm": arm}, limits=ideal.limits)

    def interfere(running: Running) -> None:
        assert running.wait_until_it_moves()
        time.sleep(0.5)
        running.mark("gone")
        (robot.kill if is_killed else robot.freeze)()
        running.wait(lambda: False, 3.0)

    of = run(address, interfere, make_robot=make_robot, raises=DriverError)
    robot.thaw()
    if of.error is None:
        return Injection(surprises=("a Franka that was gone for 3 s was not noticed",))
    name = "Franka killed to noticed" if is_killed else "Franka stopped to noticed"
    return Injection(
        figures={name: (of.record.ticks[-1].now_ns - of.moments["gone"][0]) / NS_PER_MS},
        surprises=surprises(of),
    )


# ---- 11: the robot stops itself ----------------------------------------------------------------------------


_REFLEXES_A_ROBOT = 20
"""franky-sim 1.0.4 sends no more states after 26, over however many connections."""


@fault(
    11,
    "reflex",
    how="a simulated FR3 that falls into reflex once it stands, and is recovered by hand",
    behaviour="latched, the last second in a file; nothing moves before recover(); then from where it is",
    figures={
        "reflex to fault [ms]": 100.0,
        "first setpoint from measured [mrad]": 1.0,
        "lines of the last second": None,
    },
    missing=no_franka,
)
def reflexes(times: int) -> Iterator[Injection]:
    """Trigger reflexes of one arm again and again while it moves; its operator recovers it."""
    for begun in range(0, times, _REFLEXES_A_ROBOT):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with franka(folder) as robot, driven(robot, folder, state_timeout_s=PATIENT_S) as arm:
                for _ in range(min(_REFLEXES_A_ROBOT, times - begun)):
                    yield reflex(robot, arm, folder)


def reflex(robot: "FrankaRobot", arm: "FrankaArm", folder: Path) -> Injection:
    """Time from the reflex to the fault; then check that it stays one, and where the arm resumes."""
    found: list[str] = []
    swing_until(arm, lambda passed_s: passed_s > 0.3)
    arm.stop()
    rest_ms(robot)  # this simulator cannot end a motion by itself, as a robot does
    robot.fall_into_reflex()
    noticed_ms = until(lambda: bool(arm.fault), 2.0)
    if "joint_reflex" not in arm.fault:
        found.append(f"a reflex was called: {arm.fault or 'nothing'}")
    logs = sorted(folder.glob("franka-*.csv"))
    for _ in range(20):  # it stays where it is, whatever is commanded
        try:
            arm.write(JointCommand(q=np.zeros(7)))
            found.append("it took a command before it was recovered")
        except DriverError:
            time.sleep(0.005)
    arm.recover()
    measured = arm.read().q
    arm.write(JointCommand(q=measured + 0.3))
    until(lambda: bool(arm.setpoint), 2.0)
    figures = {
        "reflex to fault": float("nan") if noticed_ms is None else noticed_ms,
        "first setpoint from measured": float(np.abs(np.array(arm.setpoint) - measured).max()) * 1e3,
        "lines of the last second": float(len(logs[-1].read_text().splitlines()) - 1) if logs else 0.0,
    }
    arm.stop()
    rest_ms(robot)
    return Injection(figures=figures, surprises=tuple(found))


# ---- 16: the runtime is killed -----------------------------------------------------------------------------


@fault(
    16,
    "runtime killed",
    how="kill -9 and SIGSTOP of the process that drives a simulated FR3, or a ROS base",
    behaviour="the Franka driver's process stops the arm; a ROS base's controller the base (after 0.5 s)",
    figures={
        "Franka, killed to rest [ms of its time]": 500.0,
        "Franka, stopped to rest [ms of its time]": 500.0,
        "ROS base, alone to rest [ms]": 600.0,
    },
    times=20,
    missing=no_franka,
)
def left_alone(times: int) -> Iterator[Injection]:
    """Kill or stop the process that drives a Franka, or a ROS base, while it moves."""
    with tempfile.TemporaryDirectory() as folder:
        with franka(Path(folder)) as robot:
            for i in range(max(2, times * 2 // 5)):
                yield abandoned_franka(robot, folder, (signal.SIGKILL, signal.SIGSTOP)[i % 2])
        for i in range(max(2, times * 3 // 5)):
            yield abandoned_base((signal.SIGKILL, signal.SIGSTOP)[i % 2])


def _owner(call: str) -> subprocess.Popen[str]:
    program = f"from {__name__} import *; {call}"
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    owner.stdout.readline()  # it moves
    return owner


def move_franka(host: str, folder: str) -> None:
    """Move until killed, in its own process."""
    from drivers.franka import FrankaArm

    arm = FrankaArm(host, needs_real_time=False, log_folder=folder, state_timeout_s=PATIENT_S)
    swing_until(arm, lambda passed_s: passed_s > 0.3)
    print(arm.pid, flush=True)
    swing_until(arm, lambda passed_s: False)


def abandoned_franka(robot: "FrankaRobot", folder: str, number: signal.Signals) -> Injection:
    """Wait until the arm is stationary, and check that the driver's process ends when its owner is dead."""
    owner = _owner(f"move_franka({robot.host!r}, {folder!r})")
    until(lambda: robot.speed > 4 * STANDS, 5.0)
    os.kill(owner.pid, number)
    took_ms = rest_ms(robot)
    owner.kill()
    owner.wait()
    found = () if took_ms is not None else (f"{number.name}: the arm does not stay at rest",)
    time.sleep(EXIT_S)  # the driver's process ends, and the robot takes the next one
    name = f"Franka, {'killed' if number is signal.SIGKILL else 'stopped'} to rest"
    return Injection(figures={} if took_ms is None else {name: took_ms}, surprises=found)


def move_base(url: str) -> None:
    """Drive until killed, in its own process."""
    from drivers.ros import RosBase
    from drivers.rosbridge import RosBridge

    base = RosBase(RosBridge(url))
    base.read()
    print("it moves", flush=True)
    while True:
        base.write(BaseTwistCommand(V_WB_B=np.array([0.3, 0.0, 0.0])))
        time.sleep(0.02)


def abandoned_base(number: signal.Signals) -> Injection:
    """Wait until the base is stationary, by the timeout of its own controller, the only one that can stop
    it."""
    from sim.devices.ros import RosRobot

    with RosRobot(command_timeout_s=0.5) as robot:
        owner = _owner(f"move_base({robot.url!r})")
        until(lambda: bool(robot.twist.any()), 5.0)
        time.sleep(0.2)
        os.kill(owner.pid, number)
        rest_ms = until(lambda: not robot.twist.any(), 3.0)
        owner.kill()
        owner.wait()
    if rest_ms is None:
        return Injection(surprises=(f"{number.name}: the base was still driving after 3 s",))
    return Injection(figures={"ROS base, alone to rest": rest_ms})
