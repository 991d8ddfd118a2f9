"""What one control step comes to: `Tick`, and a chunk's entry into the plan: `Splice`."""

from dataclasses import dataclass

from robot_runtime.core.plan.limiter import Clip
from robot_runtime.core.plan.timeline import Phase, Seam, Source
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.values.action import Command


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

    @property
    def age_ns(self) -> int | None:
        """Age of the observation behind this command [ns], counted from the capture of its oldest part."""
        return None if self.source is None else self.now_ns - self.source.t_obs_ns


@dataclass(frozen=True, kw_only=True, eq=False)
class Splice:
    """A chunk's entry into the plan."""

    t_ns: int
    source: Source
    latency_ns: int
    """From capture of the observation, its oldest part, to this splice [ns]."""
    t0_ns: int
    """When row 0 is due, or was [ns]."""
    seam: Seam
    first_fresh_row: int
    """Rows before this one were meant for times at which the robot was already on its way elsewhere: if they
    run all the same, the robot repeats what it has done. 0 if it stood still."""
    picture_age_ns: int = 0
    """How much older than the state the oldest picture of the observation was [ns]."""
