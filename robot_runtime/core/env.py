"""The seam to a simulator that is stepped: `RobotEnv`, and what it declares, `EnvInfo`.

    reset(seed)    command 0      command 1                  command k acts from k to k + 1 periods
        |--------------|--------------|------> simulated time [control periods]
        0              1              2

Time in a simulator is counted by its steps, so nobody waits, and latency costs the steps it would have cost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from robot_runtime.core.plan.limits import Limits
from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.plan.whole_body import WholeBody
from robot_runtime.core.values.action import NS_PER_S, Command
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class EpisodeScore:
    """How one episode went."""

    success: bool
    completion_s: float | None
    """From the start of the episode to the task done [s]; None if it was not done, or has no end."""
    metrics: dict[str, float]
    """Task-specific figures; each name carries its unit."""
    reactions_s: tuple[float, ...] = ()
    """Time from each unforeseen change to the first command that had seen it [s]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EnvInfo:
    """What stays the same for all episodes of an env."""

    name: str
    schema: Schema
    """What it offers a policy."""
    control_period_ns: int
    """Simulated time between two commands [ns]."""
    episode_ns: int
    """Time limit of an episode [ns]."""
    limits: Limits
    """What it may be told; nothing passes them."""
    task: str = ""
    """The task in words, as policies hear it."""
    hand_pose: HandPose | Mapping[str, HandPose] | None = None
    """Forward kinematics of a robot that has a hand, or of each arm by name, for methods that roll a plan of
    joints forward."""
    whole_body: WholeBody | Mapping[str, WholeBody] | None = None
    """What resolves hand poses against the measured base, for a robot that takes them so, or of each arm."""
    has_any_picture_size: bool = False
    """Whether its cameras take pictures of any size that a policy looks at."""

    def __post_init__(self) -> None:
        if not self.name or self.control_period_ns <= 0 or self.episode_ns < self.control_period_ns:
            raise InvalidValueError(
                "an env needs a name, a control period above 0 and an episode of at least one of them, got "
                f"{self.name!r}, {self.control_period_ns} ns and {self.episode_ns} ns"
            )

    @property
    def control_hz(self) -> float:
        """Commands per simulated second."""
        return NS_PER_S / self.control_period_ns


class RobotEnv(Protocol):
    """A simulated robot with a scene, stepped by whoever owns the loop; one thread does.

    read, observe    write    advance
    |----------------|--------|
    measured         told     one control period later
    """

    @property
    def info(self) -> EnvInfo: ...

    def reset(self, seed: int) -> None:
        """Begin the episode that belongs to the seed; the same seed gives the same episode."""
        ...

    def read(self) -> RobotState:
        """What the robot measures now."""
        ...

    def observe(self, state: RobotState, cameras: Mapping[str, tuple[int, int]]) -> Observation:
        """What a policy is asked with now.

        state: as it was read. cameras: those that it looks at, with their sizes (height, width).
        """
        ...

    def write(self, command: Command) -> Command:
        """Tell the robot; returns what is really sent."""
        ...

    def advance(self, command: Command, t_obs_ns: int | None) -> bool:
        """Let one control period pass; whether the episode is over.

        command: as it was written. t_obs_ns: capture time of the observation behind it [ns]; None while
        nothing is answered.
        """
        ...

    def score(self) -> EpisodeScore:
        """Of the episode so far."""
        ...
