"""Runs many episodes of any env: `evaluate`."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from robot_runtime.core.env import EnvInfo, RobotEnv
from robot_runtime.core.method.choose import Auto, Default, choose_method, default_for, method_or_choice
from robot_runtime.core.method.latency import LATENCY_QUANTILE
from robot_runtime.core.method.table import Method
from robot_runtime.core.policy import Policy
from robot_runtime.errors import InvalidValueError
from robot_runtime.evaluation.delay import SAMPLING_SHARE
from robot_runtime.evaluation.loop import play, play_together
from robot_runtime.evaluation.remote_policy import RemotePolicy
from robot_runtime.evaluation.result import Episode, EpisodeResult
from robot_runtime.evaluation.statistics import summarise, to_json
from robot_runtime.evaluation.stepped_env import SteppedEnv, as_robot_env, is_gymnasium
from robot_runtime.evaluation.traces import LatencyTrace, constant, find_trace
from robot_runtime.log.config import LogConfig

if TYPE_CHECKING:
    from robot_runtime.evaluation.gymnasium_env import GymnasiumSettings

GROUP_SIZE = 25
"""Episodes that are answered together, where there is an env for each."""
FIRST_SEED = 10_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """An evaluation and its results."""

    config: dict[str, object]
    episodes: list[EpisodeResult]

    @property
    def success(self) -> float:
        """Share of the episodes that succeeded; NaN if the env does not report it."""
        share = self.summary()["success"]
        return share if isinstance(share, float) else math.nan

    @property
    def control_period_ns(self) -> int:
        """Simulated time from one command to the next [ns]."""
        period_ns = self.config["control_period_ns"]
        assert isinstance(period_ns, int)
        return period_ns

    def summary(self) -> dict[str, float | list[float] | None]:
        """Success with its interval, and every figure's mean: see `statistics.summarise`."""
        return summarise(self.episodes)

    def to_json(self) -> str:
        """Provenance, configuration, summary and every episode: what `eval --json` writes."""
        return to_json(self.config, self.episodes)

    def plot(self, path: Path, *, title: str = "") -> None:
        """Write a plot; the suffix of the path selects the format. Needs matplotlib."""
        from robot_runtime.evaluation.plots import plot_evaluation

        plot_evaluation(self.episodes, title=title or str(self.config["env"]), path=path)


def evaluate(
    policy: Policy | str,
    env: object,
    *,
    method: Method | str = "default",
    execution_horizon: int | None = None,
    trace: LatencyTrace | str | float = 0.0,
    seeds: Sequence[int] = range(FIRST_SEED, FIRST_SEED + 100),
    sampling_share: float = SAMPLING_SHARE,
    env_settings: Mapping[str, object] | None = None,
    log: LogConfig | None = None,
    on_episode: Callable[[EpisodeResult], None] = lambda result: None,
) -> Evaluation:
    """Run one episode for each seed under the virtual clock.

    policy: or the address of a server, which is then asked in lock-step (`remote_policy`).
    env: an `Env`, a `RobotEnv` or one of Gymnasium's; or a function without arguments that makes one: then
        several run side by side, and a policy that answers batches is asked for many at once.
    method: of the table, by its name or as parts; "default" is the one the policy was trained for, "auto" the
        one that suits the trace.
    execution_horizon: rows of a chunk that run before the next request; the method's by default.
    trace: a constant delay [ms], a trace, or a name that `find_trace` knows: from the capture of an
        observation to its answer, in simulated time.
    env_settings: what an env with Gymnasium's interface does not declare itself, by the keys of `--env-file`,
        as {"max_steps": 200, "success": "none"}.
    log: where each episode leaves its log; None: nowhere.
    InvalidValueError, SchemaMismatchError: env and policy, or policy and method, do not fit. EnvError: the
        env gave something that it did not declare.
    """
    if env_settings is not None:
        env = configured_env(env, _settings(env_settings))
    if isinstance(policy, str):
        with RemotePolicy(policy, schema=_Envs(env)[0].info.schema) as there:
            return evaluate(
                there,
                env,
                method=method,
                execution_horizon=execution_horizon,
                trace=trace,
                seeds=seeds,
                sampling_share=sampling_share,
                log=log,
                on_episode=on_episode,
            )
    late = trace if isinstance(trace, LatencyTrace) else _trace(trace)
    way = method if isinstance(method, Method) else chosen_method(policy, method, late, execution_horizon)[0]
    envs = _Envs(env)
    begin = partial(play, policy, method=way, trace=late, sampling_share=sampling_share, log=log)
    results: list[EpisodeResult] = []
    for group in _groups(seeds, envs.most):
        episodes: list[Episode] = play_together(
            policy, [begin(envs[i], seed=seed) for i, seed in enumerate(group)]
        )
        for episode in episodes:
            results.append(episode.result)
            on_episode(episode.result)
    info = envs[0].info
    config: dict[str, object] = {
        "policy": policy.info.name,
        "env": info.name,
        "method": {part: repr(value) for part, value in vars(way).items()},
        "trace": {"name": late.name, "fingerprint": late.fingerprint},
        "episodes": len(seeds),
        "control_period_ns": info.control_period_ns,
        "sampling_share": sampling_share,
    }
    if isinstance(envs[0], SteppedEnv):
        config["success"] = info.success_rule
    return Evaluation(config=config, episodes=results)


class _Envs:
    """One env, or as many as are wanted from a function that makes them; each made when first used."""

    def __init__(self, env: object) -> None:
        self._make: Callable[[], object] = env if callable(env) and not is_env(env) else lambda: env
        self._made: list[RobotEnv] = []
        self.most = GROUP_SIZE
        """Maximum number of envs side by side."""
        if is_env(env) or not callable(env):
            self._made.append(as_robot_env(env))  # which reports what it lacks
            self.most = 1

    def __getitem__(self, number: int) -> RobotEnv:
        while len(self._made) <= number:
            self._made.append(as_robot_env(self._make()))
        return self._made[number]


def is_env(found: object) -> bool:
    """Whether it is an env, and not a function that makes one."""
    if isinstance(found, type):
        return False
    return is_gymnasium(found) or all(hasattr(found, name) for name in ("info", "reset"))


def configured_env(env: object, settings: "GymnasiumSettings") -> object:
    """Apply settings to an env with Gymnasium's interface, or to a function that makes one.

    InvalidValueError: it declares everything itself, in its `info`.
    """
    from robot_runtime.evaluation.gymnasium_env import GymnasiumEnv

    def with_settings(one: object) -> GymnasiumEnv:
        if isinstance(getattr(one, "info", None), EnvInfo) or not is_gymnasium(one):
            raise InvalidValueError(
                f"--env-file and env_settings are for envs with Gymnasium's interface; {type(one).__name__} "
                "declares what it is in its info"
            )
        return GymnasiumEnv(one, settings)

    if callable(env) and not is_env(env):
        make: Callable[..., object] = env
        return lambda: with_settings(make(**settings.kwargs))
    if settings.kwargs:
        raise InvalidValueError("kwargs are of a class or function that makes an env, and this is an env")
    return with_settings(env)


def _settings(values: Mapping[str, object]) -> "GymnasiumSettings":
    from robot_runtime.evaluation.gymnasium_env import GymnasiumSettings

    return GymnasiumSettings.of(values, where="env_settings")


def chosen_method(
    policy: Policy, name: str, trace: LatencyTrace, execution_horizon: int | None = None
) -> tuple[Method, str]:
    """The method of a name, and a note on the choice; empty if the name was given."""
    method = method_or_choice(name, execution_horizon=execution_horizon)
    if isinstance(method, Method):
        return method, ""
    can, spec = policy.info.capabilities, policy.info.action_spec
    match method:
        case Default():
            choice = default_for(method, can)
        case Auto():
            choice = choose_method(
                can,
                latency_ns=trace.quantile_ns(LATENCY_QUANTILE),
                dt_ns=spec.dt_ns,
                horizon=spec.horizon,
                execution_horizon=method.execution_horizon,
            )
    return choice.method, str(choice)


def _trace(late: str | float) -> LatencyTrace:
    if isinstance(late, str):
        return find_trace(late)
    if late < 0.0:
        raise InvalidValueError(f"a delay is not negative, got {late} ms")
    return constant(late)


def _groups(seeds: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(seeds), size):
        yield seeds[start : start + size]
