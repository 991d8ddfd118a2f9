"""Who moves each part of the robot, and how far a handover has come: `Handovers`.

The names are those of recordings that policies learn from interventions with. Of one part:

              take_over        lead                                     hand_back          fresh rows
    ──────────────┼──────────────┼──────────────────────────────────────────┼──────────────────┼─────────
    POLICY        │ HOLD         │ HUMAN            HOLD: nothing is led    │ HOLD             │ POLICY
    NONE          │ REQUEST      │ ALIGN  ADAPT  CORRECT (or RECOVER)       │ RELEASE          │ NONE
                   brakes, stands  the limits bring it to her               brakes, stands

STOP, a state that cannot be trusted, and arming rule over everybody: a part that brakes for one of them is
SAFETY's, whoever had it. She has it again once it stands and the state is good; what she leads then counts
from there (`Tick.command`), not from where she was.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import PartCommand
from robot_runtime.errors import InvalidValueError, UnknownNameError

ADAPT_NS = NS_PER_S // 2
"""How long a person who has begun to lead is taken to be finding her way [ns]."""
ALIGNED = 0.02
"""A part is where she leads it when the limits leave it no farther away [rad] or [m]."""


class Authority(Enum):
    """Who moves a part in one tick."""

    POLICY = "policy"
    HUMAN = "human"
    """A person, or whoever stands in for one in simulation."""
    HOLD = "hold"
    """Nobody: it stands or comes to rest, and waits for the policy or for a person."""
    SCRIPTED = "scripted"
    """A script that took it over as such: a way home, a reset of the scene."""
    SAFETY = "safety"
    """It brakes or stands because of a STOP or of a state that cannot be trusted."""


class HandoverPhase(Enum):
    """How far a handover of a part has come. By rule, all but RECOVER, which only a person can tell."""

    NONE = "none"
    """The policy has it."""
    REQUEST = "request"
    """By rule: it was taken over, nothing has been led yet; it loses its speed and stands."""
    ALIGN = "align"
    """By rule: what is led is farther away than the limits let it go in a tick; it is on its way there. With
    a clutch there is none."""
    ADAPT = "adapt"
    """By rule: the first `ADAPT_NS` of leading it. What goes wrong then is not the policy's fault any more,
    and nothing to imitate yet."""
    RECOVER = "recover"
    """By a person: back to where the policy knows its way."""
    CORRECT = "correct"
    """By rule after ADAPT, or by a person after RECOVER: she does what the policy should have done."""
    RELEASE = "release"
    """By rule: handed back; it stands until rows of a chunk run that was asked for afterwards."""


@dataclass(kw_only=True)
class _Taken:
    """A part that is not the policy's."""

    by: Authority
    phase: HandoverPhase = HandoverPhase.REQUEST
    wish: PartCommand | None = None
    is_led: bool = False
    """In this tick."""
    is_suspended: bool = False
    """It had to brake: nothing that is led counts until it stands."""
    adapts_since_ns: int | None = None
    has_settled: bool = False
    """Handed back, and the plan says that it stands where it does."""


class Handovers:
    """Of all parts that a policy commands; the executor owns it."""

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
        """The parts, () all. UnknownNameError: the policy does not move one of them, so nobody else can."""
        for part in parts:
            if part not in self.parts:
                raise UnknownNameError("part that can be taken over", str(part), self.parts)
        return tuple(parts) or self.parts

    @property
    def taken(self) -> tuple[str, ...]:
        """Parts that a person has."""
        return tuple(part for part, of in self._taken.items() if of.phase is not HandoverPhase.RELEASE)

    @property
    def released(self) -> tuple[str, ...]:
        """Parts that were handed back and wait for fresh rows."""
        return tuple(part for part, of in self._taken.items() if of.phase is HandoverPhase.RELEASE)

    @property
    def has_all(self) -> bool:
        """Whether the policy moves none."""
        return len(self._taken) == len(self.parts)

    @property
    def unsettled(self) -> tuple[str, ...]:
        """Those that still come to rest."""
        return tuple(part for part in self.released if not self._taken[part].has_settled)

    @property
    def off_plan(self) -> tuple[str, ...]:
        """Parts that do not follow the plan: the plan goes on without them, in the shadow."""
        return tuple(part for part, of in self._taken.items() if not of.has_settled)

    @property
    def on_plan(self) -> tuple[str, ...]:
        """All others."""
        off = self.off_plan
        return tuple(part for part in self.parts if part not in off)

    def take(self, parts: Collection[str], by: Authority) -> None:
        """A person has them from now on."""
        if by not in (Authority.HUMAN, Authority.SCRIPTED):
            raise InvalidValueError(f"parts are taken over by HUMAN or SCRIPTED, got {by}")
        for part in parts:
            of = self._taken.get(part)
            if of is None or of.phase is HandoverPhase.RELEASE or of.by is not by:
                self._taken[part] = _Taken(by=by)

    def lead(self, wishes: Mapping[str, PartCommand]) -> None:
        """What she wants of her parts in the next tick; others are left alone, no wish is to stand."""
        for part, of in self._taken.items():
            of.wish = wishes.get(part)

    def wishes(self) -> dict[str, PartCommand]:
        """What counts of it now, each once."""
        out: dict[str, PartCommand] = {}
        for part, of in self._taken.items():
            wish, of.wish = of.wish, None
            of.is_led = wish is not None and not of.is_suspended and of.phase is not HandoverPhase.RELEASE
            if wish is not None and of.is_led:
                out[part] = wish
        return out

    def say(self, parts: Collection[str], phase: HandoverPhase) -> None:
        """A person says what she does. InvalidValueError: that is not hers to say, or the part not hers."""
        if phase not in (HandoverPhase.RECOVER, HandoverPhase.CORRECT):
            raise InvalidValueError(
                f"a person says RECOVER or CORRECT; {phase.name} follows from what she does"
            )
        not_hers = [part for part in parts if part not in self.taken]
        if not_hers or not parts:
            raise InvalidValueError(f"nobody has taken over {', '.join(not_hers) or 'anything'}")
        for part in parts:
            self._taken[part].phase = phase

    def release(self, parts: Collection[str]) -> tuple[str, ...]:
        """Those of the parts that a person had: they are to be the policy's again."""
        out = tuple(part for part in parts if part in self.taken)
        for part in out:
            self._taken[part] = _Taken(by=self._taken[part].by, phase=HandoverPhase.RELEASE)
        return out

    def settle(self) -> None:
        """All that were handed back stand, and the plan says so."""
        for part in self.released:
            self._taken[part].has_settled = True

    def freshen(self) -> None:
        """Rows of a chunk run that was asked for since: what has settled is the policy's."""
        for part in self.released:
            if self._taken[part].has_settled:
                del self._taken[part]

    def suspend(self) -> None:
        """All brake: what is led counts no more until a part stands."""
        for of in self._taken.values():
            of.is_suspended, of.wish, of.is_led = True, None, False

    def resume(self, resting: Collection[str]) -> None:
        """These parts stand, and nothing is wrong."""
        for part in resting:
            if part in self._taken:
                self._taken[part].is_suspended = False

    def forget(self) -> None:
        """The robot was reset: all is the policy's."""
        self._taken.clear()

    def went(self, behind: Mapping[str, float], now_ns: int) -> None:
        """A tick has led parts so far behind what was wanted of them [rad] or [m]: the phases follow."""
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
        """Who moved each part in this tick; of_plan: of those that follow the plan."""
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
