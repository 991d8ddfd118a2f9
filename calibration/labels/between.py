"""Interpolates poses between samples by cubics: `sampled`.

●────●──x─●────●       30 poses a second and a chest that nods at 1.8 Hz: linear interpolation between two is
                       0.4 mm and 0.07 degrees off, a cubic through four a hundredth of that
"""

import numpy as np
from scipy.spatial.transform import Rotation

from calibration.trajectory import LONGEST_GAP_NS, LOST, Trajectory


def sampled(path: Trajectory, t_ns: np.ndarray, breaks_ns: np.ndarray | None = None) -> Trajectory:
    """As `Trajectory.sampled`, but by cubics where four neighbouring poses are contiguous.

    breaks_ns: times at which the odometry jumped; no cubic spans one.
    """
    linear = path.sampled(t_ns)
    n = len(path)
    if n < 4 or not len(t_ns):
        return linear
    i = np.clip(np.searchsorted(path.t_ns, t_ns, side="right") - 2, 0, n - 4)
    rows = i[:, None] + np.arange(4)
    times = (path.t_ns[rows] - path.t_ns[i + 1][:, None]) / 1e9
    at = (t_ns - path.t_ns[i + 1]) / 1e9
    weights = np.ones((len(t_ns), 4))
    for a in range(4):
        for b in range(4):
            if a != b:
                weights[:, a] *= (at - times[:, b]) / (times[:, a] - times[:, b])
    p = (weights[:, :, None] * path.p[rows]).sum(axis=1)
    turns = Rotation.from_quat(path.q, scalar_first=True)
    near = turns[i + 1]
    vectors = np.stack([(near.inv() * turns[rows[:, a]]).as_rotvec() for a in range(4)], axis=1)
    turn = near * Rotation.from_rotvec((weights[:, :, None] * vectors).sum(axis=1))
    q = turn.as_quat(scalar_first=True)
    q *= np.where((q * linear.q).sum(axis=1, keepdims=True) < 0.0, -1.0, 1.0)
    is_whole = np.diff(path.t_ns[rows], axis=1).max(axis=1) <= LONGEST_GAP_NS
    is_whole &= path.tracking[rows].min(axis=1) > LOST
    is_whole &= (t_ns >= path.t_ns[rows[:, 0]]) & (t_ns <= path.t_ns[rows[:, 3]])
    if breaks_ns is not None:
        crossed = np.searchsorted(breaks_ns, path.t_ns[rows[:, 3]], side="right")
        is_whole &= crossed == np.searchsorted(breaks_ns, path.t_ns[rows[:, 0]], side="right")
    keep = is_whole[:, None]
    return Trajectory(
        t_ns=linear.t_ns,
        p=np.where(keep, p, linear.p),
        q=np.where(keep, q, linear.q),
        tracking=linear.tracking,
    )
