"""`python -m scripts.bench pedal`: releases a pedal in mid-motion, and counts the ticks to STOP.

released                        the pedal is a pipe that speaks the kernel's input events, and is let go by
   |                            another process at a random moment of the tick
---+--|------|------|---        ticks
      1      2      3           STOP at the first that begins after it: 1
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import Count, Hertz, Maybe, OutputFile
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.tick import Tick
from robot_runtime.errors import RobotStoppedError
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.run import Session
from robot_runtime.server.process import ServerProcess
from scripts.harness import write_result

MOST_TICKS = 1
CODE = "KEY_B"
_FOOT = """
import os, random, sys, time
from drivers.input_device import CODES, EV_KEY, EVENT
chance = random.Random(0)
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(60))  # no pause between saying when and doing it
except PermissionError:
    pass
with open(sys.argv[1], "r+b", buffering=0) as pipe:
    for line in sys.stdin:
        time.sleep(chance.uniform(0.05, 0.1))
        event = EVENT.pack(0, 0, EV_KEY, CODES[sys.argv[2]], int(line))
        when_ns = time.monotonic_ns()
        pipe.write(event)
        print(when_ns, flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class BenchPedal:
    """Release hold-to-run while the robot moves, and count the ticks to STOP, with busy processors."""

    releases: Count = 50
    """Number of releases."""
    busy: Count = 2
    """Number of processes that only compute meanwhile."""
    control_hz: Hertz = 500.0
    """Ticks of the control loop per second."""
    json: Maybe[OutputFile] = None
    """Write the results to this file, as JSON."""

    def main(self) -> int:
        rounds = let_go(self.releases, busy=self.busy, control_hz=self.control_hz)
        table = Table("hold-to-run let go", "median", "worst", "target", "n")
        for name, target in (("STOP at tick after it", f"<= {MOST_TICKS}"), ("STOP after (ms)", "-")):
            values = [figures[name] for figures in rounds]
            table.add_row(name, f"{np.median(values):.2f}", f"{max(values):.2f}", target, str(len(values)))
        plain_console().print(table)
        if self.json is not None:
            write_result(self.json, {"rounds": rounds})
        return 0


def let_go(
    releases: int, *, busy: int = 2, control_hz: float = 500.0, use_fifo: bool = True
) -> list[dict[str, float]]:
    """Run an ideal arm over ZeroMQ, let its pedal go so often, and arm it anew each time; the figures.

    busy: processes that compute all the time. use_fifo: as for a `Session`.
    RobotStoppedError: the run ended before.
    """
    from drivers.fr3 import FR3_LIMITS
    from drivers.ideal import IdealArm, IdealGripper
    from drivers.input_device import InputSwitch

    clock = MonotonicClock()
    robot = Robot(arm=IdealArm(clock=clock), gripper=IdealGripper(), limits=FR3_LIMITS)
    with ExitStack() as opened:
        pipe = Path(opened.enter_context(tempfile.TemporaryDirectory())) / "pedal"
        os.mkfifo(pipe)
        opened.callback(
            os.close, os.open(pipe, os.O_RDWR)
        )  # a pipe without a writer would count as a lost pedal
        server = opened.enter_context(ServerProcess("sine"))
        foot = opened.enter_context(_process("-c", _FOOT, str(pipe), CODE))
        for _ in range(busy):
            opened.enter_context(_process("-c", "while True: pass"))
        session = Session(
            robot,
            policy=server.address,
            hold_to_run=InputSwitch(str(pipe), CODE),
            control_hz=control_hz,
            use_fifo=use_fifo,
        )
        with session:
            iter(session)
            return [_let_go_once(session, foot) for _ in range(releases)]


def _let_go_once(session: Session, foot: subprocess.Popen[str]) -> dict[str, float]:
    """Press, wait until the robot moves, release, wait until it is at rest."""
    assert foot.stdin is not None
    assert foot.stdout is not None
    foot.stdin.write("1\n")
    foot.stdin.flush()
    while _ticked(session).mode is not Mode.RUN:
        pass
    foot.stdin.write("0\n")
    foot.stdin.flush()
    ticks = [_ticked(session)]
    while ticks[-1].mode is not Mode.STOP:
        ticks.append(_ticked(session))
    assert ticks[-1].cause is Cause.RELEASED
    _, released_ns = int(foot.stdout.readline()), int(foot.stdout.readline())
    while not session.runner.executor.is_at_rest:
        _ticked(session)
    return {
        "STOP at tick after it": float(sum(tick.now_ns > released_ns for tick in ticks)),
        "STOP after (ms)": (ticks[-1].now_ns - released_ns) / 1e6,
    }


def _ticked(session: Session) -> Tick:
    tick = next(session, None)
    if tick is None:
        raise RobotStoppedError(f"the run ended: {session.record.log[-1][1]}")
    return tick


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, *arguments], stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
