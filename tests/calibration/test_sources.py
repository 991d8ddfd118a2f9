"""What devices write is read as what they saw: one motion, in every format, axes and units of each."""

import csv
import json
import struct
import zipfile
from pathlib import Path

import av
import numpy as np
import pinocchio as pin
import pytest
import simplejpeg

from calibration.camera import CameraModel
from calibration.capture.raw import RawCapture
from calibration.capture.sources.gopro import items_of
from calibration.capture.sources.marks_file import read_marks
from calibration.capture.sources.recording import Recording
from calibration.capture.sources.spec import parse, read
from calibration.capture.video import FragmentedVideo
from calibration.trajectory import LIMITED, LOST, OK, Trajectory
from robot_runtime.cli import main
from robot_runtime.errors import RobotRuntimeError

S = 1_000_000_000
SIZE, N = (48, 64), 12
T_NS = 1_700_000_000 * S + np.arange(N, dtype=np.int64) * 33_333_333
Y_UP = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])  # our world in one with y up
BACK = np.diag([1.0, -1.0, -1.0])  # our camera in one that looks along -z
X_BC = pin.SE3(pin.rpy.rpyToMatrix(0.1, -0.2, 1.5), np.array([0.01, -0.06, 0.01]))


def motion(seed: int = 3) -> list[pin.SE3]:
    rng = np.random.default_rng(seed)
    X, out = pin.SE3(pin.rpy.rpyToMatrix(-2.0, 0.0, -1.5), np.array([0.1, 0.2, 1.4])), []
    for _ in range(N):
        X = X * pin.exp6(pin.Motion(rng.normal(0.0, 0.01, 3), rng.normal(0.0, 0.03, 3)))
        out.append(X)
    return out


WANTED = motion()


def in_arkit(X: pin.SE3) -> pin.SE3:
    """The same pose in ARKit's axes."""
    zero = np.zeros(3)
    return pin.SE3(Y_UP, zero) * X * pin.SE3(BACK, zero)


def xyzw(X: pin.SE3) -> list[float]:
    return pin.Quaternion(X.rotation).coeffs().tolist()


def picture(i: int) -> np.ndarray:
    out = np.full((*SIZE, 3), 60, dtype=np.uint8)
    out[:, 4 * i : 4 * i + 4] = 220
    return out


def video(path: Path) -> Path:
    writer = FragmentedVideo(path, 30.0, SIZE)
    for i in range(N):
        writer.add(picture(i))
    writer.close()
    return path


def same(poses: Trajectory | None, t_ns: np.ndarray = T_NS, most: float = 1e-6) -> None:
    assert poses is not None
    assert np.abs(poses.t_ns - t_ns).max() <= 1000  # seconds as floating point numbers have no more digits
    for i, X in enumerate(WANTED):
        assert np.linalg.norm(pin.log6(X.inverse() * poses[i]).vector) < most


def tum(path: Path) -> Path:
    lines = ["# timestamp tx ty tz qx qy qz qw"]
    for t_ns, X in zip(T_NS.tolist(), WANTED, strict=True):
        numbers = " ".join(f"{v:.9f}" for v in (*X.translation, *xyzw(X)))
        lines.append(f"{t_ns // S}.{t_ns % S:09d} {numbers}")
    path.write_text("\n".join(lines) + "\n")
    return path


def r3d(path: Path, **changed: object) -> Path:
    poses = [[*xyzw(in_arkit(X)), *in_arkit(X).translation.tolist()] for X in WANTED]
    said = {
        "w": SIZE[1], "h": SIZE[0], "fps": 30, "K": [50.0, 0, 0, 0, 51.0, 0, 32.0, 24.0, 1],
        "poses": poses, "frameTimestamps": (T_NS / S).tolist(), **changed,
    }  # fmt: skip
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata", json.dumps(said))
        for i in range(N):
            archive.writestr(f"rgbd/{i}.jpg", simplejpeg.encode_jpeg(picture(i)))
    return path


def test_tum_keeps_every_nanosecond_and_reads_quaternions_as_x_y_z_w(tmp_path):
    tum(tmp_path / "hand.txt")
    video(tmp_path / "hand.mp4")
    found = read(parse(f"video:{tmp_path}/hand.mp4,trajectory={tmp_path}/hand.txt"))
    assert (found.poses.t_ns == T_NS).all()
    same(found.poses)


def test_a_lost_frame_of_umis_trajectory_is_lost(tmp_path):
    path = tmp_path / "camera_trajectory.csv"
    lines = ["frame_idx,timestamp,state,is_lost,is_keyframe,x,y,z,q_x,q_y,q_z,q_w"]
    for i, X in enumerate(WANTED):
        numbers = ",".join(map(repr, (*X.translation.tolist(), *xyzw(X)))) if i != 5 else "0,0,0,0,0,0,0"
        lines.append(f"{i},{i / 60:.6f},2,{str(i == 5).lower()},false,{numbers}")
    path.write_text("\n".join(lines) + "\n")
    video(tmp_path / "a.mp4")
    poses = read(parse(f"gopro:{tmp_path}/a.mp4,trajectory={path}")).poses
    assert poses.tracking.tolist() == [OK] * 5 + [LOST] + [OK] * (N - 6)


def test_record3d_is_turned_from_arkits_axes(tmp_path):
    found = read(parse(f"record3d:{r3d(tmp_path / 'a.r3d')}"))
    same(found.poses)
    camera = CameraModel.from_dict(found.info.camera)
    assert (camera.fx, camera.fy, camera.cx, camera.cy) == (50.0, 51.0, 31.5, 23.5)
    shown = list(found.pictures())
    assert len(shown) == N
    assert np.abs(shown[3].astype(int) - picture(3)).mean() < 8.0  # grey values; JPEG


def from_the_start() -> tuple[list[list[float]], list[float]]:
    """Record3D's poses where they count from the first picture, and its `initPose`."""
    start = in_arkit(WANTED[0])
    rows = [start.inverse() * in_arkit(X) for X in WANTED]
    return [[*xyzw(X), *X.translation.tolist()] for X in rows], [*xyzw(start), *start.translation.tolist()]


def test_record3d_poses_that_count_from_the_first_picture_are_put_into_arkits_world(tmp_path):
    poses, start = from_the_start()
    found = read(parse(f"record3d:{r3d(tmp_path / 'a.r3d', poses=poses, initPose=start)}"))
    same(found.poses)
    assert found.lacks == ()


@pytest.mark.parametrize("start", [[0, 0, 0, 1, 0, 0, 0], "first"])
def test_record3d_poses_that_are_of_arkits_world_stay(tmp_path, start):
    said = from_the_start()[1] if start == "first" else start
    found = read(parse(f"record3d:{r3d(tmp_path / 'a.r3d', initPose=said)}"))
    same(found.poses)
    assert found.lacks == ()


@pytest.mark.parametrize("start", [None, [0, 0, 0, 1, 0, 0, 0]])
def test_poses_that_begin_at_the_identity_are_imported_with_a_warning_of_gravity(tmp_path, capsys, start):
    file = r3d(tmp_path / "a.r3d", poses=from_the_start()[0], initPose=start)
    assert "gravity is wrong" in read(parse(f"record3d:{file}")).lacks[0]
    main(["capture", "import", "--output", str(tmp_path / "out"), "--chest", f"record3d:{file}"])
    assert f"warning: chest: {file}: the first pose is the identity" in capsys.readouterr().err


@pytest.mark.parametrize("axes", ["opengl", "optical", "flu"])
def test_a_trajectory_of_a_slam_that_begins_at_the_identity_is_imported_with_a_warning(tmp_path, axes):
    video(tmp_path / "a.mp4")
    lines = [f"{t_ns / S:.9f} 0 0 0 0 0 0 1" for t_ns in T_NS.tolist()]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    found = read(parse(f"video:{tmp_path}/a.mp4,trajectory={tmp_path}/a.txt,axes={axes},up=z"))
    assert f"{tmp_path}/a.txt: the first pose is the identity" in found.lacks[0]


def test_an_init_pose_that_is_no_pose_is_refused(tmp_path):
    for wrong in ([1, 2], "left", [0, 0, 0, 9, 0, 0, 0], [float("nan")] * 7):
        with pytest.raises(RobotRuntimeError, match="initPose"):
            read(parse(f"record3d:{r3d(tmp_path / 'a.r3d', initPose=wrong)}"))


def arkit_lines(path: Path) -> Path:
    lines = []
    for i, (t_ns, X) in enumerate(zip(T_NS.tolist(), WANTED, strict=True)):
        transform = in_arkit(X).homogeneous.T.ravel().tolist()  # column by column
        state = "limited" if i == 2 else "normal"
        lines.append({"timestamp": t_ns / S, "transform": transform, "trackingState": state,
                      "intrinsics": [50, 0, 0, 0, 51, 0, 32, 24, 1]})  # fmt: skip
        lines.append({"timestamp": t_ns / S, "rotationRate": [0.1, 0.2, 0.3], "acceleration": [0, -1, 0]})
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_arkits_lines_have_poses_states_intrinsics_and_motion(tmp_path):
    video(tmp_path / "a.mp4")
    found = read(parse(f"arkit:{arkit_lines(tmp_path / 'a.jsonl')},video={tmp_path}/a.mp4"))
    same(found.poses)
    assert found.poses.tracking.tolist() == [OK, OK, LIMITED] + [OK] * (N - 3)
    assert found.info.camera["fx"] == 50.0
    assert found.imu.a[0].tolist() == pytest.approx([0.0, 9.80665, 0.0])


def klv(key: bytes, kind: bytes, sample: int, payload: bytes) -> bytes:
    count = len(payload) // sample if sample else len(payload)
    head = struct.pack(">4scBH", key, kind, sample or 1, count)
    return head + payload + b"\0" * (-len(payload) % 4)


def box(kind: bytes, *inside: bytes) -> bytes:
    payload = b"".join(inside)
    return struct.pack(">I4s", 8 + len(payload), kind) + payload


def telemetry() -> list[bytes]:
    """Two packets of 4 samples."""
    out = []
    for _ in range(2):
        streams = b""
        for key, scale, base in ((b"ACCL", 418, 100), (b"GYRO", 939, 200)):
            values = np.arange(12, dtype=">i2").reshape(4, 3) + base
            inside = klv(b"SCAL", b"s", 2, struct.pack(">h", scale)) + klv(b"ORIN", b"c", 1, b"YxZ")
            samples = klv(key, b"s", 6, values.astype(">i2").tobytes())
            streams += klv(b"STRM", b"\0", 0, inside + samples)
        out.append(klv(b"DEVC", b"\0", 0, streams))
    return out


def gopro(path: Path) -> Path:
    """A video with a track of telemetry, as the camera lays its boxes: a packet a second."""
    with av.open(str(path), "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=30)
        stream.height, stream.width, stream.pix_fmt = *SIZE, "yuv420p"
        for i in range(N):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture(i))))
        file.mux(stream.encode())
    made, packets = path.read_bytes(), telemetry()
    at = made.rindex(b"moov") - 4
    before, moov = made[:at], made[at + 8 :]
    data = box(b"mdat", *packets)
    u32 = struct.Struct(">I").pack
    full = u32(0)
    table = box(
        b"stbl",
        box(b"stsd", full, u32(1), box(b"gpmd", bytes(6), struct.pack(">H", 1), u32(0))),
        box(b"stts", full, u32(1), u32(2), u32(1000)),
        box(b"stsc", full, u32(1), u32(1), u32(2), u32(1)),
        box(b"stsz", full, u32(0), u32(2), *(u32(len(each)) for each in packets)),
        box(b"stco", full, u32(1), u32(len(before) + 8)),
    )
    url = box(b"dinf", box(b"dref", full, u32(1), box(b"url ", u32(1))))
    media = box(
        b"mdia",
        box(b"mdhd", full, bytes(8), u32(1000), u32(2000), bytes(4)),
        box(b"hdlr", full, bytes(4), b"meta", bytes(12), b"GoPro MET\0"),
        box(b"minf", box(b"nmhd", full), url, table),
    )
    head = box(b"tkhd", u32(7), bytes(8), u32(2), bytes(4), u32(2000), bytes(60))
    path.write_bytes(before + data + box(b"moov", moov, box(b"trak", head, media)))
    return path


def test_a_gopros_telemetry_is_scaled_and_ordered_by_orin(tmp_path):
    found = read(parse(f"gopro:{gopro(tmp_path / 'GX01.MP4')}"))
    assert len(found.frames_ns) == N
    assert found.imu.w[0].tolist() == pytest.approx([-201 / 939, 200 / 939, 202 / 939])  # Y, -X, Z
    assert found.imu.a[1].tolist() == pytest.approx([-104 / 418, 103 / 418, 105 / 418])
    assert found.imu.t_ns.tolist() == [125_000_000 + k * 250_000_000 for k in range(8)]


def test_a_gopros_video_without_telemetry_is_taken_and_the_missing_imu_is_said(tmp_path, capsys):
    assert not read(parse(f"gopro:{gopro(tmp_path / 'GX01.MP4')}")).lacks
    video(tmp_path / "hand.mp4")
    tum(tmp_path / "hand.txt")
    chest, hand = f"record3d:{r3d(tmp_path / 'chest.r3d')}", f"gopro:{tmp_path}/hand.mp4"
    command = ["capture", "import", "--output", str(tmp_path / "out"), "--chest", chest]
    main([*command, "--hand", f"{hand},trajectory={tmp_path}/hand.txt"])
    said = capsys.readouterr().err
    assert "warning: hand: hand.mp4: it has no telemetry (GPMF), so there is no IMU. Clocks are" in said
    assert (tmp_path / "out" / "hand").is_dir()


def test_telemetry_that_is_none_is_refused():
    with pytest.raises(RobotRuntimeError, match="no GPMF"):
        list(items_of(struct.pack(">4scBH", b"DEVC", b"\0", 1, 5000) + b"abc"))


def aria(path: Path, gravity=(0.0, 0.0, -9.81)) -> Path:
    rows = []
    for t_ns, X in zip(T_NS.tolist(), WANTED, strict=True):
        X_WD = X * X_BC.inverse()
        q = xyzw(X_WD)
        numbers = dict(zip(("tx", "ty", "tz", "qx", "qy", "qz", "qw"), (*X_WD.translation, *q), strict=True))
        rows.append(
            {"graph_uid": "a", "tracking_timestamp_us": t_ns // 1000, "utc_timestamp_ns": -1}
            | {f"{name}_world_device": value for name, value in numbers.items()}
            | {f"gravity_{axis}_world": g for axis, g in zip("xyz", gravity, strict=True)}
            | {"quality_score": 1.0}
        )
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def pose_json(path: Path, X: pin.SE3) -> Path:
    q = xyzw(X)
    path.write_text(json.dumps({"p": X.translation.tolist(), "q_wxyz": [q[3], *q[:3]]}))
    return path


def test_arias_trajectory_is_of_the_device_and_becomes_the_cameras(tmp_path):
    video(tmp_path / "rgb.mp4")
    (tmp_path / "stamps.csv").write_text("timestamp_ns\n" + "\n".join(map(str, T_NS.tolist())))
    spec = f"aria:{aria(tmp_path / 'closed_loop_trajectory.csv')},video={tmp_path}/rgb.mp4"
    with pytest.raises(RobotRuntimeError, match="extrinsic=FILE"):
        read(parse(spec))
    extrinsic = pose_json(tmp_path / "rgb.json", X_BC)
    found = read(parse(f"{spec},stamps={tmp_path}/stamps.csv,extrinsic={extrinsic}"))
    same(found.poses)
    assert (found.frames_ns == T_NS).all()


def euroc(root: Path) -> Path:
    import cv2

    for name in ("cam0/data", "imu0", "state_groundtruth_estimate0"):
        (root / "mav0" / name).mkdir(parents=True)
    cam, state = root / "mav0" / "cam0", root / "mav0" / "state_groundtruth_estimate0" / "data.csv"
    for i, t_ns in enumerate(T_NS.tolist()):
        cv2.imwrite(str(cam / "data" / f"{t_ns}.png"), picture(i)[:, :, ::-1])
    (cam / "data.csv").write_text(
        "#timestamp [ns],filename\n" + "".join(f"{t},{t}.png\r\n" for t in T_NS.tolist())
    )
    T_BS = ", ".join(map(repr, X_BC.homogeneous.ravel().tolist()))
    (cam / "sensor.yaml").write_text(
        f"T_BS:\n  cols: 4\n  rows: 4\n  data: [{T_BS}]\nresolution: [64, 48]\n"
        "intrinsics: [50.0, 51.0, 31.5, 23.5]\ndistortion_coefficients: [-0.2, 0.07, 0.0002, 1e-05]\n"
    )
    lines = [
        "#timestamp, p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], q_RS_y [], q_RS_z []"
    ]
    for t_ns, X in zip(T_NS.tolist(), WANTED, strict=True):
        X_WB = X * X_BC.inverse()
        q = xyzw(X_WB)
        lines.append(",".join(map(str, (t_ns, *X_WB.translation.tolist(), q[3], *q[:3], 0.0, 0.0))))
    state.write_text("\n".join(lines))
    imu = "".join(f"{t},0.1,0.2,0.3,0,0,9.81\n" for t in T_NS.tolist())
    (root / "mav0" / "imu0" / "data.csv").write_text("#timestamp [ns],w,w,w,a,a,a\n" + imu)
    return root


def test_eurocs_poses_are_of_the_body_with_w_first_and_become_the_cameras(tmp_path):
    found = read(parse(f"euroc:{euroc(tmp_path / 'MH')}"))
    same(found.poses)
    assert found.imu.w[0].tolist() == pytest.approx((X_BC.rotation.T @ [0.1, 0.2, 0.3]).tolist())
    assert found.info.camera["k1"] == -0.2
    assert (next(found.pictures()) == picture(0)).all()


def bag(path: Path) -> Path:
    from rosbags.rosbag1 import Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC)
    kinds = store.types
    Time, Header = kinds["builtin_interfaces/msg/Time"], kinds["std_msgs/msg/Header"]
    Vector, Quaternion = kinds["geometry_msgs/msg/Vector3"], kinds["geometry_msgs/msg/Quaternion"]

    def header(t_ns: int):
        return Header(seq=0, stamp=Time(sec=t_ns // S, nanosec=t_ns % S), frame_id="0")

    with Writer(path) as writer:
        image = writer.add_connection(
            "/device_0/sensor_1/Color_0/image/data", "sensor_msgs/msg/Image", typestore=store
        )
        pose = writer.add_connection(
            "/device_0/sensor_0/Pose_0/pose/transform/data", "geometry_msgs/msg/Transform", typestore=store
        )
        for i, (t_ns, X) in enumerate(zip(T_NS.tolist(), WANTED, strict=True)):
            shown = kinds["sensor_msgs/msg/Image"](
                header=header(t_ns), height=SIZE[0], width=SIZE[1], encoding="bgr8", is_bigendian=0,
                step=3 * SIZE[1], data=picture(i)[:, :, ::-1].reshape(-1).copy(),
            )  # fmt: skip
            writer.write(image, t_ns, store.serialize_ros1(shown, "sensor_msgs/msg/Image"))
            Y = in_arkit(X)
            x, y, z, w = xyzw(Y)
            moved = kinds["geometry_msgs/msg/Transform"](
                translation=Vector(*Y.translation.tolist()), rotation=Quaternion(x=x, y=y, z=z, w=w)
            )
            writer.write(pose, t_ns, store.serialize_ros1(moved, "geometry_msgs/msg/Transform"))
    return path


def test_a_realsense_bag_has_pictures_and_a_t265s_poses(tmp_path):
    found = read(parse(f"realsense:{bag(tmp_path / 'a.bag')}"))
    same(found.poses)
    assert (found.frames_ns == T_NS).all()
    assert (next(found.pictures()) == picture(0)).all()


BROKEN = {
    "a quaternion of length 2": lambda p: (tum(p / "a.txt"), "length"),
    "seven numbers": lambda p: ((p / "a.txt").write_text("1.0 0 0 0 0 0 1\n"), "line 1: expected 8 numbers"),
    "no number": lambda p: ((p / "a.txt").write_text("1.0 0 0 x 0 0 0 1\n"), "line 1: expected numbers"),
    "no time": lambda p: ((p / "a.txt").write_text("now 0 0 0 0 0 0 1\n"), "line 1: expected a time"),
    "a clock that falls": lambda p: (
        (p / "a.txt").write_text("2.0 0 0 0 0 0 0 1\n1.0 0 0 0 0 0 0 1\n"),
        "times have to rise",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_trajectory_that_cannot_be_is_named_with_file_and_line(tmp_path, name):
    _, said = BROKEN[name](tmp_path)
    if name.startswith("a quaternion"):
        path = tmp_path / "a.txt"
        path.write_text("1.0 0 0 0 1 1 1 1\n")
    video(tmp_path / "a.mp4")
    with pytest.raises(RobotRuntimeError, match=said) as refused:
        read(parse(f"video:{tmp_path}/a.mp4,trajectory={tmp_path}/a.txt"))
    assert str(tmp_path / "a.txt") in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"poses": [[0, 0, 0, 1, 0, 0, 0]]}, "as many images as poses"),
        ({"poses": None}, "has no poses|has shape"),
        ({"perFrameIntrinsicCoeffs": [[50 + i, 50, 32, 24] for i in range(N)]}, "lock the focus"),
    ],
)
def test_a_record3d_export_that_cannot_be_used_is_refused(tmp_path, changed, said):
    with pytest.raises(RobotRuntimeError, match=said):
        read(parse(f"record3d:{r3d(tmp_path / 'a.r3d', **changed)}"))


def test_no_zip_is_no_export_and_a_world_with_y_up_is_no_arias(tmp_path):
    (tmp_path / "a.r3d").write_text("hello")
    with pytest.raises(RobotRuntimeError, match="no export of Record3D"):
        read(parse(f"record3d:{tmp_path}/a.r3d"))
    with pytest.raises(RobotRuntimeError, match="expected a world with z up"):
        read(parse(f"aria:{aria(tmp_path / 'a.csv', gravity=(0.0, -9.81, 0.0))}"))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("chest.mp4", "takes KIND:FILE"),
        ("gopros:{}", "did you mean gopro"),
        ("gopro:{}.mp4", "there is no such file"),
        ("gopro:{},colour=red", "option of camera"),
        ("video:{},axes=enu", "unknown axes 'enu'"),
    ],
)
def test_a_source_that_is_typed_wrongly_is_refused_in_one_sentence(tmp_path, spec, said):
    (tmp_path / "a").write_text("")
    with pytest.raises(RobotRuntimeError, match=said):
        parse(spec.replace("{}", str(tmp_path / "a")))


def test_marks_are_seconds_from_the_beginning_and_wrong_ones_are_named(tmp_path):
    path = tmp_path / "marks.csv"
    path.write_text("what,begin_s,end_s\nsync,1.5,8\ndemonstration,20,31.25\ndiscard,35,40\n")
    whats = [(mark.what, (mark.t_ns - int(T_NS[0])) / S) for mark in read_marks(path, int(T_NS[0]))]
    assert whats[:4] == [("sync_begin", 1.5), ("sync_end", 8.0), ("begin", 20.0), ("end", 31.25)]
    path.write_text("what,begin_s,end_s\nsync,8,1.5\n")
    with pytest.raises(RobotRuntimeError, match="line 2: expected a begin before its end, got 8 and 1"):
        read_marks(path, 0)


@pytest.mark.parametrize("line", ["anchor,10000,24000", "anchor,8,12.5", "anchor,-5,8"])
def test_marks_outside_of_the_recording_are_refused(tmp_path, line):
    path = tmp_path / "marks.csv"
    path.write_text(f"what,begin_s,end_s\nsync,-0.5,10.5\n{line}\n")
    with pytest.raises(RobotRuntimeError, match=r"line 3: anchor .* the chest's recording, 0 to 10\.0 s"):
        read_marks(path, int(T_NS[0]), end_ns=int(T_NS[0]) + 10 * S)


def test_marks_that_overlap_are_refused_and_their_order_in_the_file_is_free(tmp_path):
    path = tmp_path / "marks.csv"
    path.write_text("what,begin_s,end_s\ndemonstration,10,20\nsync,0,11\ndemonstration,0,10\n")
    whats = [mark.what for mark in read_marks(path, 0) if "_" not in mark.what]
    assert whats == ["begin", "end", "begin", "end"]
    path.write_text("what,begin_s,end_s\ndemonstration,0,10\ndiscard,5,15\n")
    with pytest.raises(RobotRuntimeError, match="line 3: this discard overlaps that of line 2"):
        read_marks(path, 0)
    path.write_text("what,begin_s,end_s\ndemonstration,0,1e300\n")
    with pytest.raises(RobotRuntimeError, match="line 2: expected a begin before its end"):
        read_marks(path, 0)


def test_every_damaged_byte_of_an_export_is_said_and_never_a_crash(tmp_path):
    whole = r3d(tmp_path / "a.r3d").read_bytes()
    rng = np.random.default_rng(0)
    places = [*rng.integers(len(whole), size=60), *range(len(whole) - 60, len(whole), 3)]
    damaged = [whole[: int(i)] for i in rng.integers(len(whole), size=20)]
    damaged += [whole[: int(i)] + bytes([whole[i] ^ 0xFF]) + whole[int(i) + 1 :] for i in places]
    said = []
    for each in damaged:
        (tmp_path / "b.r3d").write_bytes(each)
        try:
            assert sum(1 for _ in read(parse(f"record3d:{tmp_path}/b.r3d")).pictures()) == N
        except RobotRuntimeError as error:
            said.append(str(error))
    assert len(said) > 40
    assert all("b.r3d" in each for each in said)


def test_a_zip_that_unpacks_to_more_than_any_export_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("calibration.capture.sources.record3d.MOST_PICTURE", 1 << 20)
    whole = r3d(tmp_path / "a.r3d")
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(tmp_path / "b.r3d", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) + b"\0" * (2 << 20) * (name == "rgbd/0.jpg"))
    with pytest.raises(RobotRuntimeError, match=r"0\.jpg unpacks to more than 1 MB"):
        read(parse(f"record3d:{tmp_path}/b.r3d"))


ODD = {
    "times of another century": ("trajectory", b"1e30 0 0 0 0 0 0 1\n", "line 1: expected a time in seconds"),
    "ns in place of seconds": (
        "trajectory",
        b"1700000000000000000 0 0 0 0 0 0 1\n",
        "expected a time in seconds, got '1700000000000000000', .* are the times in nanoseconds",
    ),
    "times beyond decimals": ("trajectory", b"1e9999999 0 0 0 0 0 0 1\n", "line 1: expected a time"),
    "a trajectory of bytes": ("trajectory", b"\xff\xfe", "text in UTF-8"),
    "stamps of bytes": ("stamps", b"\xff\xfe", "text in UTF-8"),
    "widths that are none": ("gripper", b"1,nan\n2,0.1\n", "widths of a gripper"),
    "a width too many": ("gripper", b"1.0 0.08 0.1\n", r"line 1: expected a time, .* got '1.0 0.08 0.1'"),
    "a pose of words": ("tcp", b'{"p": ["a", 2, 3], "q_wxyz": [1, 0, 0, 0]}', "a position and a unit"),
    "deep JSON": ("tcp", b"[" * 100_000, "not have the form"),
    "a camera with NaN": ("camera", b'{"kind": "camera", "version": 1, "content": NaN}', "finite numbers"),
}


def test_widths_are_read_with_commas_or_blanks_between(tmp_path):
    video(tmp_path / "a.mp4")
    for text in ("0.5,0.08\n1.25, 0.01\n", "# s m\n0.5 0.08\n\n1.25  0.01\n"):
        (tmp_path / "x").write_text(text)
        found = read(parse(f"video:{tmp_path}/a.mp4,gripper={tmp_path}/x")).widths
        np.testing.assert_array_equal(found.t_ns, [500_000_000, 1_250_000_000])
        np.testing.assert_array_equal(found.width_m, [0.08, 0.01])


@pytest.mark.parametrize("name", ODD)
def test_a_file_that_is_given_with_a_video_and_is_none_is_refused(tmp_path, name):
    option, text, said = ODD[name]
    video(tmp_path / "a.mp4")
    (tmp_path / "x").write_bytes(text)
    with pytest.raises(RobotRuntimeError, match=said):
        read(parse(f"video:{tmp_path}/a.mp4,{option}={tmp_path}/x"))


def test_an_import_that_fails_half_way_leaves_nothing(tmp_path, capsys):
    good, bad = r3d(tmp_path / "a.r3d"), tmp_path / "b.r3d"
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(bad, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"junk" if name == "rgbd/7.jpg" else old.read(name))
    command = ["capture", "import", "--output", str(tmp_path / "out"), "--chest", f"record3d:{bad}"]
    assert main(command) == 1
    assert "rgbd/7.jpg cannot be read" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.r3d", "b.r3d"]


def test_two_devices_become_a_capture_by_one_command_and_are_judged_at_once(tmp_path, capsys):
    video(tmp_path / "hand.mp4")
    tum(tmp_path / "hand.txt")
    (tmp_path / "marks.csv").write_text("what,begin_s,end_s\ndemonstration,0.05,0.3\n")
    command = [
        "capture", "import", "--output", str(tmp_path / "out"), "--task", "fetch the cup",
        "--chest", f"record3d:{r3d(tmp_path / 'chest.r3d')}", "--marks", str(tmp_path / "marks.csv"),
        "--hand", f"video:{tmp_path}/hand.mp4,trajectory={tmp_path}/hand.txt",
    ]  # fmt: skip
    assert main(command) == 1  # far too short to be of use
    said, to_do = capsys.readouterr()
    assert "too-short" in said
    assert "clocks-not-joined" in said
    assert f"not usable: it stays in {tmp_path / 'out'}." in to_do
    assert "with --shared-clock if one clock stamped all devices, into another --output; or delete" in to_do
    capture = RawCapture.open(tmp_path / "out")
    assert capture.is_closed
    same(capture.devices["chest"].poses)
    same(capture.devices["hand"].poses)
    assert capture.devices["chest"].num_pictures == N
    assert (tmp_path / "out" / "source" / "hand-hand.txt").read_text() == (tmp_path / "hand.txt").read_text()
    assert main(["capture", "check", str(tmp_path / "out")]) == 1


def test_an_import_that_cannot_be_used_names_no_clock_where_that_was_not_it(tmp_path, capsys):
    command = ["capture", "import", "--output", str(tmp_path / "out"), "--shared-clock"]
    assert main([*command, "--chest", f"record3d:{r3d(tmp_path / 'chest.r3d')}"]) == 1
    to_do = capsys.readouterr().err
    assert f"or delete {tmp_path / 'out'} first" in to_do
    assert "--shared-clock" not in to_do


def test_one_recording_is_not_taken_for_two_devices(tmp_path, capsys):
    path = r3d(tmp_path / "chest.r3d")
    command = ["capture", "import", "--output", str(tmp_path / "out"), "--chest", f"record3d:{path}"]
    assert main([*command, "--hand", f"record3d:{tmp_path}/../{tmp_path.name}/chest.r3d,up=z"]) == 1
    assert "--chest and --hand are one recording" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_a_recording_without_poses_is_refused(tmp_path):
    video(tmp_path / "a.mp4")
    recording = read(parse(f"video:{tmp_path}/a.mp4"))
    assert isinstance(recording, Recording)
    assert (
        main(["capture", "import", "--output", str(tmp_path / "o"), "--chest", f"video:{tmp_path}/a.mp4"])
        == 1
    )
