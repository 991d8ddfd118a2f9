"""The operator's switches: `Operator` turns them into arming, STOP and reset, once a tick.

arm          pressed in HOLD       armed, if nothing is missing; else what is missing is logged
             pressed in STOP       after hold-to-run was released: reset; to be armed again
hold to run  released, or lost     STOP in this tick; a lost one ends the run
hold alone   pressed and held      reset, and armed as soon as nothing is missing
"""

import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from robot_runtime.core.executor import Executor
from robot_runtime.core.robot import Switch
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import NotArmedError
from robot_runtime.robot.telemetry import RunRecord
from robot_runtime.robot.watched_switch import Seen, WatchedSwitch

_PATIENCE_NS = 2 * NS_PER_S
"""A reason against arming is logged once it has lasted this long [ns]."""


class Operator:
    """A context manager that reads the switches; otherwise the control thread owns it."""

    def __init__(
        self,
        executor: Executor,
        record: RunRecord,
        *,
        arm: Switch | None,
        hold_to_run: Switch | None,
        buttons: tuple[str, str] | None = None,
        reset: Callable[[int], None],
        say: Callable[[str], None],
    ) -> None:
        """
        buttons: how the operator arms and resets without a switch: "Enter of the keyboard".
        reset: has the robot hold where it is, at a time [ns]; ValueError: it cannot.
        say: receives the lines for the operator.
        """
        self.executor, self.record = executor, record
        self._arm = None if arm is None else WatchedSwitch(arm)
        self._hold = None if hold_to_run is None else WatchedSwitch(hold_to_run)
        self._reset, self._say, self._buttons = reset, say, buttons
        self._num_presses = self._num_held = self._num_releases = 0
        self._has_reported_ready = self._has_reported_lost = False
        self._is_stopped = False
        self._why_not = ""
        self._why_not_ns: int | None = None
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        """Open both switches; they are closed on exit in any case."""
        with ExitStack() as opened:
            for switch in self._switches():
                opened.enter_context(switch)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    @property
    def thread_ids(self) -> list[int]:
        """Ids of the threads that read switches."""
        return [switch.thread_id for switch in self._switches() if switch.thread_id is not None]

    @property
    def may_go_on(self) -> bool:
        """Whether the robot is in a STOP that the operator can reset."""
        is_resettable = self.executor.cause is Cause.RELEASED or (
            self._is_stopped and self.executor.cause is Cause.STOP_REQUESTED
        )
        is_stopped = self.executor.mode is Mode.STOP and is_resettable
        return is_stopped and not (self._hold is not None and self._hold.why_lost())

    def look(self, now_ns: int) -> None:
        """Act on the switches; called before the tick."""
        held = None if self._hold is None else self._hold.look()
        if self._hold is not None and held is not None:
            self._stop_if_let_go(self._hold, held, now_ns)
        if self._arm is not None:
            self._take_presses(self._arm, now_ns)
        elif self._hold is not None and held is not None:
            self._take_hold(self._hold, held, now_ns)
        self._say_if_ready(now_ns)

    def arm(self, now_ns: int, by: str) -> None:
        """Let rows run. NotArmedError: something is missing."""
        if self.executor.is_armed:
            return
        if self._hold is not None:
            seen = self._hold.look()
            if not seen.is_pressed:
                raise NotArmedError(f"the robot cannot be armed: hold-to-run is not held: {self._hold.name}")
            self._num_releases, self._num_held = seen.num_releases, seen.num_presses
        self.executor.arm(now_ns)
        self._note(now_ns, f"armed by {by}")
        self.record.armed.append((now_ns, by))
        self._has_reported_ready = False

    def stop(self) -> None:
        """Brake to rest, and hold until the operator resets."""
        self._is_stopped = True
        self.executor.stop()

    def reset(self, now_ns: int) -> None:
        """Hold where the robot is. ValueError: the measured state is invalid."""
        self._reset(now_ns)
        self._is_stopped = False
        self._has_reported_ready = False
        self._note(now_ns, "reset: the robot holds where it is")

    def _switches(self) -> list[WatchedSwitch]:
        return [switch for switch in (self._arm, self._hold) if switch is not None]

    def _stop_if_let_go(self, hold: WatchedSwitch, seen: Seen, now_ns: int) -> None:
        if why := hold.why_lost():
            if not self._has_reported_lost:
                self._has_reported_lost = True
                self._note(now_ns, f"hold-to-run, {hold.name}, is lost: {why}")
            self.executor.stop(Cause.SWITCH_LOST)
        elif self.executor.is_armed and (not seen.is_pressed or seen.num_releases != self._num_releases):
            self.executor.stop(Cause.RELEASED)

    def _take_presses(self, arm: WatchedSwitch, now_ns: int) -> None:
        num_presses, self._num_presses = self._num_presses, arm.look().num_presses
        if self._num_presses > num_presses:
            self._reset_or_arm(now_ns, arm.name)
        elif arm.why_lost() and not self.executor.is_armed and not self._has_reported_lost:
            self._has_reported_lost = True
            self._note(now_ns, f"the switch to arm, {arm.name}, is lost: {arm.why_lost()}")

    def _take_hold(self, hold: WatchedSwitch, seen: Seen, now_ns: int) -> None:
        is_held_anew = seen.is_pressed and seen.num_presses > self._num_held
        if is_held_anew and (self.may_go_on or not self.executor.why_not_armed(now_ns)):
            self._reset_or_arm(now_ns, hold.name)

    def _reset_or_arm(self, now_ns: int, by: str) -> None:
        try:
            if self.may_go_on:
                self.reset(now_ns)
            else:
                self.arm(now_ns, by)
        except (NotArmedError, ValueError) as error:
            self._note(now_ns, str(error))
            if self._hold is not None:
                self._num_held = self._hold.seen.num_presses  # logged once for each press

    def _say_if_ready(self, now_ns: int) -> None:
        if self._has_reported_ready or (self.executor.is_armed and not self.may_go_on):
            return
        if self.may_go_on and self.executor.is_at_rest:
            self._note(now_ns, f"stopped, resumes after a reset: {self._how()}")
        elif self.executor.mode is Mode.HOLD and not (why := self.executor.why_not_armed(now_ns)):
            self._note(now_ns, f"waits to be armed: {self._how()}")
        else:
            if self.executor.mode is Mode.HOLD:
                self._say_why_not(why, now_ns)
            return
        self._has_reported_ready = True

    def _say_why_not(self, why: str, now_ns: int) -> None:
        """Log each lasting reason once; its numbers may change."""
        kind = re.sub(r"[\d.]+", "", why)
        if kind != self._why_not:
            self._why_not, self._why_not_ns = kind, now_ns
        elif self._why_not_ns is not None and now_ns - self._why_not_ns > _PATIENCE_NS:
            self._why_not_ns = None
            self._note(now_ns, f"cannot be armed yet: {why}")

    def _how(self) -> str:
        match self._arm, self._hold:
            case WatchedSwitch() as arm, WatchedSwitch() as hold:
                return f"hold {hold.name} and press {arm.name}"
            case WatchedSwitch() as arm, None:
                return f"press {arm.name}"
            case None, WatchedSwitch() as hold:
                return f"hold {hold.name}"
        if self._buttons:
            return self._buttons[self.may_go_on]
        return (
            "Session.reset(), or the order reset" if self.may_go_on else "Session.arm_now(), or the order arm"
        )

    def _note(self, now_ns: int, line: str) -> None:
        self.record.line(now_ns, line)
        self._say(line)
