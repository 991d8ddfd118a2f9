"""Rows 14 and 15: the disk is full, and the recording is ended by a signal."""

import contextlib
import importlib.util
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.action import NS_PER_S, Command, GripperCommand, JointCommand
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.dataset.recorder import DatasetRecorder
from robot_runtime.dataset.recording import Recording
from scripts.bench.faults.rig import Running, missed_ticks, run, surprises
from scripts.bench.faults.servers import PolicyProcess, Swing
from scripts.bench.faults.table import Injection, fault

SIZE, NUM_EPISODES, NUM_FRAMES = (32, 48), 4, 6
SCHEMA = Schema(
    action_fields=(), num_joints=7, has_gripper=True, has_base=False, cameras={"chest": SIZE, "wrist": SIZE}
)
RECORDING = Recording(schema=SCHEMA)
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def recording_processes() -> ForkServerContext:
    """Return the context that forks processes which have imported LeRobot."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lerobot.datasets.lerobot_dataset", "robot_runtime.dataset.recorder"])
    return context


def number(episode: int, frame: int) -> float:
    """Return the value of joint 0 in a frame, which identifies the frame."""
    return float(1000 * episode + frame)


def write(folder: Path, pipe: Connection, num_episodes: int) -> None:
    """Record episodes, and send the number of finished ones after each."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # where Python prints how it was ended
    with DatasetRecorder(folder, RECORDING, resume=True) as recorder:
        first = recorder.num_episodes
        for episode in range(first, first + num_episodes):
            record_episode(recorder, episode)
            pipe.send(recorder.num_episodes)


def record_episode(recorder: DatasetRecorder, episode: int) -> None:
    """Record one complete episode."""
    for k in range(NUM_FRAMES):
        q = np.full(7, number(episode, k))
        t_ns = 50_000_000 * (k + 1)
        state = RobotState(t_ns=t_ns, q=q, dq=np.zeros(7), X_BE=pin.SE3.Identity(), gripper_width=0.04)
        pixels = np.full((*SIZE, 3), 20 * k, np.uint8)
        images = {name: Image(t_ns=t_ns, pixels=pixels) for name in SCHEMA.cameras}
        seen = Observation(state=state, images=images, task=f"task {episode % 3}")
        recorder.add(seen, Command(arm=JointCommand(q=q), gripper=GripperCommand(width=0.01)))
    recorder.end_episode(keep=True)


def missing(folder: Path, finished: int) -> str:
    """Return what stock LeRobot does not find of `finished` episodes; empty if all is there."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    if finished == 0 and not (folder / "meta/info.json").exists():
        return ""
    try:
        dataset = LeRobotDataset(folder.name, root=folder, video_backend="pyav")
        if dataset.num_episodes < finished:
            return f"{dataset.num_episodes} episodes of {finished}"
        ends = dataset.meta.episodes["dataset_to_index"]
        seen = sorted({0, *ends[:-1], *(end - 1 for end in ends[: dataset.num_episodes])})
        for i in seen:  # the first and the last frame of each episode, with their pictures
            if why := wrong_in(dataset[i], i):
                return why
        columns = dataset.hf_dataset.with_format("numpy")[: dataset.num_frames]
        if columns["index"].tolist() != list(range(dataset.num_frames)):
            return "its frames are not numbered one after the other"
        states = columns["observation.state"][:, 0]
        if states.tolist() != [number(*divmod(i, NUM_FRAMES)) for i in range(len(states))]:
            return "its frames have the numbers of others"
    except Exception as error:  # any error of LeRobot is the finding
        return f"{type(error).__name__}: {error}"
    return ""


def wrong_in(frame: dict[str, Any], i: int) -> str:
    """Return what is wrong in frame i of a dataset of `write`; empty: nothing."""
    episode, k = divmod(i, NUM_FRAMES)
    if (int(frame["episode_index"]), int(frame["frame_index"])) != (episode, k):
        return f"frame {i} says it is {frame['frame_index']} of episode {frame['episode_index']}"
    if frame["task"] != f"task {episode % 3}":
        return f"frame {i} is of {frame['task']!r}"
    off = abs(float(frame["observation.images.wrist"].mean()) * 255 - 20 * k)
    return f"the picture of frame {i} is {off:.0f} of 255 off" if off > 6 else ""


def killed_recorder(folder: Path, moment_s: float, number: int) -> tuple[int, bool]:
    """Kill a recorder; return the episodes reported as finished before the signal, and whether it came in
    time."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = recording_processes().Process(target=write, args=(folder, theirs, NUM_EPISODES))
    process.start()
    theirs.close()
    process.join(moment_s)
    was_alive, pid = process.is_alive(), process.pid
    if was_alive and pid is not None:
        os.kill(pid, number)
    process.join()
    finished = 0
    with contextlib.suppress(EOFError):
        while ours.poll():
            finished = ours.recv()
    return finished, was_alive


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


@fault(
    14,
    "disk full",
    how="a recording beside the robot onto a tmpfs of 0.5 to 1 MB of its own",
    behaviour="the recording ends and says so; what was finished is whole; the robot goes on",
    figures={
        "finished episodes lost": 0.0,
        "missed ticks": 1.0,
        "episodes before": None,
    },
    times=8,
    missing=no_small_disk,
)
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
            lost = missing(data, finished)
            print(
                json.dumps({"full_ns": full_ns, "finished": finished, "lost": lost, "otherwise": otherwise}),
                flush=True,
            )
            subprocess.run(["umount", folder], check=True)


# ---- 15: the recording is killed ---------------------------------------------------------------------------


@fault(
    15,
    "recording killed",
    how="kill -9, SIGTERM or SIGINT at a drawn moment, three times in each folder; read by stock LeRobot",
    behaviour="finished episodes are whole; the one under way is not there; the next recording goes on",
    figures={
        "finished episodes lost": 0.0,
        "killed before its end": None,
        "episodes before": None,
    },
    times=12,
    missing=no_recorder,
)
def killed_recordings(times: int) -> Iterator[Injection]:
    """End recordings by signals at random moments, three times in each folder."""
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
    """End recordings in a process that may import LeRobot; print a line of JSON for each."""

    os.environ["OMP_NUM_THREADS"] = "1"
    rng = random.Random(15)
    with tempfile.TemporaryDirectory() as folder:
        killed_recorder(Path(folder) / "warm", 60.0, signal.SIGKILL)
        start_s = time.monotonic()
        killed_recorder(Path(folder) / "whole", 60.0, signal.SIGKILL)
        whole_s = time.monotonic() - start_s
        for i in range(times):
            data = Path(folder) / f"dataset-{i - i % 3}"
            finished, in_time = killed_recorder(data, rng.uniform(0.0, whole_s), rng.choice(SIGNALS))
            lost = missing(data, finished)
            print(json.dumps({"finished": finished, "in_time": in_time, "lost": lost}), flush=True)
