"""What the graph of the labels finds: how far each odometry is off over time, and how sure that is."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from calibration.trajectory import Trajectory
from robot_runtime.core.values.shapes import Float


@dataclass(frozen=True, kw_only=True, eq=False)
class Correction:
    """What is to be added to one device's odometry over time."""

    t_ns: np.ndarray
    """(K,) rising."""
    p: np.ndarray
    """(K, 3) of the nodes, by odometry [m]."""
    dp: np.ndarray
    """(K, 3) [m]."""
    dr: np.ndarray
    """(K, 3) rotation vectors in W [rad]."""

    def of(self, said: Trajectory) -> Trajectory:
        """The corrected path; between two nodes each corrects as for a rigid world, mixed by time."""
        k, s = self.between(said.t_ns)
        moved = np.zeros((len(k), 3))
        for node, share in ((k, 1.0 - s), (k + 1, s)):
            arm = said.p - self.p[node]
            turned = Rotation.from_rotvec(self.dr[node]).apply(arm) - arm
            moved += share[:, None] * (self.dp[node] + turned)
        dr = (1.0 - s)[:, None] * self.dr[k] + s[:, None] * self.dr[k + 1]
        q = (Rotation.from_rotvec(dr) * Rotation.from_quat(said.q, scalar_first=True)).as_quat(
            scalar_first=True
        )
        q *= np.where((q * said.q).sum(axis=1, keepdims=True) < 0.0, -1.0, 1.0)
        return Trajectory(t_ns=said.t_ns, p=said.p + moved, q=q, tracking=said.tracking)

    def between(self, t_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The node before each time, and how far on to the next it is, 0 to 1."""
        k = np.clip(np.searchsorted(self.t_ns, t_ns, side="right") - 1, 0, len(self.t_ns) - 2)
        s = (t_ns - self.t_ns[k]) / (self.t_ns[k + 1] - self.t_ns[k])
        return k, np.clip(s, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Corrected:
    """What the graph found."""

    chest: Correction
    hand: Correction
    dt_s: float
    """The hand's clock against the chest's, beyond what the clocks' join said [s]."""
    dt_sigma_s: float
    nodes: np.ndarray
    """(K, 12, 12) covariance of (chest dp, dr, hand dp, dr) of each node."""
    following: np.ndarray
    """(K-1, 12, 12) of each node with the next."""
    with_dt: np.ndarray
    """(K, 12) of each node with dt."""
    bridge: np.ndarray
    """(K-1, 12) what odometry may have drifted from node to node, as variances."""
    num_tags: int
    num_refused_tags: int
    tag_px: float
    """Root mean square of what is left of the tags' corners [pixels]; NaN without any."""

    def covariance(self, t_ns: np.ndarray) -> tuple[Float[np.ndarray, "N 12 12"], Float[np.ndarray, "N 12"]]:
        """At these times: of both devices' errors, and of these with dt."""
        k, s = self.chest.between(t_ns)
        a, b = (1.0 - s)[:, None, None], s[:, None, None]
        crossed = self.following[k]
        P = a * a * self.nodes[k] + b * b * self.nodes[k + 1]
        P = P + a * b * (crossed + crossed.transpose(0, 2, 1))
        P[:, range(12), range(12)] += (s * (1.0 - s))[:, None] * self.bridge[k]
        return P, a[:, :, 0] * self.with_dt[k] + b[:, :, 0] * self.with_dt[k + 1]
