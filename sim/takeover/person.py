"""A scripted person for `fetch`: `ScriptedPerson` takes over on failure, corrects, and hands back.

    policy                          person                                policy
    ─────────────┬────────┬─────────┬──────────────┬──────────────────────┬──────────
    no progress  │ wrong  │ reacts  │ ADAPT, then  │ CORRECT: the cup is  │ 0.25 m nearer than
                 │ for 2.5 s  0.4 s │ RECOVER      │ in the fingers       │ the policy ever came

The person sees the policy's observations, acts by the task's expert, and drives arm, gripper and base.
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
    """When the person takes over, and hands back."""

    patience_s: float = 2.5
    """Time without progress that counts as a failure [s]."""
    nearer: float = 0.03
    """Least decrease of the remaining distance that counts as progress [m]."""
    slipped: float = 0.15
    """Increase of the remaining distance, without a held cup, that counts as slipped or pushed [m]."""
    reaction_s: float = 0.4
    """Delay from noticing a failure to acting [s]."""
    gained: float = 0.25
    """Gain over the policy's least remaining distance at which the person hands back [m]."""

    def __post_init__(self) -> None:
        for name in ("patience_s", "nearer", "slipped", "reaction_s", "gained"):
            if not 0.0 < getattr(self, name) < 1e3:
                raise InvalidValueError(f"expected {name} above 0 and below 1000, got {getattr(self, name)}")


class _State(Enum):
    WATCHING = 0
    REACTING = 1
    DRIVING = 2


class ScriptedPerson:
    """Takes over `parts` by the module's rules; (): all parts."""

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
        self._state, self._least, self._policy_least = _State.WATCHING, np.inf, np.inf
        self._since_ns: int | None = None
        self._planned_ns = 0
        self._phase: HandoverPhase | None = None
        self._num_plans = 0
        self.why: list[str] = []
        """Reason of each takeover."""

    def act(self, tick: Tick, seen: Observation) -> Act:
        left = remaining(seen)
        now_ns = tick.now_ns
        match self._state:
            case _State.WATCHING:
                if why := self._wrong(left, now_ns, is_held=holds_cup(seen)):
                    self.why.append(why)
                    self._state, self._since_ns = _State.REACTING, now_ns
            case _State.REACTING:
                if now_ns - (self._since_ns or 0) >= self._rules.reaction_s * NS_PER_S:
                    self._state, self._phase, self._policy_least = _State.DRIVING, None, self._least
                    self._begin_plan(tick, seen)
                    return Act(orders=(TakeOver(self._parts),), wishes=self._wishes(seen, now_ns))
            case _State.DRIVING if left < self._policy_least - self._rules.gained:
                self._state, self._least, self._since_ns = _State.WATCHING, left, now_ns
                return Act(orders=(HandBack(self._parts),))
            case _State.DRIVING:
                if not set(tick.authority.values()) & {Authority.HUMAN, Authority.HOLD}:
                    self._state, self._since_ns = _State.WATCHING, now_ns  # control was taken away
                    return Act()
                return Act(orders=self._phase_orders(tick, seen), wishes=self._wishes(seen, now_ns))
        return Act()

    def _wrong(self, left: float, now_ns: int, *, is_held: bool) -> str:
        """The reason to take over; empty: none."""
        if self._since_ns is None or left < self._least - self._rules.nearer:
            self._least, self._since_ns = left, now_ns
        if not is_held and left > self._least + self._rules.slipped:
            return f"it is {left - self._least:.2f} m farther than it was"
        if now_ns - self._since_ns >= self._rules.patience_s * NS_PER_S:
            return f"it has come no nearer for {(now_ns - self._since_ns) / NS_PER_S:.1f} s"
        return ""

    def _phase_orders(self, tick: Tick, seen: Observation) -> tuple[SayPhase, ...]:
        """The phase, RECOVER or CORRECT, when it changes; none before alignment and ADAPT are over."""
        if set(tick.phase_of.values()) & {HandoverPhase.REQUEST, HandoverPhase.ALIGN, HandoverPhase.ADAPT}:
            return ()
        phase = HandoverPhase.CORRECT if holds_cup(seen) else HandoverPhase.RECOVER
        if phase is self._phase:
            return ()
        self._phase = phase
        return (SayPhase(phase, self._parts),)

    def _begin_plan(self, tick: Tick, seen: Observation) -> None:
        """Start a plan at the current state; fingers that squeeze go on squeezing."""
        dt_ns = self._spec.dt_ns
        self._plan = ChunkTimeline(coast_ns=dt_ns)
        here = command_at_state(self._spec, seen.state)
        self._plan.rest_at(here.with_parts({"gripper": tick.command.parts["gripper"]}), tick.now_ns)
        self._planned_ns = tick.now_ns - dt_ns

    def _wishes(self, seen: Observation, now_ns: int) -> dict:
        """The person's commands for the next tick; replans at every row."""
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
        parts = self._plan.sample(now_ns + self._period_ns).command.parts
        return {part: parts[part] for part in self._parts or parts}


def remaining(seen: Observation) -> float:
    """Remaining distance: end effector to cup, and cup through the door to the tray [m]."""
    shown, hand = seen.environment_state, seen.state.X_BE
    assert hand is not None
    cup, tray, door, through = shown[:3], shown[3:6], shown[6:8], shown[8:10]
    is_beyond = float((cup[:2] - door) @ through) > 0.0
    distance = float(np.linalg.norm(tray - cup))
    if distance < 0.08:
        return distance  # the cup is released there
    if not is_beyond:
        distance = float(np.linalg.norm(door - cup[:2]) + np.linalg.norm(tray[:2] - door))
    return float(np.linalg.norm(cup - hand.translation)) + distance
