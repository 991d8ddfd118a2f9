"""Demonstrations: states an expert visits, on course and off, each with what it means to do from there.

An episode on the virtual clock is a row of short segments, drawn at random: see `perturbations`.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.evaluation.workers import worker_pool
from sim.demonstrations.perturbations import (
    LEARNER_SHARE,
    Demonstration,
    draw_learner_segment,
    draw_segment,
    run_segment,
)
from sim.demonstrations.rollout_robot import Cameras, execute_row, led_robot
from sim.experts import Expert, make_expert
from sim.experts.motion import DT_NS
from sim.scene.task import EpisodeScore
from sim.scene.world import World
from sim.tasks import hand_pose_of, make_task

_AFTER_SUCCESS_ROWS = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class _Samples:
    """An episode as arrays, for the way between processes."""

    t_ns: np.ndarray
    q: np.ndarray
    dq: np.ndarray
    gripper_width: np.ndarray
    x_WB: np.ndarray | None
    V_WB_B: np.ndarray | None
    environment_state: np.ndarray
    rows: np.ndarray
    num_committed: np.ndarray


def collect(
    task_name: str,
    *,
    num_episodes: int,
    seed: int,
    num_workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Demonstration]:
    """Samples of the successful ones among `num_episodes` disturbed episodes, in order of episode and time.

    The result depends on task, number of episodes and seed, not on the number of processes.
    progress: called with (episodes done, episodes in all).
    """
    instruction = make_task(task_name).instruction
    run = partial(_collect_episode, task_name, seed)
    hand_pose, episodes, out = hand_pose_of(task_name), range(num_episodes), []
    num_processes = min(num_workers, num_episodes)
    with nullcontext() if num_processes <= 1 else worker_pool(num_processes) as pool:
        collected = map(run, episodes) if pool is None else pool.imap(run, episodes, chunksize=4)
        for i, samples in enumerate(collected):
            out += _demonstrations(samples, instruction, hand_pose)
            if progress is not None:
                progress(i + 1, num_episodes)
    return out


def run_expert(
    world: World, *, seed: int, rows_per_plan: int = 1, trace: list[np.ndarray] | None = None
) -> EpisodeScore:
    """Score of one undisturbed episode with a new plan every `rows_per_plan` rows.

    trace: gets a snapshot of the world every row, for drawing.
    """
    world.reset(seed)
    expert, scorer = make_expert(world.task.name, seed=seed), world.task.make_scorer(world)
    robot, i, rows = led_robot(world), rows_per_plan, np.zeros((0, 0))
    while world.t_ns < world.task.episode_s * 1e9 and not scorer.is_done:
        if i == rows_per_plan:
            observation, exact = robot.observe()
            rows, i = robot.to_world(expert.plan(exact), observation), 0
        if trace is not None:
            trace.append(world.snapshot())
        execute_row(robot, scorer, rows[i], rows[i + 1])
        i += 1
    return scorer.score()


@cache
def _world(task_name: str) -> World:
    return World(make_task(task_name))


def _collect_episode(task_name: str, seed: int, episode: int) -> _Samples | None:
    """One disturbed episode; None if it failed."""
    kept = disturbed_episode(_world(task_name), seed=seed, episode=episode)
    return None if kept is None else _pack(kept)


def disturbed_episode(
    world: World,
    *,
    seed: int,
    episode: int,
    cameras: Cameras | None = None,
    learner: Expert | None = None,
) -> list[Demonstration] | None:
    """One episode of segments, with pictures of cameras if there are any; None if it failed.

    learner: drives in the segments that are its own; without one there are none of those. What leads it to
    fail is kept, up to the moment when all is lost: there it has most to learn.
    """
    task_name = world.task.name
    episode_seed = int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])
    world.reset(episode_seed)
    rng = np.random.default_rng([episode_seed, 2])
    expert, scorer = make_expert(task_name, seed=episode_seed), world.task.make_scorer(world)
    kept, robot = list[Demonstration](), led_robot(world, cameras)
    num_rows, num_left = round(world.task.episode_s * 1e9) // DT_NS, _AFTER_SUCCESS_ROWS
    while len(kept) < num_rows and num_left > 0:
        hand_z = float(world.kinematics.forward(world.q).translation[2]) - world.task.workspace_height
        width = world.gripper_width if world.has_base else None
        if learner is not None and rng.random() < LEARNER_SHARE:
            segment = draw_learner_segment(rng)
        else:
            segment = draw_segment(rng, hand_z=hand_z, width=width, is_first=not kept)
        kept += run_segment(robot, expert, scorer, segment, rng, learner)
        if scorer.is_done and not scorer.score().success:
            break
        if scorer.is_done:
            num_left -= segment.num_rows
    return kept if scorer.score().success or learner is not None else None


def _pack(demonstrations: list[Demonstration]) -> _Samples:
    states = [d.observation.state for d in demonstrations]
    has_base = states[0].x_WB is not None
    return _Samples(
        t_ns=np.array([state.t_ns for state in states]),
        q=np.array([state.q for state in states]),
        dq=np.array([state.dq for state in states]),
        gripper_width=np.array([state.gripper_width for state in states]),
        x_WB=np.array([state.x_WB for state in states]) if has_base else None,
        V_WB_B=np.array([state.V_WB_B for state in states]) if has_base else None,
        environment_state=np.array([d.observation.environment_state for d in demonstrations]),
        rows=np.array([d.rows for d in demonstrations]),
        num_committed=np.array([d.num_committed for d in demonstrations]),
    )


def _demonstrations(samples: _Samples | None, instruction: str, hand_pose: HandPose) -> list[Demonstration]:
    if samples is None:
        return []
    out = []
    for i, q in enumerate(samples.q):
        state = RobotState(
            t_ns=int(samples.t_ns[i]),
            q=q,
            dq=samples.dq[i],
            X_BE=hand_pose(q),
            gripper_width=float(samples.gripper_width[i]),
            x_WB=None if samples.x_WB is None else samples.x_WB[i],
            V_WB_B=None if samples.V_WB_B is None else samples.V_WB_B[i],
        )
        observation = Observation(
            state=state, environment_state=samples.environment_state[i], task=instruction
        )
        num_committed = int(samples.num_committed[i])
        out.append(Demonstration(observation=observation, rows=samples.rows[i], num_committed=num_committed))
    return out
