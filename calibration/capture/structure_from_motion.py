"""Poses of cameras from their videos alone: `solve_poses`, by structure from motion with pycolmap.

    videos ─► keyframes ─► corners of the board, SIFT features ─► pairs ─► matches ─► maps, each of any scale
                                                                                        │
    X_WC of every image ◄─ points tracked from keyframes, PnP ◄─ bundle adjustment ◄─ board: metres, z up

1. A keyframe is taken whenever the image has moved by 6 % of its width, the sharpest of those since the last.
2. Keyframes of all videos go into one map. Pairs are neighbours in a video, pairs that share the largest
   features (preemptive matching: Wu 2013), and pairs that both see the board, whose numbered corners tie two
   cameras together where their images share nothing else. A pair counts after geometric verification with
   the known lenses. On a hand, features that do not move in the image are the gripper's own: left out.
3. pycolmap's incremental mapper builds one map, or several where videos do not overlap.
4. The board's corners, triangulated in a map, give the similarity of that map to the board. The board lies
   flat, so W has its origin in the board's first corner, x along its rows, and z up; maps that see the board
   share W, whichever camera they are of. Then everything is adjusted once more with the corners fixed.
5. Other images: points of the keyframes before and after are tracked into them (Lucas-Kanade), and the pose
   is a robust PnP of both. Where too few agree, tracking is lost.

Accuracy is the map's: some millimetres near the board, growing with the distance from it.
pycolmap counts pixels from the corner of the image (a centre is at +0.5), this project from centres.
"""

import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.camera import CameraModel, KannalaBrandt, Pinhole
from calibration.capture.raw import Device
from calibration.detection import HALF_PIXEL, detect
from calibration.trajectory import LIMITED, LONGEST_GAP_NS, LOST, OK, Trajectory, slerp
from calibration.verdict import Reason
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.transforms import quaternion_from_rotation
from robot_runtime.errors import InvalidValueError

Progress = Callable[[str, int, int], object]
"""(what is done, steps done, all steps)."""


@dataclass(frozen=True, kw_only=True)
class MapConfig:
    """How maps are built and judged."""

    every: int = 20
    """Most images from one keyframe to the next."""
    step: float = 0.06
    """Motion of the image from one keyframe to the next, as a share of its width."""
    num_features: int = 1000
    """Most features of a keyframe."""
    neighbours: tuple[int, ...] = (1, 2, 4, 7)
    """Distances of keyframes of one video that are matched."""
    num_similar: int = 3
    """Pairs of each keyframe by preemptive matching."""
    num_with_board: int = 10
    """Keyframes of each video that are matched by the board with those of all others."""
    least_inliers: int = 15
    """Least matches of a pair, and least points of a pose by PnP."""
    most_px: float = 4.0
    """Most reprojection error of a match or a point [pixels]."""
    longest_tracked: int = 60
    """Most images over which points are tracked from a keyframe."""


LEAST_REGISTERED = 0.9
"""Share of a clip's images with poses below which it is reported as failed."""
_OFF_AXIS = np.deg2rad(80.0)
"""Angle to the optical axis beyond which features are not used."""
_LEAST_CORNERS, _LEAST_BOARDS = 6, 3
"""Corners of the board that a map needs, each seen in so many keyframes."""
_PREEMPTIVE, _LEAST_SIMILAR, _RATIO = 128, 6, 0.8
_FEW_FEATURES, _BLURRED, _SMALL_SQUARE_PX = 150, 0.62, 10.0
_LEAST_CONTRAST = 0.5
"""Mean difference of neighbouring pixels that an image needs for its blur to be judged [grey levels]."""


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
        motion = _motion_of(device, progress)
        indices = keyframes_of(motion, config)
        found = _extracted(device, cameras[role], indices, board, config, progress)
        keyframes += found
        videos[role] = VideoPoses.unknown(device, motion, found)
    graph = _matched(keyframes, cameras, config, progress)
    for keyframe, inliers in zip(keyframes, graph.most_inliers, strict=True):
        keyframe.most_inliers = inliers
    maps = _mapped(keyframes, cameras, graph, config, progress)
    placed = [_on_board(each, keyframes, cameras, board, config) for each in maps]
    infos = [MapInfo.of(each, keyframes, on) for each, on in zip(maps, placed, strict=True)]
    for role, device in devices.items():
        points = _points_of(role, maps, placed, keyframes)
        _register(device, cameras[role], videos[role], points, config, progress)
    return Solved(videos=videos, maps=tuple(infos), board=board)


# ---- values ----------------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False)
class Keyframe:
    """An image that maps are made of."""

    role: str
    index: int
    """Of the image in the video."""
    corner_ids: np.ndarray
    """(C,) numbers of the board's corners: the first C rows of `uv`."""
    uv: np.ndarray
    """(C + F, 2) corners of the board, then features [pixels, centres at integers]."""
    descriptors: np.ndarray
    """(F, 128) float32 of unit length, those of the largest features first."""
    square_px: float
    """Side of the board's squares in the image [pixels]; 0: not seen."""
    most_inliers: int = 0
    """Verified matches with the keyframe that it shares most with."""

    @property
    def num_corners(self) -> int:
        return len(self.corner_ids)


@dataclass(frozen=True, kw_only=True, eq=False)
class Motion:
    """What was measured in each of a video's N images."""

    step: Float[np.ndarray, " N"]
    """Motion since the image before, as a share of the width."""
    blur: Float[np.ndarray, " N"]
    """0 sharp to 1 blurred (Crete et al. 2007)."""


@dataclass(kw_only=True, eq=False)
class VideoPoses:
    """Poses of a video's N images; where tracking is lost, the numbers are those before."""

    role: str
    t_ns: np.ndarray
    p: np.ndarray
    q: np.ndarray
    tracking: np.ndarray
    error_px: np.ndarray
    """RMS reprojection error of the points of a pose, (N,); NaN without one."""
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
            last = i - 1 if i else (int(known[0]) if known.size else i)
            self.p[i], self.q[i] = self.p[last], self.q[last]

    def span(self, begin_ns: int, end_ns: int) -> slice:
        """Images in [begin, end)."""
        return slice(*map(int, np.searchsorted(self.t_ns, (begin_ns, end_ns))))


@dataclass(frozen=True, kw_only=True)
class MapInfo:
    """A map that pycolmap built."""

    keyframes: Mapping[str, int]
    """Role -> number of keyframes in it."""
    scale_error: float
    """RMS distance of the board's triangulated corners from the board [m]; NaN: it does not see the board."""

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
        near = [each for each in video.keyframes if lost[0] - 5 <= each.index <= lost[-1] + 5]
        what = f"{video.role}: {100 * share:.0f} % of its images have poses"
        features = float(np.median([len(each.descriptors) for each in near])) if near else 0.0
        blur = float(np.median(video.motion.blur[lost]))
        if blur > _BLURRED:
            return Reason(
                name="blur",
                what=f"{what}; the others are blurred ({blur:.2f} on a scale to 1, at most {_BLURRED:g}).",
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
        if any(each.has_board and video.role in each.keyframes for each in self.maps):
            return None
        sides = [each.square_px for each in video.keyframes if each.num_corners]
        if len(sides) < _LEAST_BOARDS:
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
        return None


# ---- keyframes -------------------------------------------------------------------------------------------


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


def _grey(rgb: np.ndarray) -> np.ndarray:
    return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY))


def _motion_of(device: Device, progress: Progress) -> Motion:
    """Measure how far every image moved and how blurred it is, on images of some 320 pixels width."""
    steps, blurs, before = [], [], None
    for index, _, rgb in device.pictures():
        grey = _grey(rgb)
        blurs.append(blur_of(grey))
        small = cv2.resize(
            grey, (320, round(320 * grey.shape[0] / grey.shape[1])), interpolation=cv2.INTER_AREA
        )
        steps.append(0.0 if before is None else _moved(before, small) / 320)
        before = small
        progress(f"motion of {device.role}", index + 1, len(device.frames))
    return Motion(step=np.array(steps), blur=np.array(blurs))


def _moved(before: np.ndarray, after: np.ndarray) -> float:
    """Median motion between two small images [pixels]; a tenth of the width where nothing can be tracked."""
    points = cv2.goodFeaturesToTrack(before, 80, 0.01, 8)
    if points is None:
        return 0.0
    start = points.reshape(-1, 2)
    there, ok = _flow(before, after, start, window=15)
    if ok.sum() < 0.3 * len(points):
        return 0.1 * before.shape[1]
    return float(np.median(np.linalg.norm((there - start)[ok], axis=1)))


def _flow(
    before: np.ndarray, after: np.ndarray, uv: np.ndarray, *, window: int
) -> tuple[np.ndarray, np.ndarray]:
    """Where points of an image are in the next one (Lucas-Kanade), and whether they were found."""
    start = np.ascontiguousarray(uv, dtype=np.float32)[:, None]
    flow: Any = cv2.calcOpticalFlowPyrLK
    there, ok, _ = flow(before, after, start, None, winSize=(window, window), maxLevel=4)
    return there[:, 0].astype(float), ok.ravel() == 1


def blur_of(grey: np.ndarray) -> float:
    """Blur of an image, 0 sharp to 1: how little of the contrast between neighbours another blur of 9 pixels
    takes away (Crete et al. 2007), in the worse direction and after a blur of 1 pixel against noise.
    0 where there is hardly any contrast: nothing is blurred there."""
    image = cv2.GaussianBlur(grey, (0, 0), 1.0).astype(np.float32)
    out = []
    for axis, size in ((0, (1, 9)), (1, (9, 1))):
        sharp = np.abs(np.diff(image, axis=axis))
        blurred = np.abs(np.diff(cv2.blur(image, size), axis=axis))
        total = float(sharp.sum())
        has_contrast = total > _LEAST_CONTRAST * sharp.size
        out.append(1.0 - float(np.maximum(sharp - blurred, 0.0).sum()) / total if has_contrast else 0.0)
    return max(out)


def keyframes_of(motion: Motion, config: MapConfig) -> list[int]:
    """Indices of the sharpest image of each stretch in which the image moves by `config.step`."""
    out, first, moved = [], 0, 0.0
    for i, step in enumerate(motion.step.tolist()):
        moved += step
        if moved >= config.step or i - first + 1 >= config.every or i == len(motion.step) - 1:
            out.append(first + int(np.argmin(motion.blur[first : i + 1])))
            first, moved = i + 1, 0.0
    return out


def _extracted(
    device: Device,
    camera: CameraModel,
    indices: Sequence[int],
    board: Board,
    config: MapConfig,
    progress: Progress,
) -> list[Keyframe]:
    """Find features and the board in keyframes."""
    sift = cv2.SIFT.create(config.num_features, contrastThreshold=0.02, enable_precise_upscale=True)
    wanted, out = set(indices), []
    for index, _, rgb in device.pictures():
        if index not in wanted:
            continue
        grey = _grey(rgb)
        points, descriptors = sift.detectAndCompute(grey, None)
        uv = np.array([point.pt for point in points]).reshape(-1, 2)
        usable = np.flatnonzero(_is_usable(camera, uv))
        usable = usable[np.argsort([-points[i].size for i in usable], kind="stable")][: config.num_features]
        rows = np.zeros((0, 128)) if descriptors is None else descriptors[usable]
        rows = np.sqrt(rows / np.maximum(rows.sum(axis=1, keepdims=True), 1e-9))  # RootSIFT
        corners = detect(board, grey)
        kept = _is_usable(camera, corners.uv)
        corners = corners.only(kept)
        out.append(
            Keyframe(
                role=device.role,
                index=index,
                corner_ids=corners.ids,
                uv=np.concatenate([corners.uv, uv[usable]]),
                descriptors=rows.astype(np.float32),
                square_px=_square_px(board, corners.ids, corners.uv),
            )
        )
        progress(f"features of {device.role}", len(out), len(indices))
    return out


def _is_usable(camera: CameraModel, uv: np.ndarray) -> np.ndarray:
    if not len(uv):
        return np.zeros(0, dtype=bool)
    rays = camera.unproject(uv)
    return np.asarray(np.nan_to_num(rays[:, 2], nan=-1.0) > np.cos(_OFF_AXIS))


def _square_px(board: Board, ids: np.ndarray, uv: np.ndarray) -> float:
    """Median distance of neighbouring corners in a row; 0 without any."""
    at = {int(number): p for number, p in zip(ids, uv, strict=True)}
    row = board.columns - 1
    sides = [np.linalg.norm(at[n + 1] - at[n]) for n in at if n + 1 in at and (n + 1) % row]
    return float(np.median(sides)) if sides else 0.0


# ---- matches ---------------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False)
class _Graph:
    """Verified pairs: (i, j) -> pycolmap's two-view geometry, and its candidates (M, 2)."""

    pairs: dict[tuple[int, int], tuple[np.ndarray, Any]] = field(default_factory=dict)
    most_inliers: list[int] = field(default_factory=list)


def _matched(
    keyframes: Sequence[Keyframe], cameras: Mapping[str, CameraModel], config: MapConfig, progress: Progress
) -> _Graph:
    """Match and verify pairs of keyframes."""
    import pycolmap

    colmap = {role: colmap_camera(camera) for role, camera in cameras.items()}
    graph = _Graph(most_inliers=[0] * len(keyframes))
    pairs = sorted(
        _neighbours(keyframes, config) | _similar(keyframes, config, progress) | _boards(keyframes, config)
    )
    for done, (i, j) in enumerate(pairs):
        a, b = keyframes[i], keyframes[j]
        matches = np.concatenate([_common_corners(a, b), _nearest(a, b)]).astype(np.uint32)
        if len(matches) >= config.least_inliers:
            options = pycolmap.TwoViewGeometryOptions(min_num_inliers=config.least_inliers)
            options.ransac.max_error, options.ransac.random_seed = config.most_px, 0
            options.ransac.max_num_trials = 1000
            options.filter_stationary_matches = a.role == b.role != "chest"
            options.stationary_matches_max_error = 1.0
            geometry = pycolmap.estimate_calibrated_two_view_geometry(
                colmap[a.role], a.uv + HALF_PIXEL, colmap[b.role], b.uv + HALF_PIXEL, matches, options
            )
            if (inliers := len(geometry.inlier_matches)) >= config.least_inliers:
                graph.pairs[i, j] = (matches, geometry)
                for k in (i, j):
                    graph.most_inliers[k] = max(graph.most_inliers[k], inliers)
        progress("matches", done + 1, len(pairs))
    return graph


def _neighbours(keyframes: Sequence[Keyframe], config: MapConfig) -> set[tuple[int, int]]:
    """Pairs within a video."""
    n = len(keyframes)
    return {
        (i, i + d)
        for d in config.neighbours
        for i in range(n - d)
        if keyframes[i].role == keyframes[i + d].role
    }


def _boards(keyframes: Sequence[Keyframe], config: MapConfig) -> set[tuple[int, int]]:
    """Pairs among keyframes that see much of the board, spread over each video."""
    chosen: list[int] = []
    for role in dict.fromkeys(each.role for each in keyframes):
        seen = [
            i for i, each in enumerate(keyframes) if each.role == role and each.num_corners >= _LEAST_CORNERS
        ]
        blocks = np.array_split(np.array(seen, dtype=int), min(config.num_with_board, max(1, len(seen))))
        chosen += [int(max(block, key=lambda i: keyframes[i].num_corners)) for block in blocks if len(block)]
    return {(i, j) for i in chosen for j in chosen if i < j}


def _similar(keyframes: Sequence[Keyframe], config: MapConfig, progress: Progress) -> set[tuple[int, int]]:
    """Pairs that share most of their largest features, for each keyframe within its video and in others."""
    n = len(keyframes)
    tops = np.zeros((n, _PREEMPTIVE, 128), dtype=np.float32)
    for i, each in enumerate(keyframes):
        tops[i, : min(_PREEMPTIVE, len(each.descriptors))] = each.descriptors[:_PREEMPTIVE]
    roles = np.array([each.role for each in keyframes])
    flat = tops.reshape(-1, 128)
    pairs: set[tuple[int, int]] = set()
    for i in range(n):
        cosine = (tops[i] @ flat.T).reshape(_PREEMPTIVE, n, _PREEMPTIVE)
        best = np.partition(cosine, -2, axis=2)[..., -2:]
        off = np.sqrt(np.clip(2.0 - 2.0 * best, 0.0, None))
        score = ((off[..., 1] < _RATIO * off[..., 0]) & (best[..., 1] > 0.5)).sum(axis=0)
        near = np.abs(np.arange(n) - i) <= max(config.neighbours)
        for group in ((roles == roles[i]) & ~near, roles != roles[i]):
            others = np.flatnonzero(group & (score >= _LEAST_SIMILAR))
            for j in others[np.argsort(-score[others], kind="stable")][: config.num_similar].tolist():
                pairs.add((min(i, j), max(i, j)))
        progress("similar images", i + 1, n)
    return pairs


def _common_corners(a: Keyframe, b: Keyframe) -> np.ndarray:
    """Matches of the board's corners by their numbers, (M, 2)."""
    _, rows_a, rows_b = np.intersect1d(a.corner_ids, b.corner_ids, return_indices=True)
    return np.column_stack([rows_a, rows_b]).astype(np.int64)


def _nearest(a: Keyframe, b: Keyframe) -> np.ndarray:
    """Features that are each other's nearest, and much nearer than the second, (M, 2)."""
    if min(len(a.descriptors), len(b.descriptors)) < 2:
        return np.zeros((0, 2), dtype=np.int64)
    cosine = a.descriptors @ b.descriptors.T
    best_b = cosine.argmax(axis=1)
    rows = np.arange(len(cosine))
    mutual = cosine.argmax(axis=0)[best_b] == rows
    first = cosine[rows, best_b]
    cosine[rows, best_b] = -1.0
    second = cosine.max(axis=1)
    is_clear = (2.0 - 2.0 * first) < _RATIO**2 * (2.0 - 2.0 * second)
    kept = rows[mutual & is_clear]
    return np.column_stack([kept + a.num_corners, best_b[kept] + b.num_corners])


# ---- maps ------------------------------------------------------------------------------------------------


def colmap_camera(camera: CameraModel) -> Any:
    """The same lens for pycolmap, whose pixels are counted from the image's corner."""
    import pycolmap

    height, width = camera.size
    focal = [camera.fx, camera.fy, camera.cx + HALF_PIXEL, camera.cy + HALF_PIXEL]
    if isinstance(camera, KannalaBrandt):
        model, more = "OPENCV_FISHEYE", [camera.k1, camera.k2, camera.k3, camera.k4]
    elif isinstance(camera, Pinhole):
        model = "FULL_OPENCV"
        more = [camera.k1, camera.k2, camera.p1, camera.p2, camera.k3, 0.0, 0.0, 0.0]
    else:
        raise InvalidValueError(f"expected a pinhole or Kannala-Brandt camera, got {camera.MODEL}")
    out = pycolmap.Camera(model=model, width=width, height=height, params=[*focal, *more])
    out.has_prior_focal_length = True
    return out


def _mapped(
    keyframes: Sequence[Keyframe],
    cameras: Mapping[str, CameraModel],
    graph: _Graph,
    config: MapConfig,
    progress: Progress,
) -> list[Any]:
    """pycolmap's maps, the largest first; image k + 1 is keyframe k."""
    import pycolmap

    pycolmap.logging.minloglevel = 3  # a set of images without a map is no error here
    with tempfile.TemporaryDirectory() as folder:
        _write_database(Path(folder, "map.db"), keyframes, cameras, graph)
        options = pycolmap.IncrementalPipelineOptions(
            num_threads=1,
            random_seed=0,
            extract_colors=False,
            min_num_matches=config.least_inliers,
            min_model_size=5,
            max_num_models=10,
            ba_refine_focal_length=False,
            ba_refine_principal_point=False,
            ba_refine_extra_params=False,
            ba_global_frames_ratio=1.25,
            ba_global_points_ratio=1.25,
            ba_local_max_refinements=1,
            ba_global_max_refinements=2,
            ba_global_function_tolerance=1e-5,
            ba_local_function_tolerance=1e-5,
        )
        options.mapper.num_threads, options.mapper.random_seed = 1, 0
        options.mapper.init_min_num_inliers = 50
        options.mapper.abs_pose_min_num_inliers = config.least_inliers
        options.mapper.abs_pose_refine_focal_length = False
        options.mapper.abs_pose_refine_extra_params = False
        count = [0]

        def on_image() -> None:
            count[0] += 1
            progress("map", min(count[0], len(keyframes)), len(keyframes))

        maps = pycolmap.incremental_mapping(
            Path(folder, "map.db"), folder, folder, options, next_image_callback=on_image
        )
    return sorted(maps.values(), key=lambda each: -each.num_reg_images())


def _write_database(
    path: Path, keyframes: Sequence[Keyframe], cameras: Mapping[str, CameraModel], graph: _Graph
) -> None:
    import pycolmap

    database = pycolmap.Database.open(path)
    number = {role: i + 1 for i, role in enumerate(cameras)}
    for role, camera in cameras.items():
        lens = colmap_camera(camera)
        lens.camera_id = number[role]
        database.write_camera(lens, True)
        rig = pycolmap.Rig(rig_id=number[role])
        rig.add_ref_sensor(lens.sensor_id)
        database.write_rig(rig, True)
    for k, each in enumerate(keyframes, start=1):
        image = pycolmap.Image(name=f"{each.role}/{each.index}", camera_id=number[each.role], image_id=k)
        database.write_image(image, True)
        frame = pycolmap.Frame(frame_id=k, rig_id=number[each.role])
        frame.add_data_id(image.data_id)
        database.write_frame(frame, True)
        database.write_keypoints(k, (each.uv + HALF_PIXEL).astype(np.float32))
    for (i, j), (matches, geometry) in graph.pairs.items():
        database.write_matches(i + 1, j + 1, matches)
        database.write_two_view_geometry(i + 1, j + 1, geometry)
    database.close()


def _on_board(
    reconstruction: Any,
    keyframes: Sequence[Keyframe],
    cameras: Mapping[str, CameraModel],
    board: Board,
    config: MapConfig,
) -> float | None:
    """Move a map into W by the board, and adjust it; returns the corners' RMS distance from the board before
    that [m], or None if too few of them are in it."""
    import pycolmap

    seen: dict[int, list[tuple[int, int]]] = {}
    for number in reconstruction.reg_image_ids():
        each, image = keyframes[number - 1], reconstruction.image(number)
        for row, corner in enumerate(each.corner_ids.tolist()):
            seen.setdefault(corner, []).append((number, row))
            if image.points2D[row].has_point3D():
                reconstruction.delete_observation(number, row)
    found: dict[int, tuple[np.ndarray, list[tuple[int, int]]]] = {}
    for corner, views in seen.items():
        point = _triangulated(reconstruction, views, keyframes, cameras, config)
        if point is not None and len(point[1]) >= _LEAST_BOARDS:
            found[corner] = point
    if len(found) < _LEAST_CORNERS:
        return None
    p_W = corners_in_world(board)[list(found)]
    p_M = np.array([p for p, _ in found.values()])
    near, off = np.full(len(p_W), True), np.zeros(len(p_W))
    for _ in range(4):
        if near.sum() < max(_LEAST_CORNERS, 0.5 * len(near)):
            return None
        s_WM, X_WM = similarity(p_M[near], p_W[near])
        off = np.linalg.norm(s_WM * p_M @ X_WM.rotation.T + X_WM.translation - p_W, axis=1)
        near = off < max(3.0 * float(np.median(off)), 1e-3)
    reconstruction.transform(pycolmap.Sim3d(np.column_stack([s_WM * X_WM.rotation, X_WM.translation])))
    _adjust(
        reconstruction,
        [views for (_, views), is_near in zip(found.values(), near, strict=True) if is_near],
        p_W[near],
    )
    return float(np.sqrt((off[near] ** 2).mean()))


def similarity(a: Float[np.ndarray, "N 3"], b: Float[np.ndarray, "N 3"]) -> tuple[float, pin.SE3]:
    """Scale s and pose X with the least squares of s R a + p - b (Umeyama 1991); a plane will do."""
    a0, b0 = a - a.mean(axis=0), b - b.mean(axis=0)
    U, sizes, Vt = np.linalg.svd(b0.T @ a0)
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(U @ Vt))])
    R = U @ np.diag(signs) @ Vt
    s = float((sizes * signs).sum() / (a0**2).sum())
    return s, pin.SE3(R, b.mean(axis=0) - s * R @ a.mean(axis=0))


def corners_in_world(board: Board) -> Float[np.ndarray, "K 3"]:
    """The board's corners in W: x along a row, y up along a column, z out of the board."""
    return board.corners_B * (1.0, -1.0, -1.0)


def _triangulated(
    reconstruction: Any,
    views: Sequence[tuple[int, int]],
    keyframes: Sequence[Keyframe],
    cameras: Mapping[str, CameraModel],
    config: MapConfig,
) -> tuple[np.ndarray, list[tuple[int, int]]] | None:
    """A corner's position in a map, and the views (image, row) that agree with it."""
    import pycolmap

    kept = list(views)
    for _ in range(4):
        if len(kept) < 2:
            return None
        poses = [reconstruction.image(number).cam_from_world().matrix() for number, _ in kept]
        uv = np.array([keyframes[number - 1].uv[row] for number, row in kept])
        lenses = [cameras[keyframes[number - 1].role] for number, _ in kept]
        rays = np.array([lens.unproject(each[None])[0] for lens, each in zip(lenses, uv, strict=True)])
        p = pycolmap.triangulate_multi_view_point(poses, rays)
        if p is None:
            return None
        seen = np.array(
            [lens.project((X[:, :3] @ p + X[:, 3])[None])[0] for lens, X in zip(lenses, poses, strict=True)]
        )
        off = np.nan_to_num(np.linalg.norm(seen - uv, axis=1), nan=np.inf)
        good = off <= max(config.most_px, 3.0 * float(np.median(off)))
        if good.all():
            return p, kept
        kept = [view for view, is_good in zip(kept, good, strict=True) if is_good]
    return None


def _adjust(reconstruction: Any, views: Sequence[Sequence[tuple[int, int]]], p_W: np.ndarray) -> None:
    """Adjust all poses and points with the board's corners fixed at p_W."""
    import pycolmap

    config = pycolmap.BundleAdjustmentConfig()
    for number in reconstruction.reg_image_ids():
        config.add_image(number)
    for p, each in zip(p_W, views, strict=True):
        track = pycolmap.Track([pycolmap.TrackElement(number, row) for number, row in each])
        config.add_constant_point(reconstruction.add_point3D(p, track))
    options = pycolmap.BundleAdjustmentOptions(
        refine_focal_length=False,
        refine_principal_point=False,
        refine_extra_params=False,
        print_summary=False,
    )
    options.ceres.loss_function_type = pycolmap.LossFunctionType.CAUCHY
    options.ceres.solver_options.num_threads = 1
    options.ceres.solver_options.max_num_iterations = 30
    options.ceres.solver_options.function_tolerance = 1e-5
    pycolmap.create_default_bundle_adjuster(options, config, reconstruction).solve()


# ---- all images ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _Points:
    """A keyframe in W: its pose, and the points that it sees."""

    X_WC: pin.SE3
    uv: np.ndarray
    p_W: np.ndarray
    error_px: float


_MOST_POINTS = 300
_LEAST_AGREEING = 0.2
"""Least share of tracked points that a pose must fit: a held object may cover many, and moves with the hand."""


def _points_of(
    role: str, maps: Sequence[Any], placed: Sequence[float | None], keyframes: Sequence[Keyframe]
) -> dict[int, _Points]:
    """Index of an image -> its keyframe in W; of the largest map that has it."""
    out: dict[int, _Points] = {}
    for reconstruction, error_m in zip(maps, placed, strict=True):
        if error_m is None:
            continue
        points = reconstruction.points3D
        for number in sorted(reconstruction.reg_image_ids()):
            each, image = keyframes[number - 1], reconstruction.image(number)
            if each.role != role or each.index in out:
                continue
            rows = [(k, p.point3D_id) for k, p in enumerate(image.points2D) if p.has_point3D()]
            rows.sort(key=lambda row: -points[row[1]].track.length())
            rows = rows[:_MOST_POINTS]
            if len(rows) < _LEAST_CORNERS:
                continue
            X = image.cam_from_world().matrix()
            p_W = np.array([points[number].xyz for _, number in rows])
            seen = np.array([image.camera.img_from_cam(X[:, :3] @ p + X[:, 3]) for p in p_W], dtype=float)
            uv = each.uv[[k for k, _ in rows]]
            error = float(np.sqrt(np.nanmedian(((seen - HALF_PIXEL - uv) ** 2).sum(axis=1))))
            X_WC = pin.SE3(X[:, :3], X[:, 3]).inverse()
            out[each.index] = _Points(X_WC=X_WC, uv=uv, p_W=p_W, error_px=error)
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
        there, ok = _flow(self.grey, grey, self.uv, window=21)
        self.grey, self.uv, self.p_W = grey, there[ok], self.p_W[ok]
        return len(self.uv) >= 4


def _register(
    device: Device,
    camera: CameraModel,
    video: VideoPoses,
    points: Mapping[int, _Points],
    config: MapConfig,
    progress: Progress,
) -> None:
    """Give every image a pose: keyframes theirs, the others by PnP on points tracked from both sides."""
    lens, n = colmap_camera(camera), len(video.t_ns)
    seen: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    greys: deque[tuple[int, np.ndarray]] = deque(maxlen=config.longest_tracked)
    ahead: _Tracked | None = None
    since = 0
    for index, _, rgb in device.pictures(0, n):
        grey = _grey(rgb)
        if index in points:
            at = points[index]
            video.put(index, at.X_WC, at.error_px)
            back = _Tracked(grey=grey, uv=at.uv, p_W=at.p_W)
            for earlier, picture in reversed(greys):
                if earlier in points or not back.follow(picture):
                    break
                seen.setdefault(earlier, []).append((back.uv, back.p_W))
            _solve(video, lens, seen, config)
            seen, greys = {}, deque(maxlen=config.longest_tracked)
            ahead, since = _Tracked(grey=grey, uv=at.uv, p_W=at.p_W), index
        elif ahead is not None:
            if index - since > config.longest_tracked or not ahead.follow(grey):
                ahead = None
            else:
                seen.setdefault(index, []).append((ahead.uv, ahead.p_W))
        greys.append((index, grey))
        progress(f"poses of {device.role}", index + 1, n)
    _solve(video, lens, seen, config)
    video.fill()


def _solve(
    video: VideoPoses,
    lens: Any,
    seen: Mapping[int, Sequence[tuple[np.ndarray, np.ndarray]]],
    config: MapConfig,
) -> None:
    """PnP of each image by the points tracked into it."""
    import pycolmap

    estimation = pycolmap.AbsolutePoseEstimationOptions()
    estimation.ransac.max_error, estimation.ransac.random_seed = config.most_px, 0
    for index, tracked in seen.items():
        uv = np.concatenate([each for each, _ in tracked])
        p_W = np.concatenate([each for _, each in tracked])
        if len(uv) < config.least_inliers:
            continue
        found = pycolmap.estimate_and_refine_absolute_pose(uv + HALF_PIXEL, p_W, lens, estimation)
        if found is None or found["num_inliers"] < max(config.least_inliers, _LEAST_AGREEING * len(uv)):
            continue
        X = found["cam_from_world"].matrix()
        inside = found["inlier_mask"]
        at = np.array(lens.img_from_cam(p_W[inside] @ X[:, :3].T + X[:, 3]), dtype=float)
        error = float(np.sqrt(np.nanmedian(((at - HALF_PIXEL - uv[inside]) ** 2).sum(axis=1))))
        video.put(index, pin.SE3(X[:, :3], X[:, 3]).inverse(), error)
