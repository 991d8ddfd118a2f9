"""Aria's lens model, FISHEYE624, and its resampling into a supported lens model: `Rectified`.

    theta = angle to the optical axis                           r = theta (1 + k0 theta^2 + ... + k5 theta^12)
    (x, y) = r (cos phi, sin phi), rr = x^2 + y^2
    u = f (x + 2 x (p0 x + p1 y) + p0 rr + s0 rr + s1 rr^2) + cu       v likewise, with p1, s2, s3

Kannala and Brandt's model has k0 to k3 and neither p nor s, and with coefficients as large as Aria's it would
not have a unique ray for each pixel. So each image is resampled once into such a model with smaller
coefficients, same focal length and middle, and rotated upright: the cameras are mounted sideways.

`calib_json`, a tag of a recording, has lenses, sensor poses, and errors of IMUs.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pinocchio as pin

from calibration.camera import KannalaBrandt
from calibration.capture.values import Imu
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


Kind = Literal["Camera", "Imu"]
RGB = "camera-rgb"
_FULL = {RGB: (2880, 2880), "camera-slam-left": (480, 640), "camera-slam-right": (480, 640)}
"""View -> size of the images that were calibrated."""
_RADIUS_PX = {RGB: 1415.0, "camera-slam-left": 330.0, "camera-slam-right": 330.0}
"""View -> radius of the image circle in those images."""
_HALF_RGB, _MARGIN_PX = (1408, 1408), 32.0
"""Smaller images of the RGB camera: cropped by 32 pixels at each edge, then halved."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AriaCalibration:
    """Calibration of one recording.

    All methods raise InvalidValueError, naming the file, for missing or unsupported entries.
    """

    path: Path
    """The recording."""
    content: dict[str, Any]

    @classmethod
    def from_json(cls, path: Path, text: str) -> "AriaCalibration":
        try:
            content = json.loads(text)
        except ValueError:
            content = None
        if not isinstance(content, dict) or not content.get("CameraCalibrations"):
            raise InvalidValueError(
                f"{path} has no calibration of Aria's in it (tag calib_json): is it a recording of such "
                "glasses?"
            )
        return cls(path=path, content=content)

    def labels(self, kind: Kind) -> tuple[str, ...]:
        return tuple(str(each.get("Label")) for each in self.content.get(f"{kind}Calibrations", ()))

    def pose(self, kind: Kind, label: str) -> pin.SE3:
        """Pose X_DS of a sensor in the device."""
        pose = self._sensor(kind, label)[f"T_Device_{kind}"]
        w, (x, y, z) = pose["UnitQuaternion"]
        q = np.array([x, y, z, w], dtype=float)
        p = np.array(pose["Translation"], dtype=float)
        if not (abs(np.linalg.norm(q) - 1.0) < 0.02 and p.shape == (3,) and np.isfinite(p).all()):
            raise InvalidValueError(f"{self.path}: its calibration's pose of {label} is invalid: {pose}")
        return pin.SE3(pin.Quaternion(q / np.linalg.norm(q)).toRotationMatrix(), p)

    def rectified(self, view: str, size: tuple[int, int], quarters: int) -> Rectified:
        """Resampler that rotates and rectifies a camera's images of that (height, width)."""
        half = view == RGB and size == _HALF_RGB
        if size != _FULL[view] and not half:
            raise InvalidValueError(
                f"{self.path}: images of {view} are {size[1]}x{size[0]}, which Aria does not record"
            )
        radius_px = _RADIUS_PX[view] * (0.5 if half else 1.0)
        try:
            lens = self._lens(view, size)
            if half and isinstance(lens, Fisheye624):
                lens = lens.cropped(_MARGIN_PX, 0.5)
            return Rectified(lens, size, radius_px=radius_px, quarters=quarters)
        except InvalidValueError as error:
            raise InvalidValueError(f"{self.path}, {view}: {error}") from error

    def imu(
        self, label: str, t_ns: np.ndarray, gyroscope: np.ndarray, accelerometer: np.ndarray, X_DC: pin.SE3
    ) -> Imu:
        """Corrects raw IMU readings and expresses them in the frame of the camera at X_DC.

        The lever arm's acceleration is small and left out.
        """
        content = self._sensor("Imu", label)
        late_ns = float(np.median(np.diff(t_ns))) / 2  # the sensor's own filter, by Aria's documentation
        w_late_ns, a_late_ns = (
            round(late_ns + 1e9 * float(content[name].get(f"TimeOffsetSec_Device_{short}", 0.0)))
            for name, short in (("Gyroscope", "Gyro"), ("Accelerometer", "Accel"))
        )
        X_CI = X_DC.inverse() * self.pose("Imu", label)
        w = _corrected(content["Gyroscope"], gyroscope) @ X_CI.rotation.T
        a = _corrected(content["Accelerometer"], accelerometer) @ X_CI.rotation.T
        since = (t_ns - t_ns[0]).astype(float)
        a = np.stack([np.interp(since + a_late_ns - w_late_ns, since, column) for column in a.T], axis=1)
        return Imu(t_ns=t_ns - w_late_ns, w=w, a=a)

    def _sensor(self, kind: Kind, label: str) -> dict[str, Any]:
        for each in self.content.get(f"{kind}Calibrations", ()):
            if each.get("Label") == label:
                return dict(each)
        there = ", ".join(self.labels(kind)) or "nothing"
        raise InvalidValueError(f"{self.path}: its calibration has no {label}, only {there}")

    def _lens(self, view: str, size: tuple[int, int]) -> Fisheye624 | KannalaBrandt:
        content = self._sensor("Camera", view)["Projection"]
        name, params = str(content["Name"]), np.array(content["Params"], dtype=float)
        if name in ("FisheyeRadTanThinPrism", "Fisheye62"):
            return Fisheye624.from_params(params)
        if name == "KannalaBrandtK3" and len(params) == 8 and size == _FULL[view]:
            fx, fy, cx, cy, k1, k2, k3, k4 = params.tolist()
            return KannalaBrandt(size=size, fx=fx, fy=fy, cx=cx, cy=cy, k1=k1, k2=k2, k3=k3, k4=k4)
        raise InvalidValueError(f"lens model {name} with {len(params)} numbers is not supported")


def _corrected(content: dict[str, Any], raw: np.ndarray) -> np.ndarray:
    """Correct raw readings (N, 3): raw = RectificationMatrix * true + Offset."""
    matrix = np.array(content["Model"]["RectificationMatrix"], dtype=float)
    off = np.array(content["Bias"]["Offset"], dtype=float)
    return np.asarray(np.linalg.solve(matrix, (raw.astype(float) - off).T).T)
