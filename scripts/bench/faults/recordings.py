"""Recordings that are cut short: episodes whose numbers identify their frames, and checks for losses."""

import contextlib
import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.action import Command, GripperCommand, JointCommand
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.dataset.recorder import DatasetRecorder
from robot_runtime.dataset.recording import Recording

SIZE, NUM_EPISODES, NUM_FRAMES = (32, 48), 4, 6
SCHEMA = Schema(
    action_fields=(), num_joints=7, has_gripper=True, has_base=False, cameras={"chest": SIZE, "wrist": SIZE}
)
RECORDING = Recording(schema=SCHEMA)


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


def missing(folder: Path, finished: int, *, numbered: bool) -> str:
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
            why = wrong_in(dataset[i], i) if numbered else ""
            if why:
                return why
        columns = dataset.hf_dataset.with_format("numpy")[: dataset.num_frames]
        if columns["index"].tolist() != list(range(dataset.num_frames)):
            return "its frames are not numbered one after the other"
        states = columns["observation.state"][:, 0]
        if numbered and states.tolist() != [number(*divmod(i, NUM_FRAMES)) for i in range(len(states))]:
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
