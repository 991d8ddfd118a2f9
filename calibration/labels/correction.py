"""Results of the labels' pose graph: corrections of each odometry over time, and their covariance."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from calibration.trajectory import Trajectory
from robot_runtime.core.values.shapes import Float


@dataclass(frozen=True, kw_only=True, eq=False)
class Correction:
    """Correction of one device's odometry over time."""

    t_ns: np.ndarray
    """Times (K,) of the nodes, rising."""
    p: np.ndarray
    """(K, 3) positions of the nodes by odometry [m]."""
    dp: np.ndarray
    """(K, 3) translations [m]."""
    dr: np.ndarray
    """(K, 3) rotation vectors in W [rad]."""

    def of(self, odometry: Trajectory) -> Trajectory:
        """The corrected path: between two nodes, each one's rigid correction, interpolated by time."""
        k, s = self.between(odometry.t_ns)
        moved = np.zeros((len(k), 3))
        for node, share in ((k, 1.0 - s), (k + 1, s)):
            arm = odometry.p - self.p[node]
            turned = Rotation.from_rotvec(self.dr[node]).apply(arm) - arm
            moved += share[:, None] * (self.dp[node] + turned)
        dr = (1.0 - s)[:, None] * self.dr[k] + s[:, None] * self.dr[k + 1]
        q = (Rotation.from_rotvec(dr) * Rotation.from_quat(odometry.q, scalar_first=True)).as_quat(
            scalar_first=True
        )
        q *= np.where((q * odometry.q).sum(axis=1, keepdims=True) < 0.0, -1.0, 1.0)
        return Trajectory(t_ns=odometry.t_ns, p=odometry.p + moved, q=q, tracking=odometry.tracking)

    def between(self, t_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The node before each time, and the fraction of the interval to the next, 0 to 1."""
        k = np.clip(np.searchsorted(self.t_ns, t_ns, side="right") - 1, 0, len(self.t_ns) - 2)
        s = (t_ns - self.t_ns[k]) / (self.t_ns[k + 1] - self.t_ns[k])
        return k, np.clip(s, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Corrected:
    """The solution of the graph."""

    chest: Correction
    hand: Correction
    dt_s: float
    """Correction of the hand's clock against the chest's, on top of the joined clocks [s]."""
    dt_sigma_s: float
    nodes: np.ndarray
    """(K, 12, 12) covariance of (chest dp, dr, hand dp, dr) of each node."""
    following: np.ndarray
    """(K-1, 12, 12) covariance of each node with the next."""
    with_dt: np.ndarray
    """(K, 12) covariance of each node with dt."""
    bridge: np.ndarray
    """(K-1, 12) variances of the odometry drift from node to node."""
    num_tags: int
    num_refused_tags: int
    tag_px: float
    """RMS of the remaining errors of the tags' corners [pixels]; NaN without any."""

    def covariance(self, t_ns: np.ndarray) -> tuple[Float[np.ndarray, "N 12 12"], Float[np.ndarray, "N 12"]]:
        """Covariance of both devices' errors at these times, and of these with dt."""
        k, s = self.chest.between(t_ns)
        a, b = (1.0 - s)[:, None, None], s[:, None, None]
        crossed = self.following[k]
        P = a * a * self.nodes[k] + b * b * self.nodes[k + 1]
        P = P + a * b * (crossed + crossed.transpose(0, 2, 1))
        P[:, range(12), range(12)] += (s * (1.0 - s))[:, None] * self.bridge[k]
        return P, a[:, :, 0] * self.with_dt[k] + b[:, :, 0] * self.with_dt[k + 1]
