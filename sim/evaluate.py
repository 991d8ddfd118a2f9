"""The same executor under the virtual clock: one thread, seeded, bit-identical from run to run.

Latency is not slept: a request made at t is answered at t + delay of the robot's time, however long the
policy really took.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial

import numpy as np

from drivers.fr3 import FR3_LIMITS
from policies.policy import Policy
from robot_runtime.core.action import NS_PER_S, ChunkPart
from robot_runtime.core.executor import Executor
from robot_runtime.core.method import Method
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.schema import mismatches
from robot_runtime.errors import SchemaMismatchError
from robot_runtime.robot import Robot
from robot_runtime.telemetry import RunRecord
from sim.clock import SimClock
from sim.drivers import SimArm, SimGripper
from sim.task import EpisodeScore
from sim.tasks import make_task
from sim.workers import worker_pool
from sim.world import World

CONTROL_PERIOD_NS = 2_000_000


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """One episode, summed up."""

    seed: int
    score: EpisodeScore
    summary: dict[str, float]
    digest: str
    """Fingerprint of the command log."""

    @classmethod
    def of(cls, seed: int, score: EpisodeScore, record: RunRecord) -> "EpisodeResult":
        """What an episode comes to."""
        return cls(seed=seed, score=score, summary=record.summary(), digest=record.digest())


@dataclass(frozen=True, kw_only=True, eq=False)
class Episode:
    """One episode with everything that happened."""

    result: EpisodeResult
    record: RunRecord
    snapshots: list[np.ndarray]
    """World snapshots every `snapshot_period_ns`, empty if none were asked for."""


class DelayedPolicy:
    """Answers requests after a delay of robot time: the server and the network of a virtual run."""

    def __init__(self, policy: Policy, delay_ns: int) -> None:
        self._policy = policy
        self._delay_ns = delay_ns
        self._arrivals: list[tuple[int, ChunkPart]] = []

    def submit(self, request: ChunkRequest, now_ns: int) -> None:
        """Infer now; the parts arrive `delay_ns` later."""
        blocks = list(
            self._policy.infer(
                request.observation,
                prev_action_chunk=request.prev_action_chunk,
                inference_delay=request.inference_delay,
                sampler=request.sampler,
                seed=request.seed,
            )
        )
        first_row = 0
        for i, rows in enumerate(blocks):
            part = ChunkPart(
                request_id=request.request_id,
                epoch=request.epoch,
                t_obs_ns=request.observation.t_obs_ns,
                first_row=first_row,
                rows=rows,
                is_last=i == len(blocks) - 1,
            )
            self._arrivals.append((now_ns + self._delay_ns, part))
            first_row += len(rows)

    def receive(self, now_ns: int) -> list[ChunkPart]:
        """Parts that have arrived by now, in order."""
        due = [part for t_ns, part in self._arrivals if t_ns <= now_ns]
        self._arrivals = self._arrivals[len(due) :]
        return due


def run_episode(
    policy: Policy,
    *,
    task_name: str,
    method: Method,
    seed: int,
    delay_ns: int = 0,
    snapshot_period_ns: int | None = None,
) -> Episode:
    """Run one episode to its end; SchemaMismatchError before anything moves if policy and task do not fit."""
    task, clock = make_task(task_name), SimClock()
    wrong = mismatches(robot=task.schema, policy=policy.schema)
    if wrong:
        raise SchemaMismatchError(f"policy {policy.name!r} cannot do {task_name!r}: " + "; ".join(wrong))
    world = World(task, seed=seed, t_start_ns=clock.now_ns())
    robot = Robot(arm=SimArm(world, clock), gripper=SimGripper(world, clock))
    executor = Executor(
        action_spec=policy.action_spec,
        method=method,
        limits=FR3_LIMITS,
        seed=seed,
        hand_pose=world.kinematics.forward,
    )
    scorer, record, snapshots = task.make_scorer(world), RunRecord(counts=executor.counts), []
    server = DelayedPolicy(policy, delay_ns)
    state = robot.read()
    executor.reset(state, clock.now_ns())
    for now_ns in range(0, round(task.episode_s * NS_PER_S), CONTROL_PERIOD_NS):
        clock.sleep_until_ns(now_ns)
        state = robot.read()
        for part in server.receive(now_ns):
            executor.on_part(part, now_ns)
        if executor.wants_request(now_ns):
            server.submit(executor.make_request(world.observe()), now_ns)
            for part in server.receive(now_ns):
                executor.on_part(part, now_ns)
        tick = executor.tick(state, now_ns)
        robot.write(tick.command)
        record.on_tick(tick, executor.last_splice)
        scorer.on_tick(now_ns, world, tick.command, None if tick.source is None else tick.source.t_obs_ns)
        if snapshot_period_ns is not None and now_ns % snapshot_period_ns == 0:
            snapshots.append(world.snapshot())
        if scorer.is_done:
            break
    result = EpisodeResult.of(seed, scorer.score(), record)
    return Episode(result=result, record=record, snapshots=snapshots)


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What to run; the same configuration gives the same results, however many processes share the work."""

    policy: str
    """A shipped policy's name, or a checkpoint folder."""
    task: str
    method: Method
    delay_ms: float = 0.0
    """From capture of an observation to the arrival of its answer [ms]."""
    episodes: int = 100
    first_seed: int = 10_000
    """Episodes take the seeds from here on; training uses lower ones."""
    workers: int = 2


@cache
def _worker_policy(name: str) -> Policy:
    """The worker process's own policy, loaded at its first episode."""
    from policies.loading import load_policy

    policy = load_policy(name)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    return policy


def _run_one(config: EvaluationConfig, seed: int) -> EpisodeResult:
    return run_episode(
        _worker_policy(config.policy),
        task_name=config.task,
        method=config.method,
        seed=seed,
        delay_ns=round(config.delay_ms * 1e6),
    ).result


def evaluate(
    config: EvaluationConfig, on_episode: Callable[[EpisodeResult], None] = lambda result: None
) -> list[EpisodeResult]:
    """Run all episodes, in seed order; `on_episode` hears of each as it ends."""
    seeds = range(config.first_seed, config.first_seed + config.episodes)
    results: dict[int, EpisodeResult] = {}
    with worker_pool(config.workers) as pool:
        for result in pool.imap_unordered(partial(_run_one, config), seeds):
            results[result.seed] = result
            on_episode(result)
    return [results[seed] for seed in seeds]


def wilson_interval(successes: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """95 % confidence interval of a success rate (Wilson 1927): honest at 0 and 100 %, and for small n."""
    if n == 0:
        return 0.0, 1.0
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return float(max(0.0, centre - half)), float(min(1.0, centre + half))


def summarise(results: list[EpisodeResult]) -> dict[str, float | list[float] | None]:
    """One method's figures over its episodes."""
    n, successes = len(results), sum(result.score.success for result in results)
    times = [r.score.completion_s for r in results if r.score.completion_s is not None]
    reactions = [reaction_s for result in results for reaction_s in result.score.reactions_s]
    out: dict[str, float | list[float] | None] = {
        "episodes": n,
        "success": successes / max(n, 1),
        "success_interval_95": list(wilson_interval(successes, n)),
        "completion_s_median": float(np.median(times)) if times else None,
        "reaction_p50_s": float(np.quantile(reactions, 0.5)) if reactions else None,
        "reaction_p95_s": float(np.quantile(reactions, 0.95)) if reactions else None,
    }
    for source in ("summary", "score"):
        rows = [r.summary if source == "summary" else r.score.metrics for r in results]
        for key in rows[0] if rows else ():
            out[key] = float(np.mean([row[key] for row in rows if key in row]))
    out["seam_jump_max"] = max((r.summary["seam_jump_max"] for r in results), default=0.0)
    return out


def to_json(config: EvaluationConfig, results: list[EpisodeResult], *, with_episodes: bool = True) -> str:
    """Configuration, summary, the seeds that failed, and every episode if wanted, as text."""
    method = {part: repr(value) for part, value in vars(config.method).items()}
    data: dict[str, object] = {
        "config": {**asdict(config), "method": method},
        "summary": summarise(results),
        "failed_seeds": [result.seed for result in results if not result.score.success],
    }
    if with_episodes:
        data["episodes"] = [asdict(result) for result in results]
    return json.dumps(data, indent=1) + "\n"
