"""Device clocks: each has its own offset and skew, and stamps with jitter.

true time t   ──────────┬──────────────────►        all of the simulated session
device time   c(t) = t + offset + skew (t - t_0)    what its files contain
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from robot_runtime.core.values.action import NS_PER_S


@dataclass(frozen=True, kw_only=True)
class DeviceClock:
    """A device's clock as a function of true time.

    offset_ns: at `t_zero_ns`. skew_ppm: positive runs fast. jumps: (true time, amount) [ns, ns].
    """

    t_zero_ns: int = 0
    offset_ns: int = 0
    skew_ppm: float = 0.0
    jumps: tuple[tuple[int, int], ...] = ()

    def at(self, t_ns: Int64[np.ndarray, " N"]) -> Int64[np.ndarray, " N"]:
        """Device times of true times (N,) [ns]."""
        t_ns = np.asarray(t_ns, dtype=np.int64)
        skewed = np.rint((t_ns - self.t_zero_ns) * (self.skew_ppm * 1e-6)).astype(np.int64)
        jumped = sum((np.where(t_ns >= when, by, 0) for when, by in self.jumps), np.zeros_like(t_ns))
        return t_ns + self.offset_ns + skewed + jumped


def draw_clock(rng: np.random.Generator, *, t_zero_ns: int, offset_s: float, skew_ppm: float) -> DeviceClock:
    """Draw a clock with offset and skew up to these magnitudes [s, parts per million]."""
    return DeviceClock(
        t_zero_ns=t_zero_ns,
        offset_ns=round(rng.uniform(-offset_s, offset_s) * NS_PER_S),
        skew_ppm=float(rng.uniform(-skew_ppm, skew_ppm)),
    )


def sample_times(
    rng: np.random.Generator, start_ns: int, stop_ns: int, *, rate_hz: float, jitter_ns: float = 0.0
) -> Int64[np.ndarray, " N"]:
    """True times in [start, stop) at which a device samples: a grid of its own phase, with jitter [ns].

    Jitter is clipped to a third of the period, so that times increase.
    """
    period = NS_PER_S / rate_hz
    grid = start_ns + (np.arange(int((stop_ns - start_ns) / period) + 1) + rng.uniform(0.0, 1.0)) * period
    limit = period / 3.0
    times = grid + np.clip(rng.normal(0.0, 1.0, len(grid)) * jitter_ns, -limit, limit)
    times = np.rint(times).astype(np.int64)
    return times[(times >= start_ns) & (times < stop_ns)]


def kept(rng: np.random.Generator, count: int, *, share_dropped: float) -> Int64[np.ndarray, " M"]:
    """Increasing indices of the samples that are not dropped; the first and the last are kept."""
    keep = rng.uniform(size=count) >= share_dropped
    keep[[0, -1]] = True
    return np.flatnonzero(keep)
