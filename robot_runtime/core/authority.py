"""Who moves each part of the robot, and how far a handover has come: `Handovers`.

The names are those that datasets of interventions use. For one part:

              take_over        lead                                     hand_back          fresh rows
    ──────────────┼──────────────┼──────────────────────────────────────────┼──────────────────┼─────────
    POLICY        │ HOLD         │ HUMAN            HOLD: no target         │ HOLD             │ POLICY
    NONE          │ REQUEST      │ ALIGN  ADAPT  CORRECT (or RECOVER)       │ RELEASE          │ NONE
                   brakes, holds   the limits bring it to the target        brakes, holds

STOP, a state that cannot be trusted, and arming take precedence: a part that brakes for one of them is
SAFETY's, whatever moved it before. The operator has it again once it is stationary and the state is good;
targets then count from there (`Tick.command`), not from the earlier ones.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import PartCommand
from robot_runtime.errors import InvalidValueError, UnknownNameError

ADAPT_NS = NS_PER_S // 2
"""How long an operator who has begun to drive a part is taken to be adapting [ns]."""
ALIGNED = 0.02
"""A part is at its target when the limits leave it no farther away than this [rad] or [m]."""


class Authority(Enum):
    """Who moves a part in one tick."""

    POLICY = "policy"
    HUMAN = "human"
    """An operator, or a simulated one."""
    HOLD = "hold"
    """Nothing: the part is stationary or comes to rest, and waits for the policy or an operator."""
    SCRIPTED = "scripted"
    """A script that took it over as such: homing, a reset of the scene."""
    SAFETY = "safety"
    """The part brakes or holds because of a STOP or of a state that cannot be trusted."""


class HandoverPhase(Enum):
    """How far a handover of a part has come. All follow by rule but RECOVER, which the operator declares."""

    NONE = "none"
    """The policy has it."""
    REQUEST = "request"
    """By rule: the part was taken over and has had no target yet; it brakes and holds."""
    ALIGN = "align"
    """By rule: the target is farther away than the limits allow in a tick; the part moves towards it. With a
    clutch this phase does not occur."""
    ADAPT = "adapt"
    """By rule: the first `ADAPT_NS` of driving the part. What goes wrong then is no longer the policy's
    fault, and not yet worth imitating."""
    RECOVER = "recover"
    """Declared by the operator: back to states that the policy knows."""
    CORRECT = "correct"
    """By rule after ADAPT, or declared after RECOVER: the operator does what the policy should have done."""
    RELEASE = "release"
    """By rule: handed back; the part holds until rows run of a chunk that was requested afterwards."""


@dataclass(kw_only=True)
class _Taken:
    """State of a part that the policy does not move."""

    by: Authority
    phase: HandoverPhase = HandoverPhase.REQUEST
    wish: PartCommand | None = None
    is_led: bool = False
    """Whether the operator drives it in this tick."""
    is_suspended: bool = False
    """Whether it had to brake: targets are ignored until it is stationary."""
    adapts_since_ns: int | None = None
    has_settled: bool = False
    """Whether it was handed back, and the plan holds it where it is."""


class Handovers:
    """Tracks the handover of every part that a policy commands; the executor owns it."""

    def __init__(self, parts: Iterable[str]) -> None:
        self.parts = tuple(dict.fromkeys(parts))
        self._taken: dict[str, _Taken] = {}
        self._all = {who: MappingProxyType(dict.fromkeys(self.parts, who)) for who in Authority}
        self.no_phase: Mapping[str, HandoverPhase] = MappingProxyType(
            dict.fromkeys(self.parts, HandoverPhase.NONE)
        )

    def __bool__(self) -> bool:
        """Whether any part is not the policy's."""
        return bool(self._taken)

    def named(self, parts: Collection[str]) -> tuple[str, ...]:
        """The parts, () all. UnknownNameError: the policy does not move one of them, so no one else can."""
        for part in parts:
            if part not in self.parts:
                raise UnknownNameError("part that can be taken over", str(part), self.parts)
        return tuple(parts) or self.parts

    @property
    def taken(self) -> tuple[str, ...]:
        """Parts that an operator has taken over."""
        return tuple(part for part, of in self._taken.items() if of.phase is not HandoverPhase.RELEASE)

    @property
    def released(self) -> tuple[str, ...]:
        """Parts that were handed back and wait for fresh rows."""
        return tuple(part for part, of in self._taken.items() if of.phase is HandoverPhase.RELEASE)

    @property
    def has_all(self) -> bool:
        """Whether no part is the policy's."""
        return len(self._taken) == len(self.parts)

    @property
    def unsettled(self) -> tuple[str, ...]:
        """Released parts that have not come to rest yet."""
        return tuple(part for part in self.released if not self._taken[part].has_settled)

    @property
    def off_plan(self) -> tuple[str, ...]:
        """Parts that do not follow the plan; for them it continues in the shadow."""
        return tuple(part for part, of in self._taken.items() if not of.has_settled)

    @property
    def on_plan(self) -> tuple[str, ...]:
        """Parts that follow the plan."""
        off = self.off_plan
        return tuple(part for part in self.parts if part not in off)

    def take(self, parts: Collection[str], by: Authority) -> None:
        """Give the parts to an operator or a script from now on."""
        if by not in (Authority.HUMAN, Authority.SCRIPTED):
            raise InvalidValueError(f"parts are taken over by HUMAN or SCRIPTED, got {by}")
        for part in parts:
            of = self._taken.get(part)
            if of is None or of.phase is HandoverPhase.RELEASE or of.by is not by:
                self._taken[part] = _Taken(by=by)

    def lead(self, wishes: Mapping[str, PartCommand]) -> None:
        """Set the operator's targets for the next tick; other parts are ignored, one without a target
        holds."""
        for part, of in self._taken.items():
            of.wish = wishes.get(part)

    def wishes(self) -> dict[str, PartCommand]:
        """The targets that are valid now; each is returned once."""
        out: dict[str, PartCommand] = {}
        for part, of in self._taken.items():
            wish, of.wish = of.wish, None
            of.is_led = wish is not None and not of.is_suspended and of.phase is not HandoverPhase.RELEASE
            if wish is not None and of.is_led:
                out[part] = wish
        return out

    def say(self, parts: Collection[str], phase: HandoverPhase) -> None:
        """Set the phase that the operator declares. InvalidValueError: it follows by rule, or the operator
        has not taken over the part."""
        if phase not in (HandoverPhase.RECOVER, HandoverPhase.CORRECT):
            raise InvalidValueError(f"expected RECOVER or CORRECT, got {phase.name}, which follows by rule")
        not_taken = [part for part in parts if part not in self.taken]
        if not_taken or not parts:
            raise InvalidValueError(f"no operator has taken over {', '.join(not_taken) or 'anything'}")
        for part in parts:
            self._taken[part].phase = phase

    def release(self, parts: Collection[str]) -> tuple[str, ...]:
        """Hand back to the policy those of the parts that an operator had; returns them."""
        out = tuple(part for part in parts if part in self.taken)
        for part in out:
            self._taken[part] = _Taken(by=self._taken[part].by, phase=HandoverPhase.RELEASE)
        return out

    def settle(self) -> None:
        """Note that all released parts are stationary, and that the plan holds them there."""
        for part in self.released:
            self._taken[part].has_settled = True

    def freshen(self) -> None:
        """Give settled parts to the policy: rows run of a chunk that was requested since."""
        for part in self.released:
            if self._taken[part].has_settled:
                del self._taken[part]

    def suspend(self) -> None:
        """Note that all parts brake: targets are ignored until a part is stationary."""
        for of in self._taken.values():
            of.is_suspended, of.wish, of.is_led = True, None, False

    def resume(self, resting: Collection[str]) -> None:
        """Note that these parts are stationary and nothing is wrong."""
        for part in resting:
            if part in self._taken:
                self._taken[part].is_suspended = False

    def forget(self) -> None:
        """Give all parts to the policy: the robot was reset."""
        self._taken.clear()

    def went(self, behind: Mapping[str, float], now_ns: int) -> None:
        """Update the phases; behind: how far a tick left parts from their targets [rad] or [m]."""
        for part, of in self._taken.items():
            if not of.is_led:
                continue
            if of.phase in (HandoverPhase.REQUEST, HandoverPhase.ALIGN):
                is_there = behind.get(part, 0.0) <= ALIGNED
                of.phase = HandoverPhase.ADAPT if is_there else HandoverPhase.ALIGN
                of.adapts_since_ns = now_ns if is_there else None
            elif of.phase is HandoverPhase.ADAPT and now_ns - (of.adapts_since_ns or 0) >= ADAPT_NS:
                of.phase = HandoverPhase.CORRECT

    def authority(self, of_plan: Authority) -> Mapping[str, Authority]:
        """Who moved each part in this tick; of_plan: the authority of those that follow the plan."""
        if not self._taken or of_plan is Authority.SAFETY:
            return self._all[of_plan]
        out = dict(self._all[of_plan])
        for part, of in self._taken.items():
            if of.is_suspended and of.phase is not HandoverPhase.RELEASE:
                out[part] = Authority.SAFETY
            else:
                out[part] = of.by if of.is_led else Authority.HOLD
        return MappingProxyType(out)

    def phases(self) -> Mapping[str, HandoverPhase]:
        """How far each part's handover has come."""
        if not self._taken:
            return self.no_phase
        return MappingProxyType({**self.no_phase, **{part: of.phase for part, of in self._taken.items()}})
