"""The only control loop: clock, drivers and executor on one thread, cameras and network on their own.

    camera threads  ─► Mailbox[Image] ─┐
    network thread  ◄─ request ────────┤ control thread: read state, take events, tick, write command
                    ─► events ─────────┘

The control thread never waits for the others. When `duration_s` is over or `should_stop` says so, the robot
comes to rest and the loop ends. Nothing that network, server, cameras or callbacks do ends it in mid-motion:

    server lost                       the plan runs to its end, HOLD, until it is back
    server that cannot go on          the plan runs to its end, HOLD, then the run ends: `RunRecord.fault`
    an error of `observe`, `on_tick`  the robot comes to rest, then the error goes out
    an error of a driver              goes out at once; all drivers are stopped
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec import structs

from robot_runtime.clock import Clock
from robot_runtime.core.camera_watch import CameraFault, CameraLimits
from robot_runtime.core.executor import Executor, Tick
from robot_runtime.core.method.capabilities import resolve_method
from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.method.table import Method
from robot_runtime.core.plan.correction import ResidualHead
from robot_runtime.core.plan.limits import Limits
from robot_runtime.core.plan.open_requests import PartOutcome
from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.plan.request_planner import ChunkRequest
from robot_runtime.core.plan.whole_body import WholeBody
from robot_runtime.core.robot import Camera
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.distribution import Distribution
from robot_runtime.robot.cameras import CAMERAS_BACK, Cameras, camera_threads, needed_cameras
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.notices import Notices
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.scheduling import Pacer, real_time_thread
from robot_runtime.robot.telemetry import KEPT_TICKS, RunRecord
from robot_runtime.wire.events import (
    PartReceived,
    RequestDropped,
    RequestExpired,
    RequestFailed,
    ServerLost,
    ServerReady,
    ServerRefused,
)
from robot_runtime.wire.messages import DropReason, Welcome

logger = logging.getLogger(__name__)

SERVER_LOST, SERVER_BACK = "server lost", "server is back"
"""How the entries of the run's log begin."""
FROZEN_HINT = " (if it is a simulated camera without noise: CameraLimits(has_noise=False))"


@dataclass(frozen=True, kw_only=True, eq=False)
class RunConfig:
    """What stays the same for a run: the robot, how it is told to move, and what it is asked to do."""

    robot: Robot
    limits: Limits
    method: Method
    clock: Clock
    observe: Callable[[RobotState], Observation]
    """Adds task text and scene quantities to a state; images are added by the runner."""
    cameras: Mapping[str, Camera] = field(default_factory=dict)
    hand_pose: HandPose | None = None
    """The robot's forward kinematics, for methods that roll a plan of joints forward."""
    correction_head: ResidualHead | None = None
    """For methods that correct rows on the robot; it sees what `observe` makes of a state, no images."""
    whole_body: WholeBody | None = None
    """Resolves hand poses against the measured base; None leaves them to the arm's driver."""
    state_limits: StateLimits = field(default_factory=StateLimits)
    """What of the measured state is taken for a fault."""
    camera_limits: CameraLimits = field(default_factory=CameraLimits)
    """What of the pictures is."""
    control_hz: float = 500.0
    seed: int = 0
    use_fifo: bool = True
    """Ask for SCHED_FIFO; without it, or if it is not allowed, the ordinary scheduler has to do."""


class Runner:
    """Drives one robot with one server until told to stop."""

    def __init__(
        self,
        setting: RunConfig,
        client: PolicyClient,
        welcome: Welcome,
        *,
        latency: LatencyEstimator | None = None,
        keep_ticks: int | None = KEPT_TICKS,
    ) -> None:
        """
        latency: measured over this connection (`probe.latency_for`), so that the first request knows it; None
            learns it on the way.
        keep_ticks: how many of the newest ticks the record keeps; None keeps all of a short run.
        InvalidValueError: the policy does not support the method, or its numbers do not fit the chunk.
        """
        self._setting = setting
        self._client = client
        self._welcome = welcome
        self._blind: dict[str, CameraFault] = {}
        self._is_connected = True
        self.arrival_to_executor_ns = Distribution()
        can = welcome.capabilities
        self.executor = Executor(
            action_spec=welcome.action_spec,
            method=resolve_method(setting.method, can, policy=welcome.policy),
            max_inference_delay=can.trained_delay(setting.method),
            limits=setting.limits,
            control_period_ns=round(NS_PER_S / setting.control_hz),
            state_limits=setting.state_limits,
            seed=setting.seed,
            hand_pose=setting.hand_pose,
            correction_head=setting.correction_head,
            whole_body=setting.whole_body,
            latency=latency,
            row_statistics=can.row_statistics,
        )
        self.executor.epoch = client.new_epochs()
        self.record = RunRecord(counts=self.executor.counts, keep=keep_ticks)
        self._notices = Notices(lambda text, is_routine: self._log(text, is_routine=is_routine))
        self._stands = False
        self._fault = ""
        self._error: BaseException | None = None

    def run(
        self,
        *,
        duration_s: float,
        on_tick: Callable[[Tick], None] = lambda tick: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> RunRecord:
        """Control the robot until it is told to stop and stands still; returns what happened.

        A run that cannot go on ends by itself, `RunRecord.fault` says why. An error of a callback goes out
        once the robot stands.
        """
        setting = self._setting
        needed = needed_cameras(setting.cameras, self._welcome.schema.cameras)
        with camera_threads(needed, setting.clock, setting.camera_limits) as cameras:
            cameras.await_first(should_stop)
            with real_time_thread(use_fifo=setting.use_fifo, helpers=[self._client.thread_id]) as line:
                logger.info("%s", line)
                try:
                    self._loop(cameras, duration_s, on_tick, should_stop)
                finally:
                    setting.robot.stop()
        return self.record

    def _loop(
        self,
        cameras: Cameras,
        duration_s: float,
        on_tick: Callable[[Tick], None],
        should_stop: Callable[[], bool],
    ) -> None:
        setting, executor = self._setting, self.executor
        state = setting.robot.read()  # a simulated one has to catch up with the clock first
        now_ns = setting.clock.now_ns()
        executor.reset(state, now_ns)
        mode, end_ns = executor.mode, now_ns + round(duration_s * NS_PER_S)
        pacer = Pacer(setting.clock, period_ns=round(NS_PER_S / setting.control_hz))
        while executor.mode is not Mode.STOP or not executor.is_at_rest:
            beat = pacer.wait()
            now_ns = beat.now_ns
            if now_ns >= end_ns or self._is_over(now_ns, should_stop):
                executor.stop()
            state = setting.robot.read()
            self._guarded(self._take_events, now_ns)
            images = self._guarded(self._images, cameras, now_ns)
            request = self._guarded(self._request, state, cameras, images, now_ns)
            self._guarded(self._correct, state, now_ns)
            tick = executor.tick(state, now_ns)
            setting.robot.write(tick.command)
            if request is not None:
                self._guarded(self._client.submit, request)
            self.record.on_tick(tick, executor.last_splice)
            self.record.lateness_ns.add(beat.lateness_ns)
            self.record.num_skipped += beat.num_skipped
            self._guarded(on_tick, tick)
            self._say_why_it_stands(now_ns)
            if tick.mode is not mode:
                is_routine = tick.cause in (Cause.FRESH_CHUNK, Cause.PLAN_ENDED, Cause.STOP_REQUESTED)
                self._log(f"{mode.name} -> {tick.mode.name}: {tick.cause.value}", is_routine=is_routine)
                mode = tick.mode
        self._say_what_was_otherwise()
        for sentence in executor.clips.sentences():
            self._log(sentence)
        self._notices.sum_up()
        if self._error is not None:
            raise self._error
        if self.record.num_splices == 0 and not self._fault:
            self._fault = f"the robot did not move: {executor.why_no_rows()}"
        self.record.fault = self._fault

    def _is_over(self, now_ns: int, should_stop: Callable[[], bool]) -> bool:
        """Whether to come to rest now."""
        if self._error is not None or self._guarded(should_stop):
            return True
        return bool(self._fault) and self.executor.mode is Mode.HOLD and self.executor.is_at_rest

    def _guarded[**P, T](self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What a call into somebody else's code returns. Its first error is kept until the robot stands; then
        nothing but the loop itself goes on, and None is returned."""
        if self._error is not None:
            return None
        try:
            return call(*args, **kwargs)
        except BaseException as error:  # Ctrl-C and exit() too: the robot moves
            self._error = error
            self._log(f"the robot comes to rest: {type(error).__name__}: {error}", is_routine=False)
            return None

    def _say_why_it_stands(self, now_ns: int) -> None:
        """One line each time the robot has stood still for longer than it should."""
        why = self.executor.why_it_stands(now_ns)
        if why is not None and not self._stands:
            self._notices.note("the robot stood still", f"the robot stands still: {why}")
        self._stands = why is not None

    def _log(self, text: str, *, is_routine: bool = True) -> None:
        self.record.log.append((self._setting.clock.now_ns(), text))
        logger.log(logging.INFO if is_routine else logging.WARNING, "%s", text)

    def _correct(self, state: RobotState, now_ns: int) -> None:
        """Move the row due next by what is seen now, if the method does so."""
        if self.executor.wants_correction(now_ns):
            self.executor.correct(self._setting.observe(state), now_ns)

    def _request(
        self, state: RobotState, cameras: Cameras, images: dict[str, Image] | None, now_ns: int
    ) -> ChunkRequest | None:
        """What to ask with the newest observation, if it is time to and all cameras have a picture for it."""
        if images is None or not self._is_connected or not self.executor.wants_request(now_ns):
            return None
        for name in cameras.show(images):
            self.record.reused_pictures += 1
            slow = f"camera {name} is slower than it is asked: a request shows a picture again"
            self._notices.note(slow, slow)
        observation = structs.replace(self._setting.observe(state), images=images)
        request = self.executor.make_request(observation)
        self._say_what_was_otherwise()
        return request

    def _say_what_was_otherwise(self) -> None:
        """What did not go as the method says, the first time and every tenfold of it."""
        for sentence, count in self.executor.counts.fallbacks().items():
            self._notices.counted(sentence, count, sentence)

    def _images(self, cameras: Cameras, now_ns: int) -> dict[str, Image] | None:
        """The newest picture of every camera; None, and a line in the log, while one of them gives none."""
        images, blind = cameras.newest(now_ns)
        for name, fault, count in cameras.newly_refused():
            text = f"camera {name} {fault.value}"
            self._notices.counted(text, count, text)
        self.record.refused_pictures = cameras.num_refused
        if blind != self._blind:
            for name in blind.keys() - self._blind.keys():
                hint = FROZEN_HINT if blind[name] is CameraFault.FROZEN else ""
                text = f"camera {name} {blind[name].value}: nothing is asked"
                self._notices.note(text, text + hint)
            if not blind:
                self._notices.note(CAMERAS_BACK, CAMERAS_BACK, is_routine=True)
            self._blind = blind
        return None if blind else images

    def _take_events(self, now_ns: int) -> None:
        """Hand what the network thread has received to the executor."""
        for event in self._client.events():
            match event:
                case PartReceived():
                    outcome = self.executor.on_part(
                        event.part, now_ns, server_ns=event.queue_ns + event.infer_ns
                    )
                    self.arrival_to_executor_ns.add(now_ns - event.arrived_ns)
                    self._say_if_unused(event.part.request_id, outcome)
                case RequestDropped() | RequestExpired() | RequestFailed():
                    self._notices.note(
                        f"no answer: {_reason(event)}", f"no answer: {event}", is_routine=_is_replaced(event)
                    )
                    self.executor.on_request_failed(event.request_id)
                case ServerLost():
                    self._log(f"{SERVER_LOST}: {event.reason}; the plan runs to its end", is_routine=False)
                    self._is_connected = False
                    self.executor.on_server_lost()
                case ServerReady():
                    self._on_ready(event.welcome)
                case ServerRefused():
                    self._cannot_go_on(f"the server refuses this robot: {event.reason}")

    def _say_if_unused(self, request_id: int, outcome: PartOutcome) -> None:
        """One line for an answer of which nothing runs. One that is late while the robot follows another is
        only counted: the robot lacks nothing."""
        match outcome:
            case PartOutcome.RUNS | PartOutcome.WAITS:
                return
            case PartOutcome.LATE if self.executor.mode is Mode.RUN:
                return
        self._notices.note(
            f"an answer was not used: {outcome.value}",
            f"answer {request_id} not used: {outcome.value}",
            is_routine=outcome in (PartOutcome.OVERTAKEN, PartOutcome.VOID, PartOutcome.STOPPED),
        )

    def _on_ready(self, came: Welcome) -> None:
        """A server is there, at the start or again: the same policy goes on, another one cannot."""
        began = self._welcome
        for what in ("policy", "tasks", "schema", "action_spec", "capabilities"):
            if (new := getattr(came, what)) != (old := getattr(began, what)):
                self._cannot_go_on(
                    f"the server came back with policy {came.policy!r} ({began.policy!r} before): its {what} "
                    f"is {new!r:.500}, this run began with {old!r:.500}"
                )
                return
        if not self._is_connected:
            self._log(f"{SERVER_BACK}; the robot resumes on its first fresh chunk")
        self._is_connected, self._fault = True, ""

    def _cannot_go_on(self, why: str) -> None:
        """Nothing is asked any more: the plan runs to its end, the robot holds, and the run ends."""
        self._is_connected, self._fault = False, why
        self.executor.on_server_lost()
        self._log(f"{why}; the plan runs to its end, then the run ends", is_routine=False)


def _reason(event: RequestDropped | RequestExpired | RequestFailed) -> str:
    """What requests that end so have in common."""
    match event:
        case RequestDropped(reason=dropped):
            return f"dropped, {dropped.value}"
        case RequestFailed(reason=reason):
            return reason.partition(":")[0]  # what follows is this one's own
    return "none within its deadline"


def _is_replaced(event: RequestDropped | RequestExpired | RequestFailed) -> bool:
    """Whether a newer request took its place."""
    return isinstance(event, RequestDropped) and event.reason is DropReason.SUPERSEDED
