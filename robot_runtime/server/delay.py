"""Latency put between policy and network, to see on one machine how a robot fares with a distant one."""

import heapq
import itertools
import random
from dataclasses import dataclass

from robot_runtime.core.values.action import NS_PER_MS


@dataclass(frozen=True, kw_only=True)
class Delay:
    """How much longer each answer takes: `median_ms` times a lognormal factor of spread `sigma`."""

    median_ms: float = 0.0
    sigma: float = 0.0
    """Standard deviation of the factor's logarithm; 0 makes every answer equally late."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.median_ms < 0 or self.sigma < 0:
            raise ValueError(f"delay and spread must not be negative, got {self.median_ms} and {self.sigma}")


class DelayLine[T]:
    """Holds items until they are due. `draw_ns` once per answer keeps the order of its parts."""

    def __init__(self, delay: Delay) -> None:
        self._delay = delay
        self._random = random.Random(delay.seed)
        self._heap: list[tuple[int, int, T]] = []
        self._count = itertools.count()

    def draw_ns(self) -> int:
        """The next answer's delay [ns]."""
        if not self._delay.median_ms:
            return 0
        factor = self._random.lognormvariate(0.0, self._delay.sigma)
        return round(self._delay.median_ms * factor * NS_PER_MS)

    def put(self, due_ns: int, item: T) -> None:
        """Hold an item until `due_ns`."""
        heapq.heappush(self._heap, (due_ns, next(self._count), item))

    def take_due(self, now_ns: int) -> list[T]:
        """Items that are due, in the order in which they became so."""
        out = []
        while self._heap and self._heap[0][0] <= now_ns:
            out.append(heapq.heappop(self._heap)[2])
        return out

    def next_timer_ns(self) -> int | None:
        """When the next item is due."""
        return self._heap[0][0] if self._heap else None
