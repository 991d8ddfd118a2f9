"""Collects demonstrations: states on and off an expert's course, each with the expert's plan from there.

An episode under the virtual clock is a sequence of short random segments: see `perturbations`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.values.state import (
    ArmState,
    BaseState,
    GripperState,
    Observation,
    PartState,
    RobotState,
)
from robot_runtime.evaluation.workers import worker_pool
from sim.demonstrations.perturbations import (
    LEARNER_SHARE,
    Demonstration,
    draw_learner_segment,
    draw_segment,
    run_segment,
)
from sim.demonstrations.rollout_robot import Cameras, execute_row, robot_rollout
from sim.experts import Expert, make_expert
from sim.experts.motion import DT_NS
from sim.scene.task import EpisodeScore
from sim.scene.world import World
from sim.tasks import hand_poses_of, make_task

_AFTER_SUCCESS_ROWS = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class _Samples:
    """An episode as arrays, for transfer between processes."""

    t_ns: np.ndarray
    parts: dict[str, dict[str, np.ndarray]]
    """Measurements of each part; end-effector poses follow from the joints."""
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
    """Collect samples of the successful ones among `num_episodes` disturbed episodes, in order.

    The result depends on task, number of episodes and seed, not on the number of processes.
    progress: called with (episodes done, episodes in all).
    """
    instruction = make_task(task_name).instruction
    run = partial(_collect_episode, task_name, seed)
    hand_poses, episodes, out = hand_poses_of(task_name), range(num_episodes), []
    num_processes = min(num_workers, num_episodes)
    with nullcontext() if num_processes <= 1 else worker_pool(num_processes) as pool:
        collected = map(run, episodes) if pool is None else pool.imap(run, episodes, chunksize=4)
        for i, samples in enumerate(collected):
            out += _demonstrations(samples, instruction, hand_poses)
            if progress is not None:
                progress(i + 1, num_episodes)
    return out


def run_expert(
    world: World, *, seed: int, rows_per_plan: int = 1, trace: list[np.ndarray] | None = None
) -> EpisodeScore:
    """Run and score one undisturbed episode with a new plan every `rows_per_plan` rows.

    trace: gets a snapshot of the world every row, for drawing.
    """
    world.reset(seed)
    expert, scorer = make_expert(world.task.name, seed=seed), world.task.make_scorer(world)
    robot, i, rows = robot_rollout(world), rows_per_plan, np.zeros((0, 0))
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
    """Run one disturbed episode; None if it failed."""
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
    """Run one episode of segments, with images if there are cameras; None if it failed.

    learner: drives in its own segments; None: there are none. Its failed episodes are kept up to the failure,
    as they are the most instructive.
    """
    task_name = world.task.name
    episode_seed = int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])
    world.reset(episode_seed)
    rng = np.random.default_rng([episode_seed, 2])
    expert, scorer = make_expert(task_name, seed=episode_seed), world.task.make_scorer(world)
    kept, robot = list[Demonstration](), robot_rollout(world, cameras)
    num_rows, num_left = round(world.task.episode_s * 1e9) // DT_NS, _AFTER_SUCCESS_ROWS
    while len(kept) < num_rows and num_left > 0:
        hand_z = world.lowest_hand - world.task.workspace_height
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
    return _Samples(
        t_ns=np.array([state.t_ns for state in states]),
        parts={name: _columns([state.parts[name] for state in states]) for name in states[0].parts},
        environment_state=np.array([d.observation.environment_state for d in demonstrations]),
        rows=np.array([d.rows for d in demonstrations]),
        num_committed=np.array([d.num_committed for d in demonstrations]),
    )


_MEASURED = {ArmState: ("q", "dq"), GripperState: ("width",), BaseState: ("x_WB", "V_WB_B")}


def _columns(measured: Sequence[PartState]) -> dict[str, np.ndarray]:
    return {key: np.array([getattr(part, key) for part in measured]) for key in _MEASURED[type(measured[0])]}


def _part(columns: Mapping[str, np.ndarray], i: int, hand_pose: HandPose | None) -> PartState:
    """The i-th measurement in `_columns`."""
    own = {key: column[i] for key, column in columns.items()}
    if "width" in own:
        return GripperState(width=own["width"])
    if "q" in own:
        assert hand_pose is not None
        return ArmState(**own, X_BE=hand_pose(own["q"]))
    return BaseState(**own)


def _demonstrations(
    samples: _Samples | None, instruction: str, hand_poses: Mapping[str, HandPose]
) -> list[Demonstration]:
    if samples is None:
        return []
    out = []
    for i, t_ns in enumerate(samples.t_ns):
        parts = {name: _part(columns, i, hand_poses.get(name)) for name, columns in samples.parts.items()}
        state = RobotState(t_ns=int(t_ns), parts=parts)
        observation = Observation(
            state=state, environment_state=samples.environment_state[i], task=instruction
        )
        num_committed = int(samples.num_committed[i])
        out.append(Demonstration(observation=observation, rows=samples.rows[i], num_committed=num_committed))
    return out
