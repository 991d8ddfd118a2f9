"""The raw zone: what is written is read, to the last bit; what is cut is read up to the cut."""

import json

import numpy as np
import pinocchio as pin
import pytest

from calibration.capture import tables
from calibration.capture.raw import CaptureWriter, RawCapture, parts_of
from calibration.capture.values import DeviceInfo, Imu, Setup
from calibration.trajectory import OK, Trajectory
from robot_runtime.errors import InvalidValueError

MS = 1_000_000
SIZE = (48, 64)
SETUP = Setup(
    devices={
        "chest": DeviceInfo(kind="simulated", size=SIZE, fps=30.0, camera={"kind": "pinhole"}),
        "hand": DeviceInfo(kind="simulated", X_HE=pin.SE3(np.eye(3), np.array([0.0, 0.02, 0.2]))),
    },
    task="fetch the cup",
    board={"columns": 8, "rows": 5},
)
START_NS = 1_700_000_000_123_456_789


def rgb(i: int) -> np.ndarray:
    out = np.full((*SIZE, 3), 40, dtype=np.uint8)
    out[:, : 2 * i % SIZE[1]] = 200
    return out


def trajectory(n: int = 50, seed: int = 0) -> Trajectory:
    rng = np.random.default_rng(seed)
    X, poses = pin.SE3.Identity(), []
    for _ in range(n):
        X = X * pin.exp6(pin.Motion(rng.normal(0.0, 0.01, 3), rng.normal(0.0, 0.02, 3)))
        poses.append(X)
    return Trajectory.of(START_NS + np.arange(n) * 5 * MS, poses)


def written(path, *, num_pictures: int = 40, closed: bool = True) -> CaptureWriter:
    writer = CaptureWriter(path, SETUP, when="2026-11-26T10:00:00+00:00")
    for i in range(num_pictures):
        writer.picture("chest", START_NS + i * 33 * MS, rgb(i), exposure_ns=8 * MS)
    writer.poses("chest", trajectory())
    writer.poses("hand", trajectory(seed=1))
    writer.imu("hand", Imu(t_ns=np.arange(3) * MS, w=np.eye(3) / 3.0, a=np.full((3, 3), 9.81)))
    writer.width("hand", START_NS, 0.08)
    writer.tag("chest", START_NS, 3, np.arange(8.0).reshape(4, 2))
    writer.corners("chest", START_NS, 0, [0, 5], np.array([[1.25, 2.5], [3.0, 4.0]]))
    writer.glimpse("chest", START_NS, "cup", [0.1, 0.2, 0.3], 0.01)
    writer.mark(START_NS, "begin", "key")
    writer.mark(START_NS + 100 * MS, "end", "key")
    if closed:
        writer.close()
    return writer


def test_what_was_written_is_read_to_the_last_bit(tmp_path):
    written(tmp_path / "a")
    capture = RawCapture.open(tmp_path / "a")
    chest, hand = capture.devices["chest"], capture.devices["hand"]
    for device, seed in ((chest, 0), (hand, 1)):
        wanted = trajectory(seed=seed)
        assert (device.poses.t_ns == wanted.t_ns).all()
        assert (device.poses.p == wanted.p).all()
        assert np.abs(device.poses.q - wanted.q).max() < 1e-15  # normalised once more
        assert (device.poses.tracking == OK).all()
    assert chest.info.camera == {"kind": "pinhole"}
    assert capture.board == SETUP.board
    assert hand.info.X_HE.isApprox(SETUP.devices["hand"].X_HE)
    assert len(chest.frames) == chest.num_pictures == 40
    assert hand.imu.w[1, 1] == 1.0 / 3.0
    assert hand.gripper.width_m.tolist() == [0.08]
    assert chest.tags.corners[0, 3].tolist() == [6.0, 7.0]
    assert capture.corners["chest"].uv[0].tolist() == [1.25, 2.5]
    assert capture.glimpses.name.tolist() == ["cup"]
    assert [(d.begin_ns, d.end_ns) for d in capture.demonstrations()] == [(START_NS, START_NS + 100 * MS)]
    assert capture.is_closed
    assert not capture.cut
    assert capture.changed() == []


def test_pictures_are_found_by_their_number(tmp_path):
    written(tmp_path / "a")
    chest = RawCapture.open(tmp_path / "a").devices["chest"]
    found = list(chest.pictures(31, 35))
    assert [index for index, _, _ in found] == [31, 32, 33, 34]
    for index, t_ns, picture in found:
        assert t_ns == START_NS + index * 33 * MS
        assert np.abs(picture.astype(int) - rgb(index)).mean() < 4.0  # grey values lost in compression


def test_a_recording_that_was_killed_is_read_up_to_the_last_fragment(tmp_path):
    writer = written(tmp_path / "a", closed=False)  # never closed: as a killed process leaves it
    poses = tmp_path / "a" / "chest" / "poses.csv"
    poses.write_bytes(poses.read_bytes()[:-20])
    capture = RawCapture.open(tmp_path / "a")
    chest = capture.devices["chest"]
    assert not capture.is_closed
    assert len(chest.frames) == chest.num_pictures == len(list(chest.pictures()))
    assert 25 <= chest.num_pictures < 40  # of 40, at most a fragment of 15 is lost
    assert len(chest.poses) == 49
    assert sorted(chest.cut) == ["poses.csv", "video.mp4"]
    writer.close()


def test_a_second_recording_is_a_new_part_and_leaves_the_first_as_it_is(tmp_path):
    written(tmp_path / "a")
    second = written(tmp_path / "a", num_pictures=2)
    assert second.path == tmp_path / "a" / "part-2"
    assert parts_of(tmp_path / "a") == [tmp_path / "a", tmp_path / "a" / "part-2"]
    assert RawCapture.open(tmp_path / "a").changed() == []


def test_what_was_changed_afterwards_is_named(tmp_path):
    written(tmp_path / "a")
    (tmp_path / "a" / "hand" / "gripper.csv").write_text("t_ns,width_m\n5,0.5\n")
    (tmp_path / "a" / "marks.csv").unlink()
    (tmp_path / "a" / "derived").mkdir()
    (tmp_path / "a" / "derived" / "anything.json").write_text("{}")
    assert RawCapture.open(tmp_path / "a").changed() == [
        "hand/gripper.csv has been changed since it was recorded",
        "marks.csv is missing",
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("10,0,0,0,1,0,0,ok", "line 3: expected 9 values, got 8"),
        ("ten,0,0,0,1,0,0,0,ok", "line 3, column t_ns: expected a whole number, got 'ten'"),
        ("10.5,0,0,0,1,0,0,0,ok", "line 3, column t_ns: expected a whole number, got '10.5'"),
        ("10,nan,0,0,1,0,0,0,ok", "line 3, column px: expected a number, got nan"),
        ("10,0,0,0,1,0,0,0,good", "line 3, column tracking: expected ok, limited or lost, got 'good'"),
        ("4,0,0,0,1,0,0,0,ok", "line 3: expected times that rise, got 4 ns after 5 ns"),
        ("10,0,0,0,1,1,0,0,ok", "quaternion 1 is [1. 1. 0. 0.], of length 1.414: expected 1"),
    ],
)
def test_a_row_that_cannot_be_is_named_with_its_line(tmp_path, line, said):
    written(tmp_path / "a")
    path = tmp_path / "a" / "hand" / "poses.csv"
    header = path.read_text().split("\n")[0]
    path.write_text(f"{header}\n5,0,0,0,1,0,0,0,ok\n{line}\n")
    with pytest.raises(InvalidValueError) as refused:
        _ = RawCapture.open(tmp_path / "a").devices["hand"].poses
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"size": ["a", 1]},
        {"size": [48]},
        {"fps": "x"},
        {"fps": float("nan")},
        {"gripper": "laser"},
        {"camera": "../../board.json"},
        {"camera": "/etc/hostname"},
        {"pose_device_camera": {"place_m": [0, 0, 0], "quaternion_wxyz": [1, 0, 0]}},
        {"pose_device_camera": {"place_m": "abc", "quaternion_wxyz": [1, 0, 0, 0]}},
        {"pose_device_camera": {"place_m": [0, 0, 0], "quaternion_wxyz": [0, 0, 0, 0]}},
    ],
    ids=str,
)
def test_a_capture_that_says_nonsense_of_a_device_is_refused_in_one_sentence(tmp_path, changed):
    CaptureWriter(tmp_path / "a", SETUP).close()
    file = tmp_path / "a" / "capture.json"
    said = json.loads(file.read_text())
    said["devices"]["chest"].update(changed)
    file.write_text(json.dumps(said))
    with pytest.raises(InvalidValueError, match=r"capture\.json"):
        RawCapture.open(tmp_path / "a")


def test_a_folder_that_is_no_part_is_left_alone_and_deep_json_is_no_capture(tmp_path):
    CaptureWriter(tmp_path / "a", SETUP).close()
    CaptureWriter(tmp_path / "a" / "part-old", SETUP).close()
    assert parts_of(tmp_path / "a") == [tmp_path / "a"]
    (tmp_path / "a" / "capture.json").write_text("[" * 100_000)
    with pytest.raises(InvalidValueError, match="cannot be read as JSON"):
        RawCapture.open(tmp_path / "a")


def test_nothing_is_written_that_cannot_be_read_back(tmp_path):
    with CaptureWriter(tmp_path / "a", SETUP) as writer:
        for act in (
            lambda: writer.width("hand", START_NS, float("nan")),
            lambda: writer.imu("hand", Imu(t_ns=np.arange(1), w=np.full((1, 3), np.nan), a=np.ones((1, 3)))),
            lambda: writer.glimpse("chest", START_NS, "cup", [0.0, np.inf, 0.0], 0.01),
        ):
            with pytest.raises(InvalidValueError, match="finite"):
                act()


def test_what_is_to_be_whole_is_there_whole_or_not_at_all(tmp_path):
    def fails() -> None:
        with CaptureWriter(tmp_path / "a", SETUP, is_whole=True) as writer:
            writer.width("hand", START_NS, 0.05)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert not list(tmp_path.iterdir())
    for wanted in (tmp_path / "a", tmp_path / "a" / "part-2"):
        with CaptureWriter(tmp_path / "a", SETUP, is_whole=True) as writer:
            writer.width("hand", START_NS, 0.05)
        assert writer.path == wanted
        assert RawCapture.open(wanted).changed() == []
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_files_of_one_name_are_kept_both(tmp_path):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "poses.txt").write_text(name)
    with CaptureWriter(tmp_path / "a", SETUP) as writer:
        for name in ("x", "y"):
            writer.keep(tmp_path / name / "poses.txt", "chest-poses.txt")
    kept = sorted((tmp_path / "a" / "source").iterdir())
    assert [path.read_text() for path in kept] == ["y", "x"]


def test_a_long_table_is_read_in_blocks_and_its_lines_keep_their_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_BLOCK", 10)
    path = tmp_path / "gripper.csv"
    rows = [f"{i},{i / 8}" for i in range(35)]
    path.write_text("\n".join([tables.GRIPPER.header, *rows, ""]))
    assert tables.read(path, tables.GRIPPER).columns["width_m"].tolist() == [i / 8 for i in range(35)]
    path.write_text("\n".join([tables.GRIPPER.header, *rows[:23], "23,wide", ""]))
    with pytest.raises(InvalidValueError, match="line 25, column width_m: expected a number"):
        tables.read(path, tables.GRIPPER)
