"""Calibration in an Aria recording, the tag `calib_json`: lenses, sensor poses, errors of IMUs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pinocchio as pin

from calibration.camera import KannalaBrandt
from calibration.capture.sources.aria_lens import Fisheye624, Rectified
from calibration.capture.values import Imu
from robot_runtime.errors import InvalidValueError

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
