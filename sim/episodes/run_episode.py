"""Runs one episode in real time: the simulated robot in this process, the server in another."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from robot_runtime.clock import Clock, MonotonicClock
from robot_runtime.core.safety import Cause
from robot_runtime.core.tick import Tick
from robot_runtime.errors import SchemaMismatchError
from robot_runtime.evaluation.person import Person
from robot_runtime.evaluation.result import Episode, EpisodeResult
from robot_runtime.robot.run import Session
from robot_runtime.wire.messages import Welcome
from sim.scene.drivers import sim_robot
from sim.scene.task import with_picture_sizes
from sim.scene.world import World
from sim.tasks import make_task


def run_real_time(
    task_name: str,
    *,
    seed: int = 10_000,
    picture_size: tuple[int, int] | None = None,
    snapshot_period_ns: int | None = None,
    on_tick: Callable[[Tick], None] = lambda tick: None,
    on_ready: Callable[[Welcome], None] = lambda welcome: None,
    on_session: Callable[[Session], None] = lambda session: None,
    person: Person | None = None,
    **options: Any,
) -> Episode:
    """Run the simulated robot with a `Session` and score it.

    It ends early when the task is done, or on a signal that ends the session.

    seed: of the scene, and of the policy's random numbers.
    picture_size: height and width of all cameras' images; None: those of the task.
    snapshot_period_ns: how often to keep a world snapshot for a video; None keeps none.
    on_ready: gets the server's welcome, before the robot moves.
    on_session: gets the session then, to post operator commands from another thread.
    person: acts after each tick, in the control thread; its computations have to fit between two ticks.
    options: of the session, see `robot_runtime.robot.config.RunConfig`; without `duration_s` it runs for the
        task's own time limit.
    """
    task, clock = make_task(task_name), MonotonicClock()
    world = World(task, seed=seed, t_start_ns=clock.now_ns())
    if options.get("duration_s") is None:
        options["duration_s"] = task.episode_s
    session = simulated_session(world, clock, seed=seed, picture_size=picture_size, **options)
    with _hinted(), session:
        on_ready(session.welcome)
        on_session(session)
        world.reset(seed, t_start_ns=clock.now_ns())  # connecting and measuring took time
        if person is not None:
            person.begin(seed)
        scorer, snapshots = task.make_scorer(world), list[np.ndarray]()
        next_snapshot_ns = 0
        for tick in session:
            t_obs_ns = None if tick.source is None else tick.source.t_obs_ns
            scorer.on_tick(tick.now_ns, world, tick.command, t_obs_ns)
            if snapshot_period_ns is not None and tick.now_ns >= next_snapshot_ns:
                snapshots.append(world.snapshot())
                next_snapshot_ns = max(next_snapshot_ns, tick.now_ns) + snapshot_period_ns
            on_tick(tick)
            if person is not None and (state := session.runner.state) is not None:
                act = person.act(tick, world.observe(state))
                for order in act.orders:
                    session.post(order, by=person.name)
                session.lead(act.wishes)
            if scorer.is_done:
                session.stop(Cause.TASK_OVER)
        score = scorer.score()
        if score.has_success and (
            score.success or not session.is_interrupted
        ):  # an interrupted episode is no failure
            session.runner.success, session.runner.why = score.success, score.why
    result = EpisodeResult.of(seed, score, session.record, clips=session.clips)
    return Episode(result=result, record=session.record, snapshots=snapshots)


def simulated_session(
    world: World,
    clock: Clock,
    *,
    seed: int,
    cameras: Sequence[str] | None = None,
    picture_size: tuple[int, int] | None = None,
    **options: Any,
) -> Session:
    """Session on a world's robot.

    cameras: names of the robot's; None: all.
    picture_size: height and width of their images [pixels]; None: those of the task.
    options: of the session, see `robot_runtime.robot.config.RunConfig`.
    """
    task = world.task
    sizes = {} if picture_size is None else dict.fromkeys(task.schema.cameras, picture_size)
    has = with_picture_sizes(task.schema, sizes).cameras
    shown = {name: camera for name, camera in has.items() if cameras is None or name in cameras}
    return Session(
        sim_robot(world, clock, cameras=shown),
        task=task.instruction,
        observe=world.observe,
        name=f"simulated FR3, {task.name}",
        model=f"task:{task.name}",
        seed=seed,
        clock=clock,
        **options,
    )


class TeleopScene:
    """A scene of a task for teleoperation, with a `Session`."""

    def __init__(self, task: str, *, seed: int, clock: Clock, **options: Any) -> None:
        """options: as of `simulated_session`."""
        self._seed, self._clock = seed, clock
        self._world = World(make_task(task), seed=seed, t_start_ns=clock.now_ns())
        self.session = simulated_session(self._world, clock, seed=seed, **options)

    def begin(self) -> None:
        """Reset the scene to start now, after the time spent on connecting."""
        self._world.reset(self._seed, t_start_ns=self._clock.now_ns())
        self._scorer = self._world.task.make_scorer(self._world)

    def judge(self, tick: Tick) -> bool | None:
        """Whether the task has succeeded; None: it is not finished."""
        self._scorer.on_tick(tick.now_ns, self._world, tick.command, None)
        return self._scorer.score().success if self._scorer.is_done else None


@contextmanager
def _hinted() -> Iterator[None]:
    """Add a hint to errors about image sizes."""
    try:
        yield
    except SchemaMismatchError as error:
        if re.search(r"camera '\w+': the robot has \(", str(error)) is None:  # of another size
            raise
        hint = "simulated cameras take pictures of any size: --picture-size HEIGHT WIDTH"
        raise SchemaMismatchError(f"{error} ({hint})") from error
