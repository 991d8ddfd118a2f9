"""The result of one control tick: `Tick`."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.plan.clip import Clip
from robot_runtime.core.plan.timeline import Phase, Source
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.values.action import Command

_NO_AUTHORITY: Mapping[str, Authority] = MappingProxyType({})
_NO_PHASES: Mapping[str, HandoverPhase] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, eq=False)
class Tick:
    """The command of one tick, and why it is sent."""

    now_ns: int
    command: Command
    mode: Mode
    cause: Cause
    """Why the mode is what it is."""
    phase: Phase
    source: Source | None
    """The answer that the motion comes from."""
    row: int | None
    clip: Clip
    sent: Command | None = None
    """What the drivers sent of the command, within their own limits; None: it has not been sent yet."""
    authority: Mapping[str, Authority] = _NO_AUTHORITY
    """Who moved each part that the policy commands."""
    phase_of: Mapping[str, HandoverPhase] = _NO_PHASES
    """How far each part's handover has come."""
    policy_command: Command | None = None
    """What the plan would have sent, before the limits, also for parts that the operator drives; None: there
    is no plan of a policy's. In joints where an arm takes joints."""

    @property
    def age_ns(self) -> int | None:
        """Age of the observation behind this command [ns], counted from the capture of its oldest part."""
        return None if self.source is None else self.now_ns - self.source.t_obs_ns
