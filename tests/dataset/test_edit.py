"""Datasets merged, split and relabelled; stock LeRobot reads what comes out."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from robot_runtime.cli import main
from robot_runtime.dataset.check.dataset import check_dataset
from robot_runtime.dataset.edit import parts
from robot_runtime.dataset.edit.annotations import ANNOTATIONS, annotate, annotations_of
from robot_runtime.dataset.edit.cut import copy_pictures
from robot_runtime.dataset.edit.merge import merge, split
from robot_runtime.dataset.edit.relabel import outcome_of, relabel
from robot_runtime.dataset.stored import StoredDataset, array_of
from robot_runtime.dataset.video import VideoWriter
from robot_runtime.errors import InvalidValueError
from tests.dataset.conftest import FPS, FRAMES, NAMES, SIZE, change_json, picture

STATE, CAMERA = "observation.state", "observation.images.top"


def stock(root: Path):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    return LeRobotDataset("a/dataset", root=root, video_backend="pyav")


def rows_of(root: Path) -> np.ndarray:
    dataset = StoredDataset(root)
    return np.concatenate([array_of(dataset.table(episode), STATE) for episode in dataset.episodes])


@pytest.fixture(scope="module")
def merged(stranger, turned, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("merged") / "both"
    assert merge([StoredDataset(stranger), StoredDataset(turned)], out) == 5
    return out


def test_stock_lerobot_reads_what_was_merged_with_equal_rows_and_pictures(stranger, turned, merged):
    dataset, before = stock(merged), stock(stranger)
    assert (dataset.num_episodes, dataset.num_frames) == (5, 5 * FRAMES)
    for k in (0, 59, 60, 130, 239):
        for name in (STATE, "action", CAMERA):
            np.testing.assert_array_equal(dataset[k][name], before[k][name])
        assert dataset[k]["task"] == before[k]["task"]
    assert check_dataset(StoredDataset(merged)).episodes("good") == [0, 1, 2, 3, 4]


def test_columns_are_matched_by_name(turned, merged):
    np.testing.assert_array_equal(rows_of(merged)[4 * FRAMES :], rows_of(turned)[:, ::-1])
    assert StoredDataset(merged).names(STATE) == NAMES
    assert check_dataset(StoredDataset(merged), with_pictures=False).findings == ()  # statistics too


def test_pictures_are_copied_not_encoded_again(stranger, tmp_path):
    [video] = (stranger / "videos").glob("*/*/*.mp4")
    assert copy_pictures(video, tmp_path / "cut.mp4", FRAMES / FPS, FRAMES, FPS)
    assert packets(tmp_path / "cut.mp4") == packets(video)[FRAMES : 2 * FRAMES]


def packets(path: Path) -> list[bytes]:
    import av

    with av.open(str(path)) as file:
        return [bytes(packet) for packet in file.demux(file.streams.video[0]) if packet.pts is not None]


def write_av1(path: Path) -> None:
    """Twelve pictures, ever brighter. For root the encoder puts the thread that opens it under SCHED_FIFO."""
    import av

    with av.open(str(path), "w") as out:
        stream = out.add_stream("libsvtav1", rate=FPS, options={"g": "2", "crf": "30", "preset": "12"})
        stream.height, stream.width, stream.pix_fmt = 64, 64, "yuv420p"
        for k in range(12):
            pixels = np.full((64, 64, 3), 20 * k, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        out.mux(stream.encode())


def test_pictures_in_av1_which_lerobot_writes_if_nothing_is_said_are_copied_too(tmp_path):
    import av

    source, target = tmp_path / "long.mp4", tmp_path / "cut.mp4"
    with ThreadPoolExecutor(1) as pool:
        pool.submit(write_av1, source).result()
    assert copy_pictures(source, target, 4 / FPS, 6, FPS)
    with av.open(str(target)) as file:
        levels = [frame.to_ndarray(format="rgb24").mean() for frame in file.decode(video=0)]
    np.testing.assert_allclose(levels, 20 * np.arange(4, 10), atol=6)


def test_pictures_that_hang_on_others_are_encoded_again(tmp_path):
    import av

    source, target = tmp_path / "long.mp4", tmp_path / "cut.mp4"
    with av.open(str(source), "w") as out:
        stream = out.add_stream("libx264", rate=FPS, options={"g": "100", "crf": "10"})
        stream.height, stream.width, stream.pix_fmt = *SIZE, "yuv420p"
        for k in range(20):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture(0, k), format="rgb24")))
        out.mux(stream.encode())
    assert not copy_pictures(source, target, 5 / FPS, 8, FPS)
    with av.open(str(target)) as file:
        shown = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    assert len(shown) == 8
    for k, pixels in enumerate(shown):
        bright = np.flatnonzero(pixels[16, :, 1] > 130)
        assert abs(int(bright[0]) - (5 + k)) <= 1  # the square is where it was in that picture


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda info: info.update(fps=30), "frames a second: 20.0 and 30.0"),
        (lambda info: info.update(robot_type="panda"), "so100 and panda"),
        (
            lambda info: info["features"]["action"].update(names=["a", "b", "c", "d"]),
            "only .* has a, b, c, d",
        ),
        (lambda info: info["features"].pop(CAMERA), "has a column 'observation.images.top'"),
        (lambda info: info["features"][CAMERA].update(shape=[96, 64, 3]), r"\(48, 64, 3\).*\(96, 64, 3\)"),
        (lambda info: info["features"]["action"].update(names=None), "names the numbers of 'action'"),
        (lambda info: info["features"]["action"].update(dtype="float64"), "float64"),
        (lambda info: info["features"]["action"].update(info={"timing": "sent"}), "means other times"),
    ],
)
def test_another_robots_dataset_is_refused_in_words_and_nothing_is_written(
    stranger, copied, tmp_path, change, said
):
    change_json(copied / "meta/info.json", change)
    with pytest.raises(InvalidValueError, match=said):
        merge([StoredDataset(stranger), StoredDataset(copied)], tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]


def test_a_merge_that_fails_leaves_nothing_and_an_output_that_is_there_stays(stranger, copied, tmp_path):
    [video] = (copied / "videos").glob("*/*/*.mp4")
    video.write_bytes(video.read_bytes()[: video.stat().st_size // 2])
    with pytest.raises(InvalidValueError, match=r"\b[1-5]?\d images for 60 frames"):
        merge([StoredDataset(stranger), StoredDataset(copied)], tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]
    with pytest.raises(InvalidValueError, match="exists"):
        merge([StoredDataset(stranger)], copied)


def test_a_split_has_all_episodes_each_once_and_labels_go_with_them(merged, tmp_path):
    source = Path(shutil.copytree(merged, tmp_path / "source"))
    relabel(source, [1, 4], outcome="failure", by="ana")
    relabel(source, [0, 2], outcome="success", by="ana")
    source = StoredDataset(source)
    split(source, parts.by_outcome(source), tmp_path / "split")
    lengths = {path.name: len(StoredDataset(path).episodes) for path in (tmp_path / "split").iterdir()}
    assert lengths == {"success": 2, "failure": 2, "unknown": 1}
    failed = StoredDataset(tmp_path / "split/failure")
    assert [outcome_of(episode) for episode in failed.episodes] == ["failure", "failure"]
    assert [(each.episode, each.new) for each in annotations_of(failed.root)] == [
        (0, "failure"),
        (1, "failure"),
    ]
    np.testing.assert_array_equal(rows_of(failed.root)[:FRAMES], rows_of(source.root)[FRAMES : 2 * FRAMES])
    assert stock(failed.root)[FRAMES]["task"] == "put the block into the box"


def test_parts_are_named_by_numbers_shares_and_tasks(stranger):
    dataset = StoredDataset(stranger)
    assert parts.by_index(dataset, ["1:3", "0"]) == {"chosen": [1, 2, 0], "rest": [3]}
    assert parts.indices_of(dataset, [":2", "3:"]) == [0, 1, 3]
    drawn = parts.by_share(dataset, 0.75, 0)
    assert sorted(drawn["train"] + drawn["test"]) == [0, 1, 2, 3]
    assert len(drawn["train"]) == 3
    assert parts.by_task(dataset) == {"put_the_block_into_the_box": [0, 2], "fold_the_cloth": [1, 3]}
    for wrong in (["4"], ["9:"], ["-1"], ["a"], [""], ["1:2:3"]):
        with pytest.raises(InvalidValueError, match="episodes"):
            parts.indices_of(dataset, wrong)
    with pytest.raises(InvalidValueError, match="both sides need one"):
        parts.by_share(dataset, 0.99, 0)
    with pytest.raises(InvalidValueError, match="has an outcome"):
        parts.by_outcome(dataset)


def test_a_new_label_is_read_by_stock_lerobot_and_the_old_one_stays(copied):
    relabel(copied, [1, 3], task="fold the towel", by="ana", why="it is a towel")
    assert [stock(copied)[k]["task"] for k in (0, 60, 120, 180)] == [
        "put the block into the box",
        "fold the towel",
        "put the block into the box",
        "fold the towel",
    ]
    said = annotations_of(copied)
    assert [(e.episode, e.field, e.old, e.new, e.by) for e in said] == [
        (1, "task", "fold the cloth", "fold the towel", "ana"),
        (3, "task", "fold the cloth", "fold the towel", "ana"),
    ]
    assert relabel(copied, [1], task="fold the towel", by="bo") == []  # nothing is new
    assert check_dataset(StoredDataset(copied), with_pictures=False).is_usable
    stats = json.loads((copied / "meta/stats.json").read_text())["task_index"]
    assert stats["max"] == [2]


def test_an_outcome_is_kept_with_the_episode_as_evo_rl_calls_it(copied):
    relabel(copied, [0], outcome="success", by="ana")
    relabel(copied, [1], outcome="fault", by="ana")
    relabel(copied, [0], outcome="timeout", by="bo")
    rows = [episode.row for episode in StoredDataset(copied).episodes]
    assert [row["outcome_code"] for row in rows] == ["timeout", "fault", None, None]
    assert [row["episode_success"] for row in rows] == ["failure", None, None, None]
    assert [(e.old, e.new) for e in annotations_of(copied)] == [
        (None, "success"),
        (None, "fault"),
        ("success", "timeout"),
    ]


def test_a_line_that_was_cut_off_is_passed_over_and_what_follows_stands_alone(copied):
    relabel(copied, [0], outcome="success", by="ana")
    path = copied / ANNOTATIONS
    path.write_text(path.read_text() + '{"episode": 1, "fie')
    before = annotations_of(copied)
    assert len(before) == 1
    annotate(copied, before)
    with pytest.raises(InvalidValueError, match="line 2"):
        annotations_of(copied)


def test_relabelling_refuses_what_cannot_be(copied, tmp_path):
    for wrong in ({"outcome": "great"}, {"task": "x", "episodes": [9]}):
        episodes = wrong.pop("episodes", [0])
        with pytest.raises(InvalidValueError):
            relabel(copied, episodes, by="ana", **wrong)
    assert not (copied / ANNOTATIONS).exists()
    with pytest.raises(InvalidValueError, match=r"no meta/info\.json"):
        relabel(tmp_path, [0], task="x", by="ana")


def test_the_commands_say_what_they_did(stranger, copied, tmp_path, capsys):
    assert main(["dataset", "check", str(stranger), "--json", str(tmp_path / "report.json")]) == 0
    said = capsys.readouterr().out
    assert "4 good, 0 doubtful, 0 unusable" in said
    assert re.search(r"^ *0 +\d+ +[\d.]+ +good\b", said, re.MULTILINE)
    assert json.loads((tmp_path / "report.json").read_text())["episodes"]["good"] == 4
    change_json(copied / "meta/info.json", lambda info: info.update(total_frames=1))
    assert main(["dataset", "check", str(copied), "--pictures", "none"]) == 1
    capsys.readouterr()
    split_to = str(tmp_path / "split")
    assert main(["dataset", "split", str(stranger), "--episodes", "0:1", "--output", split_to]) == 0
    assert "chosen: 1 episodes" in capsys.readouterr().out
    assert main(["dataset", "relabel", f"{split_to}/rest", "--episodes", "0", "--outcome", "success"]) == 0
    assert "episode 0: outcome none -> success" in capsys.readouterr().out
    assert (
        main(["dataset", "merge", f"{split_to}/rest", f"{split_to}/chosen", "--output", f"{split_to}/m"]) == 0
    )
    assert "4 episodes of 2 datasets" in capsys.readouterr().out
    assert main(["dataset", "split", str(stranger), "--output", f"{split_to}/x"]) == 1
    assert "one of --episodes, --share and --by" in capsys.readouterr().err


def test_a_video_that_is_written_has_as_many_pictures_as_were_added(tmp_path):
    import av

    with VideoWriter(tmp_path / "v.mp4", FPS, SIZE) as writer:
        for k in range(7):
            writer.add(av.VideoFrame.from_ndarray(picture(0, k), format="rgb24"))
    with av.open(str(tmp_path / "v.mp4")) as file:
        times = [float(frame.pts * frame.time_base) for frame in file.decode(video=0)]
    np.testing.assert_allclose(times, np.arange(7) / FPS, atol=1e-6)
