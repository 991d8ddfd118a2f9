"""Executes operator commands on a run: `RunOrders`."""

from collections.abc import Callable

from robot_runtime.core.orders import (
    Arm,
    BeginEpisode,
    EndEpisode,
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
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.after_release import AfterRelease
from robot_runtime.robot.asked_task import AskedTask
from robot_runtime.robot.episodes import Episodes
from robot_runtime.robot.operator import Operator
from robot_runtime.robot.telemetry import RunRecord


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
            raise InvalidValueError(f"nobody has taken over {', '.join(parts) or 'anything'}")
        if self._after_release is AfterRelease.END and not self._executor.taken_over:
            self.episodes.end(EndEpisode(Outcome.UNKNOWN), now_ns)
            self._operator.stop()
