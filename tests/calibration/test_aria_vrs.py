"""A recording of Aria's glasses is read as what they saw; what is no such recording is refused."""

import struct
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

from calibration.camera import CameraModel
from calibration.capture.raw import RawCapture
from calibration.capture.sources.aria_lens import Fisheye624, Rectified
from calibration.capture.sources.recording import Recording
from calibration.capture.sources.spec import parse, read
from calibration.capture.sources.vrs import VrsFile
from calibration.trajectory import LIMITED, LOST, OK
from robot_runtime.cli import main
from robot_runtime.errors import RobotRuntimeError
from tests.calibration.aria_recording import (
    ACCEL,
    ACCEL_LATE_S,
    ACCEL_OFF,
    GYRO,
    GYRO_LATE_S,
    GYRO_OFF,
    LZ4,
    MS,
    NONE,
    RGB_PARAMS,
    SLAM_LEFT,
    SLAM_PARAMS,
    X_D_IMU,
    X_D_RGB,
    ZSTD,
    aria_vrs,
    calibration,
    mps,
)

N = 6
T_NS = 1_000_000 * MS + np.arange(N, dtype=np.int64) * 50 * MS
SIZE = (480, 640)
UPRIGHT = pin.SE3(np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), np.zeros(3))
"""The axes of pictures turned clockwise by 90 degrees, in those of pictures as they came."""

THETA_PHI = [
    (0.0, 0.0),
    (0.1, 2.6),
    (0.3, 2.6),
    (0.5, 3.9),
    (0.7, 5.2),
    (0.85, 1.3),
    (0.95, 1.3),
    (0.95, 3.9),
]
RAYS = np.array([[np.sin(t) * np.cos(p), np.sin(t) * np.sin(p), np.cos(t)] for t, p in THETA_PHI])
PIXELS = {
    "camera-rgb": [
        (715.115, 716.716), (662.5634, 748.3292), (553.0059, 814.2253), (476.6317, 490.5456),
        (941.5413, 290.0748), (878.193, 1301.8974), (899.1658, 1376.6487), (219.0287, 245.5778),
    ],
    "camera-slam-left": [
        (316.638, 237.025), (295.9912, 249.4478), (254.8204, 274.2299), (229.2149, 154.2513),
        (396.1961, 87.0644), (371.8889, 436.2893), (378.637, 460.6766), (147.7865, 77.2576),
    ],
}  # fmt: skip
"""Where projectaria-tools 2.3 sees RAYS with the numbers of `aria_recording`; RGB: of 1408x1408 pixels."""
LENS = {
    "camera-rgb": Fisheye624.from_params(np.array(RGB_PARAMS)).cropped(32.0, 0.5),
    "camera-slam-left": Fisheye624.from_params(np.array(SLAM_PARAMS)),
}


def dotted(size: tuple[int, int], places: list[tuple[float, float]]) -> np.ndarray:
    """A dark picture with a soft white dot at each place."""
    v, u = np.mgrid[: size[0], : size[1]].astype(float)
    out = np.zeros(size)
    for x, y in places:
        out += np.exp(-((u - x) ** 2 + (v - y) ** 2) / (2 * 2.5**2))
    return np.repeat((220.0 * np.minimum(out, 1.0)).astype(np.uint8)[:, :, None], 3, axis=2)


def middle_near(picture: np.ndarray, at: np.ndarray, around: int = 9) -> np.ndarray:
    """Of the dot that is there, (2,) [pixels]."""
    x, y = np.rint(at).astype(int)
    part = picture[y - around : y + around + 1, x - around : x + around + 1, 0].astype(float)
    dv, du = np.mgrid[-around : around + 1, -around : around + 1]
    weights = np.where(part > 20.0, part, 0.0)
    return np.array([x + (weights * du).sum() / weights.sum(), y + (weights * dv).sum() / weights.sum()])


def plain(i: int) -> np.ndarray:
    out = np.full((*SIZE, 3), 60, dtype=np.uint8)
    out[:, 40 * i + 150 : 40 * i + 190] = 220
    return out


def motion(seed: int = 5) -> list[pin.SE3]:
    """X_WD of the device at T_NS."""
    rng = np.random.default_rng(seed)
    X, out = pin.SE3(pin.rpy.rpyToMatrix(-2.0, 0.2, 0.5), np.array([0.1, 0.2, 1.4])), []
    for _ in range(N):
        X = X * pin.exp6(pin.Motion(rng.normal(0.0, 0.01, 3), rng.normal(0.0, 0.03, 3)))
        out.append(X)
    return out


DEVICE = motion()


def recorded(folder: Path, name: str = "walk.vrs", **options: object) -> Path:
    """Pictures of the left SLAM camera, and MPS's trajectory where its own command writes it."""
    picture = options.pop("picture", plain)
    path = aria_vrs(folder / name, T_NS, picture, **{"camera": SLAM_LEFT, **options})  # type: ignore[arg-type]
    mps(folder / f"mps_{path.stem}_vrs" / "slam" / "closed_loop_trajectory.csv", T_NS, DEVICE)
    return path


def slam(path: Path, more: str = "") -> Recording:
    return read(parse(f"aria:{path},view=camera-slam-left{more}"))


@pytest.mark.parametrize("view", LENS)
def test_a_lens_sees_rays_where_the_vendors_own_library_does(view):
    np.testing.assert_allclose(LENS[view].project(RAYS), PIXELS[view], atol=1e-4)


def test_the_rgb_cameras_pictures_are_upright_and_its_intrinsics_are_theirs(tmp_path):
    path = aria_vrs(
        tmp_path / "walk.vrs", T_NS, lambda i: dotted((1408, 1408), PIXELS["camera-rgb"][: 3 + i])
    )
    mps(tmp_path / "mps_walk_vrs/slam/closed_loop_trajectory.csv.gz", T_NS, DEVICE)
    found = read(parse(f"aria:{path}"))
    camera = CameraModel.from_dict(found.info.camera)
    shown = list(found.pictures())
    assert len(shown) == N
    upright = camera.project(RAYS @ UPRIGHT.rotation)
    for at in upright:
        assert np.linalg.norm(middle_near(shown[-1], at) - at) < 0.25
    left_up, right_up = np.array(PIXELS["camera-rgb"][2]), upright[2]
    assert abs(right_up[0] - (1407 - left_up[1])) < 30  # turned clockwise: what was below is on the left
    assert abs(right_up[1] - left_up[0]) < 30
    assert (found.frames_ns == T_NS).all()
    assert (found.exposure_ns == 4 * MS).all()
    for X_WD, X_WC in zip(DEVICE, found.poses, strict=True):
        assert np.linalg.norm(pin.log6((X_WD * X_D_RGB * UPRIGHT).inverse() * X_WC).vector) < 1e-6
    assert np.linalg.norm(pin.log6(found.info.X_device_camera.inverse() * X_D_RGB * UPRIGHT).vector) < 1e-9
    assert "off by up to 0.0" in found.info.source


@pytest.mark.parametrize("turn", ["0", "90", "180", "270"])
def test_each_turn_of_a_grey_camera_keeps_pictures_poses_and_intrinsics_together(tmp_path, turn):
    picture = dotted(SIZE, PIXELS["camera-slam-left"])[:, :, 0].copy()
    found = slam(recorded(tmp_path, picture=lambda i: picture), f",turn={turn}")
    camera, shown = CameraModel.from_dict(found.info.camera), next(found.pictures())
    assert shown.shape == (*camera.size, 3)
    R_DC = found.info.X_device_camera.rotation
    for at in camera.project(RAYS @ R_DC):  # this camera's frame is the device's
        assert np.linalg.norm(middle_near(shown, at) - at) < 0.25
    assert (
        np.linalg.norm(pin.log6((DEVICE[3] * found.info.X_device_camera).inverse() * found.poses[3]).vector)
        < 1e-6
    )


def test_a_lens_is_followed_to_a_small_part_of_a_pixel_and_each_pixel_has_one_ray():
    for view, size, radius_px in (("camera-rgb", (1408, 1408), 707.5), ("camera-slam-left", SIZE, 330.0)):
        found = Rectified(LENS[view], size, radius_px=radius_px, quarters=1)
        assert found.residual_px < 0.05
        at = found.camera.project(RAYS)
        np.testing.assert_allclose(found.camera.project(found.camera.unproject(at)), at, atol=1e-6)
        np.testing.assert_allclose(found.camera.unproject(at), RAYS, atol=1e-6)


def test_aria_writes_a_lens_in_several_ways():
    one, f = Fisheye624.from_params(np.array(SLAM_PARAMS)), SLAM_PARAMS[0]
    assert Fisheye624.from_params(np.array([f, *SLAM_PARAMS])) == one  # fu and fv
    plain = Fisheye624.from_params(np.array([*SLAM_PARAMS[:11], 0.0, 0.0, 0.0, 0.0]))
    assert Fisheye624.from_params(np.array(SLAM_PARAMS[:11])) == plain  # no thin prism
    assert Fisheye624.from_params(np.array([f, *SLAM_PARAMS[:11]])) == plain


def test_a_lens_of_kannala_and_brandts_is_taken_as_it_is(tmp_path):
    numbers = [240.0, 241.0, 320.0, 239.0, 0.01, 0.02, -0.01, 0.002]
    said = other_lens(Name="KannalaBrandtK3", Params=numbers)
    found = slam(recorded(tmp_path, said=said), ",turn=0")
    assert list(found.info.camera.values())[3:] == numbers
    assert "moved by up to 0.0 px" in found.info.source


def other_lens(**projection: object) -> dict:
    """The calibration with a left SLAM camera's lens of those words."""
    out = calibration()
    out["CameraCalibrations"][1]["Projection"] |= projection
    return out


def turning(t_s: np.ndarray) -> np.ndarray:
    """(N, 3) [rad/s] of the IMU, about its own axes."""
    return np.stack([np.sin(9.0 * t_s), 0.5 * np.cos(7.0 * t_s), 0.2 + 0.0 * t_s], axis=1)


def pulling(t_s: np.ndarray) -> np.ndarray:
    """(N, 3) [m/s^2], the same."""
    return np.stack([np.cos(8.0 * t_s), 9.8 + 0.0 * t_s, np.sin(5.0 * t_s)], axis=1)


def measured(t_ns: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """What the IMU says: later than it was, by the calibration's offset and half a sample, and off."""
    t_s = (t_ns - t_ns[0]) / 1e9
    w = turning(t_s - GYRO_LATE_S - 0.0005) @ GYRO.T + GYRO_OFF
    a = pulling(t_s - ACCEL_LATE_S - 0.0005) @ ACCEL.T + ACCEL_OFF
    return list(zip(t_ns.tolist(), w, a, strict=True))


@pytest.mark.parametrize("compression", [NONE, LZ4, ZSTD])
def test_what_the_imu_measured_is_corrected_in_the_cameras_frame_at_its_true_time(tmp_path, compression):
    at = T_NS[0] + np.arange(250, dtype=np.int64) * MS
    found = slam(recorded(tmp_path, motion=measured(at), compression=compression))
    imu, t_s = found.imu, (found.imu.t_ns - at[0]) / 1e9
    assert len(imu) == len(at)
    R_CI = UPRIGHT.rotation.T @ X_D_IMU.rotation
    np.testing.assert_allclose(imu.w, turning(t_s) @ R_CI.T, atol=1e-6)
    inner = slice(5, -5)  # at its ends the accelerometer is a sample short
    np.testing.assert_allclose(imu.a[inner], (pulling(t_s) @ R_CI.T)[inner], atol=1e-4)
    assert "imu-right" in found.info.source


def test_fields_of_varying_length_stand_before_a_picture(tmp_path):
    found = slam(recorded(tmp_path, texts=True))
    shown = list(found.pictures())
    assert len(shown) == N
    assert shown[4].max() > 200


def test_an_index_may_stand_first_and_says_that_records_are_missing(tmp_path):
    path = recorded(tmp_path, index_first=True)
    assert len(list(slam(path).pictures())) == N
    last_record = 32 + 64 + len(contents(path)[-1])  # its header and fields
    with pytest.raises(RobotRuntimeError, match="is cut"):
        slam(cut(path, path.stat().st_size - last_record))


def test_a_recording_that_was_not_ended_is_read_as_far_as_it_goes(tmp_path):
    path = recorded(tmp_path)
    cut(path, index_at(path))
    changed(path, 24, bytes(8))  # where the index is: nowhere yet
    assert len(list(slam(path).pictures())) == N


def test_an_open_loop_is_read_and_quality_says_where_tracking_was_poor_or_lost(tmp_path):
    path = aria_vrs(tmp_path / "walk.vrs", T_NS, plain, camera=SLAM_LEFT)
    poses = mps(tmp_path / "o.csv", T_NS, DEVICE, world="odometry", quality={1: 0.3, 2: 0.0})
    found = slam(path, f",mps={poses}").poses
    assert found.tracking.tolist() == [OK, LIMITED, LOST, OK, OK, OK]
    assert np.linalg.norm(pin.log6((DEVICE[3] * UPRIGHT).inverse() * found[3]).vector) < 1e-6
    assert "o.csv" in slam(path, f",mps={poses}").info.source


def test_without_mps_a_recording_is_refused_with_what_to_run_and_taken_with_poses_from_elsewhere(tmp_path):
    path = aria_vrs(tmp_path / "walk.vrs", T_NS, plain, camera=SLAM_LEFT)
    with pytest.raises(RobotRuntimeError, match=r"aria_mps single -i walk\.vrs --features SLAM"):
        slam(path)
    lines = [f"{t / 1e9:.9f} 0 0 0 0 0 0 1" for t in T_NS.tolist()]
    (tmp_path / "own.txt").write_text("\n".join(lines))
    assert len(slam(path, f",trajectory={tmp_path}/own.txt").poses.t_ns) == N


def test_what_is_left_in_the_file_is_named(tmp_path):
    at = T_NS[0] + np.arange(20, dtype=np.int64) * MS
    without = calibration(ImuCalibrations=[])
    said = slam(recorded(tmp_path, motion=measured(at), said=without)).info.source
    assert "no IMU with a calibration" in said
    assert "left in the file: imu-right" in said


def contents(path: Path) -> list[bytes]:
    """The left SLAM camera's pictures as they are in the file."""
    with VrsFile(path) as file:
        return list(file.contents("1201-1"))


def changed(path: Path, at: int, raw: bytes) -> Path:
    whole = bytearray(path.read_bytes())
    whole[at : at + len(raw)] = raw
    path.write_bytes(bytes(whole))
    return path


def index_at(path: Path) -> int:
    return int(struct.unpack_from("<q", path.read_bytes(), 24)[0])


def cut(path: Path, size: int) -> Path:
    path.write_bytes(path.read_bytes()[:size])
    return path


def first_at(path: Path) -> int:
    """Where its first record is, behind its tags."""
    return 80 + int(struct.unpack_from("<I", path.read_bytes(), 80)[0])


BROKEN = {
    "empty": (lambda p: cut(p, 0), "no VRS file: it has 0 bytes"),
    "text": (lambda p: p.write_text("hello " * 50), "no VRS file: it begins with"),
    "a video": (lambda p: p.write_bytes(b"\0\0\0 ftypisom" * 20), "no VRS file: it begins with"),
    "of a newer format": (lambda p: changed(p, 76, b"VRS9"), "VRS9"),
    "cut in its header": (lambda p: cut(p, 60), "no VRS file: it has 60 bytes"),
    "cut in its tags": (lambda p: cut(p, 500), "is cut"),
    "cut in a picture": (lambda p: cut(p, index_at(p) - 1000), "is cut"),
    "cut between records": (lambda p: cut(p, index_at(p)), "is cut"),
    "a record of size 0": (lambda p: changed(p, first_at(p), bytes(4)), "is damaged at byte"),
    "a picture of noise": (
        lambda p: changed(p, index_at(p) - 2000, b"\xff\xd8" * 900),
        "image 5 of camera-slam-left",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_empty_cut_damaged_or_another_is_refused(tmp_path, name):
    spoil, said = BROKEN[name]
    path = recorded(tmp_path)
    spoil(path)
    with pytest.raises(RobotRuntimeError, match=said):
        list(slam(path).pictures())


RGB_ALONE = calibration(CameraCalibrations=calibration()["CameraCalibrations"][:1])
BENT = [*SLAM_PARAMS[:9], 0.9, 0.9, *SLAM_PARAMS[11:]]
ODD = {
    "no calibration": ({"said": {}}, "no calibration of Aria's"),
    "another camera's calibration": (
        {"said": RGB_ALONE},
        "its calibration has no camera-slam-left, only camera-rgb",
    ),
    "an unknown lens": ({"said": other_lens(Name="Spherical")}, "Spherical with 15 numbers is not supported"),
    "a lens of three numbers": ({"said": other_lens(Params=[1.0, 2.0, 3.0])}, "11, 12, 15 or 16 numbers"),
    "a lens of NaN": ({"said": other_lens(Params=[float("nan")] * 15)}, "11, 12, 15 or 16 numbers"),
    "a lens that bends too far": ({"said": other_lens(Params=BENT)}, "cannot be approximated"),
    "video": ({"content": "image/video/codec=H.265"}, "second generation"),
    "another size": ({"picture": lambda i: np.zeros((240, 320, 3), dtype=np.uint8)}, "320x240"),
}


@pytest.mark.parametrize("name", ODD)
def test_a_recording_that_is_not_understood_is_refused_by_what_it_is(tmp_path, name):
    options, said = ODD[name]
    with pytest.raises(RobotRuntimeError, match=said):
        list(slam(recorded(tmp_path, **options)).pictures())


def test_a_view_that_was_not_recorded_another_recordings_poses_and_options_of_a_csv_are_refused(tmp_path):
    path = recorded(tmp_path)
    with pytest.raises(RobotRuntimeError, match=r"no images of camera-rgb .* it has camera-slam-left"):
        read(parse(f"aria:{path}"))
    with pytest.raises(RobotRuntimeError, match="camera-slam-right"):
        read(parse(f"aria:{path},view=camera-et"))
    later = mps(tmp_path / "later.csv", T_NS + 10**12, DEVICE)
    with pytest.raises(RobotRuntimeError, match=r"poses for 0 % of the images .* another recording"):
        slam(path, f",mps={later}")
    with pytest.raises(RobotRuntimeError, match="it takes no extrinsic"):
        slam(path, f",extrinsic={later}")
    with pytest.raises(RobotRuntimeError, match="is no VRS file: it takes no view"):
        read(parse(f"aria:{later},view=camera-rgb"))
    (tmp_path / "bad.csv.gz").write_bytes(b"\x1f\x8bjunk")
    with pytest.raises(RobotRuntimeError, match="cannot be unpacked"):
        slam(path, f",mps={tmp_path}/bad.csv.gz")


def test_times_that_fall_are_refused(tmp_path):
    path = aria_vrs(tmp_path / "walk.vrs", T_NS[[0, 2, 2, 3, 4, 5]], plain, camera=SLAM_LEFT)
    with pytest.raises(RobotRuntimeError, match="times have to rise, but record 2"):
        slam(path, f",mps={mps(tmp_path / 'm.csv', T_NS, DEVICE)}")


@pytest.mark.parametrize("compression", [NONE, LZ4, ZSTD])
def test_whatever_bytes_are_changed_a_file_is_read_or_refused_in_words(tmp_path, compression):
    at = T_NS[0] + np.arange(20, dtype=np.int64) * MS
    small = np.zeros((8, 8, 3), dtype=np.uint8)
    path = aria_vrs(
        tmp_path / "a.vrs",
        T_NS,
        lambda i: small,
        camera=SLAM_LEFT,
        motion=measured(at),
        compression=compression,
    )
    whole, rng, refused = path.read_bytes(), np.random.default_rng(2), 0
    for _ in range(400):
        spoilt = bytearray(whole)
        for place in rng.integers(0, len(whole), size=3).tolist():
            spoilt[place] = int(rng.integers(0, 256))
        path.write_bytes(bytes(spoilt[: rng.integers(1, len(whole) + 1)] if rng.random() < 0.3 else spoilt))
        try:
            with VrsFile(path) as file:
                for stream in file.streams:
                    file.rows(stream)
                    list(file.contents(stream))
        except RobotRuntimeError:
            refused += 1
    assert refused > 100


def resting(up_D: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """What the IMU says of a device that hardly moves; up_D: where up is in the device."""
    a = ACCEL @ (9.81 * (X_D_IMU.rotation.T @ up_D)) + ACCEL_OFF
    return [(int(T_NS[0]) + k * MS, GYRO_OFF, a) for k in range(250)]


@pytest.mark.parametrize("is_right", [True, False])
def test_a_recording_becomes_a_capture_whose_imu_and_poses_agree_about_up(tmp_path, capsys, is_right):
    up_W = np.array([0.0, 0.0, 1.0] if is_right else [1.0, 0.0, 0.0])
    path, X_WD = recorded(tmp_path, motion=resting(DEVICE[2].rotation.T @ up_W)), DEVICE[2]
    at = T_NS[0] + np.arange(250, dtype=np.int64) * MS
    up = np.array([0.0, 0.0, 1e-4])
    rising = [pin.SE3(X_WD.rotation, X_WD.translation + i * up) for i in range(250)]
    poses, out = mps(tmp_path / "closed_loop_trajectory.csv", at, rising), tmp_path / "out"
    chest = f"aria:{path},view=camera-slam-left,mps={tmp_path}"
    main(["capture", "import", "--output", str(out), "--task", "look around", "--chest", chest])
    assert ("up by its poses differ by 90 degrees" in capsys.readouterr().out) is not is_right
    kept = RawCapture.open(out).devices["chest"]
    assert (kept.frames.t_ns == T_NS).all()
    assert (kept.frames.exposure_ns == 4 * MS).all()
    assert kept.num_pictures == N
    assert kept.info.size == (640, 480)
    assert (out / "source" / "chest-closed_loop_trajectory.csv").read_bytes() == poses.read_bytes()
    assert np.linalg.norm(pin.log6((rising[3] * UPRIGHT).inverse() * kept.poses[3]).vector) < 1e-6
