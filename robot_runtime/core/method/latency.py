"""How late answers are: `LatencyEstimator`."""

import math
from collections import deque

LATENCY_QUANTILE = 0.9
"""Of the latencies, by which an answer is there as a rule: for when to ask, so that the plan does not end."""
COMMITMENT_QUANTILE = 0.5
"""For the rows that a request commits to. An answer that is later loses its first open rows; one that is
earlier waits for the committed ones. Lognormal delays, default method, 75 seeds, quantile 0.9 and 0.5:
success on `strike` 55 and 64, on `conveyor` 69 and 73, mean reaction 0.44 and 0.35 s, 0.41 and 0.32 s."""


class LatencyEstimator:
    """Quantiles of the last few latencies, from capture of the observation to the first usable row.

    The first answer of a connection is left out unless told otherwise: it pays for cold caches. A spike is
    forgotten as soon as it leaves the window.
    """

    def __init__(self, *, window: int = 20, skips_first: bool = True) -> None:
        if window < 1:
            raise ValueError(f"need window >= 1, got {window}")
        self._samples: deque[int] = deque(maxlen=window)
        self._skips_first = self._is_cold = skips_first

    def restart(self) -> None:
        """Forget everything: another server, or the same one restarted."""
        self._samples.clear()
        self._is_cold = self._skips_first

    def add(self, latency_ns: int) -> None:
        """Record one latency [ns]."""
        if self._is_cold:
            self._is_cold = False
        else:
            self._samples.append(latency_ns)

    def latency_ns(self, quantile: float = LATENCY_QUANTILE) -> int | None:
        """A quantile of the last latencies [ns], the higher of two neighbours; None until a second answer has
        come. Asked for at every tick: sorting 20 integers takes a hundredth of numpy's quantile."""
        if not self._samples:
            return None
        return sorted(self._samples)[math.ceil(quantile * (len(self._samples) - 1))]

    def num_rows(self, dt_ns: int, quantile: float = LATENCY_QUANTILE) -> int:
        """`rows_past` of that quantile; 0 while there is none."""
        latency = self.latency_ns(quantile)
        return 0 if latency is None else rows_past(latency, dt_ns)


def rows_past(latency_ns: int, dt_ns: int) -> int:
    """Rows whose time has come before an answer does, d; row 0 is due at the capture.

    row   0     1     2     3
          |-----|-----|--┼--|        d = 3
    capture           answer         one that comes just when a row is due can still change it
    """
    return -(-latency_ns // dt_ns)
