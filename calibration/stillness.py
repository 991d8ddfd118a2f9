"""Detects a stationary end effector and views that add information: `Stillness`, `is_new`."""

from collections.abc import Iterable

import numpy as np
import pinocchio as pin

from calibration.chain import angle_between

STILL_M, STILL_RAD = 5e-4, 2e-3
"""Motion below which an end effector counts as stationary."""
APART_M, APART_DEG = 0.02, 4.0
"""Least motion against every other view for a new one."""


class Stillness:
    """Measures for how long an end effector has been stationary, from its poses in order of time."""

    def __init__(self) -> None:
        self.since_ns = 0
        """Time at which it came to rest [ns]."""
        self._there: pin.SE3 | None = None

    def feed(self, t_ns: int, X_AE: pin.SE3) -> int:
        """Register a pose; returns for how long it has been stationary [ns]."""
        if self._there is None or not is_near(X_AE, self._there, m=STILL_M, rad=STILL_RAD):
            self.since_ns, self._there = t_ns, X_AE.copy()
        return t_ns - self.since_ns


def is_new(X_AE: pin.SE3, others: Iterable[pin.SE3]) -> bool:
    """Whether a view from here differs from all others."""
    return not any(is_near(X_AE, X, m=APART_M, rad=float(np.deg2rad(APART_DEG))) for X in others)


def is_near(X: pin.SE3, Y: pin.SE3, *, m: float, rad: float) -> bool:
    """Whether two poses differ by less than this in position and rotation."""
    return bool(np.linalg.norm(X.translation - Y.translation) < m) and (
        angle_between(X.rotation, Y.rotation) < rad
    )
