"""Rows 13 and 17 to 19: hold-to-run, a policy that hangs, two controllers, the wrong policy."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.robot import ArmState
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.values.action import NS_PER_MS, ActionSpec
from robot_runtime.core.values.command import ArmCommand
from robot_runtime.core.values.fields import (
    ActionField,
    BaseTwist,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
    JointVelocity,
)
from robot_runtime.core.values.schema import ArmSchema, GripperSchema, Schema
from robot_runtime.errors import RobotBusyError, RobotRuntimeError
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.run import Session
from scripts.bench.faults.machine import burning
from scripts.bench.faults.rig import (
    ORDINARY,
    Running,
    joints,
    run,
    surprises,
)
from scripts.bench.faults.servers import (
    CAMERA,
    DT_NS,
    FRANKA,
    HORIZON,
    SIZE,
    HangingSwing,
    LateSwing,
    PolicyProcess,
    Swing,
    free_address,
)
from scripts.bench.faults.table import Injection, fault


class CountedArm:
    """Arm that counts its commands."""

    num_joints = 7

    def __init__(self, address: str = "") -> None:
        """address: identifies the device."""
        from drivers.ideal import Q_HOME

        self.address, self.first_ns = address, 0
        self.num_commanded, self.num_moving, self._q = 0, 0, Q_HOME

    def read(self) -> ArmState:
        return ArmState(t_ns=time.monotonic_ns(), q=self._q, dq=np.zeros(7))

    def write(self, command: ArmCommand) -> None:
        self.first_ns = self.first_ns or time.monotonic_ns()
        self.num_commanded += 1
        self.num_moving += not np.array_equal(getattr(command, "q", self._q), self._q)

    def stop(self) -> None: ...

    def robot(self) -> Robot:
        """Return a robot of this arm and a gripper."""
        from drivers.fr3 import FR3_LIMITS
        from drivers.ideal import IdealGripper

        return Robot(arm=self, gripper=IdealGripper(), limits=FR3_LIMITS)


def refused(address: str, *, expected: str, **options: Any) -> Injection:
    """Check that a run is refused. expected: words of the sentence with the reason."""
    arm, message = CountedArm(), ""
    start_ns = MonotonicClock().now_ns()
    try:
        with Session(arm.robot(), policy=address, **{"duration_s": 0.5} | options) as running:
            for _ in running:
                pass
        message = running.record.fault
    except RobotRuntimeError as error:
        message = str(error)
    found = () if expected in message else (f"expected {expected!r}, got: {message or 'nothing'}",)
    return Injection(
        figures={
            "commands that move": float(arm.num_moving),
            "refused after": (MonotonicClock().now_ns() - start_ns) / NS_PER_MS,
        },
        surprises=found,
    )


# ---- 19: the wrong policy ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """Policy for another robot, and the words that its refusal must contain."""

    info: PolicyInfo
    expected: str
    options: tuple[tuple[str, object], ...] = ()


class Unfit(Swing):
    """Policy that does not fit; it is never asked."""

    def __init__(self, number: int) -> None:
        """number: in `wrong_policies`."""
        super().__init__()
        self.info = wrong_policies()[number].info

    def infer(self, request: ChunkRequest) -> Iterator[np.ndarray]:
        yield np.zeros((HORIZON, self.info.action_spec.dim))


def wrong_policies() -> list[Wrong]:
    """Return policies with other joints, names, units, parts, hands, cameras and tasks."""
    names = tuple(f"axis_{i}" for i in range(7))
    joints, six = JointPosition(7), JointPosition(6)
    return [
        Wrong(info=_info(six, GripperWidth(), schema=_arm(6)), expected="arm"),
        Wrong(
            info=_info(JointPosition(7, names=names), GripperWidth(), schema=_arm(7, names)),
            expected="axis_0",
        ),
        Wrong(info=_info(JointVelocity(7), GripperWidth(), schema=FRANKA), expected="arm"),
        Wrong(info=_info(joints, GripperWidth(), BaseTwist(), schema=FRANKA), expected="base"),
        Wrong(info=_info(EndEffectorPose(), GripperWidth(), schema=FRANKA), expected="arm"),
        Wrong(info=_info(JointPosition(7, part="left_arm"), schema=_of("left_arm")), expected="left_arm"),
        Wrong(info=_info(joints, GripperWidth(), schema=_seeing(CAMERA)), expected=CAMERA),
        Wrong(
            info=_info(joints, schema=replace(FRANKA, measured={"wrist_force": 6})), expected="wrist_force"
        ),
        Wrong(
            info=replace(_info(joints, GripperWidth(), schema=FRANKA), tasks=("wipe the table",)),
            expected="wipe the table",
            options=(("task", "open the drawer"),),
        ),
    ]


def _info(*fields: ActionField, schema: Schema) -> PolicyInfo:
    spec = ActionSpec(fields=fields, horizon=HORIZON, dt_ns=DT_NS)
    return replace(Swing().info, name="unfit", action_spec=spec, schema=replace(schema, action_fields=fields))


def _arm(num_joints: int, names: tuple[str, ...] = ()) -> Schema:
    return replace(FRANKA, parts={"arm": ArmSchema(num_joints, names), "gripper": GripperSchema()})


def _of(part: str) -> Schema:
    return replace(FRANKA, parts={part: ArmSchema(7)})


def _seeing(camera: str) -> Schema:
    return replace(FRANKA, cameras={camera: SIZE})


@fault(
    19,
    "wrong policy for this robot",
    how="servers whose policies have other joints, names, units, parts, hands, cameras, sensors or tasks",
    behaviour="refused at the greeting, with the name of what does not fit",
    figures={
        "commands that move": 0.0,
        "refused after [ms]": 2000.0,
    },
)
def unfit_policies(times: int) -> Iterator[Injection]:
    """Serve each in turn, in its own server."""
    for number, wrong in islice(cycle(enumerate(wrong_policies())), times):
        with PolicyProcess(partial(Unfit, number)) as server:
            yield refused(server.address, expected=wrong.expected, **dict(wrong.options))


ARMED = ORDINARY | {Cause.ARMED, Cause.NOT_ARMED}


class Pedal:
    """Hold-to-run switch that the rows press."""

    name = "a pedal"

    def __init__(self) -> None:
        self.is_pressed = self.is_unplugged = False

    def read(self) -> bool:
        if self.is_unplugged:
            raise OSError("no such device")
        return self.is_pressed

    def close(self) -> None: ...


class Impatient:
    """Operator who presses the arming button again and again."""

    name = "a button"

    def read(self) -> bool:
        return time.monotonic() % 0.1 < 0.05

    def close(self) -> None: ...


# ---- 13: hold-to-run is let go -----------------------------------------------------------------------------


@fault(
    13,
    "hold-to-run let go, or gone",
    how="a pedal (the kernel's input events over a pipe) let go by another process while the robot "
    "moves; one that is unplugged",
    behaviour="STOP in the next tick; pressed again, the robot is reset and armed anew; an unplugged one "
    "ends the run",
    figures={
        "STOP at tick [after it]": 1.0,
        "let go to STOP [ms]": None,
        "unplugged to STOP [ms]": 15.0,
    },
)
def releases(times: int) -> Iterator[Injection]:
    """Release a pedal in another process again and again; then press one again, and unplug it."""
    with PolicyProcess(Swing) as server:
        yield from released(server.address, times)
        yield unplugged(server.address)


_FOOT = """
import os, random, sys, time
from drivers.input_device import CODES, EV_KEY, EVENT
rng = random.Random(0)
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(60))  # no pause between the time and the event
except PermissionError:
    pass
with open(sys.argv[1], "r+b", buffering=0) as pipe:
    for line in sys.stdin:
        time.sleep(rng.uniform(0.05, 0.1))
        event = EVENT.pack(0, 0, EV_KEY, CODES["KEY_B"], int(line))
        when_ns = time.monotonic_ns()
        pipe.write(event)
        print(when_ns, flush=True)
"""


def released(address: str, times: int) -> Iterator[Injection]:
    """Count the ticks from each release to STOP, with two more busy processes than processors.

    released                        the pedal is a pipe that speaks the kernel's input events
       |
    ---+--|------|------|---        ticks
          1      2      3           STOP at the first that begins after it: 1
    """
    from drivers.input_device import InputSwitch

    released_ns: list[int] = []
    with ExitStack() as stack:
        path = Path(stack.enter_context(TemporaryDirectory())) / "pedal"
        os.mkfifo(path)
        stack.callback(os.close, os.open(path, os.O_RDWR))  # a pipe without a writer counts as a lost pedal
        for _ in range((os.cpu_count() or 1) + 2):
            stack.callback(burning().kill)
        foot = subprocess.Popen(
            [sys.executable, "-c", _FOOT, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        stack.callback(foot.kill)

        def move(value: int) -> int:
            assert foot.stdin is not None
            assert foot.stdout is not None
            foot.stdin.write(f"{value}\n")
            foot.stdin.flush()
            return int(foot.stdout.readline())

        def interfere(running: Running) -> None:
            move(0)
            for _ in range(times):
                move(1)
                assert running.wait_until_it_moves()
                released_ns.append(move(0))
                assert running.wait(lambda: running.mode is Mode.STOP, 1.0)
                assert running.wait_until_it_stands()

        of = run(address, interfere, hold_to_run=InputSwitch(str(path), "KEY_B"))
    for then_ns in released_ns:
        stopped = of.first_tick(then_ns, lambda tick: tick.mode is Mode.STOP)
        assert stopped is not None
        yield Injection(
            figures={
                "STOP at tick": float(len(of.between(then_ns + 1, stopped.now_ns + 1))),
                "let go to STOP": (stopped.now_ns - then_ns) / NS_PER_MS,
            }
        )
    yield Injection(surprises=surprises(of, causes=ARMED | {Cause.RELEASED}), count=0)


def unplugged(address: str) -> Injection:
    """Release and press a pedal five times, then remove it for good."""
    pedal = Pedal()

    def interfere(running: Running) -> None:
        time.sleep(0.2)  # the release has been seen
        for _ in range(5):
            pedal.is_pressed = True
            assert running.wait_until_it_moves()
            time.sleep(0.1)
            pedal.is_pressed = False
            assert running.wait(lambda: running.mode is Mode.STOP, 1.0)
            assert running.wait_until_it_stands()
            time.sleep(0.1)
        pedal.is_pressed = True
        assert running.wait_until_it_moves()
        running.mark("unplugged")
        pedal.is_unplugged = True
        running.wait(lambda: running.mode is Mode.STOP, 1.0)

    of = run(address, interfere, hold_to_run=pedal)
    (gone_ns,) = of.moments["unplugged"]
    stopped = of.first_tick(gone_ns, lambda tick: tick.mode is Mode.STOP)
    found = surprises(of, causes=ARMED | {Cause.RELEASED, Cause.SWITCH_LOST})
    if stopped is None or stopped.cause is not Cause.SWITCH_LOST:
        return Injection(surprises=(*found, "a pedal that was unplugged did not stop the robot"))
    return Injection(figures={"unplugged to STOP": (stopped.now_ns - gone_ns) / NS_PER_MS}, surprises=found)


# ---- 17: a policy that is not alive ------------------------------------------------------------------------

TOO_LATE_S = 0.6


@fault(
    17,
    "policy not alive at the start",
    how="policies that hang in warm-up or from the first request on, or answer in 0.6 s with plans of "
    "0.4 s; an operator who presses the button all the time",
    behaviour="not armed before three fresh chunks have come within the plan's budget; says what lacks",
    figures={
        "commands that move": 0.0,
        "armed": 0.0,
    },
    times=15,
)
def not_alive(times: int) -> Iterator[Injection]:
    """Run policies that hang in warm-up or from their first request, or are later than their plan is long."""
    for way in islice(cycle(("warm-up", "first request", "too late")), times):
        yield {"warm-up": hangs_in_warm_up, "first request": never_answers, "too late": is_too_late}[way]()


def hangs_in_warm_up() -> Injection:
    """Run a policy whose server never opens its address."""
    address = free_address()
    with PolicyProcess(partial(HangingSwing, in_warm_up=True), address, waits=False):
        return refused(address, expected="no policy server answered", connect_timeout_s=0.3)


def never_answers() -> Injection:
    with PolicyProcess(HangingSwing) as server:
        return _never_armed(server.address, "0 of 3 fresh chunks have come", seconds=0.7)


def is_too_late() -> Injection:
    with PolicyProcess(partial(LateSwing, (TOO_LATE_S,))) as server:
        return _never_armed(server.address, "answers are too late", seconds=3.5 * TOO_LATE_S)


def _never_armed(address: str, why: str, *, seconds: float) -> Injection:
    """Run a robot whose operator does not wait."""
    of = run(address, lambda running: time.sleep(seconds), arm=Impatient())
    q = joints(of.record.ticks)
    found = list(surprises(of, causes=ARMED, fault="the robot did not move"))
    if not any(why in text for _, text in of.record.log):
        found.append(f"expected {why!r} to be reported")
    return Injection(
        figures={
            "commands that move": float((q != q[0]).any(axis=1).sum()),
            "armed": float(len(of.record.armed)),
        },
        surprises=tuple(found),
    )


# ---- 18: two controllers -----------------------------------------------------------------------------------

DEVICE = "the arm of bench faults"


@fault(
    18,
    "two controllers",
    how="a second process wants the robot that one drives; the first is killed with -9",
    behaviour="refused with the other's number, nothing is sent; free as soon as the first is dead",
    figures={
        "refused after [ms]": 2000.0,
        "commands of the second": 0.0,
        "first killed to driving [ms]": 2000.0,
    },
)
def two_controllers(times: int) -> Iterator[Injection]:
    """Try to drive a robot that another process drives, until that is killed."""
    with PolicyProcess(Swing) as server:
        for _ in range(times):
            yield second_controller(server.address)


def second_controller(address: str) -> Injection:
    """Check that a second controller is refused while the first runs, and accepted once it is dead."""
    program = f"from {__name__} import drive; drive({address!r}, {DEVICE!r} + {str(os.getpid())!r})"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        first.stdout.readline()  # it drives
        arm, found = CountedArm(DEVICE + str(os.getpid())), []
        start_ns = time.monotonic_ns()
        try:
            _drive_once(address, arm)
            found.append("a second controller was let in")
        except RobotBusyError as error:
            refused_ns = time.monotonic_ns() - start_ns
            if f"process {first.pid} since" not in str(error):
                found.append(f"it does not name the other: {error}")
        moving = arm.num_moving
        os.kill(first.pid, signal.SIGKILL)
    start_ns = time.monotonic_ns()
    _drive_once(address, arm)
    return Injection(
        figures={
            "refused after": refused_ns / NS_PER_MS,
            "commands of the second": float(moving),
            "first killed to driving": (arm.first_ns - start_ns) / NS_PER_MS,
        },
        surprises=tuple(found),
    )


def _drive_once(address: str, arm: CountedArm) -> None:
    with Session(arm.robot(), policy=address, duration_s=0.1, method="time-aligned") as session:
        for _ in session:
            pass


def drive(address: str, device: str) -> None:
    """Drive until killed, in its own process."""
    with Session(CountedArm(device).robot(), policy=address, method="time-aligned") as session:
        for _ in session:
            if session.record.num_ticks == 10:
                print("it drives", flush=True)
