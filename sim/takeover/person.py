"""A scripted person for `fetch`: `ScriptedPerson` takes over when it goes wrong, corrects, and hands back.

    policy                          person                                policy
    ─────────────┬────────┬─────────┬──────────────┬──────────────────────┬──────────
    it comes no  │ wrong  │ reacts  │ ADAPT, then  │ CORRECT: the cup is  │ 0.25 m nearer than
    nearer       │ for 2.5 s  0.4 s │ RECOVER      │ in the fingers       │ the policy ever came

She sees what the policy is shown, knows how the task is done (its expert), and leads hand, gripper and base.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.orders import HandBack, SayPhase, TakeOver
from robot_runtime.core.plan.timeline import ChunkTimeline, Source
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import NS_PER_S, ActionChunk, command_at_state
from robot_runtime.core.values.state import Observation
from robot_runtime.core.values.waypoints import Waypoints
from robot_runtime.errors import InvalidValueError
from robot_runtime.evaluation.person import Act
from sim.experts import action_spec_of, make_expert
from sim.takeover.short_sighted import holds_cup


@dataclass(frozen=True, kw_only=True)
class PersonRules:
    """When she takes over, and when she hands back."""

    patience_s: float = 2.5
    """It has come no nearer for so long: something is wrong [s]."""
    nearer: float = 0.03
    """What counts as nearer [m]."""
    slipped: float = 0.15
    """It is not held, and farther away than it was by so much: it has slipped, or was pushed [m]."""
    reaction_s: float = 0.4
    """From seeing that to acting [s]."""
    gained: float = 0.25
    """She hands back when it is nearer than the policy ever came by so much [m]."""

    def __post_init__(self) -> None:
        for name in ("patience_s", "nearer", "slipped", "reaction_s", "gained"):
            if not 0.0 < getattr(self, name) < 1e3:
                raise InvalidValueError(f"{name} is above 0 and below 1000, got {getattr(self, name)}")


class _Doing(Enum):
    LOOKS_ON = 0
    REACTS = 1
    LEADS = 2


class ScriptedPerson:
    """See on top; parts () all: the same rules with one part, as the arm alone."""

    name = "scripted person"

    def __init__(
        self, *, period_ns: int, rules: PersonRules | None = None, parts: tuple[str, ...] = ()
    ) -> None:
        """period_ns: of the control loop [ns]."""
        self._rules, self._period_ns, self._parts = rules or PersonRules(), period_ns, parts
        self._spec = action_spec_of("fetch")
        self.begin(0)

    def begin(self, seed: int) -> None:
        self._expert = make_expert("fetch", seed=seed)
        self._doing, self._least, self._policy_least = _Doing.LOOKS_ON, np.inf, np.inf
        self._since_ns: int | None = None
        self._planned_ns = 0
        self._said: HandoverPhase | None = None
        self._num_plans = 0
        self.why: list[str] = []
        """Why she took over, each time."""

    def act(self, tick: Tick, seen: Observation) -> Act:
        left = remaining(seen)
        now_ns = tick.now_ns
        match self._doing:
            case _Doing.LOOKS_ON:
                if why := self._wrong(left, now_ns, is_held=holds_cup(seen)):
                    self.why.append(why)
                    self._doing, self._since_ns = _Doing.REACTS, now_ns
            case _Doing.REACTS:
                if now_ns - (self._since_ns or 0) >= self._rules.reaction_s * NS_PER_S:
                    self._doing, self._said, self._policy_least = _Doing.LEADS, None, self._least
                    self._begin_plan(tick, seen)
                    return Act(orders=(TakeOver(self._parts),), wishes=self._wishes(seen, now_ns))
            case _Doing.LEADS if left < self._policy_least - self._rules.gained:
                self._doing, self._least, self._since_ns = _Doing.LOOKS_ON, left, now_ns
                return Act(orders=(HandBack(self._parts),))
            case _Doing.LEADS:
                if not set(tick.authority.values()) & {Authority.HUMAN, Authority.HOLD}:
                    self._doing, self._since_ns = _Doing.LOOKS_ON, now_ns  # it was taken from her
                    return Act()
                return Act(orders=self._says(tick, seen), wishes=self._wishes(seen, now_ns))
        return Act()

    def _wrong(self, left: float, now_ns: int, *, is_held: bool) -> str:
        """Why something has to be done; empty: it goes well."""
        if self._since_ns is None or left < self._least - self._rules.nearer:
            self._least, self._since_ns = left, now_ns
        if not is_held and left > self._least + self._rules.slipped:
            return f"it is {left - self._least:.2f} m farther than it was"
        if now_ns - self._since_ns >= self._rules.patience_s * NS_PER_S:
            return f"it has come no nearer for {(now_ns - self._since_ns) / NS_PER_S:.1f} s"
        return ""

    def _says(self, tick: Tick, seen: Observation) -> tuple[SayPhase, ...]:
        """Which of the two it is, when that changes; not before she has found her way."""
        if set(tick.phase_of.values()) & {HandoverPhase.REQUEST, HandoverPhase.ALIGN, HandoverPhase.ADAPT}:
            return ()
        phase = HandoverPhase.CORRECT if holds_cup(seen) else HandoverPhase.RECOVER
        if phase is self._said:
            return ()
        self._said = phase
        return (SayPhase(phase, self._parts),)

    def _begin_plan(self, tick: Tick, seen: Observation) -> None:
        """From where it is; fingers that squeeze go on squeezing."""
        dt_ns = self._spec.dt_ns
        self._plan = ChunkTimeline(coast_ns=dt_ns)
        here = command_at_state(self._spec, seen.state)
        self._plan.rest_at(here.with_parts({"gripper": tick.command.parts["gripper"]}), tick.now_ns)
        self._planned_ns = tick.now_ns - dt_ns

    def _wishes(self, seen: Observation, now_ns: int) -> dict:
        """Where she leads in the next tick: she plans anew with every row."""
        dt_ns = self._spec.dt_ns
        if now_ns >= self._planned_ns + dt_ns:
            self._planned_ns, self._num_plans = now_ns, self._num_plans + 1
            chunk = ActionChunk(
                spec=self._spec,
                rows=self._expert.plan(seen),
                anchor=seen.state,
                request_id=self._num_plans,
                epoch=0,
            )
            source = Source(request_id=self._num_plans, t_obs_ns=seen.t_obs_ns)
            self._plan.splice(Waypoints.from_chunk(chunk), t0_ns=seen.t_obs_ns, dt_ns=dt_ns, source=source)
        led = self._plan.sample(now_ns + self._period_ns).command.parts
        return {part: led[part] for part in self._parts or led}


def remaining(seen: Observation) -> float:
    """How far it is to go: the hand to the cup, and the cup through the door to the tray [m]."""
    shown, hand = seen.environment_state, seen.state.X_BE
    assert hand is not None
    cup, tray, door, through = shown[:3], shown[3:6], shown[6:8], shown[8:10]
    is_beyond = float((cup[:2] - door) @ through) > 0.0
    way = float(np.linalg.norm(tray - cup))
    if way < 0.08:
        return way  # the hand lets go of it there
    if not is_beyond:
        way = float(np.linalg.norm(door - cup[:2]) + np.linalg.norm(tray[:2] - door))
    return float(np.linalg.norm(cup - hand.translation)) + way
