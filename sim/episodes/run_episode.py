"""One episode in real time: the simulated robot in this process, the server in another."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.executor import Tick
from robot_runtime.core.method.choose import Auto, Default, default_for
from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.method.table import Method
from robot_runtime.core.plan.correction import ResidualHead
from robot_runtime.core.values.schema import Schema, check_task
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import SchemaMismatchError
from robot_runtime.evaluation.result import Episode, EpisodeResult
from robot_runtime.keys import RobotKeys
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.probe import choose_for, latency_for, latency_line
from robot_runtime.robot.runner import RunConfig, Runner
from robot_runtime.robot.telemetry import KEPT_TICKS
from robot_runtime.wire.messages import Welcome
from sim.scene.drivers import SimCamera, sim_limits, sim_robot, sim_whole_body
from sim.scene.task import with_picture_sizes
from sim.scene.world import World
from sim.tasks import make_task


@dataclass(frozen=True, kw_only=True)
class RealTimeConfig:
    """What to run, and against which server."""

    task: str
    method: Method | Auto | Default
    """`Auto` measures the server before the start and picks one, `Default` goes by its policy alone."""
    server: str
    seed: int = 10_000
    control_hz: float = 500.0
    duration_s: float | None = None
    """None runs for the task's own time limit."""
    connect_timeout_s: float = 10.0
    policy: str = ""
    """Which of the server's; empty for the only one."""
    keys: RobotKeys | None = None
    """For a server that asks for them."""
    picture_size: tuple[int, int] | None = None
    """Height and width of all cameras' pictures; None leaves them as the task has them."""
    correction_head: ResidualHead | None = None
    """For methods that correct rows on the robot."""
    keep_ticks: int | None = KEPT_TICKS
    """How many of the newest ticks the record keeps; None keeps all, to draw them."""
    snapshot_period_ns: int | None = None
    """How often to keep a world snapshot for a video; None keeps none."""


def run_real_time(
    config: RealTimeConfig,
    *,
    on_tick: Callable[[Tick], None] = lambda tick: None,
    should_stop: Callable[[], bool] = lambda: False,
    on_ready: Callable[[Welcome], None] = lambda welcome: None,
    on_measured: Callable[[str], None] = lambda line: None,
) -> Episode:
    """Connect, run the episode, and score it; ends early when the task is done or `should_stop` says so.

    on_measured: gets a line before the latency is measured, one on what it is, and one on the method if it
        was picked by that.
    InvalidValueError: the policy does not know the task, or not the method.
    """
    task, clock = make_task(config.task), MonotonicClock()
    robot, schema = f"simulated FR3, {task.name}", task.schema
    if config.picture_size is not None:
        schema = with_picture_sizes(schema, dict.fromkeys(schema.cameras, config.picture_size))
    with PolicyClient(
        config.server, robot=robot, policy=config.policy, schema=schema, keys=config.keys
    ) as client:
        welcome = _welcomed(client, config)
        on_ready(welcome)
        check_task(task.instruction, policy=welcome.policy, tasks=welcome.tasks)
        world = World(task, seed=config.seed, t_start_ns=clock.now_ns())
        method, latency = _measured(config, client, welcome, world.observe(), clock, on_measured)
        setting = _setting(config, method, world, clock, schema)
        runner = Runner(setting, client, welcome, latency=latency, keep_ticks=config.keep_ticks)
        world.reset(config.seed, t_start_ns=clock.now_ns())  # measuring took its time
        scorer, snapshots = task.make_scorer(world), list[np.ndarray]()
        next_snapshot_ns = 0

        def watch(tick: Tick) -> None:
            nonlocal next_snapshot_ns
            t_obs_ns = None if tick.source is None else tick.source.t_obs_ns
            scorer.on_tick(tick.now_ns, world, tick.command, t_obs_ns)
            if config.snapshot_period_ns is not None and tick.now_ns >= next_snapshot_ns:
                snapshots.append(world.snapshot())
                next_snapshot_ns = max(next_snapshot_ns, tick.now_ns) + config.snapshot_period_ns
            on_tick(tick)

        record = runner.run(
            duration_s=task.episode_s if config.duration_s is None else config.duration_s,
            on_tick=watch,
            should_stop=lambda: scorer.is_done or should_stop(),
        )
    result = EpisodeResult.of(config.seed, scorer.score(), record, clips=runner.executor.clips)
    return Episode(result=result, record=record, snapshots=snapshots)


def _welcomed(client: PolicyClient, config: RealTimeConfig) -> Welcome:
    try:
        return client.wait_until_ready(config.connect_timeout_s)
    except SchemaMismatchError as error:
        if re.search(r"camera '\w+': the robot has \(", str(error)) is None:  # of another size
            raise
        hint = "simulated cameras take pictures of any size: --picture-size HEIGHT WIDTH"
        raise SchemaMismatchError(f"{error} ({hint})") from error


def _measured(
    config: RealTimeConfig,
    client: PolicyClient,
    welcome: Welcome,
    observation: Observation,
    clock: MonotonicClock,
    say: Callable[[str], None],
) -> tuple[Method, LatencyEstimator | None]:
    """The method to run, and how late answers are if it matters to it."""
    if isinstance(config.method, Auto):
        choice, latency = choose_for(config.method, client, welcome, observation, clock, say=say)
        say(str(choice))
        return choice.method, latency
    method = config.method
    if isinstance(method, Default):
        choice = default_for(method, welcome.capabilities)
        say(str(choice))
        method = choice.method
    measured = latency_for(method, client, welcome, observation, clock, say=say)
    if measured is not None:
        say(latency_line(measured, welcome.action_spec.dt_ns))
    return method, measured


def _setting(
    config: RealTimeConfig, method: Method, world: World, clock: MonotonicClock, schema: Schema
) -> RunConfig:
    sizes = schema.cameras
    cameras = {name: SimCamera(world, clock, name=name, size=size) for name, size in sizes.items()}
    return RunConfig(
        robot=sim_robot(world, clock),
        limits=sim_limits(has_base=world.has_base),
        method=method,
        clock=clock,
        observe=world.observe,
        cameras=cameras,
        hand_pose=world.kinematics.forward,
        correction_head=config.correction_head,
        whole_body=sim_whole_body(world),
        control_hz=config.control_hz,
        seed=config.seed,
    )
