"""A person leads parts of a running robot: `Leading`, looked at once a tick, before the executor's own.

    newest lead ─► engaged?  ─► take_over, follower engaged where the part was commanded to be
                   engaged   ─► follower ─► command ─► executor.lead
                   let go    ─► hand_back, or the part stands
                   stale, lost, the robot stopped: as if all were let go

A part that was let go by anything but the person herself follows again once she lets go and engages anew. One
that brakes for a fault stays hers: it follows again, from where it stands, once nothing is wrong any more.
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
    """What is led: an `Executor`."""

    @property
    def mode(self) -> Mode: ...

    @property
    def authority(self) -> Mapping[str, Authority]:
        """Who moved each part in the last tick."""
        ...

    @property
    def commanded(self) -> Command:
        """What was commanded last."""
        ...

    @property
    def taken_over(self) -> tuple[str, ...]:
        """Parts that a person has; a reset forgets them."""
        ...

    def take_over(self, parts: tuple[str, ...], now_ns: int) -> object:
        """RobotRuntimeError: not now, or not this part, in words for a person."""
        ...

    def lead(self, commands: Mapping[str, PartCommand], now_ns: int) -> None: ...

    def hand_back(self, parts: tuple[str, ...], now_ns: int) -> object: ...


class Leading:
    """One teleoperator of one run; the control thread owns it."""

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
        period_ns: of the control loop: as far as a follower goes in one tick, whatever the clock did [ns].
        say: gets lines for the run's log. post: takes her orders.
        """
        self._executor, self._watched, self._followers = executor, watched, dict(followers)
        self._config, self._dt_s, self._say, self._post = config, period_ns / NS_PER_S, say, post
        self._led: dict[str, type] = {}
        self._before: deque[Command] = deque(maxlen=2)
        self._spent: set[str] = set()
        self._newest_ns: int | None = None
        self.fresh_ns: int | None = None
        """When she did what this tick commands for the first time [ns]; None: nothing new."""
        self._has_reported_lost = False

    @property
    def led(self) -> tuple[str, ...]:
        """Parts that she leads now."""
        return tuple(self._led)

    def look(self, state: RobotState, now_ns: int) -> None:
        """Do what she does; after the state was measured, before the tick."""
        commanded = self._executor.commanded
        self._look(state, now_ns)
        self._before.append(commanded)

    def _look(self, state: RobotState, now_ns: int) -> None:
        lead, self.fresh_ns = self._newest(now_ns), None
        if forgotten := tuple(part for part in self._led if part not in self._executor.taken_over):
            self.let_go(now_ns, forgotten)
        if lead is None or self._executor.mode is Mode.STOP or not state.is_finite:
            self._let_go(tuple(self._led), now_ns, why=self._why(lead))
            held = {} if lead is None else lead.engaged
            self._spent |= {part for part, on in held.items() if on}
            return
        engaged = {part for part, on in lead.engaged.items() if on and part in lead.parts}
        self._spent &= engaged
        self._let_go(tuple(part for part in self._led if part not in engaged), now_ns)
        commands: dict[str, PartCommand] = {}
        authority = self._executor.authority
        for part in lead.parts:
            if part in self._led and authority.get(part) is Authority.SAFETY:
                self._led[part] = type(None)  # engaged anew once it stands
            elif part in engaged and part not in self._spent:
                told = self._followed(part, lead, state, now_ns)
                if told is not None:
                    commands[part] = told
        if commands and self._leads(commands, now_ns) and lead.t_ns != self._newest_ns:
            self.fresh_ns = lead.t_ns
        self._newest_ns = lead.t_ns

    def let_go(self, now_ns: int, parts: tuple[str, ...] = ()) -> None:
        """Somebody else has handed these back, () all: she has to engage anew."""
        given = [part for part in self._led if not parts or part in parts]
        for part in given:
            del self._led[part]
        self._spent |= set(given)

    def _newest(self, now_ns: int) -> Lead | None:
        for order in self._watched.orders():
            try:
                self._post(order, self._watched.name)
            except RobotRuntimeError as error:  # one that is refused keeps no other from the run
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
        return "it is lost" if self._watched.why_lost else "what it says is too old"

    def _leads(self, commands: Mapping[str, PartCommand], now_ns: int) -> bool:
        try:
            self._executor.lead(commands, now_ns)
        except RobotRuntimeError as error:
            self._say(str(error))
            self._let_go(tuple(commands), now_ns, why="it cannot be led so")
            return False
        return True

    def _followed(self, part: str, lead: Lead, state: RobotState, now_ns: int) -> PartCommand | None:
        wish, follower = lead.parts[part], self._followers.get(part)
        try:
            if follower is None:
                known = ", ".join(self._followers) or "none"
                raise InvalidValueError(f"{part} cannot be led: the parts that can be are {known}")
            commanded = self._executor.commanded
            if self._led.get(part) is not type(wish):
                follower.engage(wish, commanded, state, tuple(self._before))
                if part not in self._led:
                    self._executor.take_over((part,), now_ns)
                    self._say(f"{self._watched.name} leads {part}")
                self._led[part] = type(wish)
            return follower.follow(wish, commanded, state, self._dt_s)
        except (RobotRuntimeError, ValueError) as error:  # a leader whose numbers have changed their shape
            self._say(str(error))
            self._let_go((part,), now_ns)
            self._spent.add(part)
            return None

    def _let_go(self, parts: tuple[str, ...], now_ns: int, why: str = "") -> None:
        given = tuple(part for part in parts if part in self._led)
        if not given:
            return
        for part in given:
            del self._led[part]
        if why:
            self._spent |= set(given)
        hands_back = self._config.on_release is OnRelease.HAND_BACK
        if hands_back:
            with suppress(RobotRuntimeError):  # nobody has them any more
                self._executor.hand_back(given, now_ns)
        now = "the policy has it again" if hands_back else "it stands"
        because = f", {why}" if why else ""
        self._say(f"{self._watched.name} lets go of {', '.join(given)}{because}: {now}")
