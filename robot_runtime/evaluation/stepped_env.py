"""Adapts an `Env` of plain numbers to the loop's `RobotEnv`; checks everything that an env returns."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from types import NoneType

import numpy as np

from robot_runtime.core.env import Env, EnvInfo, EnvStep, EpisodeScore, RobotEnv
from robot_runtime.core.values.action import NS_PER_S, Command, Numbers, NumbersCommand
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.errors import EnvError, InvalidValueError

WAS_DONE = "done in some step, and not in the last (any_success counts any step)"


class SteppedEnv:
    """One env, an episode at a time."""

    def __init__(self, env: Env) -> None:
        """InvalidValueError: its actions are not plain numbers."""
        self.info: EnvInfo = env.info
        if not all(isinstance(f, Numbers) for f in self.info.schema.action_fields):
            raise InvalidValueError(
                f"env {self.info.name!r} is stepped with plain numbers, and its schema has "
                f"{self.info.schema.action_fields}; a robot with parts is a RobotEnv"
            )
        self._env = env
        names = self.info.state_names
        self._measured = {
            f.part: [names.index(name) for name in f.names]
            for f in self.info.schema.action_fields
            if f.part in self.info.schema.measured
        }
        self._begin(0)

    def _begin(self, seed: int) -> None:
        self._seed, self._num_steps = seed, 0
        self._step = EnvStep()
        self._numbers: Float[np.ndarray, " K"] = np.zeros(0)
        self._done_ns: int | None = None
        self._has_success = self._was_done = False

    def reset(self, seed: int) -> None:
        self._begin(seed)
        with self._named():
            step = self._env.reset(seed)
        self._take(step)

    def read(self) -> RobotState:
        measured = {part: self._numbers[columns] for part, columns in self._measured.items()}
        return RobotState(t_ns=self._now_ns, measured=measured)

    def observe(self, state: RobotState, cameras: Mapping[str, tuple[int, int]]) -> Observation:
        images = {
            name: Image(t_ns=state.t_ns, pixels=self._picture(name, size)) for name, size in cameras.items()
        }
        return Observation(state=state, environment_state=self._numbers, images=images, task=self.info.task)

    def write(self, command: Command) -> Command:
        return command

    def advance(self, command: Command, t_obs_ns: int | None) -> bool:
        numbers = [self._values(command, f.part) for f in self.info.schema.action_fields]
        self._num_steps += 1
        with self._named():
            step = self._env.step(np.concatenate(numbers))
        self._take(step)
        is_success = self._step.is_success
        self._has_success |= is_success is not None
        self._was_done |= bool(is_success)
        if is_success and self._done_ns is None:
            self._done_ns = self._now_ns
        elif not is_success and not self.info.any_success:
            self._done_ns = None  # it was done for a while
        return self._step.is_done

    def score(self) -> EpisodeScore:
        return EpisodeScore(
            success=self._done_ns is not None,
            completion_s=None if self._done_ns is None else self._done_ns / NS_PER_S,
            metrics={name: float(value) for name, value in self._step.metrics.items()},
            has_success=self._has_success,
            why=WAS_DONE if self._was_done and self._done_ns is None else "",
        )

    @property
    def _now_ns(self) -> int:
        return self._num_steps * self.info.control_period_ns

    def _values(self, command: Command, part: str) -> Float[np.ndarray, " D"]:
        numbers = command.parts[part]
        assert isinstance(numbers, NumbersCommand)
        return numbers.values

    @property
    def _where(self) -> str:
        when = f"step {self._num_steps}" if self._num_steps else "reset"
        return f"env {self.info.name!r}, seed {self._seed}, {when}"

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Add a note to the env's exceptions with their position in the evaluation."""
        try:
            yield
        except Exception as error:
            error.add_note(self._where)
            raise

    def _take(self, step: object) -> None:
        where = self._where
        if not isinstance(step, EnvStep):
            raise EnvError(f"{where}: expected an EnvStep, got {type(step).__name__} {step!r:.100}")
        numbers = np.asarray(step.state, dtype=float)
        names = self.info.state_names
        if numbers.shape != (len(names),):
            raise EnvError(
                f"{where}: its state has shape {numbers.shape}, expected {(len(names),)}: {', '.join(names)}"
            )
        if not np.isfinite(numbers).all():
            wrong = [name for name, x in zip(names, numbers, strict=True) if not np.isfinite(x)]
            raise EnvError(f"{where}: its state is not finite: {', '.join(wrong)}")
        if not isinstance(step.is_success, bool | np.bool_ | NoneType):
            raise EnvError(f"{where}: is_success is True, False or None, got {step.is_success!r:.100}")
        self._step, self._numbers = step, numbers

    def _picture(self, name: str, size: tuple[int, int]) -> np.ndarray:
        has = ", ".join(self._step.images) or "none"
        if name not in self._step.images:
            raise EnvError(f"env {self.info.name!r} gave no picture {name!r}; it gave {has}")
        pixels = np.asarray(self._step.images[name])
        if pixels.shape != (*size, 3) or pixels.dtype != np.uint8:
            raise EnvError(
                f"env {self.info.name!r}: picture {name!r} is {pixels.shape} {pixels.dtype}, expected "
                f"{(*size, 3)} uint8"
            )
        return pixels


def as_robot_env(env: object) -> RobotEnv:
    """Adapt the env for the loop; InvalidValueError: one sentence for everything that it lacks."""
    if isinstance(env, RobotEnv):
        _check_reset(env)
        return env
    if is_gymnasium(env):
        from robot_runtime.evaluation.gymnasium_env import GymnasiumEnv

        return SteppedEnv(GymnasiumEnv(env))
    if isinstance(env, Env):
        _check_reset(env)
        if not isinstance(env.info, EnvInfo):
            raise InvalidValueError(f"an env's info is an EnvInfo, got {type(env.info).__name__}")
        return SteppedEnv(env)
    missing = [name for name in ("info", "reset", "step") if not hasattr(env, name)]
    raise InvalidValueError(
        f"an env has info, reset(seed) and step(action), or is one of Gymnasium's; {type(env).__name__} "
        f"lacks {', '.join(missing)}"
    )


def _check_reset(env: Env | RobotEnv) -> None:
    try:
        signature(env.reset).bind(0)
    except TypeError as error:
        raise InvalidValueError(
            f"{type(env).__name__}.reset takes the seed of the episode, reset(seed): {error}"
        ) from error


def is_gymnasium(env: object) -> bool:
    """Whether it has the interface of Gymnasium's envs."""
    return all(hasattr(env, name) for name in ("observation_space", "action_space", "reset", "step"))
