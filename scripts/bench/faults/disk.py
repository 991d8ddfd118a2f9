"""Rows 14 and 15: the disk is full, and the recording is killed."""

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from robot_runtime.core.values.action import NS_PER_S
from scripts.bench.faults.policies import Swing
from scripts.bench.faults.rig import Running, missed_ticks, run, surprises
from scripts.bench.faults.servers import PolicyProcess
from scripts.bench.faults.table import Fault, Figure, Injection

_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
"""Command prefix with which a disk can be mounted without being root."""


def no_recorder() -> str:
    return "" if importlib.util.find_spec("lerobot") else "needs the extra lerobot"


def no_small_disk() -> str:
    try:
        subprocess.run([*_NAMESPACE, "true"], check=True, capture_output=True, timeout=10.0)
    except (OSError, subprocess.SubprocessError) as error:
        return f"needs a mount namespace, to fill a disk of its own: {error}"
    return no_recorder()


def _lines(command: list[str]) -> Iterator[dict]:
    """Yield the output of a child process, one JSON value a line."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            yield json.loads(line)
        if process.wait():
            raise RuntimeError(
                f"the recording's process ended with {process.returncode}: {process.stderr.read()[-300:]}"
            )


# ---- 14: the disk is full ----------------------------------------------------------------------------------

AROUND_NS = NS_PER_S // 4


def full_disks(times: int) -> Iterator[Injection]:
    """Run a robot while a recording beside it fills one small disk after the other."""
    program = f"from {__name__} import in_small_disks; in_small_disks({times})"
    found: list[dict] = []

    def interfere(running: Running) -> None:
        for each in _lines([*_NAMESPACE, sys.executable, "-c", program]):
            found.append(each)

    with PolicyProcess(Swing) as server:
        of = run(server.address, interfere)
    for each in found:
        full_ns = each["full_ns"]
        yield Injection(
            figures={
                "finished episodes lost": float(bool(each["lost"])),
                "missed ticks": missed_ticks(of, full_ns - AROUND_NS, full_ns + AROUND_NS),
                "episodes before": float(each["finished"]),
            },
            surprises=tuple(filter(None, (each["lost"], each["otherwise"]))),
        )
    yield Injection(surprises=surprises(of), count=0)


def in_small_disks(times: int) -> None:
    """Record onto disks of random size until they are full, in a mount namespace; print a line of JSON for
    each."""
    from robot_runtime.dataset.recorder import DatasetRecorder
    from robot_runtime.dataset.staged_episode import RecordingFailedError
    from scripts.bench.faults.recordings import RECORDING, missing, record_episode

    rng = random.Random(14)
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            kilobytes = rng.randint(500, 1000)
            mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder]
            subprocess.run(mount, check=True)
            data, outcome = Path(folder) / "dataset", "it took all"
            with DatasetRecorder(data, RECORDING) as recorder:
                try:
                    for episode in range(1000):
                        record_episode(recorder, episode)
                except RecordingFailedError as error:
                    outcome = str(error)
                full_ns, finished = time.monotonic_ns(), recorder.num_episodes
            otherwise = "" if "the disk is full" in outcome else f"a full disk was called: {outcome}"
            lost = missing(data, finished, numbered=True)
            print(
                json.dumps({"full_ns": full_ns, "finished": finished, "lost": lost, "otherwise": otherwise}),
                flush=True,
            )
            subprocess.run(["umount", folder], check=True)


# ---- 15: the recording is killed ---------------------------------------------------------------------------


def killed_recordings(times: int) -> Iterator[Injection]:
    """Kill recordings with kill -9 at random moments, three times in each folder."""
    program = f"from {__name__} import in_kills; in_kills({times})"
    for each in _lines([sys.executable, "-c", program]):
        lost = (each["lost"],) if each["lost"] else ()
        yield Injection(
            figures={
                "finished episodes lost": float(bool(lost)),
                "killed before its end": float(each["in_time"]),
                "episodes before": float(each["finished"]),
            },
            surprises=lost,
        )


def in_kills(times: int) -> None:
    """Kill recordings in a process that may import LeRobot; print a line of JSON for each."""
    from scripts.bench.faults.recordings import killed_recorder, missing

    os.environ["OMP_NUM_THREADS"] = "1"
    rng = random.Random(15)
    with tempfile.TemporaryDirectory() as folder:
        killed_recorder(Path(folder) / "warm", 60.0, signal.SIGKILL)
        start_s = time.monotonic()
        killed_recorder(Path(folder) / "whole", 60.0, signal.SIGKILL)
        whole_s = time.monotonic() - start_s
        for i in range(times):
            data = Path(folder) / f"dataset-{i - i % 3}"
            finished, in_time = killed_recorder(data, rng.uniform(0.0, whole_s), signal.SIGKILL)
            lost = missing(data, finished, numbered=True)
            print(json.dumps({"finished": finished, "in_time": in_time, "lost": lost}), flush=True)


ROWS = (
    Fault(
        number=14,
        name="disk full",
        how="a recording beside the robot onto a tmpfs of 0.5 to 1 MB of its own",
        behaviour="the recording ends and says so; what was finished is whole; the robot goes on",
        figures=(
            Figure(name="finished episodes lost", most=0.0),
            Figure(name="missed ticks", most=1.0),
            Figure(name="episodes before"),
        ),
        inject=full_disks,
        times=8,
        missing=no_small_disk,
    ),
    Fault(
        number=15,
        name="recording killed",
        how="kill -9 at a drawn moment, three times in each folder; read by stock LeRobot",
        behaviour="finished episodes are whole; the one under way is not there; the next recording goes on",
        figures=(
            Figure(name="finished episodes lost", most=0.0),
            Figure(name="killed before its end"),
            Figure(name="episodes before"),
        ),
        inject=killed_recordings,
        times=12,
        missing=no_recorder,
    ),
)
