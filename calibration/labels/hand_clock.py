"""A hand's times on the chest's clock: `HandClock`."""

from dataclasses import dataclass

import numpy as np

from calibration.trajectory import Trajectory


@dataclass(frozen=True, kw_only=True)
class HandClock:
    """Chest's time of a hand's: t_hand + offset + skew (t_hand - reference)."""

    offset_ns: int = 0
    skew_ppm: float = 0.0
    reference_ns: int = 0
    sigma_s: float = 0.001
    """How well that is known [s]."""

    def __call__(self, t_hand_ns: np.ndarray) -> np.ndarray:
        """(N,) int64 on the chest's clock."""
        t = np.asarray(t_hand_ns, dtype=np.int64)
        skewed = np.rint((t - self.reference_ns) * (1e-6 * self.skew_ppm)).astype(np.int64)
        return t + self.offset_ns + skewed

    def back(self, t_chest_ns: np.ndarray) -> np.ndarray:
        """The hand's times (N,) int64 of the chest's."""
        since = np.asarray(t_chest_ns, dtype=np.int64) - self.offset_ns - self.reference_ns
        share = 1e-6 * self.skew_ppm / (1.0 + 1e-6 * self.skew_ppm)
        return self.reference_ns + since - np.rint(share * since).astype(np.int64)

    def moved(self, own: Trajectory) -> Trajectory:
        """A hand's poses at the chest's times."""
        return Trajectory(t_ns=self(own.t_ns), p=own.p, q=own.q, tracking=own.tracking)
