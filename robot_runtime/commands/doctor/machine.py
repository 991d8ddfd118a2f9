"""Checks of the machine: kernel, rights, clocks, timers, disk. They change nothing."""

import gc
import os
import platform
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from robot_runtime.clock import MonotonicClock
from robot_runtime.commands.doctor.finding import Finding, doubtful, fine, wrong
from robot_runtime.robot.scheduling import Pacer, real_time_thread

_SYS = Path("/sys")
_PRIORITY = 50
"""Priority of the control thread."""
_BYTES = 16 << 20
"""Size of the trial write [bytes]."""


def look_at_machine(control_hz: float, *, seconds: float = 2.0) -> Iterator[Finding]:
    """Check the machine.

    control_hz: rate of the control loop. seconds: how long to test its timer.
    """
    yield _kernel()
    yield _rights()
    yield _governor()
    yield _clock_source()
    yield _wall_clock()
    yield _timer(control_hz, seconds)
    yield _busy()
    yield _disk(Path.cwd())


def _kernel() -> Finding:
    is_real_time = _text(_SYS / "kernel/realtime") == "1" or "PREEMPT_RT" in platform.version()
    found = f"Linux {platform.release()}, {'PREEMPT_RT' if is_real_time else 'no PREEMPT_RT'}"
    if is_real_time:
        return fine("kernel", found)
    return doubtful(
        "kernel",
        found,
        "a Franka needs it: sudo apt install linux-image-rt-amd64 (Ubuntu: sudo pro enable realtime-kernel)",
    )


def _rights() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_RTPRIO)
    got: list[str] = []

    def ask() -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
            got.append("granted")
        except PermissionError:
            pass

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    if got:
        return fine("real-time rights", f"SCHED_FIFO at priority {_PRIORITY}")
    user = os.environ.get("USER", "you")
    return doubtful(
        "real-time rights",
        f"no SCHED_FIFO at priority {_PRIORITY} (rtprio {soft})",
        f"echo '{user} - rtprio 99' | sudo tee -a /etc/security/limits.conf, and log in again",
    )


def _governor() -> Finding:
    found = {
        text
        for path in sorted(_SYS.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"))
        if (text := _text(path))
    }
    if not found:
        return fine("CPU governor", "none: the frequency is not scaled, or not by this system")
    if found == {"performance"}:
        return fine("CPU governor", "performance")
    return doubtful(
        "CPU governor", ", ".join(sorted(found)), "sudo cpupower frequency-set --governor performance"
    )


def _clock_source() -> Finding:
    source = _text(_SYS / "devices/system/clocksource/clocksource0/current_clocksource") or "unknown"
    start, n = time.perf_counter_ns(), 20_000
    for _ in range(n):
        time.monotonic_ns()
    each_ns = (time.perf_counter_ns() - start) / n
    found = f"{source}, {each_ns:.0f} ns a read"
    if each_ns < 1000.0:
        return fine("monotonic clock", found)
    return doubtful(
        "monotonic clock", found, "a slow clock source: add tsc=reliable to the kernel's command line"
    )


def _wall_clock() -> Finding:
    """Check the wall clock, which only files' dates and a server's log use."""
    year = time.gmtime().tm_year
    found = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    if year < 2025:
        return wrong("wall clock", found, "sudo timedatectl set-ntp true")
    return fine("wall clock", f"{found} (for dates only; the robot runs by the monotonic clock)")


def _timer(control_hz: float, seconds: float) -> Finding:
    """Test the control loop's timer, without a robot."""
    clock, period_ns = MonotonicClock(), round(1e9 / control_hz)
    late: list[int] = []
    skipped = 0

    def tick() -> None:
        nonlocal skipped
        with real_time_thread():
            pacer = Pacer(clock, period_ns=period_ns)
            for _ in range(round(seconds * control_hz)):
                beat = pacer.wait()
                late.append(beat.lateness_ns)
                skipped += beat.num_skipped

    was_collecting = gc.isenabled()
    thread = threading.Thread(target=tick)
    thread.start()
    thread.join()
    if was_collecting:
        gc.enable()
    p50, p99, worst = (np.quantile(late, q) / 1e6 for q in (0.5, 0.99, 1.0))
    found = (
        f"{control_hz:g} Hz: late by {p50:.2f} ms at the median, {p99:.2f} at p99, {worst:.2f} at worst, "
        f"{skipped} of {len(late)} ticks skipped"
    )
    if p99 * 1e6 <= 0.1 * period_ns and not skipped:
        return fine("timer", found)
    return doubtful(
        "timer", found, "close other programs, get the real-time rights above, or lower control_hz"
    )


def _busy() -> Finding:
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    found = f"load {load:.1f} on {cores} cores"
    if load <= 0.7 * cores:
        return fine("CPUs", found)
    return doubtful("CPUs", found, "other programs run: `top` names them")


def _disk(folder: Path) -> Finding:
    free_gb = shutil.disk_usage(folder).free / 1e9
    try:
        content = os.urandom(_BYTES)
        with tempfile.TemporaryFile(dir=folder) as file:
            start = time.monotonic()
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            speed = _BYTES / 1e6 / max(time.monotonic() - start, 1e-6)
    except OSError as error:
        return wrong("disk", f"{folder} cannot be written: {error.strerror}", f"free space on {folder}")
    found = f"{free_gb:.0f} GB free here, written at {speed:.0f} MB/s"
    if free_gb >= 5.0 and speed >= 20.0:
        return fine("disk", found)
    return doubtful("disk", found, f"recordings go here: free space, or a faster disk, at {folder}")


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
