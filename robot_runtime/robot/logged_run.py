"""What a run writes to its log, in addition to the executor's notes: `LoggedRun`."""

from collections.abc import Callable

from robot_runtime.core.method.table import Method
from robot_runtime.core.orders import EpisodeMark, TakenOrder
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.schema import Schema
from robot_runtime.log.config import LogConfig
from robot_runtime.log.entries import Line, Timed
from robot_runtime.log.start import start_log
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.scheduling import TickTiming
from robot_runtime.robot.telemetry import RunRecord


class LoggedRun:
    """The log of one run, from before its executor is made; the control thread owns it."""

    def __init__(
        self,
        log: LogConfig,
        run: RunConfig,
        *,
        schema: Schema,
        policy: PolicyInfo,
        method: Method,
        record: RunRecord,
        say: Callable[[str], None],
    ) -> None:
        """Start the log; from here on it gets every line of the record.

        schema: of the robot. say: gets one line if the log can no longer be written.
        InvalidValueError: its folder cannot be written to.
        """
        self._record, self._clock = record, run.clock
        self._mark: EpisodeMark | None = None

        def fails(why: str) -> None:
            record.log_fault = why
            say(why)

        self.writer = writer = start_log(
            log,
            task=run.task,
            robot=run.name,
            schema=schema,
            policy=policy,
            control_period_ns=round(NS_PER_S / run.control_hz),
            now_ns=run.clock.now_ns(),
            method=repr(method),
            seed=run.seed,
            address=run.policy or "",
            has_policy=run.policy is not None,
            model=run.model,
            on_fault=fails,
        )
        record.listeners.append(lambda t_ns, text, is_routine: writer.note(Line(t_ns, text, is_routine)))

    def on_order(self, taken: TakenOrder) -> None:
        """Note an operator command that was done or refused, and the episode that it may have ended."""
        self.writer.note(taken)
        mark = self._record.episodes[-1] if self._record.episodes else None
        if mark is not None and mark is not self._mark:
            self._mark = mark
            self.writer.note(mark)

    def on_tick(self, beat: TickTiming) -> None:
        """Note the tick's timing, once its command is sent and there is time to encode."""
        took_ns = self._clock.now_ns() - beat.now_ns
        self.writer.note(Timed(beat.now_ns, beat.lateness_ns, beat.num_skipped, took_ns))
        self.writer.wake()

    def close(self, *, success: bool | None, why: str, error: BaseException | None) -> None:
        """Finish the log with the outcome of the run; nothing is noted after that."""
        what = {"fault": self._record.fault} if self._record.fault else {}
        if success is not None:
            what["success"] = str(success)
        if why:
            what["why"] = why
        if error is not None:
            what["error"] = f"{type(error).__name__}: {error}"
        self.writer.close(what)
        self._record.log_files = self.writer.files
