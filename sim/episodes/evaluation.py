"""Evaluates many episodes of one kind in several processes: `EvaluationConfig`, `evaluate`.

Besides our methods, the physical limit and a peer's engine can be evaluated on the same tasks, seeds and
traces.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from hashlib import sha256

from policies.correction import head_for
from policies.load import load_policy
from robot_runtime.core.method.table import Method
from robot_runtime.core.plan.correction import CorrectionHead
from robot_runtime.core.policy import Policy
from robot_runtime.evaluation.delay import SAMPLING_SHARE
from robot_runtime.evaluation.loop import Play, play_together
from robot_runtime.evaluation.result import EpisodeResult
from robot_runtime.evaluation.traces import LatencyTrace, constant
from robot_runtime.evaluation.workers import worker_pool
from robot_runtime.log.config import LogConfig
from sim.episodes.delayed_expert import run_delayed_expert
from sim.episodes.evaluate import play_task
from sim.episodes.task_env import CONTROL_PERIOD_NS
from sim.experts.policy import EXPERT_POLICY, ExpertPolicy
from sim.scene.world import World
from sim.tasks import make_task

_NEVER_NS = 10**15


@dataclass(frozen=True)
class DelayedExpert:
    """The scripted expert on late observations, see `sim.episodes.delayed_expert`: no policy, no server."""


class PeerEngine(ABC):
    """Another project's engine with our policy; a frozen dataclass whose fields identify it."""

    @abstractmethod
    def run_episode(self, config: "EvaluationConfig", seed: int) -> EpisodeResult:
        """Run one episode of the evaluation, in this process."""


Contestant = Method | DelayedExpert | PeerEngine
"""Runs an episode."""


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """An evaluation; results do not depend on the number of processes."""

    policy: str
    """A shipped policy's name, or a checkpoint folder."""
    task: str
    method: Contestant
    trace: LatencyTrace = field(default_factory=lambda: constant(0.0))
    """Delays from capture of an observation to arrival of its answer."""
    episodes: int = 100
    first_seed: int = 10_000
    """Episodes use seeds from here on; training uses lower ones."""
    control_period_ns: int = CONTROL_PERIOD_NS
    sampling_share: float = SAMPLING_SHARE
    group_size: int = 25
    """Episodes that are answered together. Other batch sizes differ in the last bit."""

    log: LogConfig | None = None
    """Where each episode writes its log; None: nowhere. Does not change results."""

    def as_dict(self) -> dict[str, object]:
        """The configuration as JSON values; method and trace by unique descriptions."""
        return {
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name != "log"},
            "method": {part: repr(value) for part, value in vars(self.method).items()},
            "trace": {"name": self.trace.name, "fingerprint": self.trace.fingerprint},
        }

    def groups(self) -> list[range]:
        """The seeds of each group."""
        end = self.first_seed + self.episodes
        starts = range(self.first_seed, end, self.group_size)
        return [range(start, min(start + self.group_size, end)) for start in starts]


def policy_for(task: str, name: str) -> Policy:
    """The task's scripted expert by `EXPERT_POLICY`, otherwise the policy by `load_policy`."""
    return ExpertPolicy(task) if name == EXPERT_POLICY else load_policy(name)


@cache
def _worker_policy(task: str, name: str) -> Policy:
    """The worker process's own policy, loaded at its first episode."""
    return policy_for(task, name)


@cache
def _worker_head(method: Method, policy: str, task: str) -> CorrectionHead | None:
    """The worker process's own head, for methods that need one."""
    return head_for(method, None if policy == EXPERT_POLICY else policy, task=task)


def run_group(config: EvaluationConfig, seeds: range) -> list[EpisodeResult]:
    """Run one group of an evaluation, in this process."""
    match config.method:
        case Method() as method:
            return _run_methods_group(config, method, seeds)
        case DelayedExpert():
            return list(_run_experts_group(config, seeds))
        case PeerEngine() as engine:
            return [engine.run_episode(config, seed) for seed in seeds]


def try_out(config: EvaluationConfig) -> None:
    """Begin the first episode, up to its first request: raises the errors that all would raise."""
    if isinstance(config.method, Method):
        for begun in _plays(replace(config, log=None), config.method, config.groups()[0][:1]):
            next(begun)


def _run_methods_group(config: EvaluationConfig, method: Method, seeds: range) -> list[EpisodeResult]:
    policy = _worker_policy(config.task, config.policy)
    return [episode.result for episode in play_together(policy, _plays(config, method, seeds))]


def _plays(config: EvaluationConfig, method: Method, seeds: range) -> list[Play]:
    policy = _worker_policy(config.task, config.policy)
    head = _worker_head(method, config.policy, config.task)
    return [
        play_task(
            policy,
            task_name=config.task,
            method=method,
            seed=seed,
            trace=config.trace,
            control_period_ns=config.control_period_ns,
            sampling_share=config.sampling_share,
            correction_head=head,
            log=config.log,
        )
        for seed in seeds
    ]


def _run_experts_group(config: EvaluationConfig, seeds: range) -> Iterator[EpisodeResult]:
    world = World(make_task(config.task))
    for seed in seeds:
        score = run_delayed_expert(world, seed=seed, delay=partial(_experts_delay_ns, config.trace, seed))
        digest = sha256(repr(score).encode()).hexdigest()
        yield EpisodeResult(seed=seed, score=score, summary={}, digest=digest)


def _experts_delay_ns(trace: LatencyTrace, seed: int, t_ns: int) -> int:
    delay_ns = trace.delay_ns(t_ns + trace.offset_ns(seed))
    return _NEVER_NS if delay_ns is None else delay_ns


def evaluate(
    config: EvaluationConfig,
    on_episode: Callable[[EpisodeResult], None] = lambda result: None,
    *,
    workers: int = 2,
) -> list[EpisodeResult]:
    """Run all episodes, in seed order; `on_episode` is called for each when its group ends."""
    out: list[EpisodeResult] = []
    with worker_pool(workers, threads=1) as pool:
        for results in pool.imap(partial(run_group, config), config.groups()):
            out += results
            for result in results:
                on_episode(result)
    return out
