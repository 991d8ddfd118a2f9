"""Poses from videos alone: lenses and scale are exact, maps are metric, and a clip that fails is named."""

import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pinocchio as pin
import pytest

from calibration.camera import Intrinsics
from calibration.capture import structure_from_motion as sfm
from calibration.capture.keyframes import Keyframe, Motion, blur_of, keyframes_of
from calibration.capture.raw import CaptureWriter, RawCapture
from calibration.capture.values import DeviceInfo, Setup
from calibration.capture.video import FragmentedVideo
from calibration.capture.video_poses import BLURRED, MapInfo, Solved, VideoPoses, points_of, reprojection_px
from calibration.commands.capture.poses import CapturePoses
from calibration.store import save
from calibration.trajectory import LIMITED, LOST, OK
from robot_runtime.cli import main
from robot_runtime.errors import InvalidValueError
from scripts.bench.plain_videos import film_visit, plain_capture, pose_errors
from sim.capture.drills import looking
from sim.capture.rig import CHEST_LENS, WRIST_LENS
from sim.capture.scene import BOARD, random_texture
from sim.capture.truth import Truth

LENSES = {"chest": CHEST_LENS.resized((480, 640)), "hand": WRIST_LENS.resized((480, 640))}


def silent(what: str, done: int, total: int) -> None:
    """No progress."""


@pytest.mark.parametrize("lens", [*LENSES.values(), replace(CHEST_LENS, k1=-0.1, k2=0.02, p1=1e-3, k3=1e-3)])
def test_pycolmap_projects_with_our_lenses_half_a_pixel_further(lens):
    rng = np.random.default_rng(0)
    p_C = np.column_stack([rng.uniform(-0.5, 0.5, (50, 2)), rng.uniform(0.8, 2.0, 50)])
    theirs = np.array([sfm.colmap_camera(lens).img_from_cam(p) for p in p_C])
    np.testing.assert_allclose(theirs - 0.5, lens.project(p_C), atol=1e-6)


def test_the_similarity_of_points_in_a_plane_is_found():
    X = pin.SE3(pin.exp3(np.array([0.4, -1.0, 2.0])), np.array([1.0, 2.0, -3.0]))
    p = sfm.corners_in_world(BOARD)
    scale, found = sfm.similarity(p @ X.rotation.T * 2.5 + X.translation, p)
    assert scale == pytest.approx(0.4)
    np.testing.assert_allclose(found.rotation, X.rotation.T, atol=1e-9)


def test_the_sharpest_image_of_each_stretch_of_motion_is_a_keyframe():
    blur = np.full(40, 0.5)
    blur[[3, 12, 33]] = 0.2
    moving = Motion(step=np.repeat([0.005, 0.0], [20, 20]), blur=blur)
    found = keyframes_of(moving, step=0.04, every=15)
    assert {3, 12, 33} <= set(found)
    assert np.diff(found).max() <= 30


def test_a_blurred_image_is_told_from_a_sharp_one_even_with_noise():
    rng = np.random.default_rng(0)
    sharp = random_texture(rng, (240, 320))
    noise = rng.normal(0.0, 4.0, sharp.shape)
    moved = cv2.blur(sharp, (19, 1))
    assert blur_of(np.clip(sharp + noise, 0, 255).astype(np.uint8)) < BLURRED
    assert blur_of(np.clip(moved + noise, 0, 255).astype(np.uint8)) > BLURRED


def test_short_gaps_are_interpolated_and_long_ones_are_lost():
    t_ns = np.arange(10) * 40_000_000
    still = Motion(step=np.zeros(10), blur=np.zeros(10))
    video = VideoPoses(
        role="chest", t_ns=t_ns, p=np.zeros((10, 3)), q=np.tile([1.0, 0.0, 0.0, 0.0], (10, 1)),
        tracking=np.full(10, LOST, dtype=np.uint8), error_px=np.full(10, np.nan), motion=still, keyframes=[],
    )  # fmt: skip
    for i in (1, 3, 8):
        video.put(i, pin.SE3(np.eye(3), np.array([float(i), 0.0, 0.0])), 0.3)
    video.fill()
    assert video.tracking.tolist() == [LOST, OK, LIMITED, OK, *[LOST] * 4, OK, LOST]
    assert video.p[:, 0].tolist() == [1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 8.0, 8.0]


def test_points_behind_a_camera_do_not_count_for_its_error():
    X_CW = np.eye(4)[:3]
    p_W = np.array([[0.0, 0.0, 2.0], [0.1, 0.0, -1.0]])
    lens = LENSES["chest"]
    uv = np.array([[lens.cx + 3.0, lens.cy], [0.0, 0.0]])
    assert reprojection_px(lens, X_CW, p_W, uv) == pytest.approx(3.0)


def keyframe(index: int, *, features: int = 400, corners: int = 0, square_px: float = 0.0) -> Keyframe:
    return Keyframe(
        role="hand",
        index=index,
        corner_ids=np.arange(corners),
        uv=np.zeros((corners + features, 2)),
        descriptors=np.zeros((features, 128), dtype=np.float32),
        square_px=square_px,
        most_inliers=20,
    )


@pytest.mark.parametrize(
    ("reason", "blur", "seen", "has_board"),
    [
        ("blur", 0.8, {"features": 20}, True),
        ("no-texture", 0.4, {"features": 20}, True),
        ("no-overlap", 0.4, {"corners": 20, "square_px": 30.0}, True),
        ("board-not-seen", 0.4, {}, False),
        ("board-too-small", 0.4, {"corners": 20, "square_px": 6.0}, False),
    ],
)
def test_a_clip_without_poses_names_the_likeliest_reason(reason, blur, seen, has_board):
    t_ns = np.arange(30) * 33_000_000
    video = VideoPoses(
        role="hand", t_ns=t_ns, p=np.zeros((30, 3)), q=np.tile([1.0, 0.0, 0.0, 0.0], (30, 1)),
        tracking=np.repeat([OK, LOST], [10, 20]).astype(np.uint8), error_px=np.full(30, 0.4),
        motion=Motion(step=np.zeros(30), blur=np.full(30, blur)),
        keyframes=[keyframe(i, **seen) for i in (2, 12, 17, 22)],
    )  # fmt: skip
    scale_error = 1e-3 if has_board else float("nan")
    info = MapInfo(keyframes={"hand": 4}, scale_error=scale_error)
    solved = Solved(videos={"hand": video}, maps=(info,), board=BOARD)
    assert solved.clip("hand", 0, int(t_ns[10])).reason is None
    failed = solved.clip("hand", int(t_ns[10]), int(t_ns[-1]) + 1)
    assert failed.share == 0.0
    assert failed.reason is not None
    assert failed.reason.name == reason
    assert 10 <= failed.worst < 30


def keyframes_of_points(rng: np.random.Generator) -> tuple[list[Keyframe], list[pin.SE3]]:
    """Keyframes of both cameras that look at a board among 1000 points, without images."""
    middle = sfm.corners_in_world(BOARD).mean(axis=0)
    points = middle + rng.uniform([-1.2, -1.2, -0.3], [1.2, 1.2, 0.1], size=(1000, 3))
    names = np.abs(rng.normal(size=(1000, 128)))
    names /= np.linalg.norm(names, axis=1, keepdims=True)
    keyframes, true = [], []
    for k in range(16):
        role = "chest" if k < 8 else "hand"
        side = np.array([np.cos(0.35 * k), np.sin(0.35 * k), 1.6 if role == "chest" else 1.1])
        p = middle + (0.45 if role == "chest" else 0.3) * side
        X_WC = pin.SE3(looking(middle - p), p)
        seen = []
        for p_W in (sfm.corners_in_world(BOARD), points):
            uv = LENSES[role].project((p_W - p) @ X_WC.rotation)
            rows = np.flatnonzero(LENSES[role].sees(uv, margin=3.0))[:400]
            seen.append((rows, uv[rows] + 0.2 * rng.normal(size=(len(rows), 2))))
        (corners, uv_corners), (rows, uv) = seen
        keyframes.append(
            Keyframe(
                role=role,
                index=k,
                corner_ids=corners,
                uv=np.concatenate([uv_corners, uv]),
                descriptors=names[rows].astype(np.float32),
                square_px=40.0,
            )
        )
        true.append(X_WC)
    return keyframes, true


@pytest.mark.long
def test_both_cameras_are_in_one_map_with_the_scale_and_gravity_of_the_board():
    keyframes, true = keyframes_of_points(np.random.default_rng(1))
    config = sfm.MapConfig()
    graph = sfm.matched(keyframes, LENSES, config, silent)
    [found] = sfm.mapped(keyframes, LENSES, graph, config, silent)
    error_m = sfm.on_board(found, keyframes, LENSES, BOARD, config)
    assert error_m is not None
    assert error_m < 2e-3
    for role in LENSES:
        points = points_of(role, LENSES[role], [found], [error_m], keyframes)
        assert len(points) == 8
        for index, each in points.items():
            assert np.linalg.norm(each.X_WC.translation - true[index].translation) < 3e-3  # 0.2 px at 0.5 m
            assert np.linalg.norm(pin.log3(each.X_WC.rotation.T @ true[index].rotation)) < np.deg2rad(0.3)


def plain_folder(folder: Path, *, board: bool = True, camera: bool = True) -> Path:
    """A capture with a short grey video and no poses."""
    lens = LENSES["chest"].resized((96, 128))
    info = DeviceInfo(kind="video", size=(96, 128), fps=30.0, camera=lens.to_dict() if camera else None)
    setup = Setup(devices={"chest": info}, board=BOARD.to_dict() if board else None)
    video = FragmentedVideo(folder / "grey.mp4", 30.0, (96, 128))
    for _ in range(6):
        video.add(np.full((96, 128, 3), 90, dtype=np.uint8))
    video.close()
    with CaptureWriter(folder / "plain", setup) as writer:
        writer.copy_video("chest", folder / "grey.mp4", [33_000_000 * i for i in range(6)])
    return folder / "plain"


def test_what_poses_need_is_said(tmp_path):
    for i, (missing, says) in enumerate((("board", "expected a board"), ("camera", "got no intrinsics"))):
        (tmp_path / str(i)).mkdir()
        plain = plain_folder(tmp_path / str(i), **{missing: False})
        with pytest.raises(InvalidValueError, match=says):
            CapturePoses(capture=plain, output=tmp_path / f"posed{i}").main()
        assert not (tmp_path / f"posed{i}").exists()


def test_a_grey_video_is_refused_for_its_texture_with_a_picture(tmp_path, capsys):
    plain = plain_folder(tmp_path)
    before = {path: path.read_bytes() for path in plain.rglob("*") if path.is_file()}
    assert CapturePoses(capture=plain, output=tmp_path / "posed").main() == 1
    assert "no-texture" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in plain.rglob("*") if path.is_file()} == before
    written = RawCapture.open(tmp_path / "posed")
    assert written.changed() == []
    assert (written.devices["chest"].poses.tracking == LOST).all()
    [clip] = json.loads((written.derived / "poses" / "report.json").read_text())["clips"]
    assert clip["reason"]["name"] == "no-texture"
    assert cv2.imread(str(written.derived / "poses" / "chest-video.png")) is not None


def test_videos_with_intrinsics_are_imported_without_poses_and_the_next_step_is_named(tmp_path, capsys):
    plain_folder(tmp_path)
    save(tmp_path / "lens.json", Intrinsics(camera=LENSES["chest"].resized((96, 128))))
    output = ["--output", str(tmp_path / "imported")]
    source = f"video:{tmp_path / 'grey.mp4'}"
    assert main(["capture", "import", "--chest", source, *output]) == 1
    assert "or a video with its intrinsics (camera=FILE)" in capsys.readouterr().err
    assert main(["capture", "import", "--chest", f"{source},camera={tmp_path / 'lens.json'}", *output]) == 0
    assert "robot-runtime capture poses" in capsys.readouterr().out
    assert main(["capture", "check", str(tmp_path / "imported")]) == 1
    assert "no-poses-yet" in capsys.readouterr().out


@pytest.fixture(scope="module")
def anchored(tmp_path_factory) -> tuple[Path, Truth]:
    """Videos of an anchor clip in textured rooms."""
    folder = tmp_path_factory.mktemp("plain")
    clips = film_visit("fetch", 0, stations=2, demonstrates=False)
    return folder, plain_capture(clips, folder, seed=0)


@pytest.mark.long
def test_two_plain_videos_get_poses_in_the_world_of_the_board(anchored, capsys):
    folder, truth = anchored
    assert CapturePoses(capture=folder / "plain", output=folder / "posed").main() == 0, capsys.readouterr()
    written = RawCapture.open(folder / "posed")
    assert written.changed() == []
    assert written.marks == RawCapture.open(folder / "plain").marks
    for role in ("chest", "hand"):
        errors = pose_errors(written, truth, role)
        assert np.isfinite(errors.m).mean() > 0.9
        assert np.nanmedian(errors.m) < 0.020
        assert np.degrees(np.nanmedian(errors.rad)) < 1.5
    with pytest.raises(InvalidValueError, match="there is nothing to compute"):
        CapturePoses(capture=folder / "posed", output=folder / "again").main()


def test_two_rows_of_corners_are_too_near_a_line_to_tell_how_the_board_is_turned():
    from calibration.capture.structure_from_motion import _is_line, corners_in_world

    corners = corners_in_world(BOARD)
    is_low = corners[:, 1] >= np.sort(np.unique(corners[:, 1].round(6)))[-2]
    assert _is_line(corners[is_low], BOARD)
    assert not _is_line(corners, BOARD)


def test_pairs_of_each_video_alone_leave_out_those_that_join_two():
    from types import SimpleNamespace

    from calibration.capture.structure_from_motion import Graph

    keyframes = [SimpleNamespace(role=role) for role in ("chest", "chest", "hand")]
    graph = Graph(pairs={(0, 1): "same", (1, 2): "joins"}, most_inliers=[20, 20, 20])
    assert list(graph.of_each_video(keyframes).pairs) == [(0, 1)]
