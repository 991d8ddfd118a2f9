"""A robot's camera against the one that a policy's images were captured with: `match_cameras`, `CameraMatch`.

    M --X_MH--> H     the captured camera, on the end effector (wrist) or in the base (chest)
    M --X_MC--> C     the robot's camera

    pixel of H ─ ray ─► point on the plane at the working distance ─► pixel of C

Lens, size and rotation are mapped exactly. A camera elsewhere sees near things displaced more than far ones,
and an image does not contain depth: the mapping is exact at the working distance alone, a plane before H
across its optical axis (farther than 75 degrees off the axis, a sphere of four times that radius).

          H     C
           \\   / \\
      ------+-----+---- working distance: exact
           / \\         beyond and before it: displaced by the parallax, which `figures` states
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, final

import numpy as np
import pinocchio as pin

from calibration.camera import CameraModel, Intrinsics
from calibration.chest import ChestCamera
from calibration.hand_eye import HandEye, RobotWorld
from calibration.store import pose_from_json, pose_to_json
from calibration.verdict import Reason, Verdict
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

WRIST, CHEST = "end effector", "base"
"""What carries a camera, the frame M."""
MOST_UNSEEN, SOME_UNSEEN = 0.10, 0.01
"""Share of captured pixels that the robot's camera does not see: refused, a warning."""
MOST_SHIFT, SOME_SHIFT = 0.25, 0.05
"""Distance between both cameras, as a share of the working distance: refused, a warning."""
MOST_TURN_DEG = 20.0
LEAST_DETAIL = 0.7
"""Least number of the robot's pixels for one captured pixel, along a side."""
MOST_BRIGHTER = 1.5
NEAREST_M, FARTHEST_M = 0.02, 20.0
"""Range of working distances."""
_LEAST_COS = 0.25
"""Cosine of the angle off the optical axis from which the plane becomes a sphere."""
_AGREE_RAD = 2e-3
_MOST = 40
"""Rows and columns of pixels from which largest values are taken."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MountedCamera:
    """A lens, at the size of its images, and the pose of its camera in what carries it."""

    lens: CameraModel
    X_MC: pin.SE3

    def to_dict(self) -> dict[str, Any]:
        return {"camera": self.lens.to_dict(), "X_MC": pose_to_json(self.X_MC)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(lens=CameraModel.from_dict(data["camera"]), X_MC=pose_from_json(data["X_MC"]))

    def is_same(self, other: "MountedCamera") -> bool:
        """Whether lens, size and pose are equal, but for rounding."""
        apart = self.X_MC.inverse() * other.X_MC
        return self.lens == other.lens and bool(np.abs(pin.log6(apart).vector).max() < 1e-6)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CameraMatch:
    """How a robot's camera differs from the captured one, and all that its images need to be warped to it."""

    KIND: ClassVar[str] = "camera_match"
    VERSION: ClassVar[int] = 1
    UNITS: ClassVar[Mapping[str, str]] = {
        "fx, fy, cx, cy": "pixels; integer coordinates are the centres of pixels",
        "figures": "as the ending of each name: _px of the captured image, _mm, _deg, _share",
    }
    FRAMES: ClassVar[Mapping[str, str]] = {
        "X_MC": "camera C (optical: x right, y down, z forward) in its mount M: the end effector or the base"
    }

    name: str
    """The camera's name, for policies and in the robot's file."""
    mount: str
    """`WRIST` or `CHEST`."""
    captured: MountedCamera
    """At the size of the dataset's images."""
    robot: MountedCamera
    distance_m: float
    """Working distance, along the captured camera's optical axis [m]."""
    source: str = ""
    """Dataset or capture, for people."""
    figures: Mapping[str, float] = field(default_factory=dict)
    verdict: Verdict = field(default_factory=Verdict)

    def pixels(self) -> Float[np.ndarray, "h w 2"]:
        """For each captured pixel, the robot's pixel (u, v) that shows the same; NaN: none does."""
        seen, _ = _seen(self.captured, self.robot, self.distance_m, _grid(self.captured.lens.size))
        return seen.reshape(*self.captured.lens.size, 2)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "mount": self.mount,
            "captured": self.captured.to_dict(),
            "robot": self.robot.to_dict(),
            "distance_m": self.distance_m,
            "source": self.source,
            "figures": {name: float(value) for name, value in self.figures.items()},
            "verdict": self.verdict.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            name=str(data["name"]),
            mount=str(data["mount"]),
            captured=MountedCamera.from_dict(data["captured"]),
            robot=MountedCamera.from_dict(data["robot"]),
            distance_m=_distance(data["distance_m"]),
            source=str(data["source"]),
            figures=data["figures"],
            verdict=Verdict.from_dict(data["verdict"]),
        )


def match_cameras(
    name: str,
    mount: str,
    captured: MountedCamera,
    robot: MountedCamera,
    *,
    distance_m: float,
    brightness: tuple[float, float] | None = None,
    source: str = "",
    reasons: tuple[Reason, ...] = (),
) -> CameraMatch:
    """Compare a robot's camera with the captured one, and judge whether its images can be warped to it.

    distance_m: from the captured camera, along its axis, to where the policy works: the fingertips for a
    wrist camera, the hands for a chest camera [m]. brightness: mean grey level of captured images and of the
    robot's, None: unknown. reasons: further findings, for the verdict.
    """
    distance_m = _distance(distance_m)
    figures = _figures(captured, robot, distance_m)
    if brightness is not None:
        figures["brightness_ratio"] = max(brightness[1], 0.1) / max(brightness[0], 0.1)
    return CameraMatch(
        name=name,
        mount=mount,
        captured=captured,
        robot=robot,
        distance_m=distance_m,
        source=source,
        figures=figures,
        verdict=Verdict.of([*_judged(figures, mount, distance_m), *reasons]),
    )


def field_of_view_deg(lens: CameraModel) -> tuple[float, float]:
    """Horizontal and vertical, from edge to edge through the middle of the image; NaN: no ray at an edge."""
    (height, width), (x, y) = lens.size, ((lens.size[1] - 1) / 2, (lens.size[0] - 1) / 2)
    edges = np.array([[-0.5, y], [width - 0.5, y], [x, -0.5], [x, height - 0.5]])
    left, right, top, bottom = lens.unproject(edges)
    return _between_deg(left, right), _between_deg(top, bottom)


def off_middle(lens: CameraModel) -> tuple[float, float]:
    """Principal point from the middle of the image, as shares of its width and height."""
    height, width = lens.size
    return (lens.cx - (width - 1) / 2) / width, (lens.cy - (height - 1) / 2) / height


def lens_apart_px(one: CameraModel, other: CameraModel) -> float:
    """Largest displacement of a pixel of the first by another distortion, focal lengths and principal points
    being equal; of directions that both images show."""
    rays = one.unproject(_grid(one.size, _MOST))
    xy = _undoubtedly(other, rays)
    is_shown = other.sees(xy * (other.fx, other.fy) + (other.cx, other.cy))
    off = np.linalg.norm((one.distorted(rays) - xy)[is_shown] * (one.fx, one.fy), axis=1)
    return float(off.max()) if len(off) else float("nan")


def _figures(captured: MountedCamera, robot: MountedCamera, distance_m: float) -> dict[str, float]:
    """All differences; those that cannot be computed are left out."""
    X_HC = captured.X_MC.inverse() * robot.X_MC
    seen, is_shown = _seen(captured, robot, distance_m, _grid(captured.lens.size))
    scale = scale_of(seen.reshape(*captured.lens.size, 2))
    middle = _middle(captured.lens.size)
    here, near, far = (_seen(captured, robot, share * distance_m, middle)[0] for share in (1.0, 0.5, 2.0))
    fov, own = field_of_view_deg(robot.lens), field_of_view_deg(captured.lens)
    point, own_point = off_middle(robot.lens), off_middle(captured.lens)
    found = {
        "field_of_view_x_deg": fov[0] - own[0],
        "field_of_view_y_deg": fov[1] - own[1],
        "principal_point_x_share": point[0] - own_point[0],
        "principal_point_y_share": point[1] - own_point[1],
        "distortion_px": lens_apart_px(captured.lens, robot.lens),
        "mount_mm": 1e3 * float(np.linalg.norm(X_HC.translation)),
        "mount_deg": float(np.rad2deg(np.linalg.norm(pin.log3(X_HC.rotation)))),
        "unseen_share": float((~np.isfinite(seen[is_shown]).all(axis=1)).mean()) if is_shown.any() else 1.0,
        "detail": float(np.sqrt(scale[0] * scale[1])),
        "parallax_near_px": _most_off(here, near, scale),
        "parallax_far_px": _most_off(here, far, scale),
    }
    return {name: value for name, value in found.items() if np.isfinite(value)}


def scale_of(seen: Float[np.ndarray, "h w 2"]) -> tuple[float, float]:
    """Columns and rows of the robot's image for one captured pixel, medians; NaN: nothing is seen."""
    dx, dy = seen[:-1, 1:] - seen[:-1, :-1], seen[1:, :-1] - seen[:-1, :-1]
    steps = np.hypot(dx, dy).reshape(-1, 2)
    steps = steps[np.isfinite(steps).all(axis=1)]
    if not len(steps):
        return float("nan"), float("nan")
    return float(np.median(steps[:, 0])), float(np.median(steps[:, 1]))


def _seen(
    captured: MountedCamera, robot: MountedCamera, distance_m: float, uv_H: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The robot's pixels (N, 2) that show what captured pixels uv_H (N, 2) show, NaN: none; and whether the
    captured camera has a ray there, (N,)."""
    rays = captured.lens.unproject(uv_H)
    is_shown = np.isfinite(rays).all(axis=1)
    p_H = rays * (distance_m / np.maximum(rays[:, 2:], _LEAST_COS))
    X_CH = robot.X_MC.inverse() * captured.X_MC
    p_C = p_H @ X_CH.rotation.T + X_CH.translation
    lens = robot.lens
    uv = _undoubtedly(lens, p_C) * (lens.fx, lens.fy) + (lens.cx, lens.cy)
    return np.where((is_shown & lens.sees(uv))[:, None], uv, np.nan), is_shown


def _undoubtedly(lens: CameraModel, p_C: np.ndarray) -> np.ndarray:
    """`CameraModel.distorted`, NaN where the distortion's polynomial has folded back into the image."""
    xy = lens.distorted(p_C)
    back = np.full((len(xy), 3), np.nan)
    is_there = np.isfinite(xy).all(axis=1)
    back[is_there] = lens.undistorted(xy[is_there])
    along = (back * p_C).sum(axis=1) / np.linalg.norm(p_C, axis=1)
    return np.where((along > np.cos(_AGREE_RAD))[:, None], xy, np.nan)


def _most_off(seen: np.ndarray, other: np.ndarray, scale: tuple[float, float]) -> float:
    off = np.linalg.norm((seen - other) / scale, axis=1)
    return float(np.nanmax(off)) if np.isfinite(off).any() else float("nan")


def _middle(size: tuple[int, int]) -> np.ndarray:
    """Some pixels of the middle half of the image, in both directions."""
    uv = _grid(size, _MOST)
    return uv[(np.abs(uv / (size[1] - 1, size[0] - 1) - 0.5) <= 0.25).all(axis=1)]


def _grid(size: tuple[int, int], most: int | None = None) -> np.ndarray:
    """Pixels (u, v) of an image, row by row, from edge to edge. most: of a row and of a column; None: all."""
    v, u = (np.linspace(0.0, n - 1, n if most is None else min(n, most)) for n in size)
    return np.stack(np.meshgrid(u, v), axis=-1).reshape(-1, 2)


def _between_deg(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.rad2deg(np.arctan2(np.linalg.norm(np.cross(a, b)), a @ b)))


def _distance(value: object) -> float:
    is_number = isinstance(value, int | float | np.floating) and not isinstance(value, bool)
    if not is_number or not NEAREST_M <= float(value) <= FARTHEST_M:  # type: ignore[arg-type]
        raise InvalidValueError(
            f"expected a working distance of {NEAREST_M:g} to {FARTHEST_M:g} m in front of the captured "
            f"camera, got {value!r:.40}: check the TCP's pose in the camera"
        )
    return float(value)  # type: ignore[arg-type]


def _judged(figures: Mapping[str, float], mount: str, distance_m: float) -> list[Reason]:
    reasons = [*_judged_mount(figures, mount, distance_m)]
    if (unseen := figures["unseen_share"]) > SOME_UNSEEN:
        reasons.append(
            Reason(
                name="unseen",
                what=f"the robot's camera does not see {100 * unseen:.0f} % of the captured image "
                f"({100 * MOST_UNSEEN:.0f} % are tolerated, and shown black).",
                do="Turn it towards where the captured camera looked, or use a wider lens.",
                is_fatal=unseen > MOST_UNSEEN,
            )
        )
    if figures.get("detail", 1.0) < LEAST_DETAIL:
        reasons.append(
            Reason(
                name="coarse",
                what=f"the robot's image has {figures['detail']:.2f} pixels for one captured pixel, along a "
                "side.",
                do="Use more pixels or a longer lens, or label with a smaller --size.",
                is_fatal=False,
            )
        )
    ratio = figures.get("brightness_ratio", 1.0)
    if not 1.0 / MOST_BRIGHTER <= ratio <= MOST_BRIGHTER:
        reasons.append(
            Reason(
                name="brightness",
                what=f"the robot's images are {ratio:.2f} times as bright as the captured ones.",
                do="Adjust its exposure or the light, and lock the exposure.",
                is_fatal=False,
            )
        )
    return reasons


def _judged_mount(figures: Mapping[str, float], mount: str, distance_m: float) -> list[Reason]:
    reasons = []
    shift, turn = figures["mount_mm"] / (1e3 * distance_m), figures["mount_deg"]
    if shift > SOME_SHIFT:
        near, far = (figures.get(f"parallax_{what}_px", 0.0) for what in ("near", "far"))
        reasons.append(
            Reason(
                name="moved",
                what=f"in the {mount} the robot's camera is {figures['mount_mm']:.0f} mm from the captured "
                f"one, {100 * shift:.0f} % of the working distance of {distance_m:.2f} m "
                f"({100 * MOST_SHIFT:.0f} % is the most); things at half and at twice that distance are "
                f"displaced by {near:.1f} and {far:.1f} px in the middle of the image.",
                do="Mount it where the captured camera was.",
                is_fatal=shift > MOST_SHIFT,
            )
        )
    if turn > MOST_TURN_DEG:
        reasons.append(
            Reason(
                name="turned",
                what=f"in the {mount} the robot's camera is turned by {turn:.0f} degrees against the "
                f"captured one ({MOST_TURN_DEG:g} is the most).",
                do="Mount it as the captured camera was, and check that the TCP has the axes of the arm's "
                "end effector.",
            )
        )
    return reasons


def mounted(calibration: Intrinsics | HandEye | RobotWorld | ChestCamera, mount: str) -> MountedCamera:
    """The camera in the end effector, or in the base. mount: `WRIST` or `CHEST`.

    InvalidValueError: the calibration is of another mount, of a lens alone, or without the lens.
    """
    match calibration:
        case HandEye(X_EC=X_MC, camera=lens) if mount == WRIST:
            return MountedCamera(lens=_lens(lens, "hand-eye"), X_MC=X_MC)
        case ChestCamera(X_GC=X_MC, camera=lens) if mount != WRIST:
            return MountedCamera(lens=_lens(lens, "chest"), X_MC=X_MC)
        case RobotWorld(X_AC=X_MC, camera=lens) if mount != WRIST:
            return MountedCamera(lens=_lens(lens, "robot-world"), X_MC=X_MC)
    wanted = "hand_eye, by calibrate hand-eye" if mount == WRIST else "chest_camera, by calibrate chest"
    raise InvalidValueError(
        f"expected a calibration with lens and pose in the {mount}, of kind {wanted}, got one of kind "
        f"{calibration.KIND}"
    )


def _lens(declared: Mapping[str, Any] | None, command: str) -> CameraModel:
    if declared is None:
        raise InvalidValueError(
            f"expected a calibration with the lens that it was made with, got one without: run calibrate "
            f"{command} again"
        )
    return CameraModel.from_dict(declared)
