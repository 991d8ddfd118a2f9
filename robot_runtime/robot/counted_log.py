"""Rate-limited log of events that recur: `CountedLog` writes the first of a kind and then every tenfold
count."""

import logging
from collections.abc import Callable

from robot_runtime.clock import Clock
from robot_runtime.robot.telemetry import RunRecord

MAX_KINDS = 100
"""A server's texts are kinds, too; this bounds them for a server that never repeats itself."""
OTHER = "something of another kind"
Say = Callable[[str, bool], None]
"""Writes a line: its text, and whether it is routine."""


class CountedLog:
    """Logs the first event of a kind at once, then each tenfold count with its number; counts all of them.

    An event that is counted elsewhere may have happened several times when it is first reported: it is logged
    as a first event, and its count with the next tenfold and at the end.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._next: dict[str, int] = {}
        self._routine: dict[str, bool] = {}
        self.counts: dict[str, int] = {}

    @classmethod
    def into(cls, logger: logging.Logger) -> "CountedLog":
        """Make one that writes to Python's log only."""
        return cls(lambda text, is_routine: logger.log(_level(is_routine=is_routine), "%s", text))

    def note(self, kind: str, text: str, *, is_routine: bool = False) -> None:
        """Count one more event. kind: what these events have in common, one of few; text: of this event."""
        self.counted(kind, self.counts.get(kind, 0) + 1, text, is_routine=is_routine)

    def counted(self, kind: str, count: int, text: str, *, is_routine: bool = False) -> None:
        """As `note`, for an event that is counted elsewhere and has reached `count`."""
        if kind not in self.counts and len(self.counts) >= MAX_KINDS:
            kind, count = OTHER, self.counts.get(OTHER, 0) + 1
        is_first = kind not in self.counts
        self.counts[kind], self._routine[kind] = count, is_routine
        if count >= self._next.setdefault(kind, 1):
            while self._next[kind] <= count:
                self._next[kind] *= 10
            self._say(text if is_first else f"{text} ({count} times so far)", is_routine)

    def sum_up(self) -> None:
        """Log the count of each kind that happened more than once."""
        for kind, count in self.counts.items():
            if count > 1:
                self._say(f"{count} times: {kind}", self._routine[kind])


class Logbook:
    """The lines of a run: into its record, and into Python's log."""

    def __init__(self, record: RunRecord, clock: Clock, logger: logging.Logger) -> None:
        self._record, self._clock, self._logger = record, clock, logger
        self.notices = CountedLog(lambda text, is_routine: self.say(text, is_routine=is_routine))

    def say(self, text: str, *, is_routine: bool = True) -> None:
        """Write one line with its time; it is a warning unless it is routine."""
        self._record.line(self._clock.now_ns(), text, is_routine=is_routine)
        self._logger.log(_level(is_routine=is_routine), "%s", text)


def _level(*, is_routine: bool) -> int:
    return logging.INFO if is_routine else logging.WARNING
