"""Aria's lens model, FISHEYE624, and its resampling into a supported lens model: `Rectified`.

    theta = angle to the optical axis                           r = theta (1 + k0 theta^2 + ... + k5 theta^12)
    (x, y) = r (cos phi, sin phi), rr = x^2 + y^2
    u = f (x + 2 x (p0 x + p1 y) + p0 rr + s0 rr + s1 rr^2) + cu       v likewise, with p1, s2, s3

Kannala and Brandt's model has k0 to k3 and neither p nor s, and with coefficients as large as Aria's it would
not have a unique ray for each pixel. So each image is resampled once into such a model with smaller
coefficients, same focal length and middle, and rotated upright: the cameras are mounted sideways.
"""

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from calibration.camera import KannalaBrandt
from robot_runtime.errors import InvalidValueError

MOST_RESIDUAL_PX = 0.5
"""Largest error anywhere in a resampled image [pixels]."""
MOST_MOVED = 0.1
"""Largest pixel shift as a share of the width; more means that the coefficients are not a real lens's."""
_STEEPEST = np.pi / 2 - 0.02
_QUARTER = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
"""Axes of a camera rotated clockwise with its image by 90 degrees, in the original axes (columns)."""


@dataclass(frozen=True, kw_only=True)
class Fisheye624:
    """FISHEYE624 coefficients for images of one size; pixel centres at whole numbers."""

    f: tuple[float, float]
    c: tuple[float, float]
    k: tuple[float, ...]
    """Six radial coefficients, of the angle."""
    p: tuple[float, ...]
    """Two tangential coefficients."""
    s: tuple[float, ...]
    """Four thin-prism coefficients."""

    @classmethod
    def from_params(cls, params: np.ndarray) -> "Fisheye624":
        """From the numbers in Aria's order: f or fu and fv, cu, cv, k0 to k5, p0, p1, s0 to s3 (or none).

        InvalidValueError: another count, or numbers that are not a lens.
        """
        n = len(params)
        if n not in (11, 12, 15, 16) or not np.isfinite(params).all() or not params[0] > 0:
            raise InvalidValueError(f"expected 11, 12, 15 or 16 numbers of a fisheye, got {params}")
        one = n in (11, 15)  # one focal length for both
        numbers = [float(each) for each in params]
        f = (numbers[0], numbers[0]) if one else (numbers[0], numbers[1])
        c_u, c_v, *rest = numbers[1:] if one else numbers[2:]
        s = tuple(rest[8:12]) if n >= 15 else (0.0,) * 4
        return cls(f=f, c=(c_u, c_v), k=tuple(rest[:6]), p=tuple(rest[6:8]), s=s)

    def cropped(self, margin: float, scale: float) -> "Fisheye624":
        """The lens for images cropped by `margin` pixels at each edge, then scaled."""
        c = tuple((each - margin + 0.5) * scale - 0.5 for each in self.c)
        f = (self.f[0] * scale, self.f[1] * scale)
        return Fisheye624(f=f, c=(c[0], c[1]), k=self.k, p=self.p, s=self.s)

    def radius(self, theta: np.ndarray) -> np.ndarray:
        """Distance from the middle at which an angle is seen, in focal lengths."""
        powers = theta[..., None] ** (2 * np.arange(1, 7))
        return np.asarray(theta * (1.0 + powers @ np.array(self.k)))

    def project(self, rays: np.ndarray) -> np.ndarray:
        """Project (N, 3) points in front of the camera to (N, 2) [pixels]."""
        across = np.linalg.norm(rays[:, :2], axis=1)
        theta = np.arctan2(across, rays[:, 2])
        xy = rays[:, :2] * (self.radius(theta) / np.maximum(across, 1e-12))[:, None]
        rr = (xy * xy).sum(axis=1)[:, None]
        p, s = np.array(self.p), np.array(self.s).reshape(2, 2)
        bent = xy + 2.0 * xy * (xy @ p)[:, None] + rr * p + rr * s[:, 0] + rr * rr * s[:, 1]
        return np.asarray(bent * np.array(self.f) + np.array(self.c))

    def widest(self, radius_px: float) -> float:
        """Angle seen at that distance from the middle, or at which the radius stops rising [rad]."""
        theta = np.linspace(0.0, _STEEPEST, 2000)
        r = self.radius(theta)
        ends = (np.diff(r) <= 0) | (r[1:] * max(self.f) > radius_px)
        return float(theta[int(np.argmax(ends))] if ends.any() else theta[-1])


class Rectified:
    """Resamples a camera's images into a Kannala-Brandt lens, rotated clockwise by quarter turns."""

    def __init__(
        self, lens: Fisheye624 | KannalaBrandt, size: tuple[int, int], *, radius_px: float, quarters: int
    ) -> None:
        """
        lens, size (height, width): of the original images; radius_px: radius of their image circle.
        InvalidValueError: a lens that cannot be approximated to half a pixel, or invalid coefficients.
        """
        same = _in_kannala_brandt(lens, size, radius_px)
        (height, width), (cx, cy), f = size, (same.cx, same.cy), (same.fx, same.fy)
        for _ in range(quarters % 4):
            (cx, cy), (height, width), f = (height - 1.0 - cy, cx), (width, height), (f[1], f[0])
        k = dict(zip(("k1", "k2", "k3", "k4"), same.distortion.tolist(), strict=True))
        self.camera = KannalaBrandt(size=(height, width), fx=f[0], fy=f[1], cx=cx, cy=cy, **k)
        """Lens of the images that `__call__` returns."""
        self.X_camera_turned = pin.SE3(np.linalg.matrix_power(_QUARTER, quarters % 4), np.zeros(3))
        """Its camera frame in that of the original images."""
        self._lens, self._size, self._unturned = lens, size, same
        self._widest = _widest(lens, radius_px)
        self._maps = self._where_from()
        self.moved_px, self.residual_px = self._measured()
        """Largest pixel shift without the rotation, and the largest remaining error."""
        if not (self.residual_px <= MOST_RESIDUAL_PX and self.moved_px <= MOST_MOVED * size[1]):
            raise InvalidValueError(
                f"its lens cannot be approximated by Kannala and Brandt's: pixels would be moved by "
                f"{self.moved_px:.0f} px, and off by {self.residual_px:.2f} px; "
                f"expected at most {MOST_MOVED * size[1]:.0f} and {MOST_RESIDUAL_PX} px"
            )

    def __call__(self, rgb: np.ndarray) -> np.ndarray:
        """Resample (h, w, 3) uint8, black outside the image circle. InvalidValueError: another size."""
        import cv2

        if rgb.shape[:2] != self._size:
            height, width = self._size
            raise InvalidValueError(
                f"expected an image of {width}x{height} pixels, got {rgb.shape[1]}x{rgb.shape[0]}"
            )
        return np.asarray(cv2.remap(rgb, *self._maps, cv2.INTER_CUBIC, borderMode=cv2.BORDER_CONSTANT))

    def _where_from(self) -> tuple[np.ndarray, np.ndarray]:
        """For each pixel of the new image, its source position in the old one; -1: none."""
        (height, width), camera = self.camera.size, self.camera
        edge = np.array([[np.sin(self._widest), 0.0, np.cos(self._widest)]])
        farthest = float(np.linalg.norm(camera.distorted(edge)))
        out = np.full((height, width, 2), -1.0, dtype=np.float32)
        x = np.arange(width, dtype=float)
        for rows in np.array_split(np.arange(height, dtype=float), max(1, height // 64)):
            uv = np.stack(np.meshgrid(x, rows), axis=-1).reshape(-1, 2)
            xy = (uv - (camera.cx, camera.cy)) / (camera.fx, camera.fy)
            seen = np.flatnonzero(np.linalg.norm(xy, axis=1) <= farthest)
            part = np.full((len(uv), 2), -1.0)
            part[seen] = self._lens.project(camera.undistorted(xy[seen]) @ self.X_camera_turned.rotation.T)
            out[int(rows[0]) : int(rows[-1]) + 1] = part.reshape(len(rows), width, 2)
        return np.ascontiguousarray(out[..., 0]), np.ascontiguousarray(out[..., 1])

    def _measured(self) -> tuple[float, float]:
        """Measure moved_px and residual_px with rays all over the field of view, through the actual maps."""
        import cv2

        theta, phi = np.meshgrid(np.linspace(0.0, 0.995 * self._widest, 80), np.linspace(0.0, 2 * np.pi, 73))
        rays = np.stack([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)], axis=-1)
        rays = rays.reshape(-1, 3)
        new, old = self.camera.project(rays), self._lens.project(rays @ self.X_camera_turned.rotation.T)
        inside = self.camera.sees(new, margin=2.0)
        new, old = new[inside], old[inside]
        at = new.astype(np.float32)
        found = np.stack(
            [cv2.remap(each, at[:, 0], at[:, 1], cv2.INTER_LINEAR).ravel() for each in self._maps]
        )
        unturned = self._unturned.project(rays @ self.X_camera_turned.rotation.T)[inside]
        moved, off = (np.linalg.norm(each - old, axis=1) for each in (unturned, found.T))
        return float(moved.max()), float(off.max())


def _widest(lens: Fisheye624 | KannalaBrandt, radius_px: float) -> float:
    if isinstance(lens, Fisheye624):
        return lens.widest(radius_px)
    k = (lens.k1, lens.k2, lens.k3, lens.k4, 0.0, 0.0)
    return Fisheye624(f=(lens.fx, lens.fy), c=(0.0, 0.0), k=k, p=(), s=()).widest(radius_px)


def _in_kannala_brandt(
    lens: Fisheye624 | KannalaBrandt, size: tuple[int, int], radius_px: float
) -> KannalaBrandt:
    """The nearest such lens of the same focal length and middle, with four coefficients not below 0: then the
    radius rises with the angle, and each pixel has one ray."""
    from scipy.optimize import nnls

    if isinstance(lens, KannalaBrandt):
        return lens
    theta = np.linspace(0.0, lens.widest(radius_px), 400)[1:]
    powers = theta[:, None] ** np.array([3, 5, 7, 9])
    numbers, _ = nnls(powers, lens.radius(theta) - theta)
    k = dict(zip(("k1", "k2", "k3", "k4"), numbers.tolist(), strict=True))
    return KannalaBrandt(size=size, fx=lens.f[0], fy=lens.f[1], cx=lens.c[0], cy=lens.c[1], **k)
