"""Structure from motion with pycolmap: `matched`, `mapped` and `on_board` make metric maps of keyframes.

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
   share W, whichever camera they are of. Then everything is adjusted once more with the corners fixed. A map
   in which detected corners are then off the board is wrong: cameras were joined by a false match. Maps of
   each video alone replace it, and if one of these is off the board too, it gives no poses.
5. Other images are tracked and registered in video_poses.py.

Accuracy is the map's: some millimetres near the board, growing with the distance from it.
pycolmap counts pixels from the corner of the image (a centre is at +0.5), this project from centres.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.camera import CameraModel, KannalaBrandt, Pinhole
from calibration.capture.keyframes import Keyframe, Progress
from calibration.detection import HALF_PIXEL, LEAST_CORNERS
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

LEAST_BOARDS = 3
"""Keyframes in which a map needs each of at least `LEAST_CORNERS` corners of the board."""
MOST_BOARD_PX = 2.0
"""Median distance of the board's corners from a map's above which the map is wrong [pixels]."""
_PREEMPTIVE, _LEAST_SIMILAR, _RATIO = 128, 6, 0.8


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


@dataclass(kw_only=True, eq=False)
class Graph:
    """Verified pairs: (i, j) -> pycolmap's two-view geometry, and its candidates (M, 2)."""

    pairs: dict[tuple[int, int], tuple[np.ndarray, Any]] = field(default_factory=dict)
    most_inliers: list[int] = field(default_factory=list)

    def of_each_video(self, keyframes: Sequence[Keyframe]) -> "Graph":
        """The pairs within videos alone."""
        pairs = {at: pair for at, pair in self.pairs.items() if len({keyframes[k].role for k in at}) == 1}
        return Graph(pairs=pairs, most_inliers=self.most_inliers)


def matched(
    keyframes: Sequence[Keyframe], cameras: Mapping[str, CameraModel], config: MapConfig, progress: Progress
) -> Graph:
    """Match and verify pairs of keyframes."""
    import pycolmap

    colmap = {role: colmap_camera(camera) for role, camera in cameras.items()}
    graph = Graph(most_inliers=[0] * len(keyframes))
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
            i for i, each in enumerate(keyframes) if each.role == role and each.num_corners >= LEAST_CORNERS
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


def mapped(
    keyframes: Sequence[Keyframe],
    cameras: Mapping[str, CameraModel],
    graph: Graph,
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
    path: Path, keyframes: Sequence[Keyframe], cameras: Mapping[str, CameraModel], graph: Graph
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


def on_board(
    reconstruction: Any,
    keyframes: Sequence[Keyframe],
    cameras: Mapping[str, CameraModel],
    board: Board,
    config: MapConfig,
) -> float | None:
    """Move a map into W by the board, and adjust it; returns the corners' RMS distance from the board before
    that [m], infinite if they do not fit the board, or None if too few of them are in it."""
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
        if point is not None and len(point[1]) >= LEAST_BOARDS:
            found[corner] = point
    if len(found) < LEAST_CORNERS:
        return None
    p_W = corners_in_world(board)[list(found)]
    p_M = np.array([p for p, _ in found.values()])
    near, off = np.full(len(p_W), True), np.zeros(len(p_W))
    for _ in range(4):
        if near.sum() < max(LEAST_CORNERS, 0.5 * len(near)) or _is_line(p_W[near], board):
            return None
        s_WM, X_WM = similarity(p_M[near], p_W[near])
        off = np.linalg.norm(s_WM * p_M @ X_WM.rotation.T + X_WM.translation - p_W, axis=1)
        near = off < max(3.0 * float(np.median(off)), 1e-3)
    reconstruction.transform(pycolmap.Sim3d(np.column_stack([s_WM * X_WM.rotation, X_WM.translation])))
    agreeing = [views for (_, views), is_near in zip(found.values(), near, strict=True) if is_near]
    _adjust(reconstruction, agreeing, p_W[near])
    if _board_px(reconstruction, agreeing, p_W[near], keyframes, cameras) > MOST_BOARD_PX:
        return float("inf")
    return float(np.sqrt((off[near] ** 2).mean()))


def _is_line(p_W: np.ndarray, board: Board) -> bool:
    """Whether corners lie nearly in a line, in fewer than three rows: the board may be turned about it."""
    sizes = np.linalg.svd(p_W - p_W.mean(axis=0), compute_uv=False) / np.sqrt(len(p_W))
    return bool(sizes[1] < 0.6 * board.square_m)


def _board_px(
    reconstruction: Any,
    views: Sequence[Sequence[tuple[int, int]]],
    p_W: np.ndarray,
    keyframes: Sequence[Keyframe],
    cameras: Mapping[str, CameraModel],
) -> float:
    """Median distance of detected corners from where the map projects those of the board [pixels]."""
    off = []
    for p, each in zip(p_W, views, strict=True):
        for number, row in each:
            keyframe, X = keyframes[number - 1], reconstruction.image(number).cam_from_world().matrix()
            seen = cameras[keyframe.role].project((X[:, :3] @ p + X[:, 3])[None])[0]
            off.append(float(np.linalg.norm(seen - keyframe.uv[row])))
    return float(np.median(np.nan_to_num(off, nan=np.inf)))


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
