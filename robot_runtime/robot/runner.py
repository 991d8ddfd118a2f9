"""The only control loop: clock, drivers and executor on one thread, cameras and network on their own.

    camera threads  ─► Mailbox[Image] ─┐
    network thread  ◄─ request ────────┤ control thread: read state, take events, tick, write command
                    ─► events ─────────┘

The control thread never waits for the others. When `duration_s` is over or `should_stop` returns true, the
robot comes to rest and the loop ends. Nothing that network, server, cameras or callbacks do ends it during
motion:

    server lost                       the plan runs to its end, HOLD, until it returns
    server that cannot continue       the plan runs to its end, HOLD, then the run ends: `RunRecord.fault`
    an error of `observe`, `on_tick`  the robot comes to rest, then the error is raised
    an error of a driver              is raised at once; all drivers are stopped
    hold-to-run released, `Stop`      STOP; the loop continues, the robot holds until it is reset

Operator commands (`core/orders.py`) are executed at the start of a tick, before anything is measured.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.history import ObservationHistory
from robot_runtime.core.journal import make_executor
from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.method.table import Method
from robot_runtime.core.orders import EpisodeMark, TakenOrder
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.safety import ENDS, Cause, Mode
from robot_runtime.core.state_watch import not_finite
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.config import LogConfig
from robot_runtime.log.entries import Line, Timed
from robot_runtime.log.start import start_log
from robot_runtime.log.writer import RunLogWriter
from robot_runtime.robot.cameras import camera_threads, needed_cameras
from robot_runtime.robot.client import NoPolicy, PolicyClient
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.control import ControlStep, HeldStill
from robot_runtime.robot.counted_log import Logbook
from robot_runtime.robot.link import ServerLink
from robot_runtime.robot.operator import Operator
from robot_runtime.robot.operator_queue import OperatorQueue
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.run_orders import AskedTask, RunOrders
from robot_runtime.robot.scheduling import LateCause, Pacer, TickTiming, real_time_thread
from robot_runtime.robot.telemetry import MotionCheck, RunRecord
from robot_runtime.robot.teleop_in_run import TeleopInRun
from robot_runtime.wire.messages import Welcome

logger = logging.getLogger(__name__)

FAR_ANSWERS = "the policy's answers lie far outside the robot's ranges"
"""The start of the fault of such a run."""


class LoggedRun:
    """The log of one run, from before its executor is made, with what the executor does not record; the
    control thread owns it."""

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


class Runner:
    """Runs one robot with one server until it is stopped."""

    def __init__(
        self,
        config: RunConfig,
        client: PolicyClient | NoPolicy,
        welcome: Welcome,
        *,
        method: Method,
        latency: LatencyEstimator | None = None,
    ) -> None:
        """
        method: the one that runs, whatever the config has.
        latency: measured over this connection (`probe.latency_for`), so that the first request knows it; None
            learns it on the way.
        InvalidValueError: the policy does not support the method, or its numbers do not fit the chunk; the
            robot has no limits, or the policy commands a part that has none.
        """
        self._config, self._client, self.welcome = config, client, welcome
        robot = config.robot
        if robot.limits is None:
            raise InvalidValueError(
                "a robot without limits cannot be run: Robot(limits=...), or [parts.NAME.limits]"
            )
        self.record = RunRecord(keep=config.keep_ticks, period_ns=round(NS_PER_S / config.control_hz))
        self.record.has_policy = config.policy is not None
        self._log = Logbook(self.record, config.clock, logger)
        self._logged = self._logged_run(method)
        with self._closed_if_refused():
            self.executor = self._executor(method, latency)
        self.executor.set_epoch(client.new_epochs())
        self.record.counts = self.executor.counts
        self.operator = Operator(
            self.executor,
            self.record,
            arm=config.arm,
            hold_to_run=config.hold_to_run,
            buttons=getattr(config.teleop, "buttons", None),
            reset=lambda now_ns: self._step.begin(now_ns),
            say=config.say,
        )
        self.task = AskedTask(
            config.task,
            observe=config.observation,
            executor=self.executor,
            welcome=welcome,
            say=self._log.say,
        )
        orders = RunOrders(
            self.operator,
            self.task,
            self.record,
            reset=lambda now_ns: self._reset(now_ns),
            after_release=config.after_release,
            has_log=self._logged is not None,
        )
        self.episodes = orders.episodes
        self.orders = OperatorQueue(config.clock, self.record, self._log, do=orders.do)
        if self._logged is not None:
            self.orders.listeners.append(self._logged.on_order)
        self.teleop: TeleopInRun | None = None
        if config.teleop is not None:
            with self._closed_if_refused():
                self.teleop = TeleopInRun(config, self.executor, self.record, self._log, self.orders)
        self.success: bool | None = None
        """What a judge of the task reports about the run, for its log; None: not judged."""
        self.why = ""
        """Why it is no success, if the judge reports that."""
        self._motion_check = MotionCheck(1.0 / config.control_hz)
        self._mode = self.executor.mode
        self._end_ns: int | None = None
        self._is_stationary = self._is_broken = self._is_error_reported = self._is_ending = False
        self._end_cause = Cause.STOP_REQUESTED
        self._is_cut_off = False
        self._should_stop: Callable[[], bool] = lambda: False

    @property
    def run_log(self) -> RunLogWriter | None:
        """The log that is being written; None: no log."""
        return None if self._logged is None else self._logged.writer

    def run(
        self,
        *,
        on_tick: Callable[[Tick], None] = lambda tick: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> RunRecord:
        """Control the robot until it is stopped and at rest; return the record.

        A run that cannot continue ends by itself, `RunRecord.fault` states why. An error of a callback is
        raised once the robot is at rest.
        """
        self.begin(should_stop=should_stop)
        with self:
            while (tick := self.tick()) is not None:
                on_tick(tick)
        return self.record

    @contextmanager
    def _closed_if_refused(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.close(error)
            raise

    def _logged_run(self, method: Method) -> LoggedRun | None:
        if self._config.log is None:
            return None

        def say(why: str) -> None:
            self._log.say(why, is_routine=False)
            self._config.say(why)

        return LoggedRun(
            self._config.log,
            self._config,
            schema=self._client.schema,
            policy=self.welcome.info,
            method=method,
            record=self.record,
            say=say,
        )

    def _executor(self, method: Method, latency: LatencyEstimator | None) -> Executor:
        config, robot = self._config, self._config.robot
        assert robot.limits is not None
        return make_executor(
            Configuration(
                **self.welcome.info.run_by(method),
                limits=robot.limits,
                control_period_ns=round(NS_PER_S / config.control_hz),
                state_limits=config.state_limits,
                seed=config.seed,
                hand_pose=robot.hand_pose,
                correction_head=config.correction_head,
                whole_body=robot.whole_body,
                latency=(latency or LatencyEstimator()).known,
                part_latency_ns=robot.latency_ns,
                arming=config.arming_rules,
            ),
            None if self.run_log is None else self.run_log.note,
        )

    def begin(
        self, *, should_stop: Callable[[], bool] = lambda: False, on_rest: Callable[[], None] = lambda: None
    ) -> None:
        """Wait for the cameras' first images, become the control thread, and hold where the robot is.

        should_stop: whether to come to rest, checked at every tick.
        on_rest: called once the drivers are stopped.
        SchemaMismatchError: the policy needs another camera.
        """
        self._should_stop = should_stop
        config, robot = self._config, self._config.robot
        needed = needed_cameras(robot.cameras, self.welcome.info.schema.cameras)
        if config.all_cameras:
            needed = dict(robot.cameras)
        with ExitStack() as opened:
            log = self.run_log
            cameras = opened.enter_context(
                camera_threads(
                    needed, config.clock, config.camera_limits, on_picture=log.picture if log else None
                )
            )
            cameras.await_first(should_stop)
            opened.enter_context(self.operator)
            if self.teleop is not None:
                opened.enter_context(self.teleop)
            helpers = [*self.operator.thread_ids, *(self.teleop.thread_ids if self.teleop else [])]
            helpers += [] if self._client.thread_id is None else [self._client.thread_id]
            helpers += log.thread_ids if log else []
            line = opened.enter_context(real_time_thread(use_fifo=config.use_fifo, helpers=helpers))
            logger.info("%s", line)
            opened.callback(on_rest)
            opened.callback(robot.stop)
            body = self._held_still(robot, robot.read())  # a simulated one has to catch up with the clock
            now_ns = config.clock.now_ns()
            self.link = ServerLink(
                self.executor,
                self._client,
                self.welcome,
                cameras,
                self.task.observe,
                self.record,
                self._log,
                run_log=log,
                why_late=lambda: self._late_cause.why,
            )
            self._step = ControlStep(
                self.executor,
                body,
                self.link,
                self.record,
                history=ObservationHistory.of(self.welcome.info),
                keeps_errors=True,
                log=log,
            )
            self._step.begin(now_ns)
            if self._is_ending:  # stopped before it began: the reset above must not undo that
                self.executor.stop(self._end_cause)
            self._mode = self.executor.mode
            self._period_ns, self._late_cause = round(NS_PER_S / config.control_hz), LateCause()
            self._pacer = Pacer(config.clock, period_ns=self._period_ns)
            self._opened = opened.pop_all()

    def _held_still(self, robot: Robot, state: RobotState) -> HeldStill:
        info = self.welcome.info
        body = HeldStill(robot, robot.schema(state), info.action_spec, whole_body=robot.whole_body)
        if body.parts:
            self._log.say(f"held still: {', '.join(body.parts)}; policy {info.name!r} does not move them")
        return body

    def tick(self) -> Tick | None:
        """Wait for the next control tick and run it; None once the robot has been stopped and is at rest.

        A robot that was stopped by releasing hold-to-run holds until it is reset.
        """
        if self._is_cut_off:
            return None
        is_over = self._is_ending or not self.operator.may_go_on
        if is_over and self.executor.mode is Mode.STOP and self.executor.is_at_rest:
            return None
        beat = self._pacer.wait()
        self._late_cause.note(beat.lateness_ns, period_ns=self._period_ns)
        now_ns = beat.now_ns
        if self._end_ns is None and self._config.duration_s is not None and self.executor.is_armed:
            self._end_ns = now_ns + round(self._config.duration_s * NS_PER_S)
        is_time = self._end_ns is not None and now_ns >= self._end_ns
        if is_time:
            self.stop(Cause.TIME_OVER)
        elif self._is_over():
            self.stop(Cause.CANNOT_GO_ON)
        elif not self._is_ending and self._should_stop():
            self.stop()
        self.orders.take(now_ns)
        if not self._is_ending:
            self.operator.look(now_ns)
        try:
            self._step.look(now_ns)
            if self.teleop is not None and self._step.state is not None:
                self.teleop.look(self._step.state, now_ns)
            tick = self._step.act(now_ns)
            if self.teleop is not None:
                self.teleop.commanded(self._config.clock.now_ns())
        except KeyboardInterrupt:
            raise
        except BaseException:  # an error of a driver
            self._is_broken = True
            raise
        if self._is_cut_off:
            self._config.robot.stop()  # this tick wrote after `cut_off`
            return None
        if self._step.state is not None:
            self._motion_check.add(tick.command, self._step.state)
        self.record.lateness_ns.add(beat.lateness_ns)
        self.record.num_skipped += beat.num_skipped
        if self._logged is not None:
            self._logged.on_tick(beat)
        self.task.look()
        self._report_stationary(now_ns)
        if tick.mode is not self._mode:
            is_routine = tick.cause in (Cause.FRESH_CHUNK, Cause.PLAN_ENDED, *ENDS)
            what = ""
            if tick.cause is Cause.STATE_INVALID and self._step.state is not None:
                what = f": {not_finite(self._step.state)}"
            self._log.say(
                f"{self._mode.name} -> {tick.mode.name}: {tick.cause.value}{what}", is_routine=is_routine
            )
            self._mode = tick.mode
        return tick

    def stop(self, cause: Cause = Cause.STOP_REQUESTED) -> None:
        """Bring the robot to rest, tick by tick, and end the run there. cause: one of `ENDS`."""
        self._end_cause, self._is_ending = cause, True
        self.executor.stop(cause)

    def cut_off(self) -> None:
        """Stop the drivers at once, from any thread; no tick follows."""
        self._is_broken = self._is_cut_off = True
        self._config.robot.stop()

    @property
    def state(self) -> RobotState | None:
        """The state as last measured; None before the first tick."""
        return self._step.state

    def reset(self) -> None:
        """Leave STOP and resume: hold where the robot is. ValueError: the measured state is invalid."""
        self.operator.reset(self._config.clock.now_ns())
        self._is_ending = False

    def _reset(self, now_ns: int) -> None:
        """Reset by an operator command, during the run."""
        if self._is_ending:
            raise InvalidValueError("the run is ending")
        self.operator.reset(now_ns)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Bring the robot to rest, then stop its drivers.

        They are stopped at once if a driver has failed, or if the robot is already braking: a second
        Ctrl-C does not wait.
        """
        is_urgent = not isinstance(error, Exception | None) and self.executor.mode is Mode.STOP
        if error is not None and not self._is_broken:
            self._say_it_rests(error)
        with self._opened:
            if not self._is_broken and not is_urgent:
                self.stop()
                while self.tick() is not None:
                    pass
        self._sum_up()
        self.close(error)
        if error is None and self._step.error is not None:
            raise self._step.error

    def close(self, error: BaseException | None = None) -> None:
        """Write the log to its end; nothing is noted after it."""
        if self._logged is not None:
            self._logged.close(success=self.success, why=self.why, error=error)

    def _sum_up(self) -> None:
        self.link.say_what_was_otherwise()
        for sentence in self.executor.clips.sentences():
            self._log.say(sentence)
        self._log.notices.sum_up()
        if why := self.record.why_it_stood():
            self._log.say(why, is_routine=False)
        period_s, read_s = 1.0 / self._config.control_hz, self._step.read_s
        if self.executor.counts.stalls and read_s.quantile(0.5) > 0.5 * period_s:
            self._log.say(
                f"reading the robot takes {1e3 * read_s.quantile(0.5):.3g} ms, a control period is "
                f"{1e3 * period_s:.3g} ms: a driver's read() has to return the last measurement and not wait",
                is_routine=False,
            )
        unmoved, is_all = self._motion_check.unmoved()
        for sentence in unmoved:
            self._log.say(sentence, is_routine=False)
        fault = self.link.fault
        if not fault and (num_far := self.executor.counts.far_answers):
            fault = f"{FAR_ANSWERS}, {num_far} were refused; of the last, {self.executor.why_far}"
        if self.record.num_splices == 0 and self.record.num_led == 0 and not fault:
            why = self.executor.why_no_rows() if self.record.has_policy else "no person drove it"
            fault = f"the robot did not move: {why}"
        if is_all and not fault:
            fault = f"the robot did not move: {unmoved[0]}"
        self.record.fault = fault

    def _is_over(self) -> bool:
        """Whether the run ends now: its error or its fault leaves nothing to do."""
        if (error := self._step.error) is not None:
            self._say_it_rests(error)
            return True
        is_at_rest = self.executor.mode is not Mode.RUN and self.executor.is_at_rest
        return bool(self.link.fault) and is_at_rest

    def _say_it_rests(self, error: BaseException) -> None:
        if not self._is_error_reported:
            self._is_error_reported = True
            self._log.say(f"the robot comes to rest: {type(error).__name__}: {error}", is_routine=False)

    def _report_stationary(self, now_ns: int) -> None:
        """Log each time that the robot has stood still for longer than it should."""
        why = self.executor.why_stationary(now_ns) if self.record.has_policy else None
        if why is not None and not self._is_stationary:
            self._log.notices.note("the robot was stationary", f"the robot is stationary: {why}")
        self._is_stationary = why is not None
