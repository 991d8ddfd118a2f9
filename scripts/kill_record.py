"""Kill a recording at random moments and read what is left with stock LeRobot.

    uv run --extra lerobot scripts/kill_record.py --times 100           the recorder in a process of its own
    uv run --extra lerobot --extra sim scripts/kill_record.py --times 12 --command      robot-runtime record

Each time: record episodes with pictures into a folder, end the process by a signal at a moment drawn by the
seed, read all numbers and the first and last pictures of every episode that had been said to be finished, and
go on in the folder with another recording, three times in a row. Exit code 1 if anything was lost.
"""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin

from robot_runtime.cli.options import Count, Seed
from robot_runtime.cli.script import run_script
from robot_runtime.core.values.action import Command, GripperCommand, JointCommand
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.robot.recorder import DatasetRecorder
from robot_runtime.robot.recording import Recording

SIZE, NUM_EPISODES, NUM_FRAMES = (32, 48), 4, 6
SCHEMA = Schema(
    action_fields=(), num_joints=7, has_gripper=True, has_base=False, cameras={"chest": SIZE, "wrist": SIZE}
)
RECORDING = Recording(schema=SCHEMA)
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def number(episode: int, frame: int) -> float:
    """What joint 0 says in a frame: where it belongs."""
    return float(1000 * episode + frame)


def write(folder: Path, pipe: Connection, num_episodes: int) -> None:
    """Record episodes, telling how many are finished after each."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # where Python says how it was ended
    with DatasetRecorder(folder, RECORDING, resume=True) as recorder:
        for episode in range(recorder.num_episodes, recorder.num_episodes + num_episodes):
            for k in range(NUM_FRAMES):
                q = np.full(7, number(episode, k))
                t_ns = 50_000_000 * (k + 1)
                state = RobotState(
                    t_ns=t_ns, q=q, dq=np.zeros(7), X_BE=pin.SE3.Identity(), gripper_width=0.04
                )
                pixels = np.full((*SIZE, 3), 20 * k, np.uint8)
                images = {name: Image(t_ns=t_ns, pixels=pixels) for name in SCHEMA.cameras}
                seen = Observation(state=state, images=images, task=f"task {episode % 3}")
                recorder.add(seen, Command(arm=JointCommand(q=q), gripper=GripperCommand(width=0.01)))
            recorder.end_episode(keep=True)
            pipe.send(recorder.num_episodes)


def missing(folder: Path, finished: int, *, numbered: bool) -> str:
    """What stock LeRobot does not find of `finished` episodes; empty if all is there."""
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
            why = wrong_in(dataset[i], i) if numbered else ""
            if why:
                return why
        columns = dataset.hf_dataset.with_format("numpy")[: dataset.num_frames]
        if columns["index"].tolist() != list(range(dataset.num_frames)):
            return "its frames are not numbered one after the other"
        states = columns["observation.state"][:, 0]
        if numbered and states.tolist() != [number(*divmod(i, NUM_FRAMES)) for i in range(len(states))]:
            return "its frames have the numbers of others"
    except Exception as error:  # whatever LeRobot raises is the finding
        return f"{type(error).__name__}: {error}"
    return ""


def wrong_in(frame: dict[str, Any], i: int) -> str:
    """What frame i of a dataset of `write` should not say."""
    episode, k = divmod(i, NUM_FRAMES)
    if (int(frame["episode_index"]), int(frame["frame_index"])) != (episode, k):
        return f"frame {i} says it is {frame['frame_index']} of episode {frame['episode_index']}"
    if frame["task"] != f"task {episode % 3}":
        return f"frame {i} is of {frame['task']!r}"
    off = abs(float(frame["observation.images.wrist"].mean()) * 255 - 20 * k)
    return f"the picture of frame {i} is {off:.0f} of 255 off" if off > 6 else ""


def killed_recorder(folder: Path, moment_s: float, number: int) -> tuple[int, bool]:
    """Episodes that were said to be finished before the signal, and whether it came in time."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("forkserver").Process(
        target=write, args=(folder, theirs, NUM_EPISODES)
    )
    process.start()
    theirs.close()
    process.join(moment_s)
    was_alive, pid = process.is_alive(), process.pid
    if was_alive and pid is not None:
        os.kill(pid, number)
    process.join()
    finished = 0
    try:
        while ours.poll():
            finished = ours.recv()
    except EOFError:
        pass
    return finished, was_alive


def killed_command(folder: Path, moment_s: float, number: int) -> tuple[int, bool]:
    """The same with `robot-runtime record`; the moment is counted from its first episode."""
    command = [
        sys.executable,
        "-m",
        "robot_runtime.cli",
        "record",
        "--task",
        "track",
        "--output",
        str(folder),
    ]
    command += ["--episodes", "6", "--cameras", "overview", "--size", "48", "48", "--resume"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before = episodes_in(folder)
    while process.poll() is None and episodes_in(folder) == before:
        time.sleep(0.02)
    time.sleep(moment_s)
    finished, was_alive = episodes_in(folder), process.poll() is None
    if was_alive:
        process.send_signal(number)
    process.wait()
    return finished, was_alive


def episodes_in(folder: Path) -> int:
    try:
        return int(json.loads((folder / "meta/info.json").read_text())["total_episodes"])
    except FileNotFoundError:
        return 0


@dataclass(frozen=True, kw_only=True)
class Args:
    times: Count = 100
    seed: Seed = 0
    command: bool = False
    """Kill robot-runtime record itself."""


def main(options: Args) -> int:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lerobot.datasets.lerobot_dataset", "robot_runtime.robot.recorder"])
    rng, lost, in_time, finished_in_all = random.Random(options.seed), 0, 0, 0
    kill = killed_command if options.command else killed_recorder
    with tempfile.TemporaryDirectory() as folders:
        killed_recorder(Path(folders) / "warm", 60.0, signal.SIGKILL)
        start = time.monotonic()
        killed_recorder(Path(folders) / "whole", 60.0, signal.SIGKILL)
        whole_s = 6.0 if options.command else time.monotonic() - start
        for i in range(options.times):
            folder = (
                Path(folders) / f"dataset-{i - i % 3}"
            )  # three times in a row the same one is gone on with
            number = rng.choice(SIGNALS)
            finished, was_alive = kill(folder, rng.uniform(0.0, whole_s), number)
            why = missing(folder, finished, numbered=not options.command)
            in_time, finished_in_all = in_time + was_alive, finished_in_all + finished
            lost += bool(why)
            print(f"{i:3} {signal.Signals(number).name} {finished} finished {why or 'all read'}", flush=True)
    print(
        f"{options.times} times, {in_time} before it had ended by itself; {finished_in_all} episodes were "
        f"finished when the signal came; datasets with something lost: {lost}"
    )
    return int(lost > 0)


if __name__ == "__main__":
    run_script(Args, main, description=__doc__)
