"""How late answers are: `LatencyEstimator`."""

from collections import deque

import numpy as np

LATENCY_QUANTILE = 0.9
"""Of the latencies that an inference delay is taken from."""


class LatencyEstimator:
    """A quantile of the last few latencies, from capture of the observation to the first usable row.

    The first answer of a connection is left out: it pays for cold caches. A spike is forgotten as soon as it
    leaves the window.
    """

    def __init__(self, *, quantile: float = LATENCY_QUANTILE, window: int = 20) -> None:
        if not 0.0 < quantile <= 1.0 or window < 1:
            raise ValueError(f"need 0 < quantile <= 1 and window >= 1, got {quantile} and {window}")
        self._quantile = quantile
        self._samples: deque[int] = deque(maxlen=window)
        self._is_cold = True

    def restart(self) -> None:
        """Forget everything: another server, or the same one restarted."""
        self._samples.clear()
        self._is_cold = True

    def add(self, latency_ns: int) -> None:
        """Record one latency [ns]."""
        if self._is_cold:
            self._is_cold = False
        else:
            self._samples.append(latency_ns)

    def latency_ns(self) -> int | None:
        """The estimate [ns]; None until a second answer has come."""
        if not self._samples:
            return None
        return int(np.quantile(np.fromiter(self._samples, dtype=float), self._quantile, method="higher"))

    def num_rows(self, dt_ns: int) -> int:
        """`rows_past` of the estimate; 0 while there is none."""
        latency = self.latency_ns()
        return 0 if latency is None else rows_past(latency, dt_ns)


def rows_past(latency_ns: int, dt_ns: int) -> int:
    """Rows whose time has come before an answer does, d; row 0 is due at the capture.

    row   0     1     2     3
          |-----|-----|--┼--|        d = 3
    capture           answer         one that comes just when a row is due can still change it
    """
    return -(-latency_ns // dt_ns)
