"""Poses of cameras from their videos alone, and why a clip has none: `solve_poses`.

    image      k   k+1  k+2  k+3   K       k, K: keyframes, with the poses of the map
    points     *-->*--->*--->*             tracked from k to the next images (Lucas-Kanade),
                   *<---*<---*<----*       and from K to those before
    pose       x   x    x    x     x       a robust PnP of both

Where too few points agree, tracking is lost; gaps up to 0.1 s are interpolated, as limited tracking.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.camera import CameraModel
from calibration.capture.keyframes import (
    Keyframe,
    Motion,
    Progress,
    extracted,
    grey_of,
    keyframes_of,
    motion_of,
    tracked,
)
from calibration.capture.raw import Device
from calibration.capture.structure_from_motion import (
    LEAST_BOARDS,
    MOST_BOARD_PX,
    MapConfig,
    colmap_camera,
    mapped,
    matched,
    on_board,
)
from calibration.detection import HALF_PIXEL, LEAST_CORNERS
from calibration.trajectory import LIMITED, LONGEST_GAP_NS, LOST, OK, Trajectory, slerp
from calibration.verdict import Reason
from robot_runtime.core.values.transforms import quaternion_from_rotation
from robot_runtime.errors import InvalidValueError

LEAST_REGISTERED = 0.9
"""Share of a clip's images with poses below which it is reported as failed."""
BLURRED = 0.62
"""Blur above which images are too blurred for features."""
_FEW_FEATURES, _SMALL_SQUARE_PX = 150, 10.0
_NEAR = 5
"""Distance [images] from an image without a pose within which a keyframe tells why."""
_MOST_POINTS = 300
_LEAST_AGREEING = 0.2
"""Least share of tracked points that a pose must fit: a held object covers many, and moves with the hand."""


def solve_poses(
    devices: Mapping[str, Device],
    board: Board,
    config: MapConfig | None = None,
    *,
    progress: Progress = lambda what, done, total: None,
) -> "Solved":
    """Poses of every image of these devices in one world, with z up and the board at its origin.

    InvalidValueError: a device without a video or intrinsics, or another image size than its camera's.
    """
    config = config or MapConfig()
    cameras = {role: _camera_of(device) for role, device in devices.items()}
    videos: dict[str, VideoPoses] = {}
    keyframes: list[Keyframe] = []
    for role, device in devices.items():
        motion = motion_of(device, progress)
        indices = keyframes_of(motion, step=config.step, every=config.every)
        found = extracted(device, cameras[role], indices, board, progress, num_features=config.num_features)
        keyframes += found
        videos[role] = VideoPoses.unknown(device, motion, found)
    graph = matched(keyframes, cameras, config, progress)
    for keyframe, inliers in zip(keyframes, graph.most_inliers, strict=True):
        keyframe.most_inliers = inliers
    maps = mapped(keyframes, cameras, graph, config, progress)
    placed = [on_board(each, keyframes, cameras, board, config) for each in maps]
    if np.inf in placed:
        maps = mapped(keyframes, cameras, graph.of_each_video(keyframes), config, progress)
        placed = [on_board(each, keyframes, cameras, board, config) for each in maps]
    infos = [MapInfo.of(each, keyframes, on) for each, on in zip(maps, placed, strict=True)]
    for role, device in devices.items():
        points = points_of(role, cameras[role], maps, placed, keyframes)
        _register(device, cameras[role], videos[role], points, config, progress)
    return Solved(videos=videos, maps=tuple(infos), board=board)


@dataclass(kw_only=True, eq=False)
class VideoPoses:
    """Poses of a video's N images; where tracking is lost, the numbers are those before."""

    role: str
    t_ns: np.ndarray
    p: np.ndarray
    q: np.ndarray
    tracking: np.ndarray
    error_px: np.ndarray
    """Median reprojection error of the points of a pose, (N,); NaN without one."""
    motion: Motion
    keyframes: list[Keyframe]

    @classmethod
    def unknown(cls, device: Device, motion: Motion, keyframes: list[Keyframe]) -> "VideoPoses":
        n = len(motion.step)
        return cls(
            role=device.role,
            t_ns=device.frames.t_ns[:n],
            p=np.zeros((n, 3)),
            q=np.tile([1.0, 0.0, 0.0, 0.0], (n, 1)),
            tracking=np.full(n, LOST, dtype=np.uint8),
            error_px=np.full(n, np.nan),
            motion=motion,
            keyframes=keyframes,
        )

    @property
    def trajectory(self) -> Trajectory:
        """X_WC of every image."""
        return Trajectory(t_ns=self.t_ns, p=self.p, q=self.q, tracking=self.tracking)

    def put(self, index: int, X_WC: pin.SE3, error_px: float) -> None:
        """Set the pose of an image."""
        self.p[index], self.q[index] = X_WC.translation, quaternion_from_rotation(X_WC.rotation)
        self.tracking[index], self.error_px[index] = OK, error_px

    def fill(self) -> None:
        """Interpolate over short gaps, as limited tracking; hold the last pose over others."""
        known = np.flatnonzero(self.tracking == OK)
        for a, b in pairwise(known.tolist()):
            inside = np.arange(a + 1, b)
            if inside.size and self.t_ns[b] - self.t_ns[a] <= LONGEST_GAP_NS:
                u = (self.t_ns[inside] - self.t_ns[a]) / (self.t_ns[b] - self.t_ns[a])
                self.p[inside] = self.p[a] + u[:, None] * (self.p[b] - self.p[a])
                first, last = (np.repeat(self.q[[i]], len(inside), axis=0) for i in (a, b))
                self.q[inside], self.tracking[inside] = slerp(first, last, u), LIMITED
        for i in np.flatnonzero(self.tracking == LOST):
            before = i - 1 if i else (int(known[0]) if known.size else i)
            self.p[i], self.q[i] = self.p[before], self.q[before]

    def span(self, begin_ns: int, end_ns: int) -> slice:
        """Images in [begin, end)."""
        return slice(*map(int, np.searchsorted(self.t_ns, (begin_ns, end_ns))))


@dataclass(frozen=True, kw_only=True)
class MapInfo:
    """A map that pycolmap built."""

    keyframes: Mapping[str, int]
    """Role -> number of keyframes in it."""
    scale_error: float
    """RMS distance of the board's triangulated corners from the board [m]; NaN: it does not see the board,
    infinite: they are not where the board has them, so that the map is wrong."""

    @classmethod
    def of(cls, reconstruction: Any, keyframes: Sequence[Keyframe], error_m: float | None) -> "MapInfo":
        roles = [keyframes[number - 1].role for number in reconstruction.reg_image_ids()]
        counts = {role: roles.count(role) for role in dict.fromkeys(roles)}
        return cls(keyframes=counts, scale_error=float("nan") if error_m is None else error_m)

    @property
    def has_board(self) -> bool:
        return bool(np.isfinite(self.scale_error))


@dataclass(frozen=True, kw_only=True)
class ClipPoses:
    """How well one span of a video was registered."""

    span_ns: tuple[int, int]
    """[begin, end) on the device's clock."""
    share: float
    """Share of its images with a pose."""
    error_px: float
    """Median reprojection error [pixels]; NaN without poses."""
    worst: int
    """Index of the image that shows best why it failed, else of its middle."""
    reason: Reason | None
    """Why it failed; None: it did not."""


@dataclass(frozen=True, kw_only=True)
class Solved:
    """Poses of all videos, and what they were made from."""

    videos: Mapping[str, VideoPoses]
    maps: tuple[MapInfo, ...]
    board: Board

    def clip(self, role: str, begin_ns: int, end_ns: int) -> ClipPoses:
        """Judge a span of a video; times on its own clock."""
        video, span = self.videos[role], (begin_ns, end_ns)
        rows = np.arange(len(video.t_ns))[video.span(begin_ns, end_ns)]
        if not rows.size:
            reason = Reason(name="no-images", what=f"{role}: it has no images in it.", do="Check the marks.")
            return ClipPoses(span_ns=span, share=0.0, error_px=float("nan"), worst=0, reason=reason)
        registered = video.tracking[rows] != LOST
        errors = video.error_px[rows][np.isfinite(video.error_px[rows])]
        lost = rows[~registered]
        share = float(registered.mean())
        failed = share < LEAST_REGISTERED
        return ClipPoses(
            span_ns=span,
            share=share,
            error_px=float(np.median(errors)) if errors.size else float("nan"),
            worst=int(lost[len(lost) // 2]) if failed else int(rows[len(rows) // 2]),
            reason=self._why(video, lost, share) if failed else None,
        )

    def _why(self, video: VideoPoses, lost: np.ndarray, share: float) -> Reason:
        """The likeliest reason that images have no pose, by the keyframes among and beside them."""
        to_lost = [int(np.abs(lost - each.index).min()) for each in video.keyframes]
        near = [
            each
            for each, far in zip(video.keyframes, to_lost, strict=True)
            if far <= max(_NEAR, min(to_lost))
        ]
        what = f"{video.role}: {100 * share:.0f} % of its images have poses"
        features = float(np.median([len(each.descriptors) for each in near]))
        blur = float(np.median(video.motion.blur[lost]))
        if blur > BLURRED:
            return Reason(
                name="blur",
                what=f"{what}; the others are blurred ({blur:.2f} on a scale to 1, at most {BLURRED:g}).",
                do="Move slower, add light, or shorten the exposure.",
            )
        if features < _FEW_FEATURES:
            return Reason(
                name="no-texture",
                what=f"{what}; the others have {features:.0f} features (median), {_FEW_FEATURES} are needed.",
                do="Keep something textured in view: posters, carpets, newspapers; avoid plain walls.",
            )
        return self._board_reason(video, what) or Reason(
            name="no-overlap",
            what=f"{what}; the others share {np.median([each.most_inliers for each in near]):.0f} matches "
            "(median) with the image that is most like them, or are in a map of their own.",
            do="Connect the places: walk slowly from the board to them with the camera facing the way, and "
            "show the board again in the same clip.",
        )

    def _board_reason(self, video: VideoPoses, what: str) -> Reason | None:
        """Why maps of this video have no scale; None: one has."""
        own = [each for each in self.maps if video.role in each.keyframes]
        if not own or any(each.has_board for each in own):
            return None
        if any(np.isposinf(each.scale_error) for each in own):
            return Reason(
                name="map-off-board",
                what=f"{what}; in the map the board's corners are more than {MOST_BOARD_PX:g} pixels "
                "(median) from where they are seen: images of different places were taken for one.",
                do="Keep the board where it is during a clip, and look at places that differ.",
            )
        sides = [each.square_px for each in video.keyframes if each.num_corners]
        if len(sides) < LEAST_BOARDS:
            return Reason(
                name="board-not-seen",
                what=f"{what}; the board ({self.board}) is found in {len(sides)} of "
                f"{len(video.keyframes)} keyframes, so there is neither scale nor gravity.",
                do="Show the whole board to both cameras, tilted, 0.4 to 0.8 m away; is it this board?",
            )
        if np.median(sides) < _SMALL_SQUARE_PX:
            return Reason(
                name="board-too-small",
                what=f"{what}; squares of the board are {np.median(sides):.0f} pixels wide (median), "
                f"{_SMALL_SQUARE_PX:g} are needed.",
                do="Go nearer to the board, print it larger, or record more pixels.",
            )
        return Reason(
            name="board-in-part",
            what=f"{what}; its map does not have {LEAST_CORNERS} corners of the board in three rows, each in "
            f"{LEAST_BOARDS} keyframes, so the board may be turned.",
            do="Show the whole board, from several places and tilted, not its edge.",
        )


def _camera_of(device: Device) -> CameraModel:
    if device.video is None or device.info.camera is None:
        what = "a video" if device.video is None else "intrinsics"
        raise InvalidValueError(
            f"expected a video and intrinsics of {device.role}, got no {what}: import it again with "
            "video:FILE,camera=FILE"
        )
    camera = CameraModel.from_dict(device.info.camera)
    if device.info.size is not None and tuple(device.info.size) != tuple(camera.size):
        raise InvalidValueError(
            f"expected images of {camera.size[1]}x{camera.size[0]} pixels of {device.role}, for which its "
            f"camera was calibrated, got {device.info.size[1]}x{device.info.size[0]}: calibrate at that size"
        )
    return camera


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyframeInWorld:
    """A keyframe in W: its pose, and the points that it sees."""

    X_WC: pin.SE3
    uv: np.ndarray
    p_W: np.ndarray
    error_px: float


def reprojection_px(camera: CameraModel, X_CW: np.ndarray, p_W: np.ndarray, uv: np.ndarray) -> float:
    """Median distance of points from where a pose (3, 4) projects them [pixels]; infinite without any."""
    off = np.linalg.norm(camera.project(p_W @ X_CW[:, :3].T + X_CW[:, 3]) - uv, axis=1)
    seen = off[np.isfinite(off)]
    return float(np.median(seen)) if seen.size else float("inf")


def points_of(
    role: str,
    camera: CameraModel,
    maps: Sequence[Any],
    placed: Sequence[float | None],
    keyframes: Sequence[Keyframe],
) -> dict[int, KeyframeInWorld]:
    """Index of an image -> its keyframe in W; of the largest map that has it."""
    out: dict[int, KeyframeInWorld] = {}
    for reconstruction, error_m in zip(maps, placed, strict=True):
        if error_m is None or not np.isfinite(error_m):
            continue
        points = reconstruction.points3D
        for number in sorted(reconstruction.reg_image_ids()):
            each, image = keyframes[number - 1], reconstruction.image(number)
            if each.role != role or each.index in out:
                continue
            rows = [(k, p.point3D_id) for k, p in enumerate(image.points2D) if p.has_point3D()]
            rows.sort(key=lambda row: -points[row[1]].track.length())
            rows = rows[:_MOST_POINTS]
            if len(rows) < LEAST_CORNERS:
                continue
            X = image.cam_from_world().matrix()
            p_W = np.array([points[number].xyz for _, number in rows])
            uv = each.uv[[k for k, _ in rows]]
            error_px = reprojection_px(camera, X, p_W, uv)
            X_WC = pin.SE3(X[:, :3], X[:, 3]).inverse()
            out[each.index] = KeyframeInWorld(X_WC=X_WC, uv=uv, p_W=p_W, error_px=error_px)
    return out


@dataclass(kw_only=True, eq=False)
class _Tracked:
    """Points that are followed from image to image."""

    grey: np.ndarray
    uv: np.ndarray
    p_W: np.ndarray

    def follow(self, grey: np.ndarray) -> bool:
        """Follow them into the next image; False: hardly any is left."""
        if len(self.uv) < 4:
            return False
        there, ok = tracked(self.grey, grey, self.uv, window=21)
        self.grey, self.uv, self.p_W = grey, there[ok], self.p_W[ok]
        return len(self.uv) >= 4


def _register(
    device: Device,
    camera: CameraModel,
    video: VideoPoses,
    points: Mapping[int, KeyframeInWorld],
    config: MapConfig,
    progress: Progress,
) -> None:
    """Give every image a pose: keyframes theirs, the others by PnP on points tracked from both sides."""
    n = len(video.t_ns)
    seen: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    greys: deque[tuple[int, np.ndarray]] = deque(maxlen=config.longest_tracked)
    ahead: _Tracked | None = None
    since = 0
    for index, _, rgb in device.pictures(0, n):
        grey = grey_of(rgb)
        if index in points:
            at = points[index]
            video.put(index, at.X_WC, at.error_px)
            back = _Tracked(grey=grey, uv=at.uv, p_W=at.p_W)
            for earlier, picture in reversed(greys):
                if earlier in points or not back.follow(picture):
                    break
                seen.setdefault(earlier, []).append((back.uv, back.p_W))
            _solve(video, camera, seen, config)
            seen, greys = {}, deque(maxlen=config.longest_tracked)
            ahead, since = _Tracked(grey=grey, uv=at.uv, p_W=at.p_W), index
        elif ahead is not None:
            if index - since > config.longest_tracked or not ahead.follow(grey):
                ahead = None
            else:
                seen.setdefault(index, []).append((ahead.uv, ahead.p_W))
        greys.append((index, grey))
        progress(f"poses of {device.role}", index + 1, n)
    _solve(video, camera, seen, config)
    video.fill()


def _solve(
    video: VideoPoses,
    camera: CameraModel,
    seen: Mapping[int, Sequence[tuple[np.ndarray, np.ndarray]]],
    config: MapConfig,
) -> None:
    """PnP of each image by the points tracked into it."""
    import pycolmap

    lens = colmap_camera(camera)
    estimation = pycolmap.AbsolutePoseEstimationOptions()
    estimation.ransac.max_error, estimation.ransac.random_seed = config.most_px, 0
    for index, observed in seen.items():
        uv = np.concatenate([each for each, _ in observed])
        p_W = np.concatenate([each for _, each in observed])
        if len(uv) < config.least_inliers:
            continue
        found = pycolmap.estimate_and_refine_absolute_pose(uv + HALF_PIXEL, p_W, lens, estimation)
        if found is None or found["num_inliers"] < max(config.least_inliers, _LEAST_AGREEING * len(uv)):
            continue
        X = found["cam_from_world"].matrix()
        inside = found["inlier_mask"]
        error = reprojection_px(camera, X, p_W[inside], uv[inside])
        video.put(index, pin.SE3(X[:, :3], X[:, 3]).inverse(), error)
