"""Episodes of the scripted experts as a LeRobot dataset, pictures and all."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from policies.lerobot_data import NUM_COMMITTED, ROWS
from robot_runtime.recorder import DatasetRecorder, Recording
from sim.demonstrations import disturbed_episode
from sim.experts import Expert, action_spec_of
from sim.experts.motion import DT_NS
from sim.led_robot import led_robot
from sim.render import take_pictures
from sim.spells import Demonstration
from sim.tasks import make_task
from sim.world import World


def record_expert(
    task_name: str,
    folder: Path,
    *,
    num_episodes: int,
    seed: int,
    cameras: tuple[str, ...],
    size: tuple[int, int],
    learner: Expert | None = None,
    progress: Callable[[int, int], None] = lambda done, kept: None,
) -> int:
    """Record disturbed episodes, those that succeed; returns how many are kept.

    cameras: names of the task's; none is fine. size: (height, width) of their pictures [pixels].
    learner: drives most of the time, while the labels stay the expert's, see `sim.spells`; all are kept.
    progress: called with (episodes done, episodes kept).
    """
    world = World(make_task(task_name))
    spec = action_spec_of(task_name)
    schema = replace(world.task.schema, cameras=dict.fromkeys(cameras, size))
    extra = {ROWS: (spec.horizon, spec.dim), NUM_COMMITTED: (1,)}
    recording = Recording(schema=schema, fps=round(1e9 / DT_NS), robot_type="simulated FR3", extra=extra)
    pictures = partial(take_pictures, cameras=schema.cameras)
    with DatasetRecorder(folder, recording) as recorder:
        command = led_robot(world).command
        for episode in range(num_episodes):
            kept = disturbed_episode(world, seed=seed, episode=episode, cameras=pictures, learner=learner)
            for demonstration in kept or []:
                _add(recorder, demonstration, command)
            recorder.end_episode(keep=True)
            progress(episode + 1, recorder.num_episodes)
        return recorder.num_episodes


def _add(recorder: DatasetRecorder, demonstration: Demonstration, command: Callable) -> None:
    assert demonstration.led is not None
    labels = {ROWS: demonstration.rows, NUM_COMMITTED: np.array([demonstration.num_committed])}
    recorder.add(demonstration.observation, command(demonstration.led), labels)
