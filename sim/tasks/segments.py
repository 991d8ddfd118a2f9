"""Unpredictable motion: uniform segments, each drawn when the previous one ends."""

from collections.abc import Callable
from typing import Protocol


class Segment(Protocol):
    """A segment of uniform motion over [t_ns, end_ns) of the episode."""

    @property
    def t_ns(self) -> int: ...

    @property
    def end_ns(self) -> int: ...


class Segments[S: Segment]:
    """The segments of one episode, drawn on demand; times are relative to its start [ns]."""

    def __init__(self, first: S, draw_next: Callable[[S], S]) -> None:
        """draw_next: draws the segment after a given one."""
        self._drawn, self._draw_next = [first], draw_next

    def at(self, t_ns: int) -> S:
        """The segment at a time; a change takes effect at its own time."""
        while self._drawn[-1].end_ns <= t_ns:
            self._drawn.append(self._draw_next(self._drawn[-1]))
        return next(segment for segment in reversed(self._drawn) if segment.t_ns <= t_ns)

    def change_times_ns(self, until_ns: int) -> list[int]:
        """Times of segment changes up to and including `until_ns`."""
        self.at(until_ns)
        return [segment.t_ns for segment in self._drawn[1:] if segment.t_ns <= until_ns]
