"""Records episodes of the scripted experts as a LeRobot dataset with images."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from policies.lerobot.data import NUM_COMMITTED, ROWS
from robot_runtime.dataset.recorder import DatasetRecorder
from robot_runtime.dataset.recording import Recording
from robot_runtime.errors import InvalidValueError
from sim.demonstrations.demonstrations import disturbed_episode
from sim.demonstrations.perturbations import Demonstration
from sim.demonstrations.rollout_robot import robot_rollout
from sim.experts import Expert, action_spec_of
from sim.experts.motion import DT_NS
from sim.scene.render import take_pictures
from sim.scene.world import World
from sim.tasks import make_task


def record_expert(
    task_name: str,
    folder: Path,
    *,
    num_episodes: int,
    seed: int,
    cameras: tuple[str, ...],
    size: tuple[int, int],
    learner: Expert | None = None,
    source: str = "",
    resume: bool = False,
    progress: Callable[[int, int], None] = lambda done, kept: None,
    say: Callable[[str], None] = lambda line: None,
) -> int:
    """Record successful disturbed episodes; returns the number of episodes in the dataset.

    cameras: names of the task's; may be empty. size: (height, width) of their images [pixels].
    learner: drives most of the time, while labels are the expert's, see `perturbations`; all are kept.
    source: name of the recorded policy, unless it is the expert alone.
    resume: continue after the last episode in the folder, which has the same task, source and seed; the
        result is that of an uninterrupted run.
    InvalidValueError: the folder holds others, or more than `num_episodes`.
    progress: called with (episodes done, episodes kept). say: gets messages on an interrupted run.
    """
    world = World(make_task(task_name))
    spec = action_spec_of(task_name)
    schema = replace(world.task.schema, cameras=dict.fromkeys(cameras, size))
    extra = {ROWS: (spec.horizon, spec.dim), NUM_COMMITTED: (1,)}
    recording = Recording(schema=schema, fps=round(1e9 / DT_NS), robot_type="simulated FR3", extra=extra)
    take_images = partial(take_pictures, cameras=schema.cameras)
    of = f"{task_name} {source}".strip()
    with DatasetRecorder(folder, recording, resume=resume) as recorder:
        if recorder.leftovers:
            say(f"removed what a run that was killed had left: {', '.join(recorder.leftovers)}")
        command, first = robot_rollout(world).command, _num_tried(recorder, of, seed, num_episodes)
        if first:
            say(f"{recorder.num_episodes} episodes are there, going on with number {first}")
        for episode in range(first, num_episodes):
            kept = disturbed_episode(world, seed=seed, episode=episode, cameras=take_images, learner=learner)
            for demonstration in kept or []:
                _add(recorder, demonstration, command)
            recorder.end_episode(keep=True, notes={"source": of, "seed": seed, "episode": episode})
            progress(episode + 1, recorder.num_episodes)
        return recorder.num_episodes


def _num_tried(recorder: DatasetRecorder, source: str, seed: int, num_episodes: int) -> int:
    """Number of episodes drawn before the next one; those that failed after the last kept one would fail
    again. InvalidValueError: the dataset has others, or more than requested."""
    notes = list(zip(*(recorder.notes(name) for name in ("source", "seed", "episode")), strict=True))
    if others := sorted({(str(of), str(drawn)) for of, drawn, _ in notes if (of, drawn) != (source, seed)}):
        held = "; ".join(f"{of}, seed {drawn}" for of, drawn in others)
        raise InvalidValueError(
            f"the dataset is of {held}, and this command of {source}, seed {seed}: --resume goes on with the "
            "same task, policy and seed; another recording takes a folder of its own"
        )
    tried = max((episode + 1 for *_, episode in notes), default=0)
    if tried > num_episodes:
        raise InvalidValueError(
            f"of {tried} episodes that were tried {len(notes)} are in the dataset: --episodes counts these "
            f"too, got {num_episodes}"
        )
    return tried


def _add(recorder: DatasetRecorder, demonstration: Demonstration, command: Callable) -> None:
    assert demonstration.led is not None
    labels = {ROWS: demonstration.rows, NUM_COMMITTED: np.array([demonstration.num_committed])}
    recorder.add(demonstration.observation, command(demonstration.led), labels)
