"""Rows 13, 17 and 18: hold-to-run is released, a policy hangs, two controllers want one robot."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import cycle, islice

from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.values.action import NS_PER_MS
from robot_runtime.errors import RobotBusyError
from robot_runtime.robot.run import Session
from scripts.bench.faults.policies import HangingSwing, LateSwing, Swing
from scripts.bench.faults.rig import (
    ORDINARY,
    Running,
    joints,
    run,
    surprises,
)
from scripts.bench.faults.servers import PolicyProcess, free_address
from scripts.bench.faults.start import CountedArm, refused
from scripts.bench.faults.table import Fault, Figure, Injection

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


def releases(times: int) -> Iterator[Injection]:
    """Release a pedal in another process, `times` times; then press one again, and unplug it."""
    from scripts.bench.pedal import let_go

    for each in let_go(times, busy=1):
        yield Injection(
            figures={"STOP at tick": each["STOP at tick after it"], "let go to STOP": each["STOP after (ms)"]}
        )
    with PolicyProcess(Swing) as server:
        yield unplugged(server.address)


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
            if str(first.pid) not in str(error):
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


ROWS = (
    Fault(
        number=13,
        name="hold-to-run let go, or gone",
        how="a pedal (the kernel's input events over a pipe) let go by another process while the robot "
        "moves; one that is unplugged",
        behaviour="STOP in the next tick; pressed again, the robot is reset and armed anew; an unplugged one "
        "ends the run",
        figures=(
            Figure(name="STOP at tick", unit="after it", most=1.0),
            Figure(name="let go to STOP", unit="ms"),
            Figure(name="unplugged to STOP", unit="ms", most=15.0),
        ),
        inject=releases,
    ),
    Fault(
        number=17,
        name="policy not alive at the start",
        how="policies that hang in warm-up or from the first request on, or answer in 0.6 s with plans of "
        "0.4 s; an operator who presses the button all the time",
        behaviour="not armed before three fresh chunks have come within the plan's budget; says what lacks",
        figures=(Figure(name="commands that move", most=0.0), Figure(name="armed", most=0.0)),
        inject=not_alive,
        times=15,
    ),
    Fault(
        number=18,
        name="two controllers",
        how="a second process wants the robot that one drives; the first is killed with -9",
        behaviour="refused with the other's number, nothing is sent; free as soon as the first is dead",
        figures=(
            Figure(name="refused after", unit="ms", most=2000.0),
            Figure(name="commands of the second", most=0.0),
            Figure(name="first killed to driving", unit="ms", most=2000.0),
        ),
        inject=two_controllers,
    ),
)
