"""What one control step comes to: `Tick`."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.plan.clip import Clip
from robot_runtime.core.plan.timeline import Phase, Source
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.values.action import Command

_NOBODY: Mapping[str, Authority] = MappingProxyType({})
_NO_PHASES: Mapping[str, HandoverPhase] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, eq=False)
class Tick:
    """One tick's outcome: what is sent, and why."""

    now_ns: int
    command: Command
    mode: Mode
    cause: Cause
    """Why the mode is what it is."""
    phase: Phase
    source: Source | None
    """Answer the motion comes from."""
    row: int | None
    clip: Clip
    sent: Command | None = None
    """What the drivers made of the command, within their own limits; None: it has not been sent yet."""
    authority: Mapping[str, Authority] = _NOBODY
    """Who moved each part that the policy commands."""
    phase_of: Mapping[str, HandoverPhase] = _NO_PHASES
    """How far each part's handover has come."""
    policy_command: Command | None = None
    """What the plan would have sent, before the limits, also of parts that a person moves; None: there is no
    plan of a policy's. In joints where an arm is told those."""

    @property
    def age_ns(self) -> int | None:
        """Age of the observation behind this command [ns], counted from the capture of its oldest part."""
        return None if self.source is None else self.now_ns - self.source.t_obs_ns
