"""Teleoperation of a running robot: `Leading`, called once a tick, before the executor's tick.

    newest lead ─► engaged?  ─► take_over, follower engaged where the part was commanded to be
                   engaged   ─► follower ─► command ─► executor.lead
                   released  ─► hand_back, or the part holds
                   stale, lost, the robot stopped: as if all were released

A part that was released by anything but its operator follows again once the operator releases and engages it.
A part that brakes for a fault stays taken over: it follows again, from where it is, once the fault is gone.
"""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from robot_runtime.core.authority import Authority
from robot_runtime.core.orders import Order
from robot_runtime.core.safety import Mode
from robot_runtime.core.teleop import Lead
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import Command, PartCommand
from robot_runtime.core.values.state import RobotState
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.teleop.config import OnRelease, TeleopConfig
from robot_runtime.teleop.followers import Follower
from robot_runtime.teleop.watched import WatchedTeleoperator


class Led(Protocol):
    """The executor that the teleoperator drives, as far as `Leading` uses it."""

    @property
    def mode(self) -> Mode: ...

    @property
    def authority(self) -> Mapping[str, Authority]:
        """Part -> who moved it in the last tick."""
        ...

    @property
    def commanded(self) -> Command:
        """The last command."""
        ...

    @property
    def taken_over(self) -> tuple[str, ...]:
        """Parts that a person has taken over; a reset clears them."""
        ...

    def take_over(self, parts: tuple[str, ...], now_ns: int) -> object:
        """RobotRuntimeError: not now, or not this part; the message is for the operator."""
        ...

    def lead(self, commands: Mapping[str, PartCommand], now_ns: int) -> None: ...

    def hand_back(self, parts: tuple[str, ...], now_ns: int) -> object: ...


class Leading:
    """Drives parts by one teleoperator in one run; the control thread owns it."""

    def __init__(
        self,
        executor: Led,
        watched: WatchedTeleoperator,
        followers: Mapping[str, Follower],
        config: TeleopConfig,
        *,
        period_ns: int,
        say: Callable[[str], None],
        post: Callable[[Order, str], None],
    ) -> None:
        """
        period_ns: of the control loop: the time step of a follower, whatever the clock did [ns].
        say: receives lines for the run's log. post: takes the operator's orders.
        """
        self._executor, self._watched, self._followers = executor, watched, dict(followers)
        self._config, self._dt_s, self._say, self._post = config, period_ns / NS_PER_S, say, post
        self._driven: dict[str, type] = {}
        self._before: deque[Command] = deque(maxlen=2)
        self._spent: set[str] = set()
        self._newest_ns: int | None = None
        self.fresh_ns: int | None = None
        """Time of the input that this tick commands for the first time [ns]; None: nothing new."""
        self._has_reported_lost = False

    @property
    def led(self) -> tuple[str, ...]:
        """Parts that are driven now."""
        return tuple(self._driven)

    def look(self, state: RobotState, now_ns: int) -> None:
        """Follow the teleoperator; called after the state was measured, before the tick."""
        commanded = self._executor.commanded
        self._look(state, now_ns)
        self._before.append(commanded)

    def _look(self, state: RobotState, now_ns: int) -> None:
        lead, self.fresh_ns = self._newest(now_ns), None
        if given_back := tuple(part for part in self._driven if part not in self._executor.taken_over):
            self.let_go(now_ns, given_back)
        if lead is None or self._executor.mode is Mode.STOP or not state.is_finite:
            self._let_go(tuple(self._driven), now_ns, why=self._why(lead))
            held = {} if lead is None else lead.engaged
            self._spent |= {part for part, on in held.items() if on}
            return
        engaged = {part for part, on in lead.engaged.items() if on and part in lead.parts}
        self._spent &= engaged
        self._let_go(tuple(part for part in self._driven if part not in engaged), now_ns)
        commands: dict[str, PartCommand] = {}
        authority = self._executor.authority
        for part in lead.parts:
            if part in self._driven and authority.get(part) is Authority.SAFETY:
                self._driven[part] = type(None)  # engaged again once it is at rest
            elif part in engaged and part not in self._spent:
                command = self._followed(part, lead, state, now_ns)
                if command is not None:
                    commands[part] = command
        if commands and self._leads(commands, now_ns) and lead.t_ns != self._newest_ns:
            self.fresh_ns = lead.t_ns
        self._newest_ns = lead.t_ns

    def let_go(self, now_ns: int, parts: tuple[str, ...] = ()) -> None:
        """Release parts that were handed back elsewhere, () all: they have to be engaged again."""
        given = [part for part in self._driven if not parts or part in parts]
        for part in given:
            del self._driven[part]
        self._spent |= set(given)

    def _newest(self, now_ns: int) -> Lead | None:
        for order in self._watched.orders():
            try:
                self._post(order, self._watched.name)
            except RobotRuntimeError as error:  # a refused one does not hold up the others
                self._say(f"{self._watched.name}: {error}")
        lead = self._watched.look(now_ns, self._config.stale_ns)
        if self._watched.is_silent(self._config.stale_ns):
            lead = None
        if lead is None and (why := self._watched.why_lost) and not self._has_reported_lost:
            self._has_reported_lost = True
            self._say(f"{self._watched.name} is lost: {why}")
        return lead

    def _why(self, lead: Lead | None) -> str:
        if lead is not None:
            return "the robot stopped"
        return "it is lost" if self._watched.why_lost else "its newest lead is too old"

    def _leads(self, commands: Mapping[str, PartCommand], now_ns: int) -> bool:
        try:
            self._executor.lead(commands, now_ns)
        except RobotRuntimeError as error:
            self._say(str(error))
            self._let_go(tuple(commands), now_ns, why="the executor refused the command")
            return False
        return True

    def _followed(self, part: str, lead: Lead, state: RobotState, now_ns: int) -> PartCommand | None:
        wish, follower = lead.parts[part], self._followers.get(part)
        try:
            if follower is None:
                known = ", ".join(self._followers) or "none"
                raise InvalidValueError(f"{part} cannot be driven: the parts that can be are {known}")
            commanded = self._executor.commanded
            if self._driven.get(part) is not type(wish):
                follower.engage(wish, commanded, state, tuple(self._before))
                if part not in self._driven:
                    self._executor.take_over((part,), now_ns)
                    self._say(f"{self._watched.name} drives {part}")
                self._driven[part] = type(wish)
            return follower.follow(wish, commanded, state, self._dt_s)
        except (RobotRuntimeError, ValueError) as error:  # the shape of the leader's numbers has changed
            self._say(str(error))
            self._let_go((part,), now_ns)
            self._spent.add(part)
            return None

    def _let_go(self, parts: tuple[str, ...], now_ns: int, why: str = "") -> None:
        given = tuple(part for part in parts if part in self._driven)
        if not given:
            return
        for part in given:
            del self._driven[part]
        if why:
            self._spent |= set(given)
        hands_back = self._config.on_release is OnRelease.HAND_BACK
        if hands_back:
            with suppress(RobotRuntimeError):  # they were given back already
                self._executor.hand_back(given, now_ns)
        now = "the policy has it again" if hands_back else "it holds"
        because = f", {why}" if why else ""
        self._say(f"{self._watched.name} releases {', '.join(given)}{because}: {now}")
