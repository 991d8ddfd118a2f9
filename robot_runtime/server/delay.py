"""Latency injected between policy and network, to test a robot with a distant server on one machine."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from robot_runtime.core.values.action import NS_PER_MS


@dataclass(frozen=True, kw_only=True)
class Delay:
    """Extra latency of each answer: `median_ms` times a lognormal factor of spread `sigma`."""

    median_ms: float = 0.0
    sigma: float = 0.0
    """Standard deviation of the factor's logarithm; 0 makes every answer equally late."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.median_ms < 0 or self.sigma < 0:
            raise ValueError(f"delay and spread must not be negative, got {self.median_ms} and {self.sigma}")

    def drawn_ns(self) -> Iterator[int]:
        """Latencies of successive answers [ns]."""
        rng = random.Random(self.seed)
        while True:
            factor = rng.lognormvariate(0.0, self.sigma) if self.median_ms else 0.0
            yield round(self.median_ms * factor * NS_PER_MS)
