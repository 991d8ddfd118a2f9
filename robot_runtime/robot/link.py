"""The real link of a control step: the server behind a `PolicyClient`, and the cameras whose images it gets.

It logs the faults of both, and whether the run cannot continue.
"""

from collections.abc import Callable

from msgspec import structs

from robot_runtime.core.camera_watch import CameraFault
from robot_runtime.core.executor import Executor
from robot_runtime.core.plan.answers import PartOutcome
from robot_runtime.core.plan.counts import STALLED
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.safety import Mode
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.distribution import Distribution
from robot_runtime.log.entries import Arrived
from robot_runtime.log.writer import RunLogWriter
from robot_runtime.robot.cameras import CAMERAS_BACK, Cameras
from robot_runtime.robot.client import NoPolicy, PolicyClient
from robot_runtime.robot.counted_log import Logbook
from robot_runtime.robot.telemetry import RunRecord
from robot_runtime.wire.events import Event, PartReceived, RequestFailed, ServerLost
from robot_runtime.wire.messages import Dropped, DropReason, Readiness, RefusalCode, Refused, Welcome

SERVER_LOST, SERVER_BACK = "server lost", "server is back"
"""The start of these entries in the run's log."""
NOISE_HINT = " (if it is a video or a simulated camera, without noise: has_noise=False)"


class ServerLink:
    """Asks one server for chunks during one run; the control thread owns it."""

    def __init__(
        self,
        executor: Executor,
        client: PolicyClient | NoPolicy,
        welcome: Welcome,
        cameras: Cameras,
        observe: Callable[[RobotState], Observation],
        record: RunRecord,
        log: Logbook,
        *,
        run_log: RunLogWriter | None = None,
        why_late: Callable[[], str] = lambda: "",
    ) -> None:
        """
        observe: adds task text and scene quantities to a state; images are added here.
        run_log: notes when rows arrived.
        why_late: why ticks come late, in words; empty: not known.
        """
        self.executor, self.record = executor, record
        self.fault = ""
        """Why the run cannot continue; empty while it can."""
        self.arrival_to_executor_ns = Distribution()
        self._client, self._welcome, self._cameras = client, welcome, cameras
        self._observe, self._log, self._run_log = observe, log, run_log
        self._why_late = why_late
        self._blind: dict[str, CameraFault] = {}
        self._images: dict[str, Image] | None = None
        self._request: ChunkRequest | None = None
        self._is_warming_up = False
        self._is_connected = not isinstance(client, NoPolicy)

    def take(self, now_ns: int) -> None:
        """Pass what the network thread has received to the executor."""
        for event in self._client.events():
            self._take(event, now_ns)

    def can_ask(self, now_ns: int) -> bool:
        """Whether the server is connected, and all cameras have an image for it."""
        self._images = self._newest_images(now_ns)
        return self._images is not None and self._is_connected

    def observe(self, state: RobotState) -> Observation:
        """Make the observation of the state and the newest images."""
        wanted, images = self._welcome.info.schema.cameras, self._images or {}
        return structs.replace(
            self._observe(state), images={name: image for name, image in images.items() if name in wanted}
        )

    def observe_scene(self, state: RobotState) -> Observation:
        return self._observe(state)

    def send(self, request: ChunkRequest, now_ns: int) -> None:
        """Keep it until the command is sent: the thread that encodes it needs the interpreter too."""
        self._request = request
        for name in self._cameras.show(request.observation.images):
            self.record.reused_pictures += 1
            slow = f"camera {name} is slower than it is asked: a request shows a picture again"
            self._log.notices.note(slow, slow)
        self.say_what_was_otherwise()

    def flush(self) -> None:
        """Pass the request to the network thread."""
        if self._request is not None:
            request, self._request = self._request, None
            self._client.submit(request)

    def say_what_was_otherwise(self) -> None:
        """Log deviations from the method, the first time and at every tenfold count."""
        for sentence, count in self.executor.counts.fallbacks().items():
            why = self._why_late() if sentence == STALLED else ""
            self._log.notices.counted(sentence, count, f"{sentence}: {why}" if why else sentence)

    def _newest_images(self, now_ns: int) -> dict[str, Image] | None:
        """Return the newest image of every camera; None, and a line in the log, while one gives none."""
        images, blind = self._cameras.newest(now_ns)
        for name, fault, count in self._cameras.newly_refused():
            kind, text = f"camera {name} {fault.value}", self._cameras.said(name, fault)
            self._log.notices.counted(kind, count, text)
        self.record.refused_pictures = self._cameras.num_refused
        if blind != self._blind:
            for name in blind.keys() - self._blind.keys():
                hint = NOISE_HINT if blind[name] in (CameraFault.FROZEN, CameraFault.TORN) else ""
                text = f"camera {name} {blind[name].value}: nothing is asked"
                self._log.notices.note(text, text + hint)
            if not blind:
                self._log.notices.note(CAMERAS_BACK, CAMERAS_BACK, is_routine=True)
            self._blind = blind
        return None if blind else images

    def _take(self, event: Event, now_ns: int) -> None:
        match event:
            case PartReceived(part=part, sent_ns=sent_ns, arrived_ns=arrived_ns):
                if self._run_log is not None:
                    self._run_log.note(Arrived(part.request_id, sent_ns, arrived_ns))
                outcome = self.executor.on_part(part, now_ns)
                self.arrival_to_executor_ns.add(now_ns - arrived_ns)
                self._say_if_unused(part.request_id, outcome)
            case Dropped() | RequestFailed():
                self._log.notices.note(
                    f"no answer: {_reason(event)}",
                    f"no answer to request {event.request_id}: {_whole_reason(event)}",
                    is_routine=_is_replaced(event),
                )
                self.executor.on_request_failed(event.request_id)
            case ServerLost():
                self._log.say(f"{SERVER_LOST}: {event.reason}; the plan runs to its end", is_routine=False)
                self._is_connected = self._is_warming_up = False
                self.executor.on_server_lost()
            case Welcome():
                self._on_ready(event)
            case Readiness():
                self._on_readiness(event)
            case Refused(code=RefusalCode.FULL):
                self._log.say(f"{event.reason}; the robot waits for a free slot", is_routine=False)
            case Refused():
                self._cannot_go_on(f"the server refuses this robot: {event.reason}")

    def _say_if_unused(self, request_id: int, outcome: PartOutcome) -> None:
        """Log an answer of which nothing runs. A late answer while the robot follows another is only counted:
        the robot lacks nothing."""
        match outcome:
            case PartOutcome.RUNS | PartOutcome.WAITS | PartOutcome.NOT_ARMED:
                return
            case PartOutcome.LATE if self.executor.mode is Mode.RUN:
                return
        why = f": {self.executor.why_far}" if outcome is PartOutcome.FAR else ""
        self._log.notices.note(
            f"an answer was not used: {outcome.value}",
            f"answer {request_id} not used: {outcome.value}{why}",
            is_routine=outcome in (PartOutcome.OVERTAKEN, PartOutcome.VOID, PartOutcome.STOPPED),
        )

    def _on_readiness(self, readiness: Readiness) -> None:
        """Log when the server has something left to warm up, and when it is done."""
        if self._is_warming_up != bool(readiness.pieces_left):
            self._is_warming_up = bool(readiness.pieces_left)
            warm = ", ".join(readiness.samplers)
            left = f"the server still warms up its policy, {readiness.pieces_left} pieces; warm: {warm}"
            self._log.say(left if self._is_warming_up else "the server has warmed up all of its policy")

    def _on_ready(self, came: Welcome) -> None:
        """Take a server's welcome, at the start or again: the run resumes with the same policy only."""
        began = self._welcome
        if changed := came.info.differences(began.info):
            self._cannot_go_on(
                f"the server came back with policy {came.info.name!r} ({began.info.name!r} before): "
                + "; ".join(changed)
            )
            return
        if not self._is_connected:
            self._log.say(f"{SERVER_BACK}; the robot resumes on its first fresh chunk")
        self._is_connected, self.fault = True, ""

    def _cannot_go_on(self, why: str) -> None:
        """Make no more requests: the plan runs to its end, the robot holds, and the run ends."""
        self._is_connected, self.fault = False, why
        self.executor.on_server_lost()
        self._log.say(f"{why}; the plan runs to its end, then the run ends", is_routine=False)


def _reason(event: Dropped | RequestFailed) -> str:
    """Return the reason that requests which end alike have in common."""
    match event:
        case Dropped(reason=dropped):
            return f"dropped, {dropped.value}"
        case RequestFailed(reason=reason):
            return reason.partition(":")[0]  # what follows is specific to this request
    return "none within its deadline"


def _whole_reason(event: Dropped | RequestFailed) -> str:
    return event.reason if isinstance(event, RequestFailed) else _reason(event)


def _is_replaced(event: Dropped | RequestFailed) -> bool:
    """Whether a newer request took its place."""
    return isinstance(event, Dropped) and event.reason is DropReason.SUPERSEDED
