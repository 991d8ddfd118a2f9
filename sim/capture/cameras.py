"""What the rig's cameras detect, without images: points by projection, with rolling shutter, blur and noise.

    t - readout/2            t             t + readout/2
    row 0 ───────────── middle row ────────────── row h - 1       every row at its own time, over `exposure`

`Device` is one camera with its odometry in a recording; `see_board`, `see_cube` and `see_things` are what a
detector finds in its images.
"""

from dataclasses import dataclass
from functools import cache
from typing import Self

import cv2
import numpy as np
import pinocchio as pin
from jaxtyping import Bool, Float, Int64

from calibration.board import Board
from calibration.camera import CameraModel
from calibration.trajectory import Trajectory
from sim.capture.scene import cube
from sim.capture.sensors import DeviceClock, Odometry
from sim.capture.takes import ANCHOR, DEMONSTRATION, Recording, Span

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


CHEST, HAND = "chest", "hand"
STREAMS = {CHEST: 1, HAND: 2}
"""Random streams by role."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Device:
    """A camera with odometry in a recording."""

    role: str
    camera: Camera
    X_W: Trajectory
    """The camera's true path."""
    frames: Int64[np.ndarray, " N"]
    """True times of all frames, including dropped ones [ns]."""
    kept: Int64[np.ndarray, " M"]
    """Indices of the frames in the video."""
    stamps: Int64[np.ndarray, " N"]
    """Their stamps on the device's clock [ns]."""
    clock: DeviceClock
    odometry: Odometry
    """At `frames`, in true time."""


def middle(recording: Recording, *, last: bool = False) -> int:
    """The middle of the first (or last) demonstration, or of the first (or last) span [ns of true time]."""
    spans = recording.spans_of(DEMONSTRATION) or recording.spans
    span = spans[-1 if last else 0]
    return (span.start_ns + span.stop_ns) // 2


_PIXELS = 60


@cache
def misread(printed: Board, claimed: Board) -> tuple[Int64[np.ndarray, " K"], Float[np.ndarray, "K 3"]]:
    """Corner ids that are detected, and their true positions on the printed board (K, 3) [m].

    Found by the real detector on an image of the print; for the right board these are its own corners.
    """
    if (printed.columns, printed.rows, printed.legacy) == (claimed.columns, claimed.rows, claimed.legacy):
        return np.arange(printed.num_corners), printed.corners_B
    picture = printed.picture(_PIXELS)
    margin = 40
    paper = cv2.copyMakeBorder(picture, margin, margin, margin, margin, cv2.BORDER_CONSTANT, value=255)
    uv, ids, _, _ = cv2.aruco.CharucoDetector(claimed.charuco).detectBoard(paper)
    if ids is None:
        return np.zeros(0, dtype=np.int64), np.zeros((0, 3))
    p = (uv.reshape(-1, 2) - margin) / _PIXELS * printed.square_m
    return ids.ravel().astype(np.int64), np.column_stack([p, np.zeros(len(p))])


BOARD_REACH_M, THINGS_REACH_M = 1.6, 4.5
LEAST_CORNERS = 4
_LEAST_TAG_PX, _SLANT = 14.0, np.cos(np.deg2rad(65.0))


def see_board(
    device: Device,
    X_WB: pin.SE3,
    board: Board,
    p_B: Float[np.ndarray, "K 3"],
    inside: Bool[np.ndarray, " N"],
    rng: np.random.Generator,
) -> Sight:
    """Detect points p_B of a stationary board in kept images; `picture` counts all frames."""
    centre = X_WB.act(board.centre_B)
    rows = device.kept[inside[device.kept]]
    if not rows.size:
        return Sight.nothing()
    at = device.X_W.sampled(device.frames[rows])
    rows = rows[board_is_facing(at, centre, X_WB.rotation[:, 2], reach_m=BOARD_REACH_M)]
    points = (p_B @ X_WB.rotation.T + X_WB.translation)[None]
    return _enough(_looked(device, rows, points, rng), LEAST_CORNERS)


def see_cube(device: Device, recording: Recording, rng: np.random.Generator) -> Sight:
    """Detect corners of the gripper's cube in the chest's images; point is 4 * face + corner."""
    rows = device.kept
    E = recording.X_WE.sampled(device.frames[rows])
    C = device.X_W.sampled(device.frames[rows])
    faces = cube()
    points = np.concatenate([tag.corners_E for tag in faces])
    corners = np.einsum("nij,kj->nki", E.R, points) + E.p[:, None, :]
    for k, tag in enumerate(faces):
        normal = -E.R @ tag.X_ET.rotation[:, 2]
        view = C.p - corners[:, 4 * k : 4 * k + 4].mean(axis=1)
        facing = (normal * view).sum(axis=1) / np.linalg.norm(view, axis=1) > _SLANT
        corners[~facing, 4 * k : 4 * k + 4] = np.nan
    return _whole_tags(_looked(device, rows, corners, rng))


def see_things(
    device: Device, recording: Recording, span: Span, rng: np.random.Generator, *, noise_m: float
) -> list[tuple[int, str, np.ndarray, float]]:
    """(frame, name, position in the camera, standard deviation [m]) of each detection within a span.

    Things outside the image or beyond THINGS_REACH_M are not found; walls do not occlude.
    """
    times = device.frames[device.kept]
    rows = device.kept[(times >= span.start_ns) & (times < span.stop_ns)]
    if not rows.size:
        return []
    at, found = device.X_W.sampled(device.frames[rows]), []
    for name, p_W in recording.things(span, device.frames[rows]).items():
        p_C = np.einsum("nji,nj->ni", at.R, p_W - at.p)
        far = np.linalg.norm(p_C, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            seen = device.camera.lens.sees(device.camera.lens.project(p_C))
        seen &= (p_C[:, 2] > 0.05) & (far < THINGS_REACH_M)
        sigma = noise_m * np.maximum(far, 0.3)
        measured = p_C + rng.normal(size=p_C.shape) * sigma[:, None]
        found += [(int(rows[i]), name, measured[i], float(sigma[i])) for i in np.flatnonzero(seen)]
    return sorted(found, key=lambda each: each[0])


def board_during(recording: Recording) -> list[tuple[Span, pin.SE3]]:
    """Spans with a board, and its pose."""
    spans = [(span, recording.takes[span.take].X_WB) for span in recording.spans_of(ANCHOR)]
    return [(span, X_WB) for span, X_WB in spans if X_WB is not None]


def _looked(device: Device, rows: np.ndarray, points: np.ndarray, rng: np.random.Generator) -> Sight:
    """`look` at frames; `picture` counts all frames of the device."""
    if not rows.size or not points.size:
        return Sight.nothing()
    sight = look(device.camera, device.X_W, device.frames[rows], points, rng)
    return Sight(picture=rows[sight.picture], point=sight.point, uv=sight.uv)


def _enough(sight: Sight, least: int) -> Sight:
    """Drop images that show fewer than `least` points."""
    _, back, count = np.unique(sight.picture, return_inverse=True, return_counts=True)
    return sight.kept(count[back] >= least)


def _whole_tags(sight: Sight) -> Sight:
    """Keep tags with all four corners visible and large enough to be read."""
    key = sight.picture * 64 + sight.point // 4
    _, back, count = np.unique(key, return_inverse=True, return_counts=True)
    sight = sight.kept(count[back] == 4)
    if not len(sight):
        return sight
    quads = sight.uv.reshape(-1, 4, 2)
    sides = np.linalg.norm(np.roll(quads, -1, axis=1) - quads, axis=2).min(axis=1)
    return sight.kept(np.repeat(sides > _LEAST_TAG_PX, 4))
