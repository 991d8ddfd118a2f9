"""Interface of stepped simulators: `Env`, what it declares (`EnvInfo`) and what it returns (`EnvStep`).

    reset(seed)     step(action 0)  step(action 1)       action k acts from k to k + 1 periods, and is
        |---------------|---------------|------>         returns the measurement at its end
        0               1               2                simulated time [control periods]

Time in a simulator is counted in steps, so nothing waits, and latency costs the steps it would have cost. An
env of plain numbers is an `Env`; a simulated robot with parts and drivers is a `RobotEnv`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from robot_runtime.core.plan.limits import Limits, NumbersLimits
from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.plan.whole_body import WholeBody
from robot_runtime.core.values.action import NS_PER_S, Command, Numbers
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import InvalidValueError, UnknownNameError


@dataclass(frozen=True, kw_only=True)
class EpisodeScore:
    """The score of one episode."""

    success: bool
    completion_s: float | None
    """Time from the start of the episode to completion [s]; None if it was not completed, or has no end."""
    metrics: dict[str, float]
    """Task-specific figures; each name carries its unit."""
    reactions_s: tuple[float, ...] = ()
    """Time from each unforeseen change to the first command that had seen it [s]."""
    has_success: bool = True
    """Whether the env reports success at all; False: `success` is meaningless."""
    why: str = ""
    """Why it failed, in words; empty: it succeeded, or the env gives no reason."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EnvInfo:
    """The properties of an env that are the same for all episodes."""

    name: str
    schema: Schema
    """What it offers a policy."""
    control_period_ns: int
    """Simulated time between two commands [ns]."""
    episode_ns: int
    """Time limit of an episode [ns]."""
    limits: Limits
    """Limits of its commands; no command exceeds them."""
    task: str = ""
    """The task text that policies receive."""
    hand_pose: HandPose | Mapping[str, HandPose] | None = None
    """Forward kinematics of the arm, or of each arm by name, for methods that roll a plan of joints
    forward."""
    whole_body: WholeBody | Mapping[str, WholeBody] | None = None
    """Resolves end-effector poses against the measured base, for a robot that takes joints, or each arm's."""
    latency_ns: Mapping[str, int] = field(default_factory=dict)
    """Latency from command to motion, by part; 0 where none is given [ns]."""
    has_any_picture_size: bool = False
    """Whether its cameras render images of any size that a policy needs."""
    state_names: tuple[str, ...] = ()
    """Names of the plain numbers of its state, in order."""
    any_success: bool = False
    """For an `Env`: whether an episode succeeds if any step did; False: if its last step did."""

    def __post_init__(self) -> None:
        if not self.name or self.control_period_ns <= 0 or self.episode_ns < self.control_period_ns:
            raise InvalidValueError(
                "an env needs a name, a control period above 0 and an episode of at least one of them, got "
                f"{self.name!r}, {self.control_period_ns} ns and {self.episode_ns} ns"
            )

    @classmethod
    def of_numbers(
        cls,
        name: str,
        *,
        actions: Sequence[str],
        low: float | Sequence[float] | np.ndarray,
        high: float | Sequence[float] | np.ndarray,
        state: Sequence[str] = (),
        control_hz: float,
        max_steps: int,
        task: str = "",
        cameras: Mapping[str, tuple[int, int]] | None = None,
        is_held: bool = True,
        at_rest: Mapping[str, float] | None = None,
        any_success: bool = False,
    ) -> "EnvInfo":
        """The info of an env whose action and state are plain numbers, in units of their own.

        actions, state: names of the numbers; a state number with an action's name is the quantity that the
            action moves, such as a position.
        low, high: the action's range, one number for all or one each; beyond it actions are clipped.
        cameras: names and sizes (height, width) of its images [pixels].
        is_held: an action holds until the next row is due; otherwise actions are positions on a path.
        at_rest: for actions that are velocities or steps, by name, the value that stops them, such as 0: sent
            before the first answer and where a plan has ended. All others are positions and hold.
        any_success: whether an episode succeeds if any step did; or only if its last step did.
        InvalidValueError: a number or a name is invalid.
        """
        actions, state, at_rest = tuple(actions), tuple(state), at_rest or {}
        if unknown := at_rest.keys() - set(actions):
            raise UnknownNameError("action at rest", min(unknown), actions)
        lows, highs = (np.broadcast_to(np.asarray(end, dtype=float), (len(actions),)) for end in (low, high))
        if not control_hz > 0.0 or max_steps < 1:
            raise InvalidValueError(
                f"an env is stepped more than 0 times a second and at least once, got {control_hz} Hz and "
                f"{max_steps} steps"
            )
        period_ns = round(NS_PER_S / control_hz)
        span = highs - lows
        spans = span[np.isfinite(span) & (span > 0.0)]
        scale = float(spans.mean()) / 2.0 if len(spans) else 1.0
        rest = tuple(map(at_rest.get, actions))
        numbers = Numbers(names=actions, is_held=is_held, scale=scale, at_rest=rest)
        is_measured = set(actions) <= set(state)
        return cls(
            name=name,
            task=task,
            schema=Schema(
                action_fields=(numbers,),
                measured={numbers.part: numbers.dim} if is_measured else None,
                environment_state_dim=len(state),
                environment_state_names=state,
                cameras=cameras,
            ),
            limits=Limits({numbers.part: NumbersLimits(low=lows, high=highs)}),
            control_period_ns=period_ns,
            episode_ns=max_steps * period_ns,
            state_names=state,
            any_success=any_success,
        )

    @property
    def success_rule(self) -> str:
        """When an episode of an `Env` counts as a success, in words."""
        return "in any step" if self.any_success else "at the end"

    @property
    def control_hz(self) -> float:
        """Commands per simulated second."""
        return NS_PER_S / self.control_period_ns


@dataclass(frozen=True, kw_only=True, eq=False)
class EnvStep:
    """The result of `reset` or `step` of an `Env`."""

    state: Sequence[float] | np.ndarray = ()
    """The numbers that `EnvInfo.state_names` names."""
    images: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Camera name -> image (h, w, 3) uint8."""
    is_done: bool = False
    """Whether the episode is over before its time limit."""
    is_success: bool | np.bool_ | None = None
    """Whether the task is done now, see `EnvInfo.any_success`. None in all steps: the env does not report it,
    and the episodes have no success."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Figures of the episode so far, each with its unit in its name; those of the last step count."""


@runtime_checkable
class Env(Protocol):
    """A simulator of plain numbers; one thread steps it."""

    @property
    def info(self) -> EnvInfo: ...

    def reset(self, seed: int) -> EnvStep:
        """Begin the episode that belongs to the seed; the same seed gives the same episode."""
        ...

    def step(self, action: Float[np.ndarray, " D"]) -> EnvStep:
        """Apply the action for one control period."""
        ...


@runtime_checkable
class RobotEnv(Protocol):
    """A simulated robot with a scene, stepped by the owner of the loop, in one thread.

    read, observe    write    advance
    |----------------|--------|
    measured         sent     one control period later
    """

    @property
    def info(self) -> EnvInfo: ...

    def reset(self, seed: int) -> None:
        """Begin the episode that belongs to the seed; the same seed gives the same episode."""
        ...

    def read(self) -> RobotState:
        """The measured state now."""
        ...

    def observe(self, state: RobotState, cameras: Mapping[str, tuple[int, int]]) -> Observation:
        """The observation for a policy now.

        state: as it was read. cameras: those that the policy uses, with their sizes (height, width).
        """
        ...

    def write(self, command: Command) -> Command:
        """Send a command; returns what is really sent."""
        ...

    def advance(self, command: Command, t_obs_ns: int | None) -> bool:
        """Advance one control period; returns whether the episode is over.

        command: as it was written. t_obs_ns: capture time of the observation behind it [ns]; None before the
        first answer.
        """
        ...

    def score(self) -> EpisodeScore:
        """The score of the episode so far."""
        ...
