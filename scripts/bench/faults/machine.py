"""Rows 8 and 9: the machine's wall clock is set, and its cores are taken away."""

import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.robot.link import SERVER_LOST
from scripts.bench.faults.rig import (
    ORDINARY,
    PERIOD_S,
    Run,
    Running,
    missed_ticks,
    num_stale,
    run,
    surprises,
)
from scripts.bench.faults.servers import PolicyProcess, Swing, fresh_processes
from scripts.bench.faults.table import Injection, fault

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *offset_s;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("WALL_CLOCK_FILE"), O_RDONLY);
    offset_s = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, out);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) out->tv_sec += *offset_s;
    return failed;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


def no_compiler() -> str:
    return "" if shutil.which("cc") else "needs a C compiler (cc), for a wall clock of its own"


class WallClock:
    """Wall clock of the processes that are started with `env`, and of their children."""

    def __init__(self, folder: Path) -> None:
        self._file, library = folder / "offset", folder / "wall_clock.so"
        self._file.write_bytes(bytes(8))
        compiler = ["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library), "-ldl"]
        subprocess.run(compiler, input=_SOURCE, text=True, check=True, capture_output=True)
        self.env: Mapping[str, str] = os.environ | {
            "LD_PRELOAD": str(library),
            "WALL_CLOCK_FILE": str(self._file),
        }


def set_by(offset_s: int) -> None:
    """Set the clock to an offset from the machine's own, for all such processes; call it in one of them
    [s]."""
    with open(os.environ["WALL_CLOCK_FILE"], "r+b") as file, mmap.mmap(file.fileno(), 8) as memory:
        memory[:] = struct.pack("<q", offset_s)


# ---- 8: the wall clock -------------------------------------------------------------------------------------

STEPS_S = (3600, -3600, 0, -86_400, 86_400, -1, 0, 1, 7 * 86_400)


@fault(
    8,
    "wall clock set",
    how="the wall clock of robot and server (a library in between) goes by a second, an hour, a day, a "
    "week, and back",
    behaviour="nothing: only the monotonic clock counts",
    figures={
        "held, or lost the server": 0.0,
        "stale rows run": 0.0,
        "missed ticks": None,
        "oldest observation run [s]": 0.45,
        "wall clock set by, at least [s]": None,
    },
    missing=no_compiler,
)
def set_clocks(times: int) -> Iterator[Injection]:
    """Run robot and server in processes whose wall clock is set again and again."""
    with TemporaryDirectory() as folder:
        program = f"from {__name__} import in_set_time; in_set_time({times})"
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=WallClock(Path(folder)).env,
            capture_output=True,
            text=True,
            timeout=60.0 + times,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"the robot's process ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    yield Injection(**json.loads(done.stdout.splitlines()[-1]))


def in_set_time(times: int) -> None:
    """Run a robot in a process with a `WallClock`, set the clock, and print an `Injection` as JSON."""
    before_s: list[float] = []

    def interfere(running: Running) -> None:
        assert running.wait_until_it_moves()
        running.mark("first")
        for i in range(times):
            time.sleep(0.12)
            then_s = time.time()
            set_by(STEPS_S[i % len(STEPS_S)])
            before_s.append(abs(time.time() - then_s))
        time.sleep(0.2)

    with PolicyProcess(Swing) as server:
        of = run(server.address, interfere)
    print(json.dumps(asdict(_of_set_clock(of, before_s))), flush=True)


def _of_set_clock(of: Run, stepped_s: list[float]) -> Injection:
    first_ns = of.moments["first"][0]
    return Injection(
        figures={
            "wall clock set by, at least": min(each for each in stepped_s),
            "held, or lost the server": float(_was_troubled(of, first_ns)),
            "stale rows run": float(num_stale(of)),
            "missed ticks": missed_ticks(of, first_ns),
            "oldest observation run": max(t.age_ns or 0 for t in of.record.ticks if t.mode is Mode.RUN)
            / NS_PER_S,
        },
        surprises=surprises(of),
        count=len(stepped_s),
    )


def _was_troubled(of: Run, since_ns: int) -> bool:
    held = of.first_tick(since_ns, lambda tick: tick.mode is Mode.HOLD)
    return held is not None or of.said(SERVER_LOST) is not None


# ---- 9: cores and the interpreter --------------------------------------------------------------------------

WAYS = {
    "idle": "idle",
    "cores": "all cores busy",
    "thread": "and a thread that computes",
    "grab": "and one that holds on",
}
RUN_S = 2.0
GRAB_S = 0.05


@fault(
    9,
    "cores and interpreter busy",
    how="a busy process for each core and one more; a thread that computes in Python; one that holds the "
    "interpreter for 50 ms, five times a second",
    behaviour="a tick that comes late goes on from where the commands were, and is counted; HOLD where "
    "the interpreter was held between the reading of two parts",
    figures={
        "late, idle [% of a period, p99]": None,
        "late, all cores busy [% of a period, p99]": 10.0,
        "late, and a thread that computes [% of a period, p99]": None,
        "missed ticks, idle": None,
        "missed ticks, all cores busy": 1.0,
        "missed ticks, and a thread that computes": None,
        "missed ticks, and one that holds on": None,
        "stale rows run": 0.0,
    },
    times=16,
)
def take_cores(times: int) -> Iterator[Injection]:
    """Run beside one busy process more than there are cores, and with threads here that compute."""
    for i in range(times):
        way = tuple(WAYS)[i % len(WAYS)]
        with ExitStack() as busy:
            for _ in range((os.cpu_count() or 1) + 1 if way != "idle" else 0):
                busy.callback(burning().kill)
            yield overloaded(way)


def overloaded(way: str) -> Injection:
    """Run under load. way: one of `WAYS`."""
    over = threading.Event()

    def interfere(running: Running) -> None:
        assert running.wait_until_it_moves(10.0)
        time.sleep(0.2)
        running.mark("busy")
        thread = threading.Thread(target=_BESIDE.get(way, _nothing), args=(over,))
        thread.start()
        time.sleep(RUN_S)
        running.mark("over")
        over.set()
        thread.join()

    with PolicyProcess(Swing) as server:
        of = run(server.address, interfere)
    (start_ns,), (end_ns,) = of.moments["busy"], of.moments["over"]
    late = lateness_ns(of, start_ns, end_ns)
    figures = {
        f"late, {WAYS[way]}": float(np.quantile(late, 0.99)) / NS_PER_S / PERIOD_S * 100.0,
        f"missed ticks, {WAYS[way]}": missed_ticks(of, start_ns, end_ns),
        "stale rows run": float(num_stale(of)),
    }
    causes = {*ORDINARY, Cause.CLOCKS_DISAGREE} if way == "grab" else ORDINARY
    return Injection(figures=figures, surprises=surprises(of, causes=causes))


def lateness_ns(of: Run, start_ns: int, end_ns: int) -> np.ndarray:
    """Return the lateness of ticks, relative to deadlines that half of them meet [ns]."""
    period_ns = round(PERIOD_S * NS_PER_S)
    times = np.array([tick.now_ns for tick in of.between(start_ns, end_ns)])
    usual = np.median((times - times[0] + period_ns // 2) % period_ns) - period_ns // 2
    off = (times - times[0] - usual) % period_ns
    early = off > 0.95 * period_ns
    return np.where(early, 0.0, off)


def burning() -> BaseProcess:
    process = fresh_processes().Process(target=burn, daemon=True)
    process.start()
    return process


def burn() -> None:
    """Keep a core busy until killed."""
    while True:
        pass


def _compute(over: threading.Event) -> None:
    number = 0
    while not over.is_set():
        number = (number * 1_103_515_245 + 12_345) % 2**31


def _grab(over: threading.Event) -> None:
    """Hold the interpreter lock for about 50 ms at a time, in a C call that does not release it."""
    numbers = list(np.random.default_rng(9).random(100_000))
    start_s = time.perf_counter()
    sorted(numbers)
    size = max(1000, round(len(numbers) * GRAB_S / (time.perf_counter() - start_s)))
    numbers = list(np.random.default_rng(9).random(size))
    while not over.wait(0.2):
        sorted(numbers)


def _nothing(over: threading.Event) -> None: ...


_BESIDE = {"thread": _compute, "grab": _grab}
