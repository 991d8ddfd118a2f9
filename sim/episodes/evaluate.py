"""The same executor under the virtual clock: one thread, seeded, bit-identical from run to run.

Latency is not slept: a request made at t is answered at t + delay of the robot's time, however long the
policy really took.
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from msgspec import structs

from robot_runtime.core.executor import Executor, Splice, Tick
from robot_runtime.core.method.capabilities import resolve_method
from robot_runtime.core.method.table import Method
from robot_runtime.core.plan.correction import ResidualHead
from robot_runtime.core.plan.limiter import ClipTally
from robot_runtime.core.plan.request_planner import ChunkRequest
from robot_runtime.core.policy import Policy, capabilities_of
from robot_runtime.core.safety import Mode
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.core.values.schema import check_task, mismatches
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import SchemaMismatchError
from robot_runtime.robot.control import ControlStep
from robot_runtime.robot.telemetry import RunRecord
from sim.episodes.delay import SAMPLING_SHARE, DelayedPolicy, Inference, answer_all
from sim.episodes.traces import LatencyTrace, constant
from sim.scene.clock import SimClock
from sim.scene.drivers import sim_limits, sim_robot, sim_whole_body
from sim.scene.render import take_pictures
from sim.scene.task import EpisodeScore, Task, with_picture_sizes
from sim.scene.world import World
from sim.tasks import make_task

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
    held_back: dict[str, tuple[int, float]] = field(default_factory=dict)
    """What the limits held back: `ClipTally.figures`."""

    @classmethod
    def of(
        cls,
        seed: int,
        score: EpisodeScore,
        record: RunRecord,
        *,
        clips: ClipTally | None = None,
        server: DelayedPolicy | None = None,
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
        digest = record.digest() if record.is_whole else ""
        held = {} if clips is None else clips.figures()
        return cls(seed=seed, score=score, summary=summary, digest=digest, arrivals=arrivals, held_back=held)


@dataclass(frozen=True, kw_only=True, eq=False)
class Episode:
    """One episode with everything that happened."""

    result: EpisodeResult
    record: RunRecord
    snapshots: list[np.ndarray]
    """World snapshots every `snapshot_period_ns`, empty if none were asked for."""


class ObservationAge:
    """Tells when the observation behind a command was captured.

    The first d rows of an answer to a request with committed rows are what was planned before, repeated: they
    know what the older answers knew. Only on the way to row d does the robot act on the new observation.

        rows of answer 1    0 . . . d-1 | d  d+1  d+2 ...
        rows of answer 2              0 . . . . . . d-1 | d ...     came before answer 1's row d was reached
        known                  older    |  observation 1   | observation 2

    What a correction of single rows has seen on the robot does not count, or a head that adds nothing would
    react at once.
    """

    def __init__(self, dt_ns: int) -> None:
        self._dt_ns = dt_ns
        self._inference_delays: dict[int, int] = {}
        self._coming: list[tuple[int, int]] = []  # (from when on, capture time), both rising
        self._last: Splice | None = None
        self._t_obs_ns: int | None = None

    def asked(self, request: ChunkRequest) -> None:
        """Take note of a request."""
        self._inference_delays[request.request_id] = request.inference_delay

    def t_obs_ns(self, tick: Tick, splice: Splice | None) -> int | None:
        """Capture time of the newest observation this tick's command answers [ns]; None before one does."""
        if splice is not None and splice is not self._last:
            self._last = splice
            row = max(self._inference_delays[splice.source.request_id], splice.seam.first_row or 0)
            from_ns = max(splice.t_ns, splice.t0_ns + (row - 1) * self._dt_ns)
            self._coming = [known for known in self._coming if known[0] < from_ns]
            self._coming.append((from_ns, splice.source.t_obs_ns))
        while tick.mode is Mode.RUN and self._coming and self._coming[0][0] <= tick.now_ns:
            self._t_obs_ns = self._coming.pop(0)[1]
        return None if tick.source is None else self._t_obs_ns


def check_fit(policy: Policy, task: Task) -> None:
    """SchemaMismatchError: the policy is for another robot than the task. InvalidValueError: it does not
    know the task."""
    offered = with_picture_sizes(task.schema, policy.schema.cameras)
    wrong = mismatches(robot=offered, policy=policy.schema)
    if wrong:
        raise SchemaMismatchError(f"policy {policy.name!r} cannot do {task.name!r}: " + "; ".join(wrong))
    check_task(task.instruction, policy=policy.name, tasks=policy.tasks)


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

    Before anything moves: SchemaMismatchError if policy and robot do not fit, InvalidValueError if policy and
    task or method do not.

    correction_head: for methods that correct rows on the robot. It sees the scene without any delay.
    """
    task, clock = make_task(task_name), SimClock()
    check_fit(policy, task)
    can = capabilities_of(policy)
    world = World(task, seed=seed, t_start_ns=clock.now_ns())
    robot = sim_robot(world, clock)
    server = DelayedPolicy(trace, spec=policy.action_spec, seed=seed, sampling_share=sampling_share)
    executor = Executor(
        action_spec=policy.action_spec,
        method=resolve_method(method, can, policy=policy.name),
        limits=sim_limits(has_base=world.has_base),
        control_period_ns=control_period_ns,
        seed=seed,
        request_deadline_ns=trace.deadline_ns,
        max_inference_delay=can.trained_delay(method),
        hand_pose=world.kinematics.forward,
        correction_head=correction_head,
        whole_body=sim_whole_body(world),
        latency=server.probed(method.sampler),
        row_statistics=can.row_statistics,
    )
    record = RunRecord(counts=executor.counts, keep=None)
    link = VirtualLink(executor, server, world, policy.schema.cameras)
    step = ControlStep(executor, robot, link, record)
    scorer, snapshots, informed = task.make_scorer(world), [], ObservationAge(policy.action_spec.dt_ns)
    step.begin(clock.now_ns())
    for now_ns in range(0, round(task.episode_s * NS_PER_S), control_period_ns):
        clock.sleep_until_ns(now_ns)
        yield from _answered(server, now_ns)
        step.look(now_ns)
        yield from _answered(server, now_ns)  # one without delay
        tick = step.act(now_ns)
        for request in link.asked():
            informed.asked(request)
        scorer.on_tick(now_ns, world, tick.command, informed.t_obs_ns(tick, executor.last_splice))
        if snapshot_period_ns is not None and now_ns % snapshot_period_ns == 0:
            snapshots.append(world.snapshot())
        if scorer.is_done:
            break
    return Episode(
        result=EpisodeResult.of(seed, scorer.score(), record, clips=executor.clips, server=server),
        record=record,
        snapshots=snapshots,
    )


class VirtualLink:
    """What a control step asks: a virtual server, shown what the world has to see."""

    def __init__(
        self,
        executor: Executor,
        server: DelayedPolicy,
        world: World,
        cameras: Mapping[str, tuple[int, int]],
    ) -> None:
        """cameras: those that the policy looks at, with the sizes of their pictures."""
        self._executor, self._server, self._world, self._cameras = executor, server, world, cameras
        self._asked: list[ChunkRequest] = []

    def take(self, now_ns: int) -> None:
        """Answers that have arrived, and requests that have waited for too long."""
        for part in self._server.receive(now_ns):
            self._executor.on_part(part, now_ns)
        for request_id in self._server.expired(now_ns):
            self._executor.on_request_failed(request_id)

    def can_ask(self, now_ns: int) -> bool:
        return True

    def observe(self, state: RobotState) -> Observation:
        """What the robot observes now, with the pictures that the policy looks at."""
        observation = self._world.observe(state)
        if not self._cameras:
            return observation
        return structs.replace(observation, images=take_pictures(self._world, self._cameras))

    def observe_scene(self, state: RobotState) -> Observation:
        return self._world.observe(state)

    def send(self, request: ChunkRequest, now_ns: int) -> None:
        self._asked.append(request)
        self._server.submit(request, now_ns)

    def flush(self) -> None:
        """Nothing is held back."""

    def asked(self) -> list[ChunkRequest]:
        """The requests since the last call."""
        out, self._asked = self._asked, []
        return out


def _answered(server: DelayedPolicy, now_ns: int) -> Generator[ChunkRequest, Inference, None]:
    """Have the answers worked out that arrive by now."""
    while (request := server.needed(now_ns)) is not None:
        server.answer(request.request_id, (yield request))


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
        trace=constant(delay_ns / NS_PER_MS) if trace is None else trace,
        control_period_ns=control_period_ns,
        snapshot_period_ns=snapshot_period_ns,
        correction_head=correction_head,
    )
    return play_together(policy, [episode])[0]
