"""Quantiles of however many numbers in a fixed amount of memory: `Distribution`."""

import random

import numpy as np

SAMPLE_SIZE = 4096
"""Numbers that are kept. A quantile of a sample of so many is off by at most 2.5 % of the rank (99.9 %)."""


class Distribution:
    """Count, mean and maximum of all numbers; quantiles of all, or of a fair sample once there are many.

    number k > SAMPLE_SIZE replaces one of those kept with probability SAMPLE_SIZE / k, so that at any moment
    each number so far is among them with the same one (Vitter's algorithm R). Seeded: same numbers, same
    quantiles.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.max = 0.0
        """0 before the first."""
        self._kept: list[float] = []
        self._random = random.Random(0)

    def add(self, value: float) -> None:
        """One more number, finite."""
        self.max = value if self.count == 0 else max(self.max, value)
        self.count += 1
        self.total += value
        if len(self._kept) < SAMPLE_SIZE:
            self._kept.append(value)
        elif (i := int(self._random.random() * self.count)) < SAMPLE_SIZE:
            self._kept[i] = value

    @property
    def mean(self) -> float:
        """0 of none."""
        return self.total / max(self.count, 1)

    def quantile(self, q: float) -> float:
        """Between two neighbours, as `numpy.quantile`; 0 of none."""
        return float(np.quantile(self._kept, q)) if self._kept else 0.0
