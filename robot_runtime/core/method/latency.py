"""Estimates the latency of answers: `LatencyEstimator`."""

import math
from collections import deque
from dataclasses import dataclass

LATENCY_QUANTILE = 0.9
"""Quantile of latencies that decides when to ask, so that most answers come before the plan ends."""
COMMITMENT_QUANTILE = 0.5
"""Quantile that decides how many rows a request commits to. A later answer loses its first open rows; an
earlier one waits for the committed ones. Lognormal delays, default method, 75 seeds, quantile 0.9 and 0.5:
success on `strike` 55 and 64, on `conveyor` 69 and 73, mean reaction 0.44 and 0.35 s, 0.41 and 0.32 s."""


@dataclass(frozen=True, kw_only=True)
class LatencyKnown:
    """The memory of a `LatencyEstimator`."""

    window: int
    skips_first: bool
    is_cold: bool
    """Whether the next latency is the first, and left out."""
    samples_ns: tuple[int, ...]

    def estimator(self, *, to_motion_ns: int = 0) -> "LatencyEstimator":
        """A new estimator with this memory."""
        out = LatencyEstimator(window=self.window, skips_first=self.skips_first, to_motion_ns=to_motion_ns)
        if not self.is_cold:
            out.warm()
        for each in self.samples_ns:
            out.add(each)
        return out


class LatencyEstimator:
    """Quantiles of the last few latencies, from capture of the observation to the first usable row.

    The first answer of a connection is left out if `skips_first`: it suffers from cold caches. A spike is
    forgotten as soon as it leaves the window.

        capture            answer         first motion it can change
        |--- measured here ---|---- to_motion_ns ----|
    """

    def __init__(self, *, window: int = 20, skips_first: bool = True, to_motion_ns: int = 0) -> None:
        """to_motion_ns: latency from command to motion, added to every latency [ns]."""
        if window < 1:
            raise ValueError(f"need window >= 1, got {window}")
        self.to_motion_ns = to_motion_ns
        self._samples: deque[int] = deque(maxlen=window)
        self._skips_first = self._is_cold = skips_first

    def restart(self) -> None:
        """Forget everything: there is another server, or the same one restarted."""
        self._samples.clear()
        self._is_cold = self._skips_first

    @property
    def known(self) -> LatencyKnown:
        """The memory as it is now."""
        assert self._samples.maxlen is not None
        return LatencyKnown(
            window=self._samples.maxlen,
            skips_first=self._skips_first,
            is_cold=self._is_cold,
            samples_ns=tuple(self._samples),
        )

    def warm(self) -> None:
        """Count the next answer: the first one has come already."""
        self._is_cold = False

    def add(self, latency_ns: int) -> None:
        """Record one latency, from capture to answer [ns]."""
        if self._is_cold:
            self._is_cold = False
        else:
            self._samples.append(latency_ns)

    def latency_ns(self, quantile: float = LATENCY_QUANTILE) -> int | None:
        """A quantile of the last latencies [ns], the higher of two neighbours; None until a second answer has
        come. It is called in every tick: sorting 20 integers takes a hundredth of numpy's quantile."""
        if not self._samples:
            return None
        return self.to_motion_ns + sorted(self._samples)[math.ceil(quantile * (len(self._samples) - 1))]

    def num_rows(self, dt_ns: int, quantile: float = LATENCY_QUANTILE) -> int:
        """`rows_past` of that quantile; while there is none, of the latency from command to motion alone."""
        latency = self.latency_ns(quantile)
        return rows_past(self.to_motion_ns if latency is None else latency, dt_ns)


def rows_past(latency_ns: int, dt_ns: int) -> int:
    """Rows that are due before an answer comes, d; row 0 is due at the capture.

    row   0     1     2     3
          |-----|-----|--┼--|        d = 3
    capture           answer         an answer that comes exactly when a row is due can still change it
    """
    return -(-latency_ns // dt_ns)
