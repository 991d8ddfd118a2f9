"""A robot's camera whose images are warped to those of the captured camera: `MatchedCamera`, `Warp`.

    camera ─ read ─► shrunk by averaging ─► remapped, bilinearly ─► as captured: same size, same time stamp

Bilinear interpolation alone would skip most pixels of a large image, which then flickers; so blocks of whole
pixels are averaged before. Pixels that the robot's camera does not see are black.
"""

import numpy as np

from calibration.camera_match import CameraMatch, scale_of
from robot_runtime.core.robot import Camera
from robot_runtime.core.values.shapes import UInt8
from robot_runtime.core.values.state import Image
from robot_runtime.errors import InvalidValueError

_OUTSIDE = -2.0


class Warp:
    """Warps images of a robot's camera; its maps are computed once."""

    def __init__(self, match: CameraMatch) -> None:
        import cv2

        self.source, self.size = match.robot.lens.size, match.captured.lens.size
        at = match.pixels()
        self.is_seen = np.isfinite(at).all(axis=2)
        """(h, w) bool: captured pixels that the robot's camera sees."""
        columns, rows = (max(1, int(each)) if np.isfinite(each) else 1 for each in scale_of(at))
        self._shrunk = (self.source[0] // rows, self.source[1] // columns)
        self._whole = (self._shrunk[0] * rows, self._shrunk[1] * columns)
        inside = (at + 0.5) / (columns, rows) - 0.5
        inside = np.clip(inside, 0.0, (self._shrunk[1] - 1, self._shrunk[0] - 1))
        maps = np.where(self.is_seen[..., None], inside, _OUTSIDE).astype(np.float32)
        self._maps = cv2.convertMaps(maps[..., 0], maps[..., 1], cv2.CV_16SC2)

    def __call__(self, pixels: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "H W 3"]:
        """Warp an image. ValueError: it does not have the robot's camera's size."""
        import cv2

        if pixels.shape != (*self.source, 3):
            raise ValueError(f"expected {(*self.source, 3)} of the camera's calibration, got {pixels.shape}")
        if self._shrunk != self.source:
            whole = np.ascontiguousarray(pixels[: self._whole[0], : self._whole[1]])
            pixels = np.asarray(cv2.resize(whole, self._shrunk[::-1], interpolation=cv2.INTER_AREA))
        return np.asarray(cv2.remap(pixels, *self._maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT))


class MatchedCamera:
    """A camera that returns another camera's images as the captured camera would have seen them."""

    def __init__(self, camera: Camera, match: CameraMatch) -> None:
        """InvalidValueError: the camera's images do not have the size of its calibration."""
        height, width = camera.size
        if (int(height), int(width)) != match.robot.lens.size:
            raise InvalidValueError(
                f"expected images of {match.robot.lens.size} (height, width), for which the camera was "
                f"calibrated and matched, got {(int(height), int(width))}: restore its size and lens (no "
                "size, fit or crop beside match), or calibrate it as it is now and run capture match again"
            )
        self.unmatched = camera
        """The robot's camera, for calibrating it."""
        self.has_noise = bool(getattr(camera, "has_noise", True))
        self._warp = Warp(match)

    @property
    def size(self) -> tuple[int, int]:
        return self._warp.size

    def read(self) -> Image:
        """Read and warp an image. ValueError: its size is not that of the calibration."""
        image = self.unmatched.read()
        return Image(t_ns=image.t_ns, pixels=self._warp(image.pixels))

    def close(self) -> None:
        self.unmatched.close()
