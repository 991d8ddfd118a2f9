"""Our own tasks as a `RobotEnv`: a MuJoCo world with its drivers, under a virtual clock."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from msgspec import structs

from robot_runtime.core.env import EnvInfo, EpisodeScore
from robot_runtime.core.values.action import NS_PER_S, Command
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.robot.robot import Robot
from sim.scene.clock import SimClock
from sim.scene.drivers import sim_limits, sim_robot, sim_whole_body
from sim.scene.render import take_pictures
from sim.scene.task import Scorer
from sim.scene.world import World
from sim.tasks import make_task

CONTROL_PERIOD_NS = 2_000_000


class TaskEnv:
    """The env of one task, by name."""

    def __init__(
        self,
        task_name: str,
        *,
        control_period_ns: int = CONTROL_PERIOD_NS,
        snapshot_period_ns: int | None = None,
        has_torques: bool = False,
        dead_time_s: Mapping[str, float] | None = None,
        latency_s: Mapping[str, float] | None = None,
        episode_s: float | None = None,
    ) -> None:
        """
        episode_s: time limit; None: the task's own [s].
        snapshot_period_ns: how often to keep a world snapshot; None keeps none.
        has_torques: whether the robot measures the torques of its arms, as "arm_torques" and so on.
        dead_time_s, latency_s: true and declared latencies of its parts: see `sim_robot`.
        UnknownNameError: there is no such task, or no such part.
        """
        self._snapshot_period_ns, self._has_torques = snapshot_period_ns, has_torques
        self._dead_time_s, self._latency_s = dead_time_s, latency_s
        self._clock, self._world = SimClock(), World(make_task(task_name))
        self._robot: Robot = self._made_robot()
        self._scorer: Scorer = self._world.task.make_scorer(self._world)
        self.snapshots: list[np.ndarray] = []
        """World snapshots of the episode, for drawing."""
        task = self._world.task
        self.info = EnvInfo(
            name=task_name,
            task=task.instruction,
            schema=replace(task.schema, measured=self._robot.measured),
            control_period_ns=control_period_ns,
            episode_ns=round((task.episode_s if episode_s is None else episode_s) * NS_PER_S),
            limits=sim_limits(self._world),
            hand_pose=self._world.hand_poses,
            whole_body=sim_whole_body(self._world),
            latency_ns=self._robot.latency_ns,
            has_any_picture_size=True,
        )

    def _made_robot(self) -> Robot:
        return sim_robot(
            self._world,
            self._clock,
            has_torques=self._has_torques,
            dead_time_s=self._dead_time_s,
            latency_s=self._latency_s,
        )

    def reset(self, seed: int) -> None:
        self._clock = SimClock()
        self._world.reset(seed)
        self._robot = self._made_robot()
        self._scorer = self._world.task.make_scorer(self._world)
        self.snapshots = []

    def read(self) -> RobotState:
        return self._robot.read()

    def observe(self, state: RobotState, cameras: Mapping[str, tuple[int, int]]) -> Observation:
        observation = self._world.observe(state)
        if not cameras:
            return observation
        return structs.replace(observation, images=take_pictures(self._world, cameras))

    def write(self, command: Command) -> Command:
        return self._robot.write(command)

    def advance(self, command: Command, t_obs_ns: int | None) -> bool:
        """Score the tick and advance the clock; the world follows at the next `read`."""
        now_ns = self._clock.now_ns()
        self._scorer.on_tick(now_ns, self._world, command, t_obs_ns)
        if self._snapshot_period_ns is not None and now_ns % self._snapshot_period_ns == 0:
            self.snapshots.append(self._world.snapshot())
        self._clock.sleep_until_ns(now_ns + self.info.control_period_ns)
        return self._scorer.is_done

    def score(self) -> EpisodeScore:
        return self._scorer.score()
