"""A base that is a process of its own: it goes on with the last twist that it was sent, and writes down each.

python driven_base.py base LOG            the base; prints its port
python driven_base.py HOW PORT SERVER     a user's program that drives it, and ends as HOW says
"""

import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

import numpy as np

import robot_runtime as rr
from drivers.isolated import Isolated

SPEED = 0.3
"""[m/s]"""


class UdpBase:
    """A base without a timeout of its own, unless it is said."""

    def __init__(self, port: int, silence_s: float | None = 0.25) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(("127.0.0.1", port))
        self._twist, self._x_WB, self._t_ns = np.zeros(3), np.zeros(3), time.monotonic_ns()
        if silence_s is not None:
            self.silence_s = silence_s

    def read(self):
        now_ns = time.monotonic_ns()
        self._x_WB = self._x_WB + self._twist * (now_ns - self._t_ns) / 1e9  # it never turns
        self._t_ns = now_ns
        return rr.BaseState(t_ns=now_ns, x_WB=self._x_WB, V_WB_B=self._twist)

    @property
    def is_at_speed(self) -> bool:
        return bool(self._twist[0] > 0.9 * SPEED)

    def write(self, command):
        self._twist = command.V_WB_B
        self._socket.send(repr(float(self._twist[0])).encode())

    def stop(self):
        self._twist = np.zeros(3)
        self._socket.send(b"0.0")


def base(log: str) -> None:
    """Writes the time [ns] and the speed of every twist that comes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours, open(log, "w", buffering=1) as lines:
        ours.bind(("127.0.0.1", 0))
        say(ours.getsockname()[1])
        while True:
            speed = ours.recv(100).decode()
            lines.write(f"{time.monotonic_ns()} {speed}\n")


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def robot(driver: object) -> rr.Robot:
    one = np.ones(3)
    return rr.Robot(
        base=driver, limits=rr.Limits(base=rr.MotionLimits(speed=one, acceleration=6 * one, jerk=400 * one))
    )


def drive(how: str, port: int, server: str) -> None:
    """A user's program; it says "driving" once the base is at speed."""
    options = {"policy": server, "control_hz": 100.0, "use_fifo": False}
    driven = robot(Isolated(UdpBase, port=port) if how == "isolated" else UdpBase(port))
    if how in ("run", "isolated"):
        rr.run(driven, **options)
        say("run has returned")
    elif how == "handler":
        import signal

        signal.signal(signal.SIGTERM, lambda number, frame: say("the program's own handler"))
        rr.run(driven, **options)
        say("run has returned")
    elif how == "body":
        loop(driven, options, lambda: time.sleep(600.0))
    elif how == "stubborn body":
        loop(driven, options, stubborn)
    elif how == "c":
        loop(driven, options, wait_in_c)
    elif how == "exit":
        loop(driven, options, lambda: sys.exit(3))
    elif how == "error":
        loop(driven, options, lambda: 1 / 0)
    elif how == "left open":
        session = rr.Session(driven, **options)
        session.__enter__()
        for _ in session:
            if driven.base.is_at_speed:
                break
    elif how in ("daemon", "thread"):
        Thread(target=loop, args=(driven, options, lambda: None), daemon=how == "daemon").start()
        while not driven.base.is_at_speed:
            time.sleep(0.01)
    elif how == "fork":
        loop(driven, options, fork)


def loop(driven: rr.Robot, options: dict, then: Callable[[], object]) -> None:
    with rr.Session(driven, **options) as session:
        for _ in session:
            if driven.base.is_at_speed:
                then()


def stubborn() -> None:
    while True:
        with suppress(BaseException):
            time.sleep(600.0)


def wait_in_c() -> None:
    """In C code, without the interpreter lock, that goes on after a signal."""
    import ctypes

    libc = ctypes.CDLL(None)
    while True:
        libc.usleep(10_000_000)


def fork() -> None:
    """A worker of the user's, forked in mid-run, is ended as usual."""
    import signal

    if (pid := os.fork()) == 0:
        time.sleep(600.0)
        os._exit(0)
    os.kill(pid, signal.SIGTERM)
    say("worker", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    time.sleep(0.05)
    raise SystemExit(0)


if __name__ == "__main__":
    if sys.argv[1] == "base":
        base(sys.argv[2])
    else:
        drive(sys.argv[1], int(sys.argv[2]), sys.argv[3])
