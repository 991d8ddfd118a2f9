"""Variance of odometry drift between two times: by path length, time, jumps and lost tracking."""

from itertools import pairwise

import numpy as np
from scipy.spatial.transform import Rotation

from calibration.labels.values import Drift
from calibration.trajectory import LIMITED, LOST, Trajectory
from robot_runtime.core.values.action import NS_PER_S

BROKEN_M, BROKEN_RAD = 0.5, np.deg2rad(10.0)
"""Standard deviations of the world's motion by a jump, or while tracking was lost."""
LIMITED_TIMES = 3.0
"""Factor of drift while tracking is limited."""
_LEAST_JUMP_M, _LEAST_JUMP_RAD = 0.012, np.deg2rad(2.0)


def jumps(path: Trajectory) -> np.ndarray:
    """(N-1,) bool: steps between samples in which odometry jumped, rather than the device moved."""
    n = len(path)
    if n < 6:
        return np.zeros(max(n - 1, 0), bool)
    dt = np.diff(path.t_ns)[:, None] / NS_PER_S
    turns = (
        Rotation.from_quat(path.q[1:], scalar_first=True)
        * Rotation.from_quat(path.q[:-1], scalar_first=True).inv()
    )
    out = np.zeros(n - 1, bool)
    for rate, least in (
        (np.diff(path.p, axis=0) / dt, _LEAST_JUMP_M),
        (turns.as_rotvec() / dt, _LEAST_JUMP_RAD),
    ):
        padded = np.pad(rate, ((2, 2), (0, 0)), mode="edge")
        around = np.median(np.stack([padded[:-4], padded[1:-3], padded[3:-1], padded[4:]]), axis=0)
        off = np.linalg.norm((rate - around) * dt, axis=1)
        usual = 1.48 * np.median(off)
        out |= off > max(least, 10.0 * usual)
    return out


def drifting(path: Trajectory, t_ns: np.ndarray, drift: Drift) -> tuple[np.ndarray, np.ndarray]:
    """Variances (K-1, 6) of the steps of one device, and the share of errors that persists."""
    middles = t_ns[:-1] + np.diff(t_ns) // 2
    p, mid = path.sampled(t_ns).p, path.sampled(middles).p
    length = np.linalg.norm(mid - p[:-1], axis=1) + np.linalg.norm(p[1:] - mid, axis=1)
    dt = np.diff(t_ns) / NS_PER_S
    worst = _worst_tracking(path, t_ns)
    times = np.where(worst == LIMITED, LIMITED_TIMES, 1.0)
    goes = np.exp(-dt / drift.tilt_s)
    is_broken = (worst == LOST) | _any_between(path.t_ns[:-1][jumps(path)], t_ns)
    p_var = times**2 * drift.walk_m**2 * length + drift.still_m**2 * dt + is_broken * BROKEN_M**2
    yaw_var = times**2 * drift.walk_rad**2 * length + 1e-10 * dt + is_broken * BROKEN_RAD**2
    tilt_var = drift.tilt_rad**2 * (1.0 - goes**2) + 1e-12
    out = np.stack([p_var, p_var, p_var, tilt_var, tilt_var, yaw_var], axis=1)
    keep = np.stack([np.ones_like(goes)] * 3 + [goes, goes, np.ones_like(goes)], axis=1)
    return out, keep


def _worst_tracking(path: Trajectory, t_ns: np.ndarray) -> np.ndarray:
    """The worst tracking state between neighbouring times."""
    order = np.clip(np.searchsorted(path.t_ns, t_ns), 0, len(path) - 1)
    return np.array([path.tracking[a : b + 1].min() for a, b in pairwise(order)])


def _any_between(events_ns: np.ndarray, t_ns: np.ndarray) -> np.ndarray:
    """(K-1,) bool: whether an event lies in [t_k, t_k+1)."""
    out: np.ndarray = np.diff(np.searchsorted(events_ns, t_ns)) > 0
    return out
