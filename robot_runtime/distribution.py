"""Quantiles of any number of values in a fixed amount of memory: `Distribution`."""

import random

import numpy as np

SAMPLE_SIZE = 4096
"""Values that are kept. A quantile of a sample of this size is off by at most 2.5 % of the rank (99.9 %)."""


class Distribution:
    """Count, mean and maximum of all values; quantiles of all, or of a uniform sample once there are many.

    number k > SAMPLE_SIZE replaces one of those kept with probability SAMPLE_SIZE / k, so that at any moment
    each number so far is among them with equal probability (Vitter's algorithm R). Seeded: same numbers, same
    quantiles.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.max = 0.0
        """The largest value; 0 before the first."""
        self._kept: list[float] = []
        self._random = random.Random(0)

    def add(self, value: float) -> None:
        """Add a finite value."""
        self.max = value if self.count == 0 else max(self.max, value)
        self.count += 1
        self.total += value
        if len(self._kept) < SAMPLE_SIZE:
            self._kept.append(value)
        elif (i := int(self._random.random() * self.count)) < SAMPLE_SIZE:
            self._kept[i] = value

    @property
    def mean(self) -> float:
        """The mean; 0 without values."""
        return self.total / max(self.count, 1)

    def quantile(self, q: float) -> float:
        """Return a quantile, interpolated as in `numpy.quantile`; 0 without values."""
        return float(np.quantile(self._kept, q)) if self._kept else 0.0
