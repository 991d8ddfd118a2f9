"""The same executor under the virtual clock: one thread, seeded, bit-identical from run to run.

Latency is not slept: a request made at t is answered at t + delay of the robot's time, however long the
policy really took.
"""

import json
import sys
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, dataclass, field, fields
from functools import cache, partial
from itertools import pairwise

import numpy as np

from drivers.fr3 import FR3_LIMITS
from policies.correction import head_for
from policies.policy import Policy, capabilities_of
from robot_runtime.core.action import NS_PER_S
from robot_runtime.core.capabilities import fitted
from robot_runtime.core.correction import CorrectionHead, ResidualHead
from robot_runtime.core.executor import Executor, Splice, Tick
from robot_runtime.core.method import Method
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.schema import mismatches
from robot_runtime.errors import SchemaMismatchError
from robot_runtime.robot import Robot
from robot_runtime.telemetry import RunRecord
from sim.clock import SimClock
from sim.delay import SAMPLING_SHARE, DelayedPolicy, Inference, answer_all
from sim.drivers import SimArm, SimGripper
from sim.task import EpisodeScore
from sim.tasks import make_task
from sim.traces import MS, LatencyTrace, constant
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
    arrivals: tuple[tuple[float, float], ...] = ()
    """Of each answer that entered the plan: (capture since the one before, capture to first row) [s, s]."""

    @classmethod
    def of(
        cls, seed: int, score: EpisodeScore, record: RunRecord, server: DelayedPolicy | None = None
    ) -> "EpisodeResult":
        """What an episode comes to; with a virtual server, also what it cost."""
        summary = record.summary()
        if server is not None:
            robot_s = max(summary["duration_s"], 1e-9)
            summary |= {
                "requests_per_s": server.num_requests / robot_s,
                "evaluations_per_s": server.num_evaluations / robot_s,
                "num_failed_requests": float(server.num_failed),
            }
        arrivals = tuple(
            ((b.source.t_obs_ns - a.source.t_obs_ns) / NS_PER_S, b.latency_ns / NS_PER_S)
            for a, b in pairwise(record.splices)
        )
        return cls(seed=seed, score=score, summary=summary, digest=record.digest(), arrivals=arrivals)


@dataclass(frozen=True, kw_only=True, eq=False)
class Episode:
    """One episode with everything that happened."""

    result: EpisodeResult
    record: RunRecord
    snapshots: list[np.ndarray]
    """World snapshots every `snapshot_period_ns`, empty if none were asked for."""


class _Informed:
    """Tells when the observation behind a command was captured.

    The first d rows of an answer to a request with committed rows are the older plan's, repeated: until row d
    is next, the robot still acts on what it had seen before. What a correction of single rows has seen on the
    robot does not count, or a head that adds nothing would react at once.
    """

    def __init__(self) -> None:
        self._inference_delays: dict[int, int] = {}
        self._t_obs_ns: int | None = None

    def asked(self, request: ChunkRequest) -> None:
        self._inference_delays[request.request_id] = request.inference_delay

    def t_obs_ns(self, tick: Tick, splice: Splice | None) -> int | None:
        """Capture time of the newest observation this tick's command answers [ns]; None before one does."""
        if tick.source is None:
            return None
        next_row = tick.row
        if next_row is not None:
            next_row += 1
        elif splice is not None and splice.source == tick.source:
            next_row = splice.seam.first_row
        if self._t_obs_ns is None or (next_row or 0) >= self._inference_delays[tick.source.request_id]:
            self._t_obs_ns = tick.source.t_obs_ns
        return self._t_obs_ns


Play = Generator[ChunkRequest, Inference, Episode]
"""An episode under way: gives the request whose answer it cannot go on without, and takes that answer."""


def play(
    policy: Policy,
    *,
    task_name: str,
    method: Method,
    seed: int,
    trace: LatencyTrace,
    control_period_ns: int = CONTROL_PERIOD_NS,
    sampling_share: float = SAMPLING_SHARE,
    snapshot_period_ns: int | None = None,
    correction_head: ResidualHead | None = None,
) -> Play:
    """One episode to its end.

    Before anything moves: SchemaMismatchError if policy and task do not fit, InvalidValueError if policy and
    method do not.

    correction_head: for methods that correct rows on the robot. It sees the scene without any delay.
    """
    task, clock = make_task(task_name), SimClock()
    wrong = mismatches(robot=task.schema, policy=policy.schema)
    if wrong:
        raise SchemaMismatchError(f"policy {policy.name!r} cannot do {task_name!r}: " + "; ".join(wrong))
    can = capabilities_of(policy)
    world = World(task, seed=seed, t_start_ns=clock.now_ns())
    robot = Robot(arm=SimArm(world, clock), gripper=SimGripper(world, clock))
    executor = Executor(
        action_spec=policy.action_spec,
        method=fitted(method, can, policy=policy.name),
        limits=FR3_LIMITS,
        seed=seed,
        request_deadline_ns=trace.deadline_ns,
        max_inference_delay=can.trained_delay(method),
        hand_pose=world.kinematics.forward,
        correction_head=correction_head,
    )
    record = RunRecord(counts=executor.counts)
    scorer, snapshots, informed = task.make_scorer(world), [], _Informed()
    server = DelayedPolicy(trace, seed=seed, sampling_share=sampling_share)
    executor.reset(robot.read(), clock.now_ns())
    for now_ns in range(0, round(task.episode_s * NS_PER_S), control_period_ns):
        clock.sleep_until_ns(now_ns)
        state = robot.read()
        yield from _take_answers(server, executor, now_ns)
        if executor.wants_request(now_ns):
            request = executor.make_request(world.observe())
            informed.asked(request)
            server.submit(request, now_ns)
            yield from _take_answers(server, executor, now_ns)
        if executor.wants_correction(now_ns):
            executor.correct(world.observe(), now_ns)
        tick = executor.tick(state, now_ns)
        robot.write(tick.command)
        record.on_tick(tick, executor.last_splice)
        scorer.on_tick(now_ns, world, tick.command, informed.t_obs_ns(tick, executor.last_splice))
        if snapshot_period_ns is not None and now_ns % snapshot_period_ns == 0:
            snapshots.append(world.snapshot())
        if scorer.is_done:
            break
    return Episode(
        result=EpisodeResult.of(seed, scorer.score(), record, server), record=record, snapshots=snapshots
    )


def _take_answers(
    server: DelayedPolicy, executor: Executor, now_ns: int
) -> Generator[ChunkRequest, Inference, None]:
    while (request := server.needed(now_ns)) is not None:
        server.answer(request.request_id, (yield request))
    for part in server.receive(now_ns):
        executor.on_part(part, now_ns)
    for request_id in server.expired(now_ns):
        executor.on_request_failed(request_id)


def play_together(policy: Policy, plays: Iterable[Play]) -> list[Episode]:
    """Run episodes side by side and answer, again and again, all that wait in one batch; results in order.

    Which requests share a batch follows from the episodes alone, so the same group gives the same results.
    """
    episodes: dict[int, Episode] = {}
    waiting: dict[int, tuple[Play, ChunkRequest]] = {}

    def go_on(i: int, episode: Play, answer: Inference | None) -> None:
        try:
            waiting[i] = episode, next(episode) if answer is None else episode.send(answer)
        except StopIteration as end:
            waiting.pop(i, None)
            episodes[i] = end.value

    for i, episode in enumerate(plays):
        go_on(i, episode, None)
    while waiting:
        asked = list(waiting.items())
        answers = answer_all(policy, [request for _, (_, request) in asked])
        for (i, (episode, _)), answer in zip(asked, answers, strict=True):
            go_on(i, episode, answer)
    return [episodes[i] for i in sorted(episodes)]


def run_episode(
    policy: Policy,
    *,
    task_name: str,
    method: Method,
    seed: int,
    delay_ns: int = 0,
    trace: LatencyTrace | None = None,
    control_period_ns: int = CONTROL_PERIOD_NS,
    snapshot_period_ns: int | None = None,
    correction_head: ResidualHead | None = None,
) -> Episode:
    """One episode by itself, as `play`; `delay_ns` is a constant delay where there is no trace."""
    episode = play(
        policy,
        task_name=task_name,
        method=method,
        seed=seed,
        trace=constant(delay_ns / MS) if trace is None else trace,
        control_period_ns=control_period_ns,
        snapshot_period_ns=snapshot_period_ns,
        correction_head=correction_head,
    )
    return play_together(policy, [episode])[0]


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What to run; the same configuration gives the same results, however many processes share the work."""

    policy: str
    """A shipped policy's name, or a checkpoint folder."""
    task: str
    method: Method
    trace: LatencyTrace = field(default_factory=lambda: constant(0.0))
    """From capture of an observation to the arrival of its answer."""
    episodes: int = 100
    first_seed: int = 10_000
    """Episodes take the seeds from here on; training uses lower ones."""
    control_period_ns: int = CONTROL_PERIOD_NS
    sampling_share: float = SAMPLING_SHARE
    group_size: int = 25
    """Episodes that are answered together. Batches of another size round differently, in the last bit."""

    def as_dict(self) -> dict[str, object]:
        """All of it as JSON has it; method and trace in words that tell any two apart."""
        return {
            **{f.name: getattr(self, f.name) for f in fields(self)},
            "method": {part: repr(value) for part, value in vars(self.method).items()},
            "trace": {"name": self.trace.name, "fingerprint": self.trace.fingerprint},
        }

    def groups(self) -> list[range]:
        """The seeds of each group."""
        end = self.first_seed + self.episodes
        starts = range(self.first_seed, end, self.group_size)
        return [range(start, min(start + self.group_size, end)) for start in starts]


@cache
def _worker_policy(name: str) -> Policy:
    """The worker process's own policy, loaded at its first episode."""
    from policies.loading import load_policy

    policy = load_policy(name)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    return policy


@cache
def _worker_head(method: Method, policy: str, task: str) -> CorrectionHead | None:
    """The worker process's own head, for methods that need one."""
    return head_for(method, policy, task=task)


def run_group(config: EvaluationConfig, seeds: range) -> list[EpisodeResult]:
    """One group of an evaluation, in this process."""
    policy = _worker_policy(config.policy)
    head = _worker_head(config.method, config.policy, config.task)
    plays = [
        play(
            policy,
            task_name=config.task,
            method=config.method,
            seed=seed,
            trace=config.trace,
            control_period_ns=config.control_period_ns,
            sampling_share=config.sampling_share,
            correction_head=head,
        )
        for seed in seeds
    ]
    return [episode.result for episode in play_together(policy, plays)]


def evaluate(
    config: EvaluationConfig,
    on_episode: Callable[[EpisodeResult], None] = lambda result: None,
    *,
    workers: int = 2,
) -> list[EpisodeResult]:
    """Run all episodes, in seed order; `on_episode` hears of each as its group ends."""
    out: list[EpisodeResult] = []
    with worker_pool(workers) as pool:
        for results in pool.imap(partial(run_group, config), config.groups()):
            out += results
            for result in results:
                on_episode(result)
    return out


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
    data: dict[str, object] = {
        "config": config.as_dict(),
        "summary": summarise(results),
        "failed_seeds": [result.seed for result in results if not result.score.success],
    }
    if with_episodes:
        data["episodes"] = [asdict(result) for result in results]
    return json.dumps(data, indent=1) + "\n"
