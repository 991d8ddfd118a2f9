"""Demonstrations as a LeRobot dataset, written and read back."""

import contextlib
import json
import os
import resource
import shutil
from dataclasses import replace

import numpy as np
import pinocchio as pin
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from robot_runtime.core.values.action import (
    BasePoseCommand,
    Command,
    GripperCommand,
    JointCommand,
    PoseCommand,
)
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.dataset.pace import Pace
from robot_runtime.dataset.recorder import DatasetRecorder
from robot_runtime.dataset.recording import Recording
from robot_runtime.dataset.staged_episode import RecordingFailedError
from robot_runtime.errors import InvalidValueError
from sim.tasks.household import mobile_schema
from tests.examples import examples

pytest.importorskip("datasets", reason="writes LeRobot datasets")
SIZE = (48, 64)
SCHEMA = replace(mobile_schema(("a", "b")), cameras={"chest": SIZE})
RECORDING = Recording(schema=SCHEMA, extra={"label": (2, 3)})
DOWN = PoseCommand(p_BE=np.array([0.5, 0.1, 0.8]), quat_BE=np.array([0.0, 1.0, 0.0, 0.0]))


def observation(k: int) -> Observation:
    state = RobotState(
        t_ns=10**15 + 50_000_001 * k,
        q=np.arange(7) + 0.1 * k,
        dq=np.zeros(7),
        X_BE=pin.SE3(np.eye(3), np.array([0.1 * k, 0.0, 0.8])),
        gripper_width=0.04,
        x_WB=np.array([k, 2.0, 0.3], float),
        V_WB_B=np.array([0.1, 0.2, 0.3]),
    )
    pixels = np.full((*SIZE, 3), (20 * k, 100, 200), np.uint8)
    image = Image(t_ns=10**15 + 50_000_001 * k - 7, pixels=pixels)
    return Observation(
        state=state, images={"chest": image}, environment_state=np.array([k, -k], float), task="do it"
    )


def command(k: int) -> Command:
    base = BasePoseCommand(x_WB=np.array([k, 0.0, 0.1], float))
    return Command(arm=DOWN, base=base, gripper=GripperCommand(width=0.03))


def label(k: int) -> dict[str, np.ndarray]:
    return {"label": np.full((2, 3), k)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two episodes of 12 and 5 frames, with one between them that was dropped."""
    out = tmp_path_factory.mktemp("recorded") / "dataset"
    with DatasetRecorder(out, RECORDING) as recorder:
        for num_frames, keep in ((12, True), (7, False), (5, True)):
            for k in range(num_frames):
                recorder.add(observation(k), command(k), label(k))
            recorder.end_episode(keep=keep)
        recorder.add(observation(0), command(0), label(0))
        assert recorder.num_episodes == 2
    return out


def test_what_is_recorded_is_read_back(folder):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset = LeRobotDataset(folder.name, root=folder)
    assert (dataset.num_episodes, dataset.num_frames, dataset.fps) == (2, 17, 20)
    for i, k in ((3, 3), (12, 0), (16, 4)):
        frame, seen = dataset[i], observation(k)
        assert frame["task"] == "do it"
        assert int(frame["capture.time_ns.state"]) == seen.t_obs_ns
        assert int(frame["capture.time_ns.chest"]) == seen.images["chest"].t_ns
        np.testing.assert_allclose(frame["observation.environment_state"], [k, -k])
        np.testing.assert_allclose(frame["observation.pose_world_base"], [k, 2.0, 0.3])
        np.testing.assert_allclose(frame["label"], label(k)["label"])
        names = dataset.features["observation.state"]["names"]
        state = dict(zip(names, frame["observation.state"].tolist(), strict=True))
        assert state["arm.joint_7"] == pytest.approx(6 + 0.1 * k)
        assert state["arm.x"] == pytest.approx(0.1 * k)
        assert state["base.wz"] == pytest.approx(0.3)
        action = dict(zip(dataset.features["action"]["names"], frame["action"].tolist(), strict=True))
        assert [action[name] for name in ("base.x", "arm.z", "gripper.width")] == pytest.approx(
            [k, 0.8, 0.03]
        )
        assert action["arm.r5"] == pytest.approx(-1.0)
        picture = frame["observation.images.chest"].numpy().transpose(1, 2, 0) * 255
        np.testing.assert_allclose(picture.mean(axis=(0, 1)), [20 * k, 100, 200], atol=6)


def test_every_camera_has_as_many_pictures_as_there_are_frames(folder):
    av = pytest.importorskip("av")
    counts = []
    for video in sorted((folder / "videos").rglob("*.mp4")):
        with av.open(str(video)) as file:
            counts.append(sum(1 for _ in file.decode(video=0)))
    assert counts == [12, 5]


def test_a_folder_that_is_there_is_not_written_into(tmp_path):
    with pytest.raises(InvalidValueError, match="a folder of its own"):
        DatasetRecorder(tmp_path, RECORDING)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": {}}, "no image of camera 'chest' to record, there are none"),
        (
            {"images": {"chest": Image(t_ns=0, pixels=np.zeros((4, 4, 3), np.uint8))}},
            r"camera 'chest' is recorded at \(48, 64, 3\), got \(4, 4, 3\)",
        ),
        (
            {"environment_state": np.zeros(3)},
            r"the environment state is recorded with shape \(2,\), got \(3,\)",
        ),
        (
            {"state": replace(observation(0).state, X_BE=None)},
            r"has arm\.x, .*not have; declare an arm without",
        ),
        ({"state": replace(observation(0).state, x_WB=None)}, r"has base\.x, base\.y, base\.yaw, which"),
        ({"state": replace(observation(0).state, gripper_width=None)}, r"has gripper\.width, which"),
        ({"state": replace(observation(0).state, q=np.zeros(6), dq=np.zeros(6))}, "'arm' has 6 joints, the"),
    ],
)
def test_a_frame_that_lacks_something_is_refused_by_name_and_nothing_is_lost(tmp_path, change, message):
    with DatasetRecorder(tmp_path / "dataset", RECORDING) as recorder:
        recorder.add(observation(0), command(0), label(0))
        with pytest.raises(InvalidValueError, match=message):
            recorder.add(structs.replace(observation(1), **change), command(1), label(1))
        with pytest.raises(InvalidValueError, match="declares 'label', the frame has none"):
            recorder.add(observation(1), command(1))
        recorder.add(observation(1), command(1), label(1))
        recorder.end_episode(keep=True)
        assert recorder.num_episodes == 1


def test_an_arm_on_a_table_is_recorded_by_its_joints(tmp_path):
    schema = Schema(action_fields=(), num_joints=7, has_gripper=True, has_base=False)
    with DatasetRecorder(tmp_path / "dataset", Recording(schema=schema)) as recorder:
        for k in range(3):
            joints = Command(arm=JointCommand(q=np.arange(7.0)), gripper=GripperCommand(width=0.01))
            recorder.add(observation(k), joints)
        recorder.end_episode(keep=True)
    info = json.loads((tmp_path / "dataset/meta/info.json").read_text())
    assert info["features"]["action"]["names"] == [*(f"arm.joint_{i + 1}" for i in range(7)), "gripper.width"]


def recorded(folder, num_frames=4, *, num_episodes=1, **options):
    """Episodes written into a folder, and how many are in it then."""
    with DatasetRecorder(folder, RECORDING, **options) as recorder:
        for _ in range(num_episodes):
            for k in range(num_frames):
                recorder.add(observation(k), command(k), label(k))
            recorder.end_episode(keep=True, notes={"number": recorder.num_episodes})
        return recorder.num_episodes


def contents(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Killed(BaseException):
    """As `kill -9`."""


def read(folder):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset = LeRobotDataset(folder.name, root=folder, video_backend="pyav")
    return dataset, [dataset[i] for i in range(dataset.num_frames)]


def test_a_dataset_is_gone_on_with_and_is_then_the_same_as_one_that_was_never_left(tmp_path):
    assert recorded(tmp_path / "parts") == 1
    assert recorded(tmp_path / "parts", resume=True, num_episodes=2) == 3
    assert recorded(tmp_path / "whole", num_episodes=3) == 3
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    dataset, frames = read(tmp_path / "parts")
    assert [int(frame["index"]) for frame in frames] == list(range(12))
    assert [int(frame["episode_index"]) for frame in frames] == [0] * 4 + [1] * 4 + [2] * 4
    assert dataset.meta.stats["index"]["max"].tolist() == [11]
    assert dataset.meta.stats["episode_index"]["mean"].tolist() == [1.0]
    with DatasetRecorder(tmp_path / "parts", RECORDING, resume=True) as recorder:
        assert recorder.notes("number") == [0, 1, 2]
        assert recorder.leftovers == []


@pytest.fixture(scope="module")
def two_and_three_episodes(tmp_path_factory):
    """Recordings that nothing interrupted."""
    folders = [tmp_path_factory.mktemp("whole") / name for name in ("two", "three")]
    for num_episodes, folder in enumerate(folders, start=2):
        recorded(folder, num_episodes=num_episodes)
    return folders


@pytest.mark.long
@pytest.mark.parametrize("task", ["", "another one"])
@pytest.mark.parametrize("published", range(6))
def test_a_recording_that_ends_while_an_episode_gets_its_names_leaves_those_before_it(
    tmp_path, monkeypatch, two_and_three_episodes, published, task
):
    """However many of its files have names: stock LeRobot reads two episodes, the next run clears up."""
    two, three = two_and_three_episodes
    folder = shutil.copytree(two, tmp_path / "dataset")
    real, count = os.replace, 0

    def replace_some(source, target):
        nonlocal count
        if count == published:
            raise Killed
        count += 1
        real(source, target)

    recorder = DatasetRecorder(folder, RECORDING, resume=True)
    for k in range(4):
        seen = observation(k)
        recorder.add(structs.replace(seen, task=task or seen.task), command(k), label(k))
    monkeypatch.setattr(os, "replace", replace_some)
    with contextlib.suppress(Killed):
        recorder.end_episode(keep=True, notes={"number": 2})
    monkeypatch.undo()
    os.close(recorder._folder._lock)  # nothing else is done: a kill clears nothing up
    dataset, frames = read(folder)
    numbers = [pq.read_table(path) for path in folder.glob("data/*/*.parquet")]
    named = pq.read_table(folder / "meta/tasks.parquet").num_rows
    assert all(max(table["task_index"].to_pylist()) < named for table in numbers)
    assert (dataset.num_episodes, len(frames)) == (2, 8)
    with DatasetRecorder(folder, RECORDING, resume=True) as recorder:
        assert recorder.leftovers[-1] == ".unfinished"
        # What is replaced has no leftovers: tasks; then video, numbers, episode; then what is replaced.
        assert len(recorder.leftovers) == 1 + min(max(published - 1, 0), 3)
    assert recorded(folder, resume=True) == 3
    assert contents(folder) == contents(three)


def test_two_processes_do_not_write_into_one_dataset(tmp_path):
    with (
        DatasetRecorder(tmp_path / "dataset", RECORDING),
        pytest.raises(InvalidValueError, match="another process is writing into"),
    ):
        DatasetRecorder(tmp_path / "dataset", RECORDING, resume=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fps": 30}, "is of 'robot' at 20 frames a second, the recording of 'robot' at 30"),
        ({"robot_type": "other"}, "is of 'robot' at 20 frames a second, the recording of 'other' at 20"),
        ({"extra": {}}, "only the dataset has a column 'label'"),
        ({"extra": {"label": (3, 2)}}, r"column 'label' is float32 \(2, 3\) in .*, float32 \(3, 2\) in the"),
        ({"schema": replace(SCHEMA, cameras={})}, "only the dataset has a column 'capture.time_ns.chest'"),
    ],
)
def test_a_dataset_of_other_columns_is_not_gone_on_with(folder, change, message):
    with pytest.raises(InvalidValueError, match=message):
        DatasetRecorder(folder, replace(RECORDING, **change), resume=True)


def test_other_actions_than_the_datasets_are_refused_by_name(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "dataset")
    joints = Command(arm=JointCommand(q=np.arange(7.0)), gripper=GripperCommand(width=0.01))
    with (
        DatasetRecorder(tmp_path / "dataset", RECORDING, resume=True) as recorder,
        pytest.raises(
            InvalidValueError, match=r"only the dataset has .*base\.yaw; only the recording has arm\.joint_1"
        ),
    ):
        recorder.add(observation(0), joints, label(0))


def test_a_folder_that_is_no_dataset_or_a_damaged_one_is_left_as_it_is(folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("x")
    with pytest.raises(InvalidValueError, match="is no LeRobot dataset to go on with"):
        DatasetRecorder(tmp_path / "mine", RECORDING, resume=True)
    assert (tmp_path / "mine" / "notes.txt").exists()
    shutil.copytree(folder, tmp_path / "damaged")
    (tmp_path / "damaged/data/chunk-000/file-000.parquet").write_bytes(b"PAR1 without a footer")
    with pytest.raises(InvalidValueError, match="is damaged"):
        DatasetRecorder(tmp_path / "damaged", RECORDING, resume=True)
    assert (tmp_path / "damaged/data/chunk-000/file-001.parquet").exists()


@pytest.mark.parametrize(
    ("cameras", "message"),
    [
        ({"chest": (47, 64)}, "even numbers of pixels, camera 'chest' has 47 x 64"),
        ({"chest": (48, 63)}, "48 x 63"),
        ({"chest/left": (48, 64)}, "no / in their names"),
    ],
)
def test_a_camera_that_no_video_can_hold_is_refused_before_anything_is_recorded(cameras, message):
    with pytest.raises(InvalidValueError, match=message):
        Recording(schema=replace(SCHEMA, cameras=cameras))
    with pytest.raises(InvalidValueError, match="at least one frame a second, got 0"):
        Recording(schema=SCHEMA, fps=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_episodes": 0, "total_frames": 0}, "belongs to none of the 0 episodes"),
        ({"total_episodes": -1}, "total_episodes in .* is a whole number from 0, got -1"),
        ({"total_episodes": 7}, "counts 7 episodes, meta/episodes has 2 of them"),
        ({"total_frames": 3}, "counts 3 frames, its episodes have 17"),
        ({"total_frames": None}, "total_frames in .* got None"),
        ({"chunks_size": 0}, "chunks_size"),
        ({"fps": "20"}, "fps in .* is a number, got '20'"),
        ({"features": None}, "is damaged"),
        ({"features": {"action": {}}}, "column 'action' in .* has no type"),
        (["fps"], "there is no 'fps'"),
        (["features"], "there is no 'features'"),
        (None, "belongs to none of the 0 episodes"),
    ],
)
def test_no_episode_is_removed_because_the_account_of_them_is_wrong(folder, tmp_path, changes, message):
    root = tmp_path / "dataset"
    shutil.copytree(folder, root)
    (root / ".unfinished").mkdir()  # as a kill leaves it
    path = root / "meta/info.json"
    match changes:
        case dict():
            path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        case list():
            path.write_text(
                json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k not in changes})
            )
        case None:
            path.unlink()
    before = sorted(root.rglob("*"))
    with pytest.raises(InvalidValueError, match=message):
        DatasetRecorder(root, RECORDING, resume=True)
    assert sorted(root.rglob("*")) == before


def stamped(k: int, t_ns: int) -> Observation:
    frame = observation(k)
    images = {"chest": structs.replace(frame.images["chest"], t_ns=t_ns - 1)}
    return structs.replace(frame, state=replace(frame.state, t_ns=t_ns), images=images)


def take_all(frames: list[Observation]) -> None:
    pace = Pace(RECORDING.fps, SCHEMA.cameras)
    for frame in frames:
        pace.check(frame)
        pace.took(frame)


@given(
    rate=st.sampled_from([10, 30, 40, 60]),
    jitter=st.lists(st.integers(-5_000_000, 5_000_000), min_size=12, max_size=12),
)
@examples(25)
def test_frames_at_another_rate_than_the_datasets_are_refused_before_the_fourth(rate, jitter):
    frames = [stamped(k, 10**15 + k * 10**9 // rate + jitter[k] // 4) for k in range(4)]
    with pytest.raises(InvalidValueError, match="recorded at 20 a second"):
        take_all(frames)


@given(st.lists(st.integers(-10_000_000, 10_000_000), min_size=2, max_size=60), st.integers(-4_000, 4_000))
@examples(50)
def test_frames_that_come_at_the_datasets_rate_with_jitter_and_another_crystal_are_taken(jitter, drift_ppm):
    times = [k * 50_000_000 * (10**6 + drift_ppm) // 10**6 + off for k, off in enumerate(jitter)]
    take_all([stamped(k, 10**15 + t) for k, t in enumerate(times)])


@pytest.mark.parametrize(
    ("gap_ns", "message"),
    [
        (0, r"comes 0\.00 periods after"),
        (-50_000_000, r"(comes -1\.00 periods after|go back)"),
        (100_000_000, r"comes 2\.00 periods after"),
    ],
)
def test_a_stamp_that_goes_back_or_leaves_a_gap_is_refused_and_the_episode_goes_on(tmp_path, gap_ns, message):
    with DatasetRecorder(tmp_path / "dataset", RECORDING) as recorder:
        recorder.add(stamped(0, 10**15), command(0), label(0))
        with pytest.raises(InvalidValueError, match=message):
            recorder.add(stamped(1, 10**15 + gap_ns), command(1), label(1))
        recorder.add(stamped(1, 10**15 + 50_000_000), command(1), label(1))
        recorder.end_episode(keep=True)
    assert read(tmp_path / "dataset")[0].num_frames == 2


@pytest.mark.parametrize(
    ("t_ns", "message"),
    [
        (-(10**9), "was taken 1.050 s before the frame"),
        (10**9, "was taken -0.950 s before"),
        (-100, "go back"),
    ],
)
def test_a_picture_of_another_time_is_refused(tmp_path, t_ns, message):
    with DatasetRecorder(tmp_path / "dataset", RECORDING) as recorder:
        recorder.add(stamped(0, 10**15), command(0), label(0))
        frame = stamped(1, 10**15 + 50_000_000)
        image = structs.replace(frame.images["chest"], t_ns=10**15 + t_ns)
        with pytest.raises(InvalidValueError, match=message):
            recorder.add(structs.replace(frame, images={"chest": image}), command(1), label(1))


@pytest.mark.parametrize("what", ["q", "environment", "command", "label"])
def test_nothing_that_is_not_a_number_is_recorded(tmp_path, what):
    frame, sent, labels = observation(1), command(1), label(1)
    match what:
        case "q":
            frame = structs.replace(frame, state=replace(frame.state, q=np.full(7, np.nan)))
        case "environment":
            frame = structs.replace(frame, environment_state=np.array([np.inf, 0.0]))
        case "command":
            sent = Command(arm=DOWN, base=sent.base, gripper=GripperCommand(width=float("nan")))
        case "label":
            labels = {"label": np.full((2, 3), np.inf)}
    with DatasetRecorder(tmp_path / "dataset", RECORDING) as recorder:
        recorder.add(observation(0), command(0), label(0))
        with pytest.raises(InvalidValueError, match="NaN or infinite"):
            recorder.add(frame, sent, labels)
        recorder.end_episode(keep=True)
        assert recorder.num_episodes == 1


def test_a_disk_that_is_full_ends_the_recording_with_a_sentence_and_loses_nothing(tmp_path):
    """Files may not grow beyond 60 kB, as on a disk that is full: pictures of noise are larger."""
    folder = tmp_path / "dataset"
    recorded(folder, num_episodes=2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    noise = np.random.default_rng(0).integers(0, 256, (*SIZE, 3)).astype(np.uint8)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
        with DatasetRecorder(folder, RECORDING, resume=True) as recorder:
            for k in range(40):
                image = Image(t_ns=observation(k).images["chest"].t_ns, pixels=np.roll(noise, k, axis=1))
                frame = structs.replace(observation(k), images={"chest": image})
                recorder.add(frame, command(k), label(k))
            with pytest.raises(RecordingFailedError, match=r"episode 2 cannot be written .* the 2 before it"):
                recorder.end_episode(keep=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    dataset, frames = read(folder)
    assert (dataset.num_episodes, len(frames)) == (2, 8)
    assert recorded(folder, resume=True) == 3


def test_a_frame_with_other_actions_than_the_first_is_refused_by_name_and_the_episode_goes_on(tmp_path):
    with DatasetRecorder(tmp_path / "dataset", RECORDING) as recorder:
        recorder.add(observation(0), command(0), label(0))
        with pytest.raises(InvalidValueError, match=r"only the dataset has base\.x, .*gripper\.width"):
            recorder.add(observation(1), Command(arm=DOWN), label(1))
        recorder.add(observation(1), command(1), label(1))
        recorder.end_episode(keep=True)
        assert recorder.num_episodes == 1
