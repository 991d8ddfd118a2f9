"""Executes operator commands on a run: `RunOrders`, with the trials and the task that they change."""

from collections.abc import Callable

from msgspec import structs

from robot_runtime.core.executor import Executor
from robot_runtime.core.orders import (
    Arm,
    BeginEpisode,
    EndEpisode,
    EpisodeMark,
    HandBack,
    Keep,
    Order,
    Outcome,
    Reset,
    SayPhase,
    SetTask,
    Stop,
    TakeOver,
)
from robot_runtime.core.values.mismatches import check_task
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.config import AfterRelease
from robot_runtime.robot.operator import Operator
from robot_runtime.robot.telemetry import RunRecord
from robot_runtime.wire.messages import Welcome


class Episodes:
    """Writes `RunRecord.episodes`: the trials of a run, as people mark them.

    run      |------------------------------------------------------------|
    marks         begin      success            begin         failure
    trials          |-----------|                 |--------------|

    A run without marks is one trial; an end without a begin closes the trial that began at the last end.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self.begun_ns: int | None = None
        """When the open trial began [ns]; None: no trial is open."""
        self._ended_ns: int | None = None

    def begin(self, now_ns: int) -> None:
        """Begin a trial; one that is still open ends with an unknown outcome."""
        if self.begun_ns is not None:
            self.end(EndEpisode(Outcome.UNKNOWN), now_ns)
        self.begun_ns = now_ns

    def end(self, order: EndEpisode, now_ns: int) -> None:
        """End the trial."""
        start_ns = self.begun_ns
        if start_ns is None:
            start_ns = self._record.start_ns if self._ended_ns is None else self._ended_ns
        if start_ns is None or start_ns >= now_ns:
            raise ValueError("no tick has run that an episode could end at")
        self._record.episodes.append(
            EpisodeMark(start_ns=start_ns, end_ns=now_ns, outcome=order.outcome, keep=order.keep)
        )
        self.begun_ns, self._ended_ns = None, now_ns


class AskedTask:
    """Holds the task text that the next request carries; the control thread owns it.

    SetTask            next request        its first rows
    ----|-------------------|--------------------|----------------------
    rows for the old task run on ............... end at this splice
    """

    def __init__(
        self,
        task: str,
        *,
        observe: Callable[[RobotState], Observation],
        executor: Executor,
        welcome: Welcome,
        say: Callable[[str], None],
    ) -> None:
        """
        observe: makes an observation of a state; its task text is replaced once a person has changed the
            task.
        say: receives the lines for the run's log.
        """
        self.text = task
        self._observe, self._executor, self._welcome, self._say = observe, executor, welcome, say
        self._is_changed = False
        self._first_id: int | None = None

    def observe(self, state: RobotState) -> Observation:
        """Makes the observation of a state, without images."""
        seen = self._observe(state)
        return structs.replace(seen, task=self.text) if self._is_changed else seen

    def change(self, task: str) -> None:
        """Ask for another task from now on. InvalidValueError: the policy does not know it."""
        info = self._welcome.info
        check_task(task, policy=info.name, tasks=info.tasks)
        self._say(f"task {task!r}: rows for {self.text!r} run on until the first for it come")
        self.text, self._is_changed = task, True
        self._first_id = self._executor.next_request_id
        self._executor.ask_soon()

    def look(self) -> None:
        """Log when the first rows for a new task run; called after each tick."""
        splice = self._executor.last_splice
        if self._first_id is not None and splice is not None and splice.source.request_id >= self._first_id:
            self._first_id = None
            self._say(f"task {self.text!r}: its first rows run, those for the task before have ended")


class RunOrders:
    """Executes operator commands; the control thread owns it."""

    def __init__(
        self,
        operator: Operator,
        task: AskedTask,
        record: RunRecord,
        *,
        reset: Callable[[int], None],
        after_release: AfterRelease = AfterRelease.CONTINUE,
        has_log: bool = False,
    ) -> None:
        """
        reset: has the robot hold where it is, at a time [ns]; ValueError: it cannot.
        has_log: whether there is a log, which gets `Keep` as it gets any order, and keeps what it has.
        """
        self._operator, self._task, self._reset = operator, task, reset
        self._executor, self._after_release = operator.executor, after_release
        self.episodes = Episodes(record)
        self._has_log = has_log

    def do(self, order: Order, by: str, now_ns: int) -> None:
        """Execute an order. RobotRuntimeError, ValueError: it cannot be done; the message is for the
        operator."""
        match order:
            case Stop():
                self._operator.stop()
            case Arm():
                self._operator.arm(now_ns, by)
            case Reset():
                self._reset(now_ns)
            case SetTask(task=text):
                self._task.change(text)
            case BeginEpisode():
                self.episodes.begin(now_ns)
            case EndEpisode():
                self.episodes.end(order, now_ns)
            case Keep():
                if not self._has_log:
                    raise InvalidValueError("this run keeps no log from which something could be kept")
            case TakeOver(parts=parts):
                self._executor.take_over(parts, now_ns)
            case SayPhase(phase=phase, parts=parts):
                self._executor.say_phase(parts, phase)
            case HandBack(parts=parts):
                self._hand_back(parts, now_ns)

    def _hand_back(self, parts: tuple[str, ...], now_ns: int) -> None:
        if not self._executor.hand_back(parts, now_ns):
            raise InvalidValueError(f"no operator has taken over {', '.join(parts) or 'anything'}")
        if self._after_release is AfterRelease.END and not self._executor.taken_over:
            self.episodes.end(EndEpisode(Outcome.UNKNOWN), now_ns)
            self._operator.stop()
