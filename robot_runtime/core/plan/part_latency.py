"""Compensates latency from command to motion: `PartLatency` sends each part its rows that much earlier.

A plan holds targets by time of motion. A part of latency L (command to motion) is sent now what the plan has
for now + L; the lead is the longest L. For an arm of 0.1 s and a gripper of 0.2 s:

                    now                   now + 0.1 s             now + 0.2 s
    ─────────────────┼────────────────────────┼───────────────────────┼──────────► time of motion
    measured; sent   │ sent, still to come    │ sent to the arm now   │ sent to the gripper now
    before           │                        ·                       │ a new chunk enters from here on
                     |---------------- lead = 0.2 s ------------------|

What lies before now + lead is settled, for every part: an answer can change only what comes after it. So the
lead is part of the delay that requests and committed rows count with, and a part with less latency than the
lead reacts no sooner than the slowest. When the robot brakes, no part waits for another.

Rows that are commands of their time (`RowTiming.SENT`) are sent when they are due: they were recorded with
the latency included.
"""

import math
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from robot_runtime.core.plan.timeline import ChunkTimeline
from robot_runtime.core.values.action import NS_PER_S, ActionSpec, RowTiming
from robot_runtime.core.values.command import Command
from robot_runtime.errors import InvalidValueError, UnknownNameError

LONGEST_S = 1.0
"""Longest latency that may be declared; a longer one suggests a wrong unit."""


def latencies_ns(latency_s: Mapping[str, Any], parts: Collection[str]) -> dict[str, int]:
    """Latencies from command to motion by part [ns], given in seconds.

    UnknownNameError: no such part. InvalidValueError: not between 0 and `LONGEST_S`.
    """
    out = {}
    for part, seconds in latency_s.items():
        if part not in parts:
            raise UnknownNameError("part with a latency", part, tuple(parts))
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not (is_number and math.isfinite(seconds) and 0.0 <= seconds <= LONGEST_S):
            raise InvalidValueError(
                f"the latency of {part} has to be between 0 and {LONGEST_S:g} s, command to motion, got "
                f"{seconds!r:.50}"
            )
        out[part] = round(seconds * NS_PER_S)
    return out


def lead_ns(latency_ns: Mapping[str, int], spec: ActionSpec) -> int:
    """The lead, how far ahead of the clock rows are sent: the longest latency of the policy's parts [ns]."""
    if spec.timing is RowTiming.SENT:
        return 0
    return max((latency_ns.get(f.part, 0) for f in spec.fields), default=0)


class PartLatency:
    """The command that each part is sent at a time, and the one it executes then; one thread owns it."""

    def __init__(self, latency_ns: Mapping[str, int], spec: ActionSpec) -> None:
        """latency_ns: command to motion, by part; 0 where none is given. Parts that the policy does not move
        are ignored."""
        self._latency_ns = {f.part: latency_ns.get(f.part, 0) for f in spec.fields}
        self.lead_ns = lead_ns(latency_ns, spec)
        """How far ahead of the clock the plan is settled."""
        self.follows_ns = max(self._latency_ns.values(), default=0)
        """How long after the last command the robot still executes it."""
        behind = {part: self.lead_ns - own for part, own in self._latency_ns.items()}
        self._behind_ns = {part: by_ns for part, by_ns in behind.items() if by_ns > 0 and self.lead_ns > 0}
        self.spread_ns = max(self._behind_ns.values(), default=0)
        """How far the part that is sent its rows last is behind the lead."""
        self._sent: deque[tuple[int, Command]] = deque()

    def ahead_ns(self, part: str) -> int:
        """How much earlier than it is due a part is sent a row [ns]."""
        return self.lead_ns - self._behind_ns.get(part, 0)

    def latency_ns(self, part: str) -> int:
        """Latency of a part from command to motion [ns]."""
        return self._latency_ns.get(part, 0)

    def commanded(self, timeline: ChunkTimeline, foremost: Command) -> Command:
        """The plan's command to send each part now; foremost: the plan's for the time sampled last."""
        if not self._behind_ns:
            return foremost
        at: dict[int, Command] = {}
        own = {}
        for part, behind_ns in self._behind_ns.items():
            if behind_ns not in at:
                at[behind_ns] = timeline.command_at(timeline.claimed_ns - behind_ns)
            own[part] = at[behind_ns].parts[part]
        return foremost.with_parts(own)

    def due_with(self, part: str, commanded: Command, timeline: ChunkTimeline) -> Command:
        """The plan for all parts at the time at which `part` executes what it is sent now.

        commanded: what each part is sent, for its own time.
        """
        if not self._behind_ns:
            return commanded
        return timeline.command_at(timeline.claimed_ns - self._behind_ns.get(part, 0))

    def doing(self, part: str, timeline: ChunkTimeline) -> Command | None:
        """The plan for all parts now, if `part` is sent rows for a later time; None: it is sent those for
        now."""
        return timeline.command_at(timeline.claimed_ns - self.lead_ns) if self.ahead_ns(part) > 0 else None

    def note(self, command: Command, now_ns: int) -> None:
        """Note that the command is sent now."""
        if self.follows_ns == 0:
            return
        self._sent.append((now_ns, command))
        while len(self._sent) > 1 and self._sent[1][0] <= now_ns - self.follows_ns:
            self._sent.popleft()

    def forget(self) -> None:
        """Forget what was sent: the robot was reset, or odometry jumped to another frame."""
        self._sent.clear()

    def followed(self, command: Command, now_ns: int) -> Command:
        """The command that each part executes by now; command: the one sent last."""
        if not self._sent:
            return command
        own = {}
        for part, latency_ns in self._latency_ns.items():
            if latency_ns > 0 and part in command.parts:
                own[part] = self._then(now_ns - latency_ns).parts.get(part, command.parts[part])
        return command.with_parts(own)

    def _then(self, t_ns: int) -> Command:
        """The last command sent by a time, or else the oldest that is known."""
        out = self._sent[0][1]
        for sent_ns, command in self._sent:
            if sent_ns > t_ns:
                break
            out = command
        return out
