"""Records an expert in an env, step by step: `record_steps`, kept in a folder, used by `train`.

    shown 0    action 0   shown 1    action 1   shown 2          one episode after the other
       |----------|----------|----------|----------|----->

An expert is a function that takes the env, just reset, and returns one that turns each step into an
action:

    def expert(env): return lambda step: step.state[2:4]
"""

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from robot_runtime.core.env import Env, EnvInfo, EnvStep
from robot_runtime.core.plan.limits import NumbersLimits
from robot_runtime.core.values.action import Numbers
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.shapes import Float, Int
from robot_runtime.core.values.state import readonly
from robot_runtime.errors import EnvError, InvalidValueError

Expert = Callable[[Any], Callable[[EnvStep], np.ndarray]]
"""From an env at the start of an episode to a function that acts in that episode."""
FILE = "steps.npz"
FORMAT = 1
STEPS_PER_DISTURBANCE = 5
"""The disturbance of an action is constant for this many steps, and every other time zero: noise that changes
from step to step averages out."""
_NOISE_STREAM = 0xD157


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedSteps:
    """Whole episodes, one after the other: N steps of K numbers shown and D commanded."""

    name: str
    """Name of the env."""
    schema: Schema
    """What the env offers a policy, without images."""
    control_period_ns: int
    task: str
    state_names: tuple[str, ...]
    state: Float[np.ndarray, "N K"]
    """The state when the action was chosen."""
    actions: Float[np.ndarray, "N D"]
    """The expert's action, without the noise in the env's command."""
    episode: Int[np.ndarray, " N"]
    """Seed of each step's episode."""

    def __post_init__(self) -> None:
        for name, dtype in (("state", float), ("actions", float), ("episode", np.int64)):
            object.__setattr__(self, name, readonly(getattr(self, name), dtype=dtype))
        n, names = len(self.episode), self.numbers.names
        shapes = (n, len(self.state_names)), (n, len(names))
        if not n or (self.state.shape, self.actions.shape) != shapes:
            raise InvalidValueError(
                f"recorded steps need at least one, of {shapes[0][1]} numbers and {shapes[1][1]} actions, "
                f"got arrays of {self.state.shape} and {self.actions.shape}"
            )

    @property
    def numbers(self) -> Numbers:
        """The action's columns."""
        return numbers_of(self.schema)

    @property
    def num_episodes(self) -> int:
        return len(np.unique(self.episode))

    def save(self, folder: Path) -> None:
        """Write `steps.npz`; arrays and one text of JSON, never pickle."""
        about = {
            "format": FORMAT,
            "name": self.name,
            "schema": self.schema.to_dict(),
            "control_period_ns": self.control_period_ns,
            "task": self.task,
            "state_names": self.state_names,
        }
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{FILE}.part"
        with part.open("wb") as file:
            np.savez_compressed(
                file,
                about=np.array(json.dumps(about)),
                state=self.state.astype(np.float32),
                actions=self.actions.astype(np.float32),
                episode=self.episode,
            )
        part.replace(folder / FILE)

    @classmethod
    def load(cls, folder: Path) -> "RecordedSteps":
        """Inverse of `save`, in single precision; InvalidValueError: the folder has something else."""
        path = folder / FILE
        try:
            with np.load(path, allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                if about["format"] != FORMAT:
                    raise ValueError(f"expected format {FORMAT}, found {about['format']}")
                return cls(
                    name=str(about["name"]),
                    schema=Schema.from_dict(about["schema"]),
                    control_period_ns=int(about["control_period_ns"]),
                    task=str(about["task"]),
                    state_names=tuple(map(str, about["state_names"])),
                    state=file["state"],
                    actions=file["actions"],
                    episode=file["episode"],
                )
        except (OSError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidValueError(f"{path} holds no recorded steps: {error}") from error

    def __add__(self, other: "RecordedSteps") -> "RecordedSteps":
        """The episodes of both; of one env."""
        return replace(
            self,
            state=np.concatenate([self.state, other.state]),
            actions=np.concatenate([self.actions, other.actions]),
            episode=np.concatenate([self.episode, other.episode]),
        )


def numbers_of(schema: Schema) -> Numbers:
    """The only field of an env of plain numbers; InvalidValueError: it has others."""
    if len(schema.action_fields) != 1 or not isinstance(schema.action_fields[0], Numbers):
        raise InvalidValueError(f"steps are recorded of plain numbers, the env has {schema.action_fields}")
    return schema.action_fields[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class ExpertEpisode:
    """One episode, and whether it succeeded."""

    seed: int
    is_success: bool
    state: list[np.ndarray]
    actions: list[np.ndarray]


def play_expert(env: Env, expert: Expert, *, seed: int, noise: float = 0.0) -> ExpertEpisode:
    """Run an expert for an episode, to the env's time limit or to its end.

    noise: standard deviation of the disturbance that is added to the expert's action, as a share of half
        the action's range. The expert continues from the disturbed state: so the record shows recoveries.
        With noise a success in any step counts, as the noise may end the last one.
    EnvError: the expert returned something that is not an action.
    """
    info, rng = env.info, np.random.default_rng([_NOISE_STREAM, seed])
    low, high = _range(info)
    half = np.where(np.isfinite(high - low), (high - low) / 2.0, numbers_of(info.schema).scale)
    step, act = env.reset(seed), expert(env)
    states: list[np.ndarray] = []
    actions: list[np.ndarray] = []
    is_success, off = False, 0.0 * half
    for k in range(info.episode_ns // info.control_period_ns):
        action = np.asarray(act(step), dtype=float)
        if action.shape != low.shape or not np.isfinite(action).all():
            raise EnvError(f"step {k} of the expert: expected {len(low)} finite numbers, got {action!r:.200}")
        states.append(np.asarray(step.state, dtype=float))
        actions.append(np.clip(action, low, high))
        if noise and k % STEPS_PER_DISTURBANCE == 0:
            off = noise * half * rng.normal(size=len(low)) * rng.integers(2)
        step = env.step(np.clip(action + off, low, high))
        is_success = bool(step.is_success) or (is_success and (info.any_success or noise > 0.0))
        if step.is_done:
            break
    return ExpertEpisode(seed=seed, is_success=is_success, state=states, actions=actions)


def recorded(info: EnvInfo, episodes: Sequence[ExpertEpisode]) -> RecordedSteps:
    """The episodes that succeeded; InvalidValueError: none did."""
    kept = [episode for episode in episodes if episode.is_success]
    if not kept:
        raise InvalidValueError(f"the expert succeeded in none of {len(episodes)} episodes of {info.name}")
    return RecordedSteps(
        name=info.name,
        schema=replace(info.schema, cameras={}),
        control_period_ns=info.control_period_ns,
        task=info.task,
        state_names=info.state_names,
        state=np.concatenate([episode.state for episode in kept]),
        actions=np.concatenate([episode.actions for episode in kept]),
        episode=np.concatenate([[episode.seed] * len(episode.state) for episode in kept]),
    )


def record_steps(env: Env, expert: Expert, *, seeds: Sequence[int], noise: float = 0.0) -> RecordedSteps:
    """Record the expert in the episodes of these seeds that succeed; see `play_expert`."""
    return recorded(env.info, [play_expert(env, expert, seed=seed, noise=noise) for seed in seeds])


def measured_in(steps: RecordedSteps) -> Mapping[str, Float[np.ndarray, "N D"]]:
    """What the env measures under the action's names, by part; none if it does not."""
    numbers, names = steps.numbers, steps.state_names
    if numbers.part not in steps.schema.measured:
        return {}
    return {numbers.part: steps.state[:, [names.index(name) for name in numbers.names]]}


def _range(info: EnvInfo) -> tuple[np.ndarray, np.ndarray]:
    limits = info.limits.parts[numbers_of(info.schema).part]
    assert isinstance(limits, NumbersLimits)
    return limits.low, limits.high
