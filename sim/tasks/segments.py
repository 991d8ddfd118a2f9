"""Motion that nobody can foresee: even segments, each drawn when the one before it ends."""

from collections.abc import Callable
from typing import Protocol


class Segment(Protocol):
    """A stretch of motion without change, over [t_ns, end_ns) of the episode."""

    @property
    def t_ns(self) -> int: ...

    @property
    def end_ns(self) -> int: ...


class Segments[S: Segment]:
    """The segments of one episode, drawn as far as anybody has looked; times count from its start [ns]."""

    def __init__(self, first: S, draw_next: Callable[[S], S]) -> None:
        """draw_next: a segment to follow the given one."""
        self._drawn, self._draw_next = [first], draw_next

    def at(self, t_ns: int) -> S:
        """The segment that holds at a time; a change counts from its very moment."""
        while self._drawn[-1].end_ns <= t_ns:
            self._drawn.append(self._draw_next(self._drawn[-1]))
        return next(segment for segment in reversed(self._drawn) if segment.t_ns <= t_ns)

    def change_times_ns(self, until_ns: int) -> list[int]:
        """When one segment follows another, up to and with `until_ns`."""
        self.at(until_ns)
        return [segment.t_ns for segment in self._drawn[1:] if segment.t_ns <= until_ns]
