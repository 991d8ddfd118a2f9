"""Whatever ends a program that drives a base: the base, a process of its own, is sent a zero twist."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import pytest

import robot_runtime as rr
from drivers.isolated import Isolated
from robot_runtime.core.values.command import BaseTwistCommand
from robot_runtime.errors import DriverError, InvalidValueError
from tests.process.driven_base import SPEED, UdpBase, robot
from tests.process.toy import serving

HERE = Path(__file__).parent
PROGRAM = (sys.executable, str(HERE / "driven_base.py"))
ENV = os.environ | {"PYTHONPATH": str(HERE.parents[1]), "PYTHONUNBUFFERED": "1"}
SOON_S = 0.25
"""From the end of the program to the zero twist, where the machine is free."""
TWISTS = rr.ActionSpec(fields=(rr.BaseTwist(),), horizon=40, dt_ns=50_000_000)


@rr.policy(rr.PolicyInfo(name="ahead", action_spec=TWISTS))
def ahead(observation):
    return np.tile([SPEED, 0.0, 0.0], (TWISTS.horizon, 1))


@pytest.fixture(scope="module")
def server():
    with serving(ahead, heartbeat_ns=10**9) as server:
        yield server.address


class Driven:
    """A base, and a program that drives it."""

    def __init__(self, folder: Path, how: str, server: str) -> None:
        self.log = folder / "twists"
        self._base = subprocess.Popen(
            [*PROGRAM, "base", str(self.log)], env=ENV, stdout=subprocess.PIPE, text=True
        )
        assert self._base.stdout is not None
        port = self._base.stdout.readline().strip()
        self.program = subprocess.Popen(
            [*PROGRAM, how, port, server],
            env=ENV,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )

    @property
    def output(self) -> IO[str]:
        assert self.program.stdout is not None
        return self.program.stdout

    def __enter__(self) -> "Driven":
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.program, self._base):
            process.kill()
            process.wait()

    def twists(self) -> list[tuple[int, float]]:
        """When each came to the base [ns], and its speed [m/s]."""
        lines = self.log.read_text().splitlines(keepends=True)
        return [(int(t), float(v)) for t, v in (line.split() for line in lines if line.endswith("\n"))]

    def until_it_drives(self) -> None:
        deadline_s = time.monotonic() + 60.0
        while not self.log.exists() or self.last() < 0.9 * SPEED:
            assert self.program.poll() is None, self.output.read()
            assert time.monotonic() < deadline_s
            time.sleep(0.01)

    def last(self) -> float:
        return self.twists()[-1][1] if self.twists() else 0.0

    def rest_after_s(self, from_ns: int) -> float:
        """How long after a time the base was sent the zero twist with which it stays [s]."""
        deadline_s = time.monotonic() + 20.0
        while self.last() != 0.0 or time.monotonic_ns() - self.twists()[-1][0] < 300_000_000:
            assert time.monotonic() < deadline_s, self.twists()[-3:]
            if self.last() == 0.0 and self.program.poll() is not None:
                break
            time.sleep(0.01)
        moving = [t for t, speed in self.twists() if speed != 0.0]
        zero_ns = next(t for t, _ in self.twists() if t > moving[-1])
        return (zero_ns - from_ns) / 1e9


def until_soon(folder: Path, how: str, server: str, number: int, soon_s: float = SOON_S) -> Iterator[Driven]:
    """Programs that were sent a signal, until one has its base at rest in time: a machine that does something
    else may be late, not each time."""
    taken_s: list[float] = []
    while not taken_s or (min(taken_s) >= soon_s and len(taken_s) < 3):
        (here := folder / str(len(taken_s))).mkdir()
        with Driven(here, how, server) as driven:
            driven.until_it_drives()
            sent_ns = time.monotonic_ns()
            driven.program.send_signal(number)
            taken_s.append(driven.rest_after_s(sent_ns))
            yield driven
    assert min(taken_s) < soon_s, taken_s


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGHUP, -signal.SIGHUP),
        (signal.SIGINT, -signal.SIGINT),
        (signal.SIGQUIT, -signal.SIGQUIT),
        (signal.SIGTSTP, None),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_a_signal_brings_the_base_to_rest_and_then_does_what_it_would_have_done(
    tmp_path, server, number, code
):
    for driven in until_soon(tmp_path, "run", server, number):
        if code is None:
            assert os.waitid(os.P_PID, driven.program.pid, os.WSTOPPED).si_status == number
        else:
            assert driven.program.wait(30.0) == code
            assert "run has returned" not in driven.output.read()


def test_a_handler_of_the_programs_own_gets_the_signal_once_the_base_is_at_rest(tmp_path, server):
    with Driven(tmp_path, "handler", server) as driven:
        driven.until_it_drives()
        driven.program.send_signal(signal.SIGTERM)
        assert driven.program.wait(20.0) == 0
        assert driven.last() == 0.0
        assert driven.output.read().splitlines()[-2:] == ["the program's own handler", "run has returned"]


@pytest.mark.real_time
@pytest.mark.parametrize("how", ["body", "stubborn body", "c"])
def test_a_signal_stops_the_base_though_the_program_is_stuck_between_two_ticks(tmp_path, server, how):
    for driven in until_soon(tmp_path, how, server, signal.SIGTERM):
        assert driven.program.wait(30.0) in (-signal.SIGTERM, 128 + signal.SIGTERM)


@pytest.mark.parametrize(
    ("how", "code"), [("exit", 3), ("error", 1), ("left open", 0), ("daemon", 0), ("thread", 0)]
)
def test_the_end_of_a_program_brings_the_base_to_rest(tmp_path, server, how, code):
    with Driven(tmp_path, how, server) as driven:
        assert driven.program.wait(60.0) == code, driven.output.read()
        assert max(speed for _, speed in driven.twists()) > 0.9 * SPEED
        assert driven.last() == 0.0


def test_a_session_outside_the_main_thread_says_what_signals_do(tmp_path, server):
    with Driven(tmp_path, "thread", server) as driven:
        assert "outside the main thread" in driven.output.read()


def test_a_process_forked_in_mid_run_ends_on_a_signal_and_the_run_goes_on(tmp_path, server):
    with Driven(tmp_path, "fork", server) as driven:
        assert driven.program.wait(60.0) == 0
        assert f"worker {-signal.SIGTERM}" in driven.output.read()
        assert driven.last() == 0.0


@pytest.mark.real_time
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGTERM], ids=lambda n: n.name
)
def test_a_driver_in_a_process_of_its_own_stops_the_base_though_the_program_is_killed(
    tmp_path, server, number
):
    for _ in until_soon(tmp_path, "isolated", server, number, soon_s=SOON_S + 0.1):
        pass


@pytest.mark.parametrize("silence_s", [None, 0.0, 60.0, float("nan"), "soon"])
def test_a_base_that_would_drive_on_after_the_program_has_died_is_refused(silence_s):
    with (
        pytest.raises(DriverError, match=r"driven at a speed and has .*silence_s.*Isolated"),
        rr.Session(robot(UdpBase(9, silence_s))),
    ):
        pass


def test_an_isolated_driver_says_what_is_wrong(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import time, numpy as np, robot_runtime as rr\n"
        "class Base:\n"
        "    n = 0\n"
        "    def read(self):\n"
        "        self.n += 1\n"
        "        if self.n > 3: raise OSError('cable pulled')\n"
        "        return rr.BaseState(t_ns=time.monotonic_ns(), x_WB=np.zeros(3), V_WB_B=np.zeros(3))\n"
        "    def write(self, command): pass\n"
        "    def stop(self): pass\n"
    )
    with pytest.raises(InvalidValueError, match="expected silence_s above 0"):
        Isolated("mine.py:Base", silence_s=2.0)
    with pytest.raises(DriverError, match="no attribute 'Bass'"):
        Isolated(f"{tmp_path}/mine.py:Bass")
    base = Isolated(f"{tmp_path}/mine.py:Base")
    with pytest.raises(DriverError, match="cable pulled"):
        [base.read() for _ in iter(lambda: time.sleep(0.01), 0)]
    base.close()
    with pytest.raises(DriverError, match="closed"):
        base.write(BaseTwistCommand(V_WB_B=np.zeros(3)))
