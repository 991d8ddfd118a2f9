"""Each fault of a dataset is found where it is, and nothing else is."""

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from policies.lerobot.data import load_dataset
from policies.lerobot.describe import Declared, Numbers
from robot_runtime.dataset.check.dataset import Robot, check_dataset
from robot_runtime.dataset.check.episode import Bounds, Span
from robot_runtime.dataset.check.episode import Numbers as Episode
from robot_runtime.dataset.check.finding import Report
from robot_runtime.dataset.check.numbers import jumps
from robot_runtime.dataset.dataset_folder import DatasetFolder
from robot_runtime.dataset.stored import StoredDataset, StoredEpisode
from robot_runtime.dataset.video import VideoWriter
from robot_runtime.errors import InvalidValueError
from tests.dataset.conftest import (
    EPISODES,
    FPS,
    FRAMES,
    NAMES,
    SIZE,
    change_data,
    change_episodes,
    change_json,
    picture,
)

STATE, ACTION = "observation.state", "action"
BAD = 1
"""Episode in which the fault is."""
ROWS = slice(BAD * FRAMES, (BAD + 1) * FRAMES)


def report_of(root: Path, robot: Robot | None = None) -> Report:
    return check_dataset(StoredDataset(root), robot or Robot())


def faults(report: Report) -> dict[int, set[tuple[str, str]]]:
    """Episode -> its faults; -1 stands for the whole dataset."""
    out = {v.episode: {(f.check, f.severity.name) for f in v.findings} for v in report.verdicts}
    out[-1] = {(f.check, f.severity.name) for f in report.findings}
    return {episode: found for episode, found in out.items() if found}


def only(check: str, severity: str) -> dict[int, set[tuple[str, str]]]:
    return {BAD: {(check, severity)}}


def test_nothing_is_wrong_with_a_strangers_dataset(stranger):
    report = report_of(stranger)
    assert faults(report) == {}
    assert report.is_usable
    assert report.episodes("good") == [0, 1, 2, 3]


def spike(c):
    c[STATE][ROWS.start + 20, 0] += 60.0


def step(c):
    c[STATE][ROWS.start + 20 : ROWS.stop, 1] += 34.0


def nan(c):
    c[ACTION][ROWS.start + 7, 2] = np.nan


def turned_gripper(c):
    c[ACTION][ROWS, 3] = 90.0 - c[ACTION][ROWS, 3]


def dead_encoder(c):
    c[STATE][ROWS, 2] = 3.0


def late_action(c):
    c[ACTION][ROWS, :3] = np.roll(c[STATE][ROWS, :3], 4, axis=0)
    c[ACTION][ROWS.start : ROWS.start + 4, :3] = c[STATE][ROWS.start, :3]


def slow_state(c):
    c[ACTION][ROWS, :3] = np.roll(c[STATE][ROWS, :3], -14, axis=0)
    c[ACTION][ROWS.stop - 14 : ROWS.stop, :3] = c[STATE][ROWS.stop - 1, :3]


def wrapped(c):
    c[STATE][:, :3] /= 40.0
    c[ACTION][:, :3] /= 40.0
    c[STATE][:, 0] *= 3.0
    c[ACTION][:, 0] *= 3.0
    c[STATE][ROWS.start + 30 : ROWS.stop, 0] += 2 * np.pi
    c[ACTION][ROWS.start + 30 : ROWS.stop, 0] += 2 * np.pi


def off_the_grid(c):
    c["timestamp"][ROWS.start + 5 :] = c["timestamp"][ROWS.start + 5 :]
    c["timestamp"][ROWS.start + 5] += 0.01


def counted_twice(c):
    c["frame_index"][ROWS.start + 5] = 4


def gap_in_index(c):
    c["index"][ROWS] += 1


def no_task(c):
    c["task_index"][ROWS] = 7


@pytest.mark.parametrize(
    ("change", "check", "severity"),
    [
        (spike, "jump", "UNUSABLE"),
        (step, "jump", "DOUBTFUL"),
        (nan, "finite", "UNUSABLE"),
        (turned_gripper, "gripper", "UNUSABLE"),
        (dead_encoder, "dead", "UNUSABLE"),
        (late_action, "lag", "DOUBTFUL"),
        (slow_state, "lag", "DOUBTFUL"),
        (wrapped, "jump", "DOUBTFUL"),
        (off_the_grid, "time", "UNUSABLE"),
        (counted_twice, "rows", "UNUSABLE"),
        (gap_in_index, "index", "UNUSABLE"),
        (no_task, "task", "UNUSABLE"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_fault_of_the_numbers_is_found_in_its_episode_and_no_other_is(copied, change, check, severity):
    change_data(copied, change)
    report = report_of(copied)
    assert faults(report) == only(check, severity)
    assert report.is_usable == (severity != "UNUSABLE")


def clocks(c, *, age_ms: float = 20.0):
    """Capture times as our recordings have them, columns (1,) of int64."""
    t = 10**15 + (c["index"] * (10**9 // FPS)).astype(np.int64)
    c["capture.time_ns.state"] = t
    c["capture.time_ns.top"] = t - int(age_ms * 1e6)


def hidden_gap(c):
    clocks(c)
    for name in ("capture.time_ns.state", "capture.time_ns.top"):
        c[name][ROWS.start + 30 :] += 400_000_000


def another_rate(c):
    clocks(c)
    for name in ("capture.time_ns.state", "capture.time_ns.top"):
        c[name][ROWS] = c[name][ROWS.start] + (c[name][ROWS] - c[name][ROWS.start]) * 12 // 10


def late_camera(c):
    clocks(c)
    c["capture.time_ns.top"][ROWS] -= 700_000_000


def camera_that_stands(c):
    clocks(c)
    c["capture.time_ns.top"][ROWS.start + 20 : ROWS.start + 26] = c["capture.time_ns.top"][ROWS.start + 20]


def camera_that_goes_back(c):
    clocks(c)
    c["capture.time_ns.top"][ROWS.start + 20] -= 90_000_000


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        (clocks, None),
        (hidden_gap, "DOUBTFUL"),
        (another_rate, "DOUBTFUL"),
        (late_camera, "UNUSABLE"),
        (camera_that_stands, "DOUBTFUL"),
        (camera_that_goes_back, "UNUSABLE"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_times_that_are_no_good_are_found(copied, change, severity):
    change_data(copied, change)

    def declare(info):
        for name in ("state", "top"):
            info["features"][f"capture.time_ns.{name}"] = {"dtype": "int64", "shape": [1], "names": None}

    change_json(copied / "meta/info.json", declare)
    assert faults(report_of(copied)) == ({} if severity is None else only("stale", severity))


def video(root: Path, pictures: list[np.ndarray]) -> None:
    import av

    [path] = (root / "videos").glob("*/*/*.mp4")
    with VideoWriter(path, FPS, SIZE) as writer:
        for pixels in pictures:
            writer.add(av.VideoFrame.from_ndarray(pixels, format="rgb24"))


def pictures() -> list[list[np.ndarray]]:
    return [[picture(episode, k) for k in range(FRAMES)] for episode in range(EPISODES)]


def test_a_camera_that_stands_still_while_the_robot_moves_is_found(copied):
    shown = pictures()
    shown[BAD][20:50] = [shown[BAD][20]] * 30
    video(copied, [*chain(*shown)])
    report = report_of(copied)
    assert faults(report) == only("frozen", "UNUSABLE")
    assert "is frozen for 1.4" in report.verdicts[BAD].reason or "1.5" in report.verdicts[BAD].reason


def test_a_camera_that_stands_still_before_a_robot_that_does_is_none_to_be_told_of(copied):
    shown = pictures()
    shown[BAD] = [shown[BAD][20]] * FRAMES
    video(copied, [*chain(*shown)])

    def stand(c):
        for column in (STATE, ACTION):
            c[column][ROWS] = c[column][ROWS.start]

    change_data(copied, stand)
    assert faults(report_of(copied)) == {}


def test_pictures_are_counted(copied):
    video(copied, [*chain(*pictures())][:-2])
    report = report_of(copied)
    assert faults(report) == {EPISODES - 1: {("pictures", "UNUSABLE")}}
    assert "58 images for 60 rows" in report.verdicts[-1].reason


def test_black_pictures_are_found(copied):
    shown = pictures()
    shown[BAD] = [np.full((*SIZE, 3), 5 + k % 2, np.uint8) for k in range(FRAMES)]
    video(copied, [*chain(*shown)])
    assert ("plain", "DOUBTFUL") in faults(report_of(copied))[BAD]


@pytest.mark.parametrize("damage", ["gone", "garbage"])
@pytest.mark.parametrize("kind", ["data", "videos"])
def test_files_that_are_gone_or_no_files_of_that_kind_are_named(copied, damage, kind):
    [path] = (path for path in (copied / kind).rglob("*") if path.is_file())
    path.unlink()
    if damage == "garbage":
        path.write_bytes(bytes(range(256)) * 10)
    report = report_of(copied)
    assert not report.is_usable
    assert all("file-000" in verdict.reason for verdict in report.verdicts)


def test_an_empty_task_is_found(copied):
    path = copied / "meta/tasks.parquet"
    tasks = pq.read_table(path).to_pandas()
    tasks.index = ["" if text == "fold the cloth" else text for text in tasks.index]
    tasks.to_parquet(path)
    assert faults(report_of(copied)) == {1: {("task", "DOUBTFUL")}, 3: {("task", "DOUBTFUL")}}


def test_a_tiny_episode_is_found(copied):
    def cut(c):
        keep = np.r_[0 : ROWS.start + 12, ROWS.stop : len(c["index"])]
        for name in c:
            c[name] = c[name][keep]
        c["index"] = np.arange(len(keep))

    def tell(rows):
        starts = np.cumsum([0, 60, 12, 60, 60])
        for row, start, end in zip(rows, starts, starts[1:], strict=False):
            row["dataset_from_index"], row["dataset_to_index"] = int(start), int(end)
            row["length"] = int(end - start)
        name = "videos/observation.images.top/to_timestamp"
        rows[BAD][name] = rows[BAD][name.replace("to_", "from_")] + 12 / FPS

    change_data(copied, cut)
    change_episodes(copied, tell)
    change_json(copied / "meta/info.json", lambda info: info.update(total_frames=192))
    assert faults(report_of(copied)) == only("tiny", "DOUBTFUL")


def test_statistics_that_are_of_other_data_are_found(copied):
    def wrong(stats):
        stats[ACTION]["mean"][1] += 5.0

    change_json(copied / "meta/stats.json", wrong)
    report = report_of(copied)
    assert faults(report) == {-1: {("stats", "UNUSABLE")}}
    assert NAMES[1] in report.findings[0].text


def test_an_episode_that_is_there_twice_is_found(copied):
    def again(c):
        for column in (STATE, ACTION):
            c[column][ROWS] = c[column][: ROWS.start]

    change_data(copied, again)
    assert faults(report_of(copied)) == only("repeated", "DOUBTFUL")


def test_a_count_that_is_wrong_is_found(copied):
    change_json(copied / "meta/info.json", lambda info: info.update(total_frames=239))
    assert faults(report_of(copied)) == {-1: {("index", "UNUSABLE")}}


def test_what_a_robot_cannot_do_is_found_when_its_limits_are_known(stranger):
    wide = dict.fromkeys(NAMES[:3], Bounds(-100.0, 100.0, 200.0))
    assert faults(report_of(stranger, Robot(wide))) == {}
    narrow = wide | {NAMES[0]: Bounds(-20.0, 100.0)}
    assert ("limits", "UNUSABLE") in faults(report_of(stranger, Robot(narrow)))[2]
    slow = wide | {NAMES[1]: Bounds(-100.0, 100.0, 30.0)}
    assert all(("limits", "DOUBTFUL") in found for found in faults(report_of(stranger, Robot(slow))).values())


@pytest.mark.parametrize("fps", [0, -5, float("nan"), 1e300])
def test_a_rate_that_cannot_be_is_refused(copied, fps):
    change_json(copied / "meta/info.json", lambda info: info.update(fps=fps))
    with pytest.raises(InvalidValueError, match="its fps is"):
        StoredDataset(copied)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.clear(), "its features lack episode_index, frame_index"),
        (lambda f: f["action"].pop("dtype"), "'action' has no dtype and shape"),
        (lambda f: f["action"].update(dtype="float128x"), "the dtype of column 'action'"),
        (lambda f: f["action"].update(shape="x"), "the shape of column 'action'"),
        (lambda f: f.update({"../../evil": f["action"]}), "no name of a folder below it"),
    ],
)
def test_columns_that_cannot_be_are_refused(copied, change, said):
    change_json(copied / "meta/info.json", lambda info: change(info["features"]))
    with pytest.raises(InvalidValueError, match=said):
        StoredDataset(copied)


def test_counts_and_shapes_of_something_else_are_found(copied):
    def other(info):
        info["total_episodes"] = 10**12  # not as many things are made of it
        info["features"]["action"]["shape"] = [99]

    change_json(copied / "meta/info.json", other)
    report = check_dataset(StoredDataset(copied), with_pictures=False)
    texts = [finding.text for finding in report.findings]
    assert "info.json counts 1000000000000 episodes, meta/episodes has 4: 4 is missing" in texts
    assert any("cannot be checked" in text for text in texts)


@pytest.mark.parametrize(
    ("name", "noise", "jump"),
    [
        ("arm.joint_3", 0.002, 0.2),
        ("arm.x", 0.002, 0.05),
        ("base.yaw", 0.01, 0.5),
        ("shoulder_pan.pos", 0.2, 10.0),
        ("q3", 0.002, 0.2),
    ],
)
def test_the_steps_of_an_encoder_that_hardly_moves_are_no_jump(name, noise, jump):
    for step, is_found in ((noise, False), (jump, True)):
        values = np.where(np.arange(60) < 30, 0.0, step)[:, None]
        numbers = Episode(StoredEpisode({}, Path()), {STATE: values}, {STATE: [name]})
        found = list(jumps(numbers, {STATE: {name: Span(0.0, step, 9)}}))
        assert bool(found) == is_found


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "it has no meta/info.json"),
        ("{", "is damaged"),
        (
            json.dumps({"codebase_version": "v2.1"}),
            r"is a LeRobot dataset of the old version v2\.1; expected v3\.0: convert it: python -m "
            r"lerobot\.scripts\.convert_dataset_v21_to_v30 --repo-id=.* --root=.* --push-to-hub=false",
        ),
        (
            json.dumps({"codebase_version": "v2.0"}),
            "old version v2.0; expected v3.0: convert it to v2.1 first",
        ),
        (json.dumps({"codebase_version": "v3.1"}), "newer version, v3.1; expected v3.0: update"),
        (json.dumps({"codebase_version": "v10.0"}), "newer version, v10.0"),
        (json.dumps({"codebase_version": 3}), "unknown version, '3'; expected v3.0"),
        ("{}", "there is no"),
        (json.dumps({"codebase_version": "v3.0"}), "there is no"),
        ("[]", "is damaged"),
    ],
)
def test_what_is_no_dataset_is_refused_in_words(tmp_path, content, said):
    (tmp_path / "meta").mkdir()
    if content is not None:
        (tmp_path / "meta/info.json").write_text(content)
    with pytest.raises(InvalidValueError, match=said):
        StoredDataset(tmp_path)


@pytest.mark.parametrize("version", ["v2.1", "v4.0"])
def test_every_reader_and_writer_of_datasets_names_another_version(tmp_path, version):
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/info.json").write_text(json.dumps({"codebase_version": version}))
    for read in (
        load_dataset,
        lambda root: DatasetFolder(root, resume=True),
        lambda root: Numbers.of_dataset(root, Declared()),
    ):
        with pytest.raises(InvalidValueError, match=f"version,? {version}; expected v3.0"):
            read(tmp_path)


def test_the_converter_that_is_named_is_part_of_lerobot():
    from importlib.util import find_spec

    assert find_spec("lerobot.scripts.convert_dataset_v21_to_v30") is not None
