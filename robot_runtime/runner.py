"""The only control loop: clock, drivers and executor on one thread, cameras and network on their own.

    camera threads  ─► Mailbox[Image] ─┐
    network thread  ◄─ request ────────┤ control thread: read state, take events, tick, write command
                    ─► events ─────────┘

The control thread never waits for the others. When `duration_s` is over or `should_stop` says so, the robot
coasts to rest and the loop ends; if an error gets out, its drivers are stopped all the same.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import structs

from drivers.protocols import Camera
from robot_runtime.client import PolicyClient
from robot_runtime.clock import Clock
from robot_runtime.core.action import NS_PER_S
from robot_runtime.core.capabilities import fitted
from robot_runtime.core.correction import ResidualHead
from robot_runtime.core.executor import Executor, Tick
from robot_runtime.core.latency import LatencyEstimator
from robot_runtime.core.limits import Limits
from robot_runtime.core.method import Method
from robot_runtime.core.open_requests import PartOutcome
from robot_runtime.core.predict import HandPose
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.state import Image, Observation, RobotState
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.whole_body import WholeBody
from robot_runtime.errors import SchemaMismatchError
from robot_runtime.mailbox import Mailbox
from robot_runtime.realtime import Pacer, real_time_thread
from robot_runtime.robot import Robot
from robot_runtime.telemetry import RunRecord
from robot_runtime.wire.events import (
    PartReceived,
    RequestDropped,
    RequestExpired,
    RequestFailed,
    ServerLost,
    ServerReady,
    ServerRefused,
)
from robot_runtime.wire.messages import Welcome

logger = logging.getLogger(__name__)

CAMERA_TIMEOUT_NS = NS_PER_S // 2
"""A camera whose newest frame is older than this gives no pictures any more."""
CAMERA_START_NS = 5 * NS_PER_S
"""How long the control loop waits for the first picture of each, before it starts without."""
SERVER_LOST, SERVER_BACK = "server lost", "server is back"
CAMERAS_BACK = "all cameras give pictures again"
"""How the entries of the run's log begin."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
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
    control_hz: float = 500.0
    seed: int = 0
    use_fifo: bool = True
    """Ask for SCHED_FIFO; without it, or if it is not allowed, the ordinary scheduler has to do."""


@contextlib.contextmanager
def camera_threads(cameras: Mapping[str, Camera]) -> Iterator[dict[str, Mailbox[Image]]]:
    """A thread per camera, each putting its newest frame into a mailbox."""
    boxes = {name: Mailbox[Image]() for name in cameras}
    stopping = threading.Event()

    def loop(name: str, camera: Camera) -> None:
        try:
            while not stopping.is_set():
                boxes[name].put(camera.read())
        except Exception:
            logger.exception("camera %s failed; the policy gets no more of its images", name)
        finally:
            camera.close()

    threads = [
        threading.Thread(target=loop, args=item, name=f"camera-{item[0]}", daemon=True)
        for item in cameras.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield boxes
    finally:
        stopping.set()
        for thread in threads:
            thread.join(timeout=2.0)


def await_first_pictures(
    boxes: Mapping[str, Mailbox[Image]], clock: Clock, should_stop: Callable[[], bool] = lambda: False
) -> bool:
    """Whether every camera has given one, at most CAMERA_START_NS later.

    Making a camera ready can hold the interpreter for tenths of a second: not once the loop runs.
    """
    end_ns = clock.now_ns() + CAMERA_START_NS
    while any(box.peek() is None for box in boxes.values()):
        if (now_ns := clock.now_ns()) >= end_ns or should_stop():
            return False
        clock.sleep_until_ns(now_ns + NS_PER_S // 100)
    return True


class Runner:
    """Drives one robot with one server until told to stop."""

    def __init__(
        self,
        setting: Setting,
        client: PolicyClient,
        welcome: Welcome,
        *,
        latency: LatencyEstimator | None = None,
    ) -> None:
        """
        latency: measured over this connection (`probe.latency_for`), so that the first request knows it; None
            learns it on the way.
        InvalidValueError: the policy does not support the method, or its numbers do not fit the chunk.
        """
        self._setting = setting
        self._client = client
        self._welcome = welcome
        self._boxes: dict[str, Mailbox[Image]] = {}
        self._blind = ""
        self._is_connected = True
        self.arrival_to_executor_ns: list[int] = []
        can = welcome.capabilities
        self.executor = Executor(
            action_spec=welcome.action_spec,
            method=fitted(setting.method, can, policy=welcome.policy),
            max_inference_delay=can.trained_delay(setting.method),
            limits=setting.limits,
            control_period_ns=round(NS_PER_S / setting.control_hz),
            state_limits=setting.state_limits,
            seed=setting.seed,
            hand_pose=setting.hand_pose,
            correction_head=setting.correction_head,
            whole_body=setting.whole_body,
            latency=latency,
        )
        self.record = RunRecord(counts=self.executor.counts)
        self._said: set[str] = set()

    def run(
        self,
        *,
        duration_s: float,
        on_tick: Callable[[Tick], None] = lambda tick: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> RunRecord:
        """Control the robot until it is told to stop and stands still; returns what happened."""
        setting = self._setting
        needed = {name: setting.cameras[name] for name in self._welcome.schema.cameras}
        with camera_threads(needed) as self._boxes:
            await_first_pictures(self._boxes, setting.clock, should_stop)
            with real_time_thread(use_fifo=setting.use_fifo, helpers=[self._client.thread_id]) as line:
                logger.info("%s", line)
                try:
                    self._loop(duration_s, on_tick, should_stop)
                finally:
                    setting.robot.stop()
        return self.record

    def _loop(
        self, duration_s: float, on_tick: Callable[[Tick], None], should_stop: Callable[[], bool]
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
            if now_ns >= end_ns or should_stop():
                executor.stop()
            state = setting.robot.read()
            self._take_events(now_ns)
            request = None
            if self._is_connected and executor.wants_request(now_ns):
                request = self._request(state, now_ns)
            if executor.wants_correction(now_ns):
                executor.correct(setting.observe(state), now_ns)
            tick = executor.tick(state, now_ns)
            setting.robot.write(tick.command)
            if request is not None:
                self._client.submit(request)
            self.record.on_tick(tick, executor.last_splice)
            self.record.lateness_ns.append(beat.lateness_ns)
            self.record.num_skipped += beat.num_skipped
            on_tick(tick)
            if tick.mode is not mode:
                is_routine = tick.cause in (Cause.FRESH_CHUNK, Cause.PLAN_ENDED, Cause.STOP_REQUESTED)
                self._log(f"{mode.name} -> {tick.mode.name}: {tick.cause.value}", is_routine=is_routine)
                mode = tick.mode

    def _log(self, text: str, *, is_routine: bool = True) -> None:
        self.record.log.append((self._setting.clock.now_ns(), text))
        logger.log(logging.INFO if is_routine else logging.WARNING, "%s", text)

    def _say_once(self, text: str, *, is_routine: bool) -> None:
        """Log what holds for every part of an answer, or at every request from now on."""
        if text not in self._said:
            self._said.add(text)
            self._log(text, is_routine=is_routine)

    def _request(self, state: RobotState, now_ns: int) -> ChunkRequest | None:
        """What to ask with the newest observation, if all cameras have a picture to go with it."""
        images = self._images(now_ns)
        if images is None:
            return None
        observation = structs.replace(self._setting.observe(state), images=images)
        request = self.executor.make_request(observation)
        for sentence in self.executor.counts.fallbacks():
            self._say_once(sentence, is_routine=False)
        return request

    def _images(self, now_ns: int) -> dict[str, Image] | None:
        """The newest picture of every camera; None, and a line in the log, while one of them gives none."""
        images, missing = {}, []
        for name, box in self._boxes.items():
            letter = box.peek()
            if letter is not None and now_ns - letter.value.t_ns <= CAMERA_TIMEOUT_NS:
                images[name] = letter.value
            else:
                missing.append(name)
        blind = ", ".join(missing)
        if blind != self._blind:
            self._blind = blind
            said = f"no picture from {blind}: nothing is asked" if blind else CAMERAS_BACK
            self._log(said, is_routine=not blind)
        return images if len(images) == len(self._boxes) else None

    def _take_events(self, now_ns: int) -> None:
        """Hand what the network thread has received to the executor."""
        for event in self._client.events():
            match event:
                case PartReceived():
                    outcome = self.executor.on_part(
                        event.part, now_ns, server_ns=event.queue_ns + event.infer_ns
                    )
                    self.arrival_to_executor_ns.append(now_ns - event.arrived_ns)
                    if outcome not in (PartOutcome.RUNS, PartOutcome.WAITS):
                        self._say_once(
                            f"answer {event.part.request_id} not used: {outcome.value}",
                            is_routine=outcome in (PartOutcome.OVERTAKEN, PartOutcome.STOPPED),
                        )
                case RequestDropped() | RequestExpired() | RequestFailed():
                    self._log(f"no answer: {event}", is_routine=False)
                    self.executor.on_request_failed(event.request_id)
                case ServerLost():
                    self._log(f"{SERVER_LOST}: {event.reason}; the plan runs to its end", is_routine=False)
                    self._is_connected = False
                    self.executor.on_server_lost()
                case ServerReady():
                    came, began = event.welcome, self._welcome
                    if (came.action_spec, came.capabilities) != (began.action_spec, began.capabilities):
                        raise SchemaMismatchError(
                            f"the server came back with {came.policy!r}, {came.action_spec} and "
                            f"{came.capabilities}; this run began with {began.policy!r}, "
                            f"{began.action_spec} and {began.capabilities}"
                        )
                    if not self._is_connected:
                        self._log(f"{SERVER_BACK}; the robot resumes on its first fresh chunk")
                    self._is_connected = True
                case ServerRefused():
                    raise SchemaMismatchError(f"the server refuses this robot: {event.reason}")
