"""What is worth a line in a run's log but happens again and again: `CountedLog`, one line for each kind."""

import logging
from collections.abc import Callable

from robot_runtime.clock import Clock
from robot_runtime.robot.telemetry import RunRecord

MAX_KINDS = 100
"""Texts of a server are kinds, too: one that never says the same twice is kept to so many."""
OTHER = "something of a kind that was not said yet"
Say = Callable[[str, bool], None]
"""Writes a line: its text, and whether it is routine."""


class CountedLog:
    """Says the first of a kind at once, and every tenfold of it with its number; keeps count of all.

    What somebody else counts may have happened several times when it is first heard of: it is said as the
    first is, and the number with the next tenfold and at the end.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._next: dict[str, int] = {}
        self._routine: dict[str, bool] = {}
        self.counts: dict[str, int] = {}

    @classmethod
    def into(cls, logger: logging.Logger) -> "CountedLog":
        """Those that go into Python's log alone."""
        return cls(lambda text, is_routine: logger.log(_level(is_routine=is_routine), "%s", text))

    def note(self, kind: str, text: str, *, is_routine: bool = False) -> None:
        """It has happened once more. kind: what all of them have in common, one of few; text: this one's."""
        self.counted(kind, self.counts.get(kind, 0) + 1, text, is_routine=is_routine)

    def counted(self, kind: str, count: int, text: str, *, is_routine: bool = False) -> None:
        """As `note`, of what somebody else counts and has come to `count`."""
        if kind not in self.counts and len(self.counts) >= MAX_KINDS:
            kind, count = OTHER, self.counts.get(OTHER, 0) + 1
        is_first = kind not in self.counts
        self.counts[kind], self._routine[kind] = count, is_routine
        if count >= self._next.setdefault(kind, 1):
            while self._next[kind] <= count:
                self._next[kind] *= 10
            self._say(text if is_first else f"{text} ({count} times so far)", is_routine)

    def sum_up(self) -> None:
        """Say how often each kind has happened that happened more than once."""
        for kind, count in self.counts.items():
            if count > 1:
                self._say(f"{count} times: {kind}", self._routine[kind])


class Logbook:
    """The lines of a run: into its record, and into Python's log."""

    def __init__(self, record: RunRecord, clock: Clock, logger: logging.Logger) -> None:
        self._record, self._clock, self._logger = record, clock, logger
        self.notices = CountedLog(lambda text, is_routine: self.say(text, is_routine=is_routine))

    def say(self, text: str, *, is_routine: bool = True) -> None:
        """One line, with its time; a warning unless it is routine."""
        self._record.line(self._clock.now_ns(), text, is_routine=is_routine)
        self._logger.log(_level(is_routine=is_routine), "%s", text)


def _level(*, is_routine: bool) -> int:
    return logging.INFO if is_routine else logging.WARNING
