"""Captures of two plain cameras without odometry, drawn in textured rooms: `film_visit`, `plain_capture`.

The videos go through the import like those of a collector: FOLDER/plain has videos, intrinsics, board and
marks, and no poses. FOLDER/truth has the truth; `pose_errors` compares.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import pinocchio as pin
from jaxtyping import Float, UInt8

from calibration.board import Board
from calibration.camera import CameraModel, Intrinsics
from calibration.capture.raw import CaptureWriter, RawCapture
from calibration.capture.sources.recording import read_video, write
from calibration.capture.values import Setup
from calibration.trajectory import LOST
from robot_runtime.core.values.transforms import quaternion_from_rotation
from sim.capture.camera_images import drawn
from sim.capture.cameras import CHEST, HAND, Camera, Device
from sim.capture.clips import anchor_clip, board_before, walk_between
from sim.capture.performance import Performance
from sim.capture.person import perform, person_of
from sim.capture.rig import CHEST_LENS, CLEAN, WRIST_LENS, RigConfig
from sim.capture.scene import BOARD, PersonScene, build_scene
from sim.capture.session import simulate_session
from sim.capture.takes import Recording
from sim.capture.truth import Truth
from sim.tasks import make_task

SIZE = (360, 480)
LENSES = {CHEST: CHEST_LENS.resized(SIZE), HAND: replace(WRIST_LENS.resized(SIZE), fx=390.0, fy=390.0)}
FACING = pin.SE3(np.diag([1.0, -1.0, -1.0]), np.zeros(3))
"""Pose of the board in the world of poses from videos, z up."""


def film_visit(task: str, seed: int, *, stations: int = 2, demonstrates: bool = True) -> list[Performance]:
    """Film an anchor clip, the walk to a demonstration, and the demonstration; the board stays in place."""
    person, scene = person_of(seed), PersonScene(make_task(task), has_board=True)
    scene.reset(seed)
    x = scene.x_WB.tolist()
    anchor = anchor_clip(scene, person, seed, x=x, stations=stations, film=True)
    if not demonstrates:
        return [anchor]
    demonstration = _with_board(perform(task, seed, person=person, film=True), board_before(x))
    return [anchor, walk_between(scene, person, anchor, demonstration, film=True), demonstration]


def _with_board(performance: Performance, X_WB: pin.SE3) -> Performance:
    """The same clip in a scene with the board, which is the last of its mocap bodies."""
    assert performance.snapshots is not None
    pose = np.concatenate([X_WB.translation, quaternion_from_rotation(X_WB.rotation)]).astype(np.float32)
    rows = np.tile(pose, (len(performance.snapshots), 1))
    return replace(performance, snapshots=np.hstack([performance.snapshots, rows]))


def plain_capture(
    clips: list[Performance],
    folder: Path,
    *,
    seed: int = 0,
    rate_hz: float = 10.0,
    exposure_ns: int = 6_000_000,
    pixel_noise: float = 4.0,
    blur_px: float = 0.0,
    wallpaper: bool = True,
    lenses: dict[str, CameraModel] | None = None,
    board: Board = BOARD,
) -> Truth:
    """Draw both videos, and import them into FOLDER/plain.

    blur_px: standard deviation of a lens out of focus. wallpaper: textured rooms, or plain ones.
    board: as declared.
    """
    cameras = {
        role: Camera(lens=lens, rate_hz=rate_hz, exposure_ns=exposure_ns, pixel_noise=pixel_noise)
        for role, lens in (lenses or LENSES).items()
    }
    noise = replace(CLEAN, device=replace(CLEAN.device, offset_s=0.0, skew_ppm=0.0), pixel_noise=pixel_noise)
    config = RigConfig(noise=noise, seed=seed, cameras=cameras, imu=False, tags=False, glimpses=False)
    task = make_task(clips[0].task)
    model = build_scene(task, has_board=True, prints=True, wallpaper=seed if wallpaper else None)
    draw = drawn(model, seed=seed, samples=0)

    def pictures(device: Device, recording: Recording) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
        for image in draw(device, recording):
            yield np.asarray(cv2.GaussianBlur(image, (0, 0), blur_px)) if blur_px else image

    truth = simulate_session(clips, config, folder, pictures=pictures)
    _import(folder / "capture", folder / "plain", cameras, board)
    shutil.rmtree(folder / "capture")
    return truth


def _import(source: Path, target: Path, cameras: dict[str, Camera], board: Board) -> None:
    """Import the videos alone, with the times of their images; both devices have one clock."""
    rendered = RawCapture.open(source)
    recordings = {}
    for role, device in rendered.devices.items():
        assert device.video is not None
        video = replace(read_video(device.video), frames_ns=device.frames.t_ns)
        camera = Intrinsics(camera=cameras[role].lens).camera.to_dict()
        recordings[role] = replace(video, info=replace(video.info, camera=camera))
    more = {"clock": "shared"} | dict(rendered.setup.more)
    setup = Setup(
        devices={role: each.info for role, each in recordings.items()}, board=board.to_dict(), more=more
    )
    with CaptureWriter(target, setup) as writer:
        for role, each in recordings.items():
            write(writer, role, each)
        for mark in rendered.marks:
            writer.mark(mark.t_ns, mark.what, mark.by)


@dataclass(frozen=True, kw_only=True, eq=False)
class PoseErrors:
    """Errors of the poses of one video, image by image; NaN where tracking is lost."""

    t_ns: np.ndarray
    m: Float[np.ndarray, " N"]
    rad: Float[np.ndarray, " N"]


def pose_errors(capture: RawCapture, truth: Truth, role: str) -> PoseErrors:
    """Compare poses in the world of the board, without any alignment."""
    poses = capture.devices[role].poses
    X_VW = FACING * truth.boards[0].inverse()
    path = truth.X_WC if role == CHEST else truth.X_WE.then(truth.X_EH)
    true = path.sampled(truth.true_time(role, poses.t_ns)).before(X_VW)
    m = np.linalg.norm(poses.p - true.p, axis=1)
    turn = np.einsum("nji,njk->nik", poses.R, true.R)
    rad = np.arccos(np.clip((np.trace(turn, axis1=1, axis2=2) - 1.0) / 2.0, -1.0, 1.0))
    lost = poses.tracking == LOST
    m[lost], rad[lost] = np.nan, np.nan
    return PoseErrors(t_ns=poses.t_ns, m=m, rad=rad)
