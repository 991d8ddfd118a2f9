"""Runs the same executor under the virtual clock: one thread, seeded, bit-identical from run to run.

Latency is not slept: a request made at t is answered at t + delay of the simulated time, however long the
policy really took.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace

from robot_runtime.core.configuration import Configuration
from robot_runtime.core.env import EnvInfo, RobotEnv
from robot_runtime.core.executor import Executor
from robot_runtime.core.history import ObservationHistory
from robot_runtime.core.journal import make_executor
from robot_runtime.core.method.table import Method
from robot_runtime.core.orders import TakenOrder
from robot_runtime.core.plan.correction import ResidualHead
from robot_runtime.core.policy import ChunkRequest, Policy
from robot_runtime.core.policy_info import PolicyInfo, aligned_info
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.alignment import Alignment
from robot_runtime.core.values.mismatches import check_task, mismatches
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import SchemaMismatchError
from robot_runtime.evaluation.delay import SAMPLING_SHARE, Answer, DelayedPolicy, answer_all
from robot_runtime.evaluation.observation_age import ObservationAge
from robot_runtime.evaluation.person import Act, Person, do
from robot_runtime.evaluation.result import Episode, EpisodeResult
from robot_runtime.evaluation.traces import LatencyTrace
from robot_runtime.log.config import LogConfig
from robot_runtime.log.start import start_log
from robot_runtime.log.writer import RunLogWriter
from robot_runtime.robot.control import ControlStep, HeldStill
from robot_runtime.robot.telemetry import RunRecord

Play = Generator[ChunkRequest, Answer, Episode]
"""A running episode: yields the request whose answer it needs to continue, and takes that answer."""


def check_fit(policy: Policy, info: EnvInfo) -> None:
    """SchemaMismatchError: the policy is for another robot than the env's. InvalidValueError: it was not
    trained for the task."""
    offered = info.schema
    if info.has_any_picture_size:
        cameras = {name: policy.info.schema.cameras.get(name, size) for name, size in offered.cameras.items()}
        offered = replace(offered, cameras=cameras)
    wrong = mismatches(robot=offered, policy=policy.info.schema)
    if wrong and all(sentence.startswith("environment state") for sentence in wrong):
        check_task(info.task, policy=policy.info.name, tasks=policy.info.tasks)
    if wrong:
        raise SchemaMismatchError(f"policy {policy.info.name!r} cannot do {info.name!r}: " + "; ".join(wrong))
    check_task(info.task, policy=policy.info.name, tasks=policy.info.tasks)


def play(
    policy: Policy,
    env: RobotEnv,
    *,
    method: Method,
    seed: int,
    trace: LatencyTrace,
    sampling_share: float = SAMPLING_SHARE,
    correction_head: ResidualHead | None = None,
    log: LogConfig | None = None,
    person: Person | None = None,
) -> Play:
    """Run one episode to its end.

    Before anything moves: SchemaMismatchError if policy and env do not fit, InvalidValueError if policy and
    task or method do not.

    correction_head: for methods that correct rows on the robot. It sees the scene without any delay.
    log: where the episode is logged, completely, whatever time that takes; None: nowhere.
    person: takes over and hands back by its own rule; None: no takeovers.
    """
    info = env.info
    check_fit(policy, info)
    alignment = Alignment.between(
        robot=info.schema, policy=policy.info.schema, action_spec=policy.info.action_spec
    )
    aligned = aligned_info(policy.info, alignment, robot=info.schema)
    env.reset(seed)
    server = DelayedPolicy(trace, spec=aligned.action_spec, seed=seed, sampling_share=sampling_share)
    kept = None if log is None else _started(log, info, aligned, method, seed)
    with nullcontext() if kept is None else kept:
        executor = make_executor(
            Configuration(
                **aligned.run_by(method),
                limits=info.limits,
                control_period_ns=info.control_period_ns,
                seed=seed,
                request_deadline_ns=trace.deadline_ns,
                hand_pose=info.hand_pose,
                correction_head=correction_head,
                whole_body=info.whole_body,
                latency=server.probed(method.sampler).known,
                part_latency_ns=info.latency_ns,
            ),
            None if kept is None else kept.note,
        )
        record, age = RunRecord(counts=executor.counts, keep=None), ObservationAge(aligned.action_spec.dt_ns)
        link = VirtualLink(executor, server, env, aligned.schema.cameras)
        body = HeldStill(env, info.schema, aligned.action_spec, whole_body=info.whole_body)
        step = ControlStep(executor, body, link, record, history=ObservationHistory.of(aligned), log=kept)
        step.begin(0)
        beside = None if person is None else _Beside(person, executor, record, kept, seed)
        for now_ns in range(0, info.episode_ns, info.control_period_ns):
            yield from _answered(server, alignment, now_ns)
            if beside is not None:
                beside.do(now_ns)
            step.look(now_ns)
            yield from _answered(server, alignment, now_ns)  # one without delay
            tick = step.act(now_ns)
            for request in link.asked():
                age.asked(request)
            if beside is not None and step.state is not None:
                beside.see(tick, env.observe(step.state, {}))
            if env.advance(body.completed(tick.command), age.t_obs_ns(tick, executor.last_splice)):
                break
        result = EpisodeResult.of(seed, env.score(), record, clips=executor.clips, server=server)
        if kept is not None:
            kept.close({"success": str(result.score.success)} if result.score.has_success else {})
            record.log_files = kept.files
        return Episode(result=result, record=record)


class _Beside:
    """Connects a simulated operator: its requests after a tick are executed before the next one."""

    def __init__(
        self,
        person: Person,
        executor: Executor,
        record: RunRecord,
        log: RunLogWriter | None,
        seed: int,
    ) -> None:
        self._person, self._executor, self._record, self._log = person, executor, record, log
        self._act, self._acted_ns = Act(), 0
        person.begin(seed)

    def see(self, tick: Tick, seen: Observation) -> None:
        self._act, self._acted_ns = self._person.act(tick, seen), tick.now_ns

    def do(self, now_ns: int) -> None:
        do(
            self._act,
            self._executor,
            now_ns,
            by=self._person.name,
            posted_ns=self._acted_ns,
            note=self._note,
        )

    def _note(self, taken: TakenOrder) -> None:
        self._record.orders.append(taken)
        if self._log is not None:
            self._log.note(taken)


def _started(log: LogConfig, info: EnvInfo, policy: PolicyInfo, method: Method, seed: int) -> RunLogWriter:
    return start_log(
        log,
        task=info.task or info.name,
        robot=info.name,
        schema=info.schema,
        policy=policy,
        control_period_ns=info.control_period_ns,
        now_ns=0,
        is_virtual=True,
        method=repr(method),
        seed=seed,
    )


class VirtualLink:
    """Link of the control loop to a virtual server, with observations from the env."""

    def __init__(
        self,
        executor: Executor,
        server: DelayedPolicy,
        env: RobotEnv,
        cameras: Mapping[str, tuple[int, int]],
    ) -> None:
        """cameras: those that the policy uses, with their image sizes."""
        self._executor, self._server, self._env, self._cameras = executor, server, env, cameras
        self._asked: list[ChunkRequest] = []

    def take(self, now_ns: int) -> None:
        """Answers that have arrived, and requests that have timed out."""
        for part in self._server.receive(now_ns):
            self._executor.on_part(part, now_ns)
        for request_id in self._server.expired(now_ns):
            self._executor.on_request_failed(request_id)

    def can_ask(self, now_ns: int) -> bool:
        return True

    def observe(self, state: RobotState) -> Observation:
        """The env's current observation, with the images that the policy uses."""
        return self._env.observe(state, self._cameras)

    def observe_scene(self, state: RobotState) -> Observation:
        return self._env.observe(state, {})

    def send(self, request: ChunkRequest, now_ns: int) -> None:
        self._asked.append(request)
        self._server.submit(request, now_ns)

    def flush(self) -> None:
        """Do nothing: nothing is held back."""

    def asked(self) -> list[ChunkRequest]:
        """The requests since the last call."""
        out, self._asked = self._asked, []
        return out


def _answered(
    server: DelayedPolicy, alignment: Alignment, now_ns: int
) -> Generator[ChunkRequest, Answer, None]:
    """Compute the answers that arrive by now; the policy gets its own order of columns."""
    while (request := server.needed(now_ns)) is not None:
        answer = yield request.aligned(alignment)
        server.answer(request.request_id, replace(answer, blocks=tuple(map(alignment.ours, answer.blocks))))


def play_together(policy: Policy, plays: Iterable[Play]) -> list[Episode]:
    """Run episodes side by side and answer, again and again, all waiting requests in one batch; results in
    order.

    Which requests share a batch follows from the episodes alone, so the same group gives the same results.
    """
    episodes: dict[int, Episode] = {}
    waiting: dict[int, tuple[Play, ChunkRequest]] = {}

    def go_on(i: int, episode: Play, answer: Answer | None) -> None:
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
