"""A teleoperator in a run: `TeleopInRun` connects it, the followers of the parts and the executor."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from robot_runtime.clock import Clock
from robot_runtime.core.authority import Authority
from robot_runtime.core.executor import Executor
from robot_runtime.core.orders import BeginEpisode, EndEpisode, HandBack, Order, TakenOrder, TakeOver
from robot_runtime.core.safety import Mode
from robot_runtime.core.teleop import LedRun
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import Command, PartCommand
from robot_runtime.core.values.state import RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.counted_log import Logbook
from robot_runtime.robot.operator_queue import OperatorQueue
from robot_runtime.robot.telemetry import RunRecord
from robot_runtime.teleop.config import OnRelease
from robot_runtime.teleop.leading import Leading
from robot_runtime.teleop.parts import followers_for, leadable
from robot_runtime.teleop.watched import WatchedTeleoperator

_REPORT_NS = NS_PER_S // 4
_REFUSED_NS = 6 * NS_PER_S
"""How often a teleoperator gets the state of the run, and how long a refusal is shown [ns]."""


class TeleopInRun(AbstractContextManager["TeleopInRun"]):
    """A context manager that reads the teleoperator; otherwise the control thread owns it."""

    def __init__(
        self, config: RunConfig, executor: Executor, record: RunRecord, log: Logbook, orders: OperatorQueue
    ) -> None:
        robot = config.robot
        assert robot.limits is not None
        assert config.teleop is not None
        self._record = record
        self._say_to_person = config.say
        self._executor, self._begun_ns, self._reported_ns = executor, -1, 0
        self._refused, self._refused_ns = "", 0
        settings = config.teleop_config
        if config.policy is None:
            settings = replace(settings, on_release=OnRelease.HOLD)
        followers = followers_for(
            executor.action_spec,
            robot.limits,
            settings,
            whole_body=robot.whole_body,
            hand_pose=robot.hand_pose,
        )
        self._watched = WatchedTeleoperator(config.teleop, leadable(followers))
        self._leading = Leading(
            _ByOrders(executor, orders, self._watched.name, config.clock),
            self._watched,
            followers,
            settings,
            period_ns=round(NS_PER_S / config.control_hz),
            say=log.say,
            post=orders.post,
        )
        orders.listeners.append(self._hear)

    @property
    def thread_ids(self) -> list[int]:
        """Id of the thread that reads it."""
        return [] if self._watched.thread_id is None else [self._watched.thread_id]

    @property
    def led(self) -> tuple[str, ...]:
        """Parts that the person drives now."""
        return self._leading.led

    def look(self, state: RobotState, now_ns: int) -> None:
        """Follow the teleoperator; called after the state was measured, before the tick."""
        self._leading.look(state, now_ns)
        self._record.num_led += bool(self._leading.led)
        if now_ns - self._reported_ns >= _REPORT_NS:
            self._reported_ns, self._watched.run = now_ns, self._run(now_ns)

    def _run(self, now_ns: int) -> LedRun:
        marks, episode = self._record.episodes, ""
        if self._begun_ns >= 0:
            episode = f"recording {(now_ns - self._begun_ns) // NS_PER_S} s"
        elif marks:
            episode = f"kept, {marks[-1].outcome.value}" if marks[-1].keep else "discarded"
        return LedRun(
            mode=self._executor.mode,
            cause=self._executor.cause.value,
            led=self.led,
            episode=episode,
            refused=self._refused if now_ns - self._refused_ns < _REFUSED_NS else "",
        )

    def commanded(self, now_ns: int) -> None:
        """Note that the drivers have the command of this tick."""
        if (fresh_ns := self._leading.fresh_ns) is not None:
            self._record.lead_latency_s.add(max(now_ns - fresh_ns, 0) / NS_PER_S)

    def __enter__(self) -> "TeleopInRun":
        """Open it; raises what its `open` raises."""
        self._watched.__enter__()
        if keys := self._watched.help:
            self._say_to_person(f"{self._watched.name}:\n{keys}")
        return self

    def __exit__(self, *error: object) -> None:
        self._watched.__exit__(*error)

    def _hear(self, taken: TakenOrder) -> None:
        """Take the outcome of an operator command: a refusal is shown, handed-back parts must be engaged
        again."""
        if taken.by == self._watched.name:
            self._refused, self._refused_ns = taken.refused, taken.done_ns
        if not taken.refused and isinstance(taken.order, BeginEpisode | EndEpisode):
            self._begun_ns = taken.done_ns if isinstance(taken.order, BeginEpisode) else -1
        if isinstance(taken.order, HandBack) and not taken.refused:
            self._leading.let_go(taken.done_ns, taken.order.parts)


class _ByOrders:
    """The executor as `Leading` uses it: takeovers and handbacks become operator commands in the
    teleoperator's name, so that the run's record has them."""

    def __init__(self, executor: Executor, orders: OperatorQueue, by: str, clock: Clock) -> None:
        self._executor, self._orders, self._by, self._clock = executor, orders, by, clock

    @property
    def mode(self) -> Mode:
        return self._executor.mode

    @property
    def authority(self) -> Mapping[str, Authority]:
        return self._executor.authority

    @property
    def commanded(self) -> Command:
        return self._executor.commanded

    @property
    def taken_over(self) -> tuple[str, ...]:
        return self._executor.taken_over

    def take_over(self, parts: tuple[str, ...], now_ns: int) -> None:
        """InvalidValueError: it was refused."""
        self._do(TakeOver(parts))

    def hand_back(self, parts: tuple[str, ...], now_ns: int) -> None:
        """InvalidValueError: it was refused."""
        self._do(HandBack(parts))

    def lead(self, commands: Mapping[str, PartCommand], now_ns: int) -> None:
        self._executor.lead(commands, now_ns)

    def _do(self, order: Order) -> None:
        """Execute the operator command in this tick."""
        taken = self._orders.do(order, self._by, self._clock.now_ns())
        if taken.refused:
            raise InvalidValueError(taken.refused)
