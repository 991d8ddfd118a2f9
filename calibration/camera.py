"""Camera models `Pinhole` and `KannalaBrandt`, and `Intrinsics`, their file format.

Frame C is optical: x right, y down, z forward. A pixel's integer coordinates are its centre, so an image of
w by h pixels reaches from -0.5 to w - 0.5, and its middle is ((w - 1) / 2, (h - 1) / 2). OpenCV's
`cornerSubPix`, and `solvePnP` on its corners, use this convention; ChArUco corners do not, see detection.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, final

import numpy as np

from calibration.verdict import Verdict
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

_STEPS = 30


@dataclass(frozen=True, kw_only=True)
class CameraModel(ABC):
    """Maps points to pixels, and pixels to rays."""

    MODEL: ClassVar[str]

    size: tuple[int, int]
    """(height, width) of the images [pixels]"""
    fx: float
    fy: float
    cx: float
    cy: float

    def __post_init__(self) -> None:
        numbers = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "size"}
        if not all(np.isfinite(value) for value in numbers.values()) or self.fx <= 0 or self.fy <= 0:
            raise InvalidValueError(
                f"expected finite numbers and focal lengths above 0 of a camera, got {numbers}"
            )
        if len(self.size) != 2 or min(self.size) < 2:
            raise InvalidValueError(f"expected a camera's size as (height, width) in pixels, got {self.size}")

    @abstractmethod
    def distorted(self, rays: Float[np.ndarray, "N 3"]) -> Float[np.ndarray, "N 2"]:
        """Distort points or rays in C to the plane z = 1; NaN outside the field of view."""

    @abstractmethod
    def undistorted(self, xy: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 3"]:
        """Unit rays in C of distorted points; NaN where there is none."""

    @property
    @abstractmethod
    def distortion(self) -> Float[np.ndarray, " K"]:
        """Distortion coefficients in OpenCV's order."""

    @property
    def matrix(self) -> Float[np.ndarray, "3 3"]:
        return np.array([[self.fx, 0.0, self.cx], [0.0, self.fy, self.cy], [0.0, 0.0, 1.0]])

    def project(self, p_C: Float[np.ndarray, "N 3"]) -> Float[np.ndarray, "N 2"]:
        """Project points in C [m] to [pixels]; NaN outside the field of view."""
        return self.distorted(p_C) * (self.fx, self.fy) + (self.cx, self.cy)

    def unproject(self, uv: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 3"]:
        """Unit rays in C of pixels; NaN where there is none."""
        return self.undistorted((uv - (self.cx, self.cy)) / (self.fx, self.fy))

    def sees(self, uv: Float[np.ndarray, "N 2"], *, margin: float = 0.0) -> np.ndarray:
        """Whether pixels lie in the image, (N,) bool; margin: [pixels]."""
        height, width = self.size
        inside = (uv > margin - 0.5) & (uv < np.array([width, height]) - 0.5 - margin)
        return np.asarray(np.isfinite(uv).all(axis=-1) & inside.all(axis=-1))

    def resized(self, size: tuple[int, int]) -> Self:
        """The same camera with images scaled to (height, width) of the same aspect ratio."""
        sy, sx = size[0] / self.size[0], size[1] / self.size[1]
        if abs(sy / sx - 1.0) > 0.01:
            raise InvalidValueError(
                f"{self.size[1]}x{self.size[0]} pixels cannot be scaled to {size[1]}x{size[0]}: another "
                f"shape is a crop at an unknown position; calibrate at the size that is used"
            )
        return self.stretched(size)

    def stretched(self, size: tuple[int, int]) -> Self:
        """The same camera with images scaled to (height, width), each side by its own factor."""
        sy, sx = size[0] / self.size[0], size[1] / self.size[1]
        others = {f.name: getattr(self, f.name) for f in fields(self)}
        scaled = {
            "fx": self.fx * sx,
            "fy": self.fy * sy,
            "cx": (self.cx + 0.5) * sx - 0.5,
            "cy": (self.cy + 0.5) * sy - 0.5,
        }
        return type(self)(**others | scaled | {"size": size})

    def to_dict(self) -> dict[str, Any]:
        numbers = {f.name: float(getattr(self, f.name)) for f in fields(self) if f.name != "size"}
        return {"model": self.MODEL, "height": self.size[0], "width": self.size[1], **numbers}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "CameraModel":
        """Camera from its `to_dict`. InvalidValueError: unknown model, or missing numbers."""
        kinds: dict[str, type[CameraModel]] = {kind.MODEL: kind for kind in (Pinhole, KannalaBrandt)}
        kind = kinds.get(data.get("model", ""))
        if kind is None:
            raise InvalidValueError(
                f"expected a camera model of {', '.join(kinds)}, got {data.get('model')!r}"
            )
        names = [f.name for f in fields(kind) if f.name != "size"]
        if missing := {"height", "width", *names} - set(data):
            raise InvalidValueError(f"a camera lacks {', '.join(sorted(missing))}")
        size = (int(data["height"]), int(data["width"]))
        return kind(size=size, **{name: float(data[name]) for name in names})


@final
@dataclass(frozen=True, kw_only=True)
class Pinhole(CameraModel):
    """A pinhole with radial (k) and tangential (p) distortion: Brown-Conrady, OpenCV's five coefficients."""

    MODEL: ClassVar[str] = "pinhole"

    k1: float = 0.0
    k2: float = 0.0
    p1: float = 0.0
    p2: float = 0.0
    k3: float = 0.0

    @property
    def distortion(self) -> Float[np.ndarray, " K"]:
        return np.array([self.k1, self.k2, self.p1, self.p2, self.k3])

    def distorted(self, rays: Float[np.ndarray, "N 3"]) -> Float[np.ndarray, "N 2"]:
        z = np.where(rays[:, 2] > 1e-9, rays[:, 2], np.nan)
        return self._bent(rays[:, :2] / z[:, None])

    def undistorted(self, xy: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 3"]:
        at, going = xy.copy(), np.arange(len(xy))
        for _ in range(_STEPS):  # Newton, for points that have not converged
            x, y = at[going].T
            rest = self._bent(at[going]) - xy[going]
            r2 = x * x + y * y
            radial = 1.0 + r2 * (self.k1 + r2 * (self.k2 + r2 * self.k3))
            slope = 2.0 * (self.k1 + r2 * (2.0 * self.k2 + r2 * 3.0 * self.k3))
            xx = radial + slope * x * x + 2.0 * self.p1 * y + 6.0 * self.p2 * x
            yy = radial + slope * y * y + 6.0 * self.p1 * y + 2.0 * self.p2 * x
            xy_ = slope * x * y + 2.0 * self.p1 * x + 2.0 * self.p2 * y
            det = xx * yy - xy_ * xy_
            det = np.where(np.abs(det) > 1e-6, det, np.nan)
            step = np.stack([rest[:, 0] * yy - rest[:, 1] * xy_, rest[:, 1] * xx - rest[:, 0] * xy_], axis=1)
            at[going] -= step / det[:, None]
            going = going[np.abs(rest).max(axis=1) > 1e-12]
            if not len(going):
                break
        at = np.where((np.abs(self._bent(at) - xy) < 1e-6).all(axis=1)[:, None], at, np.nan)
        rays = np.concatenate([at, np.ones((len(at), 1))], axis=1)
        return rays / np.linalg.norm(rays, axis=1, keepdims=True)

    def _bent(self, xy: np.ndarray) -> np.ndarray:
        x, y = xy.T
        r2 = x * x + y * y
        radial = 1.0 + r2 * (self.k1 + r2 * (self.k2 + r2 * self.k3))
        xx = x * radial + 2.0 * self.p1 * x * y + self.p2 * (r2 + 2.0 * x * x)
        yy = y * radial + self.p1 * (r2 + 2.0 * y * y) + 2.0 * self.p2 * x * y
        return np.stack([xx, yy], axis=1)


@final
@dataclass(frozen=True, kw_only=True)
class KannalaBrandt(CameraModel):
    """A fisheye: the distance from the middle is a polynomial of the angle to the optical axis, OpenCV's
    `cv2.fisheye` (Kannala and Brandt 2006)."""

    MODEL: ClassVar[str] = "kannala_brandt"

    k1: float = 0.0
    k2: float = 0.0
    k3: float = 0.0
    k4: float = 0.0

    @property
    def distortion(self) -> Float[np.ndarray, " K"]:
        return np.array([self.k1, self.k2, self.k3, self.k4])

    def distorted(self, rays: Float[np.ndarray, "N 3"]) -> Float[np.ndarray, "N 2"]:
        r = np.linalg.norm(rays[:, :2], axis=1)
        theta = np.arctan2(r, rays[:, 2])
        scale = np.where(r > 1e-12, self._bent(theta) / np.maximum(r, 1e-12), 1.0 / np.abs(rays[:, 2]))
        return rays[:, :2] * np.where(theta < np.pi - 1e-6, scale, np.nan)[:, None]

    def undistorted(self, xy: Float[np.ndarray, "N 2"]) -> Float[np.ndarray, "N 3"]:
        r = np.linalg.norm(xy, axis=1)
        theta = np.minimum(r, np.pi / 2)
        for _ in range(_STEPS):
            rest = self._bent(theta) - r
            if not np.nanmax(np.abs(rest), initial=0.0) > 1e-12:
                break
            t2 = theta * theta
            slope = 1 + t2 * (3 * self.k1 + t2 * (5 * self.k2 + t2 * (7 * self.k3 + t2 * 9 * self.k4)))
            theta = np.clip(theta - rest / np.where(np.abs(slope) > 1e-6, slope, np.nan), 0.0, np.pi)
        theta = np.where(np.abs(self._bent(theta) - r) < 1e-6, theta, np.nan)
        across = xy * np.where(r > 1e-12, np.sin(theta) / np.maximum(r, 1e-12), 1.0)[:, None]
        return np.concatenate([across, np.cos(theta)[:, None]], axis=1)

    def _bent(self, theta: np.ndarray) -> np.ndarray:
        t2 = theta * theta
        return theta * (1 + t2 * (self.k1 + t2 * (self.k2 + t2 * (self.k3 + t2 * self.k4))))


@final
@dataclass(frozen=True, kw_only=True)
class Intrinsics:
    """A calibrated camera: the content of `camera.json`."""

    KIND: ClassVar[str] = "camera"
    VERSION: ClassVar[int] = 1
    UNITS: ClassVar[Mapping[str, str]] = {
        "fx, fy, cx, cy": "pixels; integer coordinates are the centres of pixels",
        "k, p": "none",
    }
    FRAMES: ClassVar[Mapping[str, str]] = {"C": "optical: x right, y down, z forward"}

    camera: CameraModel
    residuals: Mapping[str, float] = field(default_factory=dict)
    """Name with unit -> measure of the fit: `rms_px`, `focal_repeat_share`, ..."""
    board: Mapping[str, Any] | None = None
    """The board, as `Board.to_dict`."""
    verdict: Verdict = field(default_factory=Verdict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "camera": self.camera.to_dict(),
            "residuals": {name: float(value) for name, value in self.residuals.items()},
            "board": None if self.board is None else dict(self.board),
            "verdict": self.verdict.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            camera=CameraModel.from_dict(data["camera"]),
            residuals=data["residuals"],
            board=data["board"],
            verdict=Verdict.from_dict(data["verdict"]),
        )
