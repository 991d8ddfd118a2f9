"""A page's clock against ours: `PageClock`. Pure.

    page    t        t        t                      by its own clock
    here      a       a            a                 arrived: never earlier than it was said
              |<- ->|                                the smallest a - t of late counts as no delay

So what waited in a queue is known to be old, though the two clocks have nothing to do with each other.
"""

from collections import deque

from robot_runtime.core.values.action import NS_PER_S

WINDOW_NS = 5 * NS_PER_S
"""How long a smallest difference counts: clocks drift, and one that slept jumps [ns]."""


class PageClock:
    """Of one page."""

    def __init__(self) -> None:
        self._least: deque[tuple[int, int]] = deque()
        """(arrival, difference), differences rising: the first is the smallest."""

    def stamp_ns(self, t_ms: float, arrived_ns: int) -> int:
        """When it was said, on our clock [ns]: never later than it arrived."""
        t_ns = round(t_ms * 1e6)
        difference = arrived_ns - t_ns
        while self._least and self._least[-1][1] >= difference:
            self._least.pop()
        self._least.append((arrived_ns, difference))
        while self._least[0][0] < arrived_ns - WINDOW_NS:
            self._least.popleft()
        return t_ns + self._least[0][1]
