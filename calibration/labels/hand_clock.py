"""Conversion between a hand's clock and the chest's: `HandClock`."""

from dataclasses import dataclass

import numpy as np

from calibration.trajectory import Trajectory


@dataclass(frozen=True, kw_only=True)
class HandClock:
    """Converts the hand's time to the chest's: t_hand + offset + skew (t_hand - reference)."""

    offset_ns: int = 0
    skew_ppm: float = 0.0
    reference_ns: int = 0
    sigma_s: float = 0.001
    """Standard deviation of the conversion [s]."""

    def __call__(self, t_hand_ns: np.ndarray) -> np.ndarray:
        """Convert to the chest's clock, (N,) int64."""
        t = np.asarray(t_hand_ns, dtype=np.int64)
        skewed = np.rint((t - self.reference_ns) * (1e-6 * self.skew_ppm)).astype(np.int64)
        return t + self.offset_ns + skewed

    def back(self, t_chest_ns: np.ndarray) -> np.ndarray:
        """Convert the chest's times to the hand's clock, (N,) int64."""
        since = np.asarray(t_chest_ns, dtype=np.int64) - self.offset_ns - self.reference_ns
        share = 1e-6 * self.skew_ppm / (1.0 + 1e-6 * self.skew_ppm)
        return self.reference_ns + since - np.rint(share * since).astype(np.int64)

    def moved(self, own: Trajectory) -> Trajectory:
        """The hand's poses with times on the chest's clock."""
        return Trajectory(t_ns=self(own.t_ns), p=own.p, q=own.q, tracking=own.tracking)
