"""Any Gymnasium environment as an `Env`: `GymnasiumEnv`; a small file declares what it does not itself.

{"state": ["agent_pos"], "action_names": ["x", "y"], "success": "is_success", "control_hz": 10}
"""

import importlib
import json
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import ValidationError, convert

from robot_runtime.core.env import EnvInfo, EnvStep
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import EnvError, InvalidValueError, UnknownNameError

SUCCESS_KEYS = ("is_success", "success")
"""Keys of Gymnasium's `info` that report whether the task is done."""
MADE_BY_ID = ("aloha", "pusht")
"""LeRobot's environments that are Gymnasium's."""
TERMINATED = "terminated"
"""In place of such a key: the task is done when the episode ends before its time limit."""
NONE = "none"
"""In place of such a key: there is no success, only figures, as the return."""
_WHERE = "with --env-file, in Python with env_settings"


@dataclass(frozen=True, kw_only=True)
class GymnasiumSettings:
    """Settings of an environment that it does not declare itself; None or empty: as it declares."""

    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `gymnasium.make`, or of your own class or function that makes one."""
    action_names: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    """Keys of a dict observation whose numbers are the state, in order; nested ones with a slash."""
    state_names: tuple[str, ...] = ()
    success: str = ""
    """Key of `info`; or "terminated", or "none"."""
    any_success: bool = False
    """As `is_held` and `at_rest`, see `EnvInfo.of_numbers`."""
    control_hz: float | None = None
    """Steps per simulated second; `metadata["render_fps"]` by default."""
    max_steps: int | None = None
    task: str = ""
    is_held: bool = True
    at_rest: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "GymnasiumSettings":
        """Load a JSON or TOML file; InvalidValueError reports what is wrong with it."""
        try:
            text = path.read_text()
            data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        except (OSError, ValueError) as error:
            raise InvalidValueError(f"{path} does not declare an environment: {error}") from error
        return cls.of(data, where=str(path))

    @classmethod
    def of(cls, data: object, *, where: str) -> "GymnasiumSettings":
        """Make them from a dict; InvalidValueError reports what is wrong with it, and `where`."""
        names = {f.name for f in fields(cls)}
        if not isinstance(data, Mapping) or data.keys() - names:
            unknown = (
                ", ".join(sorted(data.keys() - names)) if isinstance(data, Mapping) else repr(data)[:100]
            )
            raise InvalidValueError(f"{where} has {unknown}; valid: {', '.join(sorted(names))}")
        try:
            return convert(dict(data), cls)
        except ValidationError as error:
            raise InvalidValueError(f"{where}: {error}") from error


class GymnasiumEnv:
    """One environment. Boxes only: an action is one vector, an observation vectors and images."""

    def __init__(self, env: Any, settings: GymnasiumSettings | None = None) -> None:
        """InvalidValueError: a space is not a box, or something is undeclared."""
        settings = settings or GymnasiumSettings()
        self._env, self._settings = env, settings
        spec, space = getattr(env, "spec", None), env.action_space
        name = getattr(spec, "id", None) or type(env).__name__
        self._name = name
        if _kind(space) != "Box" or len(space.shape) != 1:
            raise InvalidValueError(
                f"{name}: its action space is {space}; expected a Box of one dimension, a vector of numbers"
            )
        boxes = dict(_boxes(name, "", env.observation_space))
        self._cameras = {_short(key): key for key, box in boxes.items() if _is_picture(box)}
        self._state = settings.state or tuple(key for key, box in boxes.items() if not _is_picture(box))
        if missing := [key for key in self._state if key not in boxes]:
            raise UnknownNameError(f"observation of {name}", missing[0], boxes)
        sizes = {key: int(np.prod(boxes[key].shape)) for key in self._state}
        hz = settings.control_hz or (getattr(env, "metadata", None) or {}).get("render_fps")
        if not hz:
            raise InvalidValueError(
                f"{name} does not declare its time step (metadata['render_fps']): set control_hz {_WHERE}"
            )
        max_steps = settings.max_steps or getattr(spec, "max_episode_steps", None)
        if not max_steps:
            raise InvalidValueError(f"{name} has no time limit (max_episode_steps): set max_steps {_WHERE}")
        self._dtype, self._return = space.dtype, 0.0
        columns = [name for key, size in sizes.items() for name in _columns(key, size)]
        self.info = EnvInfo.of_numbers(
            name,
            actions=_named(
                settings.action_names, [f"action_{i + 1}" for i in range(space.shape[0])], "actions"
            ),
            low=np.asarray(space.low, dtype=float),
            high=np.asarray(space.high, dtype=float),
            state=_named(settings.state_names, columns, "numbers"),
            control_hz=float(hz),
            max_steps=int(max_steps),
            task=settings.task,
            cameras={camera: boxes[key].shape[:2] for camera, key in self._cameras.items()},
            is_held=settings.is_held,
            at_rest=settings.at_rest,
            any_success=settings.any_success,
        )

    @property
    def unwrapped(self) -> Any:
        """The environment itself, without Gymnasium's wrappers."""
        return self._env.unwrapped

    def reset(self, seed: int) -> EnvStep:
        observation, info = self._env.reset(seed=seed)
        self._return = 0.0
        return self._shown(observation, info, is_done=False, is_success=None)

    def step(self, action: Float[np.ndarray, " D"]) -> EnvStep:
        observation, reward, is_terminated, is_truncated, info = self._env.step(action.astype(self._dtype))
        self._return += float(reward)
        is_success = self._is_success(info, is_terminated=bool(is_terminated))
        is_done = bool(is_terminated or is_truncated)
        return self._shown(observation, info, is_done=is_done, is_success=is_success)

    def _shown(
        self, observation: Any, info: Mapping[str, Any], *, is_done: bool, is_success: bool | None
    ) -> EnvStep:
        figures = {
            key: float(x) for key, x in info.items() if isinstance(x, int | float | np.number | np.bool_)
        }
        numbers = [np.asarray(_at(observation, key), dtype=float).ravel() for key in self._state]
        return EnvStep(
            state=np.concatenate(numbers) if numbers else np.zeros(0),
            images={name: np.asarray(_at(observation, key)) for name, key in self._cameras.items()},
            is_done=is_done,
            is_success=is_success,
            metrics={"return": self._return, **figures},
        )

    def _is_success(self, info: Mapping[str, Any], *, is_terminated: bool) -> bool | None:
        if self._settings.success == NONE:
            return None
        if self._settings.success == TERMINATED:
            return is_terminated
        keys = (self._settings.success,) if self._settings.success else SUCCESS_KEYS
        for key in keys:
            if key in info:
                return self._boolean(key, info[key])
        has = f"has only {', '.join(sorted(info))}" if info else "is empty"
        raise EnvError(
            f"{self._name} does not report whether it succeeded: its info {has}, not {' or '.join(keys)}. "
            f'Set success with --env-file or env_settings: a key of info, "{TERMINATED}" (done when the '
            f'episode ends before its time) or "{NONE}" (there is none; the return is reported)'
        )

    def _boolean(self, key: str, value: Any) -> bool:
        """Convert a bool, or one number that is 0 or 1, as some environments have it."""
        number = np.asarray(value)
        if number.size != 1 or number.dtype.kind not in "biuf" or number.item() not in (0, 1):
            raise EnvError(f"{self._name}: info[{key!r}] is {value!r:.100}; a success is True or False")
        return bool(number.item())


def make_gymnasium(env_id: str, settings: GymnasiumSettings | None = None) -> GymnasiumEnv:
    """Make an environment by its id.

    env_id: as in Gymnasium, "CartPole-v1"; or with the package that registers it before a slash,
        "gym_pusht/PushT-v0" (an id with this namespace) or "gymnasium_robotics/FetchReach-v4" (an id
        without one), or before a colon, as `gymnasium.make` takes it.
    InvalidValueError: a package is missing or fails, or the id is unknown.
    """
    settings = settings or GymnasiumSettings()
    _import("gymnasium", "gymnasium")
    package, mark, own = env_id.partition(":" if ":" in env_id else "/")
    if mark:
        _import(package, package.replace("_", "-"))
    import gymnasium

    known = own if own in gymnasium.registry and env_id not in gymnasium.registry else env_id
    try:
        env = gymnasium.make(known, **settings.kwargs)
    except gymnasium.error.Error as error:
        raise InvalidValueError(f"Gymnasium cannot make {env_id!r}: {error}") from error
    except TypeError as error:
        raise InvalidValueError(f"{env_id} does not take kwargs {dict(settings.kwargs)}: {error}") from error
    except Exception as error:  # raised by the environment's own code
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise InvalidValueError(
            f"{env_id} fails when it is made: {type(error).__name__} {error} ({at.filename}:{at.lineno})"
        ) from error
    return GymnasiumEnv(env, settings)


def make_lerobot(env_type: str, settings: GymnasiumSettings | None = None) -> GymnasiumEnv:
    """Make an environment by LeRobot's name for it ("pusht", "aloha"), set up as LeRobot does.

    InvalidValueError: LeRobot is missing or has no such environment that is one of Gymnasium's.
    """
    _import("lerobot", "lerobot")
    from lerobot.envs.configs import EnvConfig

    choices = EnvConfig.get_known_choices()
    if env_type not in choices:
        raise UnknownNameError("environment of LeRobot", env_type, choices)
    if env_type not in MADE_BY_ID:
        raise InvalidValueError(
            f"LeRobot makes {env_type!r} by code of its own, and only {' and '.join(MADE_BY_ID)} by an id: "
            "name a file of yours that makes one, as my_env.py:env"
        )
    config, settings = choices[env_type](), settings or GymnasiumSettings()
    return make_gymnasium(
        config.gym_id,
        GymnasiumSettings(
            **{
                **vars(settings),
                "kwargs": {**config.gym_kwargs, **settings.kwargs},
                "control_hz": settings.control_hz or config.fps,
                "max_steps": settings.max_steps or getattr(config, "episode_length", None),
            }
        ),
    )


def _import(module: str, package: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == module:
            raise InvalidValueError(f"there is no package {module}: pip install {package}") from error
        raise InvalidValueError(f"{module} cannot be imported: {error}") from error
    except Exception as error:  # raised by the package while it is imported
        raise InvalidValueError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error


def _kind(space: object) -> str:
    """The space's kind by name: it may be another Gymnasium's class, or shaped like one."""
    return type(space).__name__


def _boxes(name: str, key: str, space: Any) -> Iterator[tuple[str, Any]]:
    """Every box of an observation space with its key."""
    match _kind(space):
        case "Box":
            yield key, space
        case "Dict":
            for inner, each in space.spaces.items():
                yield from _boxes(name, f"{key}/{inner}" if key else str(inner), each)
        case _:
            where = f" at {key!r}" if key else ""
            raise InvalidValueError(
                f"{name}: its observation space{where} is {space}; expected boxes, and dicts of boxes"
            )


def _is_picture(box: Any) -> bool:
    return len(box.shape) == 3 and box.shape[2] == 3 and box.dtype == np.uint8


def _short(key: str) -> str:
    """Name of a camera: the last word of its key, and "image" for the only one, as in LeRobot."""
    return "image" if key in ("", "pixels") else key.rpartition("/")[2]


def _columns(key: str, size: int) -> list[str]:
    name = key or "state"
    return [name] if size == 1 else [f"{name}_{i + 1}" for i in range(size)]


def _named(declared: tuple[str, ...], found: list[str], what: str) -> tuple[str, ...]:
    if declared and len(declared) != len(found):
        raise InvalidValueError(f"{len(declared)} names are declared for {len(found)} {what}")
    return declared or tuple(found)


def _at(observation: Any, key: str) -> Any:
    for part in key.split("/") if key else ():
        observation = observation[part]
    return observation
