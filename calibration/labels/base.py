"""The virtual base under a person: its heading and its position.

            C  chest camera, z out of the chest, x to the person's right
           /|
          / |  d: from the camera to the point that stays fixed while the person leans
         P' P     P = p_WC + R_WC d, whatever the lean
         ===  floor:  G = (P_x, P_y, heading)

The camera's right axis stays horizontal however far a person bends forward, so it determines the heading.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robot_runtime.core.values.pose_rows import turns_about_vertical
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.transforms import wrap_angle
from robot_runtime.errors import InvalidValueError

DEFAULT_PIVOT_G = (-0.10, 0.0, -0.40)
"""Hips of an upright adult, from a chest camera: forwards, left, up [m]."""
_PRIOR_SIGMA_M = 0.15
"""Standard deviation of that position along each axis [m]."""
_STANDING_SIGMA_M = 0.005
"""Motion of the hips while the feet stay in place [m]."""
LEAST_LEAN_RAD = np.deg2rad(15.0)
"""Least turn of the chest in a lean clip that determines the pivot."""


def heading(R_WC: Float[np.ndarray, "N 3 3"]) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Heading of the chest about z of W: (yaw (N,) without jumps of 2 pi, spread (N,)) [rad].

    Uses the camera's right axis. spread: between that, the optical axis and the twist about the vertical; it
    is large where the person leans sideways or the camera looks straight down.
    InvalidValueError: the camera is turned on its side, so that its right axis points up.
    """
    right = R_WC[:, :, 0]
    level = np.linalg.norm(right[:, :2], axis=1)
    if level.size and level.min() < 0.5:
        raise InvalidValueError(
            "the chest camera's x axis points up or down: expected a camera that is upright on the chest, "
            "x to the right in its image (turned by 90 degrees? left and right swapped?)"
        )
    yaw = np.arctan2(right[:, 1], right[:, 0]) + np.pi / 2.0
    others = [yaw]
    forward = R_WC[:, :, 2]
    by_axis = np.arctan2(forward[:, 1], forward[:, 0])
    is_level = np.linalg.norm(forward[:, :2], axis=1) > 0.5
    others.append(np.where(is_level, by_axis, yaw))
    others.append(_twist(R_WC))
    off = np.stack([wrap_angle(each - yaw) for each in others])
    return np.unwrap(wrap_angle(yaw)), np.ptp(off, axis=0)


def _twist(R_WC: np.ndarray) -> np.ndarray:
    """Twist about z by swing-twist decomposition of the body's axes (forwards, left, up) [rad]."""
    R_WT = np.stack([R_WC[:, :, 2], -R_WC[:, :, 0], -R_WC[:, :, 1]], axis=2)  # a camera that looks ahead
    twisted: np.ndarray = np.arctan2(R_WT[:, 1, 0] - R_WT[:, 0, 1], R_WT[:, 0, 0] + R_WT[:, 1, 1])
    return twisted


def neutral_rotation(R_WC: Float[np.ndarray, "N 3 3"]) -> Float[np.ndarray, "3 3"]:
    """R_GC of an upright person: the median rotation of the chest, without heading."""
    yaw, _ = heading(R_WC)
    R_GC = np.median(turns_about_vertical(yaw).transpose(0, 2, 1) @ R_WC, axis=0)
    u, _, vt = np.linalg.svd(R_GC)
    out: np.ndarray = u @ np.diag([1.0, 1.0, np.linalg.det(u @ vt)]) @ vt
    return out


@dataclass(frozen=True, kw_only=True, eq=False)
class Pivot:
    """The point of the body that stays fixed while the person leans."""

    d_C: np.ndarray
    """(3,) position in the chest camera [m]."""
    lean_rad: float
    """Largest lean of the chest in the clips it was fitted to; 0 without any [rad]."""
    condition: float
    """Condition of the least squares: uncertainty of the worst direction over that of the best."""
    rms_m: float
    """Remaining motion of the pivot while the feet stayed in place, rms [m]."""

    @property
    def is_measured(self) -> bool:
        """Whether it was fitted to a lean that was far enough."""
        return bool(self.lean_rad >= LEAST_LEAN_RAD)

    def places(self, p_WC: Float[np.ndarray, "N 3"], R_WC: Float[np.ndarray, "N 3 3"]) -> np.ndarray:
        """Its positions (N, 3) in W."""
        out: np.ndarray = p_WC + R_WC @ self.d_C
        return out


def assumed_pivot(R_GC: Float[np.ndarray, "3 3"], p_G: tuple[float, float, float] = DEFAULT_PIVOT_G) -> Pivot:
    """The pivot of a body that was not measured. R_GC: of an upright person."""
    return Pivot(d_C=R_GC.T @ np.array(p_G), lean_rad=0.0, condition=float("inf"), rms_m=0.0)


def fit_pivot(
    clips: Sequence[tuple[Float[np.ndarray, "N 3"], Float[np.ndarray, "N 3 3"]]],
    R_GC: Float[np.ndarray, "3 3"],
    p_G: tuple[float, float, float] = DEFAULT_PIVOT_G,
) -> Pivot:
    """Fit the pivot to clips in which a person leans to and fro, feet still: (p_WC + R_WC d)_xy = c per clip.

    Unobservable directions (forward distance, if the person does not turn) stay near `p_G`.
    R_GC: of an upright person. InvalidValueError: a clip of fewer than ten poses.
    """
    if not clips:
        return assumed_pivot(R_GC, p_G)
    prior = R_GC.T @ np.array(p_G)
    rows, wanted = [], []
    lean = 0.0
    for p, R in clips:
        if len(p) < 10:
            raise InvalidValueError(f"expected a lean clip of at least 10 poses, got {len(p)}")
        A, b = R[:, :2, :], -p[:, :2]
        A, b = A - A.mean(axis=0), b - b.mean(axis=0)  # eliminates c
        thin = np.sqrt(len(p) / 30.0)  # counts as 30 independent poses, however many there are
        rows.append(A.reshape(-1, 3) / thin)
        wanted.append(b.reshape(-1) / thin)
        up = R[:, 2, :]
        typical = np.median(up, axis=0)
        cosines = np.clip(up @ typical / np.linalg.norm(typical), -1.0, 1.0)
        lean = max(lean, float(np.quantile(np.arccos(cosines), 0.95)))
    A, b = np.concatenate(rows), np.concatenate(wanted)
    scaled = A * (_PRIOR_SIGMA_M / _STANDING_SIGMA_M)
    normal = scaled.T @ scaled + np.eye(3)
    step = np.linalg.solve(normal, scaled.T @ (b - A @ prior) / _STANDING_SIGMA_M) * _PRIOR_SIGMA_M
    values = np.linalg.svd(scaled, compute_uv=False)
    d_C = prior + step
    rest = np.concatenate([_moved(p + R @ d_C) for p, R in clips])
    return Pivot(
        d_C=d_C,
        lean_rad=lean,
        condition=float(values[0] / max(values[-1], 1e-9)),
        rms_m=float(np.sqrt((rest**2).sum(axis=1).mean())),
    )


def _moved(p_W: np.ndarray) -> np.ndarray:
    out: np.ndarray = p_W[:, :2] - p_W[:, :2].mean(axis=0)
    return out
