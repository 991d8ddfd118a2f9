"""Sightings of the gripper's tags by the chest's camera, as factors of the pose graph: `TagSights`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.spatial.transform import Rotation

from calibration.camera import CameraModel
from calibration.trajectory import Trajectory
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from calibration.labels.chain import Chain

_EPS = np.array([1e-5] * 3 + [1e-5] * 3 + [1e-5] * 3 + [1e-5] * 3)
_HUBER = 2.0
"""Standard deviations beyond which residuals of a tag count less."""


class Nodes(Protocol):
    """The part of the graph that sightings use."""

    @property
    def t_ns(self) -> np.ndarray: ...

    @property
    def odometry(self) -> tuple[Trajectory, Trajectory]: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class TagSights:
    """M sightings of tags in the chest's images."""

    t_ns: np.ndarray
    """(M,) capture times of the images, chest's clock, not falling."""
    corners_H: np.ndarray
    """(M, 4, 3) the tag's corners in the hand's camera [m]."""
    uv: np.ndarray
    """(M, 4, 2) their observed positions [pixels]."""
    camera: CameraModel
    """The chest's camera."""
    sigma_px: float = 0.7
    """Standard deviation of a corner along u and v, including errors of tag mounts and lenses."""

    def __post_init__(self) -> None:
        m = len(self.t_ns)
        if np.shape(self.corners_H) != (m, 4, 3) or np.shape(self.uv) != (m, 4, 2):
            raise InvalidValueError(
                f"expected corners ({m}, 4, 3) and pixels ({m}, 4, 2) of {m} sightings, got "
                f"{np.shape(self.corners_H)} and {np.shape(self.uv)}"
            )

    def __len__(self) -> int:
        return len(self.t_ns)

    def taken(self, keep: np.ndarray) -> "TagSights":
        """The sightings that `keep` selects."""
        return TagSights(
            t_ns=self.t_ns[keep],
            corners_H=self.corners_H[keep],
            uv=self.uv[keep],
            camera=self.camera,
            sigma_px=self.sigma_px,
        )

    def inside(self, start_ns: int, stop_ns: int) -> "TagSights":
        """The sightings in [start, stop]."""
        return self.taken((self.t_ns >= start_ns) & (self.t_ns <= stop_ns))

    def thinned(self, period_ns: int) -> "TagSights":
        """At most one image per period: errors of neighbouring images are correlated."""
        slot = self.t_ns // period_ns
        first = np.concatenate([[True], slot[1:] != slot[:-1]])
        shown = self.t_ns[first][np.searchsorted(slot[first], slot)] if len(self) else self.t_ns
        return self.taken(self.t_ns == shown)

    def add(self, chain: "Chain", nodes: Nodes, x: np.ndarray, dt_s: float, *, is_near: bool) -> np.ndarray:
        """Add them to the normal equations at corrections x (K, 12); returns their weights, 0 to 1.

        is_near: x is nearly right, so that large residuals are misdetections.
        """
        k, s, poses = self._placed(nodes)
        r = self._residuals(nodes, x, dt_s, k, s, poses)
        J12 = np.stack(
            [
                (self._residuals(nodes, x, dt_s, k, s, poses, column, eps) - r) / eps
                for column, eps in enumerate(_EPS)
            ],
            axis=2,
        )
        J_dt = (self._residuals(nodes, x, dt_s + 1e-4, k, s, poses) - r) / 0.1  # per millisecond
        seen = np.isfinite(r).all(axis=1) & np.isfinite(J12).all(axis=(1, 2))
        size = np.sqrt((r**2).mean(axis=1))
        weight = np.where(seen, np.minimum(1.0, _HUBER / np.maximum(size, 1e-9)), 0.0)
        if is_near:
            weight = np.where(size > 5.0 * _HUBER, 0.0, weight)
        root = np.sqrt(weight)[:, None]
        r, J12, J_dt = (np.nan_to_num(each) for each in (r, J12, J_dt))
        J_shared = np.zeros((len(self), 8, chain.num_shared))
        J_shared[:, :, 0] = J_dt * root
        J12 = J12 * root[:, :, None]
        a, b = (1.0 - s)[:, None, None], s[:, None, None]
        chain.add(k, r * root, a * J12, b * J12, J_shared)
        return weight

    def rms_px(self, nodes: Nodes, x: np.ndarray, dt_s: float, weight: np.ndarray) -> float:
        """RMS residual of the sightings by weight [pixels]."""
        k, s, poses = self._placed(nodes)
        r = self._residuals(nodes, x, dt_s, k, s, poses)[weight >= 0.25] * self.sigma_px
        return float(np.sqrt((r**2).mean())) if r.size else float("nan")

    def _placed(self, nodes: Nodes) -> tuple[np.ndarray, np.ndarray, tuple["_Rows", ...]]:
        """Nodes before, shares of the next, and odometry of chest, hand, hand 5 ms before and after."""
        t = nodes.t_ns
        k = np.clip(np.searchsorted(t, self.t_ns, side="right") - 1, 0, len(t) - 2)
        s = (self.t_ns - t[k]) / (t[k + 1] - t[k])
        chest, hand = nodes.odometry
        near = 5_000_000
        times, back = np.unique(self.t_ns, return_inverse=True)
        low, high = hand.t_ns[0], hand.t_ns[-1]
        poses = [
            chest.sampled(times),
            hand.sampled(times),
            *(_clipped(hand, times + by, low, high) for by in (-near, near)),
        ]
        return k, s, tuple(_rows(each, back) for each in poses)

    def _residuals(
        self,
        nodes: Nodes,
        x: np.ndarray,
        dt_s: float,
        k: np.ndarray,
        s: np.ndarray,
        poses: tuple["_Rows", ...],
        column: int | None = None,
        eps: float = 0.0,
    ) -> np.ndarray:
        """Residuals (M, 8) in standard deviations; NaN: behind the camera."""
        chest, hand, before, after = poses
        mixed = (1.0 - s)[:, None] * x[k] + s[:, None] * x[k + 1]
        if column is not None:
            mixed[:, column] += eps
        span_s = 0.01
        v = (after.p - before.p) / span_s
        w = (after.R * before.R.inv()).as_rotvec() / span_s
        turn = Rotation.from_rotvec(mixed[:, 9:12]) * Rotation.from_rotvec(w * dt_s) * hand.R
        p = hand.p + v * dt_s + mixed[:, 6:9]
        corners_W = p[:, None] + np.einsum("mij,mcj->mci", turn.as_matrix(), self.corners_H)
        R_WC = (Rotation.from_rotvec(mixed[:, 3:6]) * chest.R).as_matrix()
        p_WC = chest.p + mixed[:, 0:3]
        corners_C = np.einsum("mji,mcj->mci", R_WC, corners_W - p_WC[:, None])
        flat = corners_C.reshape(-1, 3)
        uv = np.full((len(flat), 2), np.nan)
        ahead = flat[:, 2] > 0.02
        uv[ahead] = self.camera.project(flat[ahead])
        out: np.ndarray = (uv.reshape(-1, 8) - self.uv.reshape(-1, 8)) / self.sigma_px
        return out


@dataclass(frozen=True, eq=False)
class _Rows:
    p: np.ndarray
    R: Rotation


def _rows(path: Trajectory, back: np.ndarray) -> _Rows:
    return _Rows(path.p[back], Rotation.from_quat(path.q[back], scalar_first=True))


def _clipped(path: Trajectory, times: np.ndarray, low: int, high: int) -> Trajectory:
    """Sample a path with times clipped to its ends: dt does not matter for the first and the last image."""
    return path.sampled(np.clip(times, low, high))
