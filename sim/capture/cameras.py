"""Points seen by a moving camera, with rolling shutter, motion blur and noise.

t - readout/2            t             t + readout/2
row 0 ───────────── middle row ────────────── row h - 1       every row at its own time, over `exposure`
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import Bool, Float, Int64

from calibration.camera import CameraModel
from calibration.trajectory import Trajectory

_SPEED_NS = 2_000_000
"""Half the interval over which image velocity is measured [ns]."""
_BLUR_NOISE = 0.08
"""Corner noise added per pixel of blur [px]."""


@dataclass(frozen=True, kw_only=True)
class Camera:
    """A camera of the rig: lens, shutter, and accuracy of corners found in its images.

    exposure_ns: of one row. readout_ns: from the first to the last row; 0: all rows at once.
    corner_noise_px: per axis, of a stationary corner. pixel_noise: of an image [grey levels].
    worst_blur_px: blur above which nothing is found.
    """

    lens: CameraModel
    rate_hz: float
    exposure_ns: int = 4_000_000
    readout_ns: int = 0
    corner_noise_px: float = 0.1
    pixel_noise: float = 0.0
    worst_blur_px: float = 8.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Sight:
    """Points in images: (M,) rows, ordered by image and then by point."""

    picture: Int64[np.ndarray, " M"]
    """Index of the time."""
    point: Int64[np.ndarray, " M"]
    """Index of the point."""
    uv: Float[np.ndarray, "M 2"]
    """Image position [pixels]."""

    def __len__(self) -> int:
        return len(self.picture)

    @classmethod
    def nothing(cls) -> Self:
        none = np.zeros(0, dtype=np.int64)
        return cls(picture=none, point=none, uv=np.zeros((0, 2)))

    def kept(self, keep: Bool[np.ndarray, " M"]) -> "Sight":
        return Sight(picture=self.picture[keep], point=self.point[keep], uv=self.uv[keep])


def look(
    camera: Camera,
    X_WC: Trajectory,
    t_ns: Int64[np.ndarray, " N"],
    points: Float[np.ndarray, "N K 3"],
    rng: np.random.Generator,
) -> Sight:
    """Find points in W in images at true times, which are 2 ms or more within the path.

    points: (N, K, 3), or (1, K, 3) if they are stationary [m]; NaN: hidden.
    """
    here, before, after = (X_WC.sampled(t_ns + dt) for dt in (0, -_SPEED_NS, _SPEED_NS))
    uv = _projected(camera.lens, here, points)
    earlier, later = (_projected(camera.lens, each, points) for each in (before, after))
    speed = (later - earlier) / (after.t_ns - before.t_ns)[:, None, None]
    height = camera.lens.size[0]
    late_ns = (uv[..., 1] - 0.5 * (height - 1)) / height * camera.readout_ns
    uv = uv + speed * late_ns[..., None]
    blur = np.linalg.norm(speed, axis=-1) * camera.exposure_ns
    seen = camera.lens.sees(uv, margin=2.0) & (blur < camera.worst_blur_px)
    sigma = np.hypot(camera.corner_noise_px, _BLUR_NOISE * blur)
    uv = uv + rng.normal(size=uv.shape) * np.where(seen, sigma, 0.0)[..., None]
    picture, point = np.nonzero(seen)
    return Sight(picture=picture, point=point, uv=uv[seen])


def _projected(lens: CameraModel, X_WC: Trajectory, points: np.ndarray) -> Float[np.ndarray, "N K 2"]:
    p_C = np.einsum("nji,nkj->nki", X_WC.R, points - X_WC.p[:, None, :])
    flat = p_C.reshape(-1, 3)
    with np.errstate(invalid="ignore", divide="ignore"):
        uv = lens.project(flat)
    uv[~(flat[:, 2] > 0.02)] = np.nan
    return uv.reshape(*p_C.shape[:2], 2)


def board_is_facing(
    X_WC: Trajectory, middle: Float[np.ndarray, "3"], into: Float[np.ndarray, "3"], *, reach_m: float
) -> Bool[np.ndarray, " N"]:
    """Whether a camera is in front of a board, within `reach_m`, and not too oblique.

    middle, into: the board's centre in W, and its normal away from the camera.
    """
    view = middle - X_WC.p
    distance = np.linalg.norm(view, axis=1)
    slant = view @ into / np.maximum(distance, 1e-9)
    return (distance < reach_m) & (slant > np.cos(np.deg2rad(72.0)))
