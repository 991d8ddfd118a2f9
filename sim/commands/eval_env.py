"""`robot-runtime eval --env`: runs an env and a policy, given by name, in several processes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from robot_runtime.core.env import RobotEnv
from robot_runtime.core.method.table import Method
from robot_runtime.core.policy import Policy
from robot_runtime.errors import EnvError, InvalidValueError, RobotRuntimeError
from robot_runtime.evaluation.evaluate import Evaluation, chosen_method, configured_env, evaluate, is_env
from robot_runtime.evaluation.gymnasium_env import GymnasiumSettings, make_gymnasium, make_lerobot
from robot_runtime.evaluation.loop import play
from robot_runtime.evaluation.remote_policy import RemotePolicy, is_address
from robot_runtime.evaluation.result import EpisodeResult
from robot_runtime.evaluation.stepped_env import as_robot_env
from robot_runtime.evaluation.traces import LatencyTrace
from robot_runtime.evaluation.workers import worker_pool
from robot_runtime.load_object import load_made, load_object
from robot_runtime.log.config import LogConfig
from robot_runtime.transport.address import server_and_name
from robot_runtime.user_code import UserCodeError, of_user

GYMNASIUM, LEROBOT = "gymnasium:", "lerobot:"
GROUP_SIZE = 5
"""Number of episodes that a process takes at a time."""


@dataclass(frozen=True, kw_only=True)
class EnvEvaluation:
    """Configuration of an evaluation; its results do not depend on the number of processes."""

    env: str
    """gymnasium:ID, lerobot:TYPE, or as `load_object` takes it."""
    env_file: Path | None
    """File with what a Gymnasium environment does not declare itself."""
    policy: str
    """As `load_object` takes it, a name, a folder, or a server's address."""
    method: Method | None = None
    """Method; None until it is chosen."""
    trace: LatencyTrace
    sampling_share: float
    seeds: range
    log: LogConfig | None = None
    """Where each episode writes its log."""

    def run(self) -> Evaluation:
        """Run all episodes in this process. EnvError: the env or the policy raised an error, with its
        text."""
        try:
            return self._run()
        except RobotRuntimeError:
            raise
        except Exception as error:
            trace = of_user(error)
            if trace is None and not getattr(error, "__notes__", ()):
                raise
            shown = str(UserCodeError("your code", error, trace or error.__traceback__))
            raise EnvError(shown) from None  # text, unlike some errors, can be passed between processes

    def _run(self) -> Evaluation:
        return evaluate(
            self.policy if is_server(self.policy) else named_policy(self.policy),
            env_or_maker(self.env, self.env_file),
            method=self.method or "default",
            trace=self.trace,
            seeds=self.seeds,
            sampling_share=self.sampling_share,
            log=self.log,
        )

    def groups(self) -> list["EnvEvaluation"]:
        """Split the evaluation into groups of episodes."""
        starts = range(self.seeds.start, self.seeds.stop, GROUP_SIZE)
        return [
            replace(self, seeds=range(start, min(start + GROUP_SIZE, self.seeds.stop))) for start in starts
        ]


def choose(config: EnvEvaluation, name: str, *, execution_horizon: int | None) -> tuple[EnvEvaluation, str]:
    """Return the evaluation with the named method, and a line on its choice.

    Runs the first episode up to its first request, so that an error of all episodes is raised here.
    """
    found = env_or_maker(config.env, config.env_file)
    env = as_robot_env(found() if callable(found) and not is_env(found) else found)
    with _policy_for(config.policy, env) as policy:
        method, line = chosen_method(policy, name, config.trace, execution_horizon)
        next(play(policy, env, method=method, seed=config.seeds.start, trace=config.trace))
    return replace(config, method=method), line


@contextmanager
def _policy_for(text: str, env: RobotEnv) -> Iterator[Policy]:
    if not is_server(text):
        yield named_policy(text)
        return
    with RemotePolicy(text, schema=env.info.schema) as policy:
        yield policy


def run_env(
    config: EnvEvaluation, on_episode: Callable[[EpisodeResult], None], *, workers: int
) -> Evaluation:
    """Run all episodes in seed order; `on_episode` gets each one when its group ends."""
    out = []
    with worker_pool(workers) as pool:
        for done in pool.imap(EnvEvaluation.run, config.groups()):
            out.append(done)
            for result in done.episodes:
                on_episode(result)
    described = {
        **out[0].config,
        "env": config.env,
        "policy": config.policy,
        "first_seed": config.seeds.start,
        "episodes": len(config.seeds),
    }
    return Evaluation(config=described, episodes=[result for done in out for result in done.episodes])


def is_server(text: str) -> bool:
    """Return whether text is a server's address, such as tcp://HOST:PORT or HOST:PORT/NAME; it has a port."""
    if is_address(text):
        return True
    port = text.partition("/")[0].rpartition(":")[2]
    if "://" in text or not port.isdecimal():
        return False
    try:
        server_and_name(text)
    except InvalidValueError:
        return False
    return True


@cache
def named_policy(text: str) -> Policy:
    """Return the user's own policy, or one that `load_policy` knows."""
    if ":" not in text or text.startswith("hf://"):
        from policies.load import load_policy

        return load_policy(text)
    found = load_made(text, group="robot_runtime.policies", what="policy", is_one=_is_policy)
    assert isinstance(found, Policy)
    return found


def _is_policy(found: object) -> bool:
    return not isinstance(found, type) and isinstance(found, Policy)


@cache
def env_or_maker(text: str, settings_file: Path | None) -> object:
    """Return an env, or a function without arguments that makes one. InvalidValueError: there is none."""
    settings = None if settings_file is None else GymnasiumSettings.load(settings_file)
    if text.startswith(GYMNASIUM):
        return partial(make_gymnasium, text.removeprefix(GYMNASIUM), settings)
    if text.startswith(LEROBOT):
        return partial(make_lerobot, text.removeprefix(LEROBOT), settings)
    found = load_object(text, group="robot_runtime.envs", what="env")
    if not is_env(found) and not callable(found):
        as_robot_env(found)  # raises with what it lacks
    return found if settings is None else configured_env(found, settings)
