"""A newcomer's first capture: made by a command, and good for the others."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibration.capture.raw import RawCapture
from calibration.commands.capture.label import CaptureLabel
from calibration.commands.capture.reach import on_robot, within_gripper
from calibration.labels.columns import points_of
from calibration.labels.export_lerobot import Labelled, export_lerobot
from calibration.labels.label import CaptureLabels, label_capture
from calibration.labels.values import LabelConfig
from robot_runtime.cli import main
from robot_runtime.errors import InvalidValueError
from sim.capture.loop import Session, retargeted_of, samples_of
from sim.capture.retargeted import retargeted_in
from sim.capture.robot import of_task
from sim.capture.samples import ROWS_AFTER, ROWS_BEFORE, samples
from sim.capture.things import in_words, names_of, points_in_scene
from sim.tasks import HOUSEHOLD_TASKS, make_task

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures") / "sample"
    assert main(["capture", "sample", "--output", str(folder), "--demonstrations", "1", "--seed", "1"]) == 0
    return folder


@pytest.fixture(scope="module")
def dataset(sample, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets") / "data"
    assert main(["capture", "label", str(sample), "--output", str(folder), "--task", "fetch"]) == 0
    return folder


@pytest.fixture(scope="module")
def found(sample) -> CaptureLabels:
    return label_capture(RawCapture.open(sample))


@pytest.mark.long
def test_a_sample_is_a_capture_whose_demonstrations_can_be_used(sample, capsys):
    assert main(["capture", "check", str(sample)]) == 0
    said = capsys.readouterr().out
    assert "1 of 1 demonstrations can be used" in said
    assert "━" not in said  # bars go when all is done
    assert {"chest", "hand"} == set(RawCapture.open(sample).devices)


def test_nothing_of_the_simulation_is_left_beside_or_in_it(sample):
    assert [path.name for path in sample.parent.iterdir()] == ["sample"]
    assert not list(sample.rglob("truth*"))


def test_a_capture_of_another_task_is_refused_before_it_is_labelled(sample, tmp_path, capsys):
    capture = tmp_path / "capture"
    shutil.copytree(sample, capture)
    about = json.loads((capture / "capture.json").read_text())
    (capture / "capture.json").write_text(json.dumps(about | {"task": "water the plants"}))
    assert (
        main(["capture", "label", str(capture), "--output", str(tmp_path / "data"), "--task", "fetch"]) == 1
    )
    said = capsys.readouterr().err
    assert "demonstrates 'water the plants', --task fetch is" in said
    assert not (tmp_path / "data").exists()


def test_what_odometry_drifts_is_an_option_of_labels(tmp_path):
    as_always = CaptureLabel(captures=(tmp_path,))._config(None)
    assert (as_always.chest_drift, as_always.hand_drift) == (
        LabelConfig().chest_drift,
        LabelConfig().hand_drift,
    )
    drifts = CaptureLabel(captures=(tmp_path,), hand_drift=(20.0, 0.5))._config(None)
    assert drifts.hand_drift.walk_m == pytest.approx(0.020)
    assert drifts.hand_drift.walk_rad == pytest.approx(0.5 * np.pi / 180)
    assert drifts.chest_drift == as_always.chest_drift


def test_a_width_that_is_measured_a_little_beyond_the_robot_s_gripper_is_what_it_opens():
    measured = np.array([0.0, 0.0799, 0.0821, 0.12, np.nan])
    np.testing.assert_array_equal(within_gripper(measured, 0.08), [0.0, 0.0799, 0.08, 0.12, np.nan])


@pytest.mark.parametrize(
    ("task", "things"), [("fetch", {"cup": 0, "tray": 3}), ("wipe", {"frontier": 0, "end": 3})]
)
def test_a_film_of_labels_shows_the_things_of_the_task_s_scene(task, things):
    numbers = np.random.default_rng(0).normal(size=(5, make_task(task).schema.environment_state_dim))
    found = points_in_scene(task, numbers)
    assert list(found) == list(things)
    for name, at in things.items():
        np.testing.assert_array_equal(found[name], numbers[:, at : at + 3])


@pytest.mark.parametrize("task", ["fetch", "wipe", "clear", "drawer"])
def test_everything_that_is_to_be_seen_has_words_for_a_person(task):
    said = [in_words(name) for name in names_of(task)]
    assert all(" " in words and ">" not in words and "_" not in words for words in said)


def test_a_umi_dataset_of_another_name_is_refused_before_anything_is_labelled(sample, tmp_path, capsys):
    command = [
        "capture",
        "label",
        str(sample),
        "--output",
        str(tmp_path / "data"),
        "--umi",
        str(tmp_path / "x"),
    ]
    assert main(command) == 1
    assert "--umi names a folder that ends in .zarr" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.long
def test_a_umi_dataset_says_what_is_in_it_and_that_pictures_are_missing(sample, tmp_path, capsys):
    umi = tmp_path / "sample.zarr"
    assert main(["capture", "label", str(sample), "--umi", str(umi)]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"{re.escape(str(umi))}: 1 episodes, \d+ rows\. warning: it has no images", said)
    assert "camera0_rgb" in said
    assert not (umi / "data" / "camera0_rgb").exists()


@pytest.mark.long
def test_labels_without_an_output_say_that_no_dataset_was_written(sample, capsys):
    assert main(["capture", "label", str(sample)]) == 0
    assert "no dataset was written: --output FOLDER makes one" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["label", "sample"])
def test_tasks_that_are_offered_for_captures_are_those_of_mobile_robots(command, capsys):
    with pytest.raises(SystemExit):
        main(["capture", command, "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--task {" + ",".join(sorted(HOUSEHOLD_TASKS)) + "}" in said


@pytest.mark.long
def test_labels_of_another_pace_are_refused_before_anything_is_labelled(sample, dataset, tmp_path, capsys):
    command = [
        "capture",
        "label",
        str(sample),
        "--output",
        str(dataset),
        "--task",
        "fetch",
        "--slower",
        "1.5",
    ]
    assert main(command) == 1
    said = capsys.readouterr()
    assert "takes 1 times as long as the person, here 1.5" in said.err
    assert "demonstration" not in said.out


@pytest.mark.long
def test_a_policy_is_told_where_things_are_from_the_first_row_whenever_they_were_first_seen(found):
    """A thing that stands where it is was there before: labels whose scene began late had little to learn."""
    scene = of_task("fetch").scene
    (labels,) = found.labels
    assert scene is not None
    assert not labels.glimpses["tray"].known.all()
    assert np.isfinite(scene.of(labels, labels.x_WG)).all()


@pytest.mark.parametrize("kind", ["decoupled", "world"])
def test_a_dataset_of_labels_tells_demonstrations_as_the_labels_do(found, dataset, tmp_path, kind):
    """What `train --dataset` learns is what was measured of policies from captures."""
    folder = dataset
    if kind == "world":
        folder, target = tmp_path / "data", of_task("fetch")
        labelled = [Labelled(labels=each, joined=found.joined) for each in found.labels]
        export_lerobot(on_robot(labelled, target), folder, kind=kind, scene=target.scene)
    (stored,) = retargeted_in(folder, "fetch")
    ((told,), why) = retargeted_of([Session(task="fetch", labels=found.labels)], kind="decoupled")
    assert not why
    assert (stored.words, stored.task) == (told.words, "fetch")
    assert (stored.is_known == told.is_known).all()
    for name in ("x_WB", "p_WE", "R_BE"):
        np.testing.assert_allclose(getattr(stored, name), getattr(told, name), atol=1e-4)
    np.testing.assert_allclose(stored.width, np.minimum(told.width, 0.08), atol=1e-6)
    assert stored.things.keys() >= told.things.keys()
    for name, places in told.things.items():
        np.testing.assert_allclose(stored.things[name], places, atol=1e-4)


def test_a_dataset_of_labels_for_another_task_is_refused_by_what_it_knows(dataset):
    with pytest.raises(InvalidValueError, match=r"expected positions of frontier\.x.* for wipe"):
        retargeted_in(dataset, "wipe")


def rewritten(dataset: Path, to: Path, column: str, change: Callable[[np.ndarray], np.ndarray]) -> Path:
    """A copy with other numbers in a column."""
    shutil.copytree(dataset, to)
    (file,) = (to / "data").rglob("*.parquet")
    table = pq.read_table(file)
    at, old = table.column_names.index(column), table[column]
    rows = np.array(old.to_pylist())
    new = pa.chunked_array([pa.array(change(rows).tolist(), type=old.type)])
    pq.write_table(table.set_column(at, table.schema.field(at), new), file)
    return to


def in_column(number: int, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    def changed(rows: np.ndarray) -> np.ndarray:
        rows[:, number] = change(rows[:, number])
        return rows

    return changed


@pytest.mark.parametrize(
    ("column", "change", "words"),
    [
        ("action", in_column(4, lambda y: y * np.nan), "is nan in frame 0"),
        ("label.places", in_column(0, lambda x: x + np.inf), "is inf in frame 0"),
        ("action", in_column(5, lambda z: 1e3 * z), "expected metres, at most 3"),
        ("action", in_column(12, lambda width: 1e3 * width), "expected metres"),
        (
            "action",
            in_column(2, lambda yaw: np.where(np.arange(len(yaw)) % 2, 90.0, 0.0)),
            "expected radians",
        ),
        (
            "timestamp",
            lambda t: np.delete(np.append(t, t[-1] + [0.05, 0.1]), [40, 41]),
            "of frame 40 is not 40 / 20",
        ),
        ("timestamp", lambda t: t[::-1], "of frame 0 is not 0 / 20"),
        ("frame_index", lambda k: k[::-1], "frame_index does not count from 0"),
        ("observation.valid", in_column(2, lambda valid: valid & False), "the gripper's width is missing"),
    ],
    ids=[
        "no number",
        "no place",
        "hand in mm",
        "width in mm",
        "degrees",
        "gap",
        "backwards",
        "other order",
        "no width",
    ],
)
def test_labels_that_cannot_be_true_are_refused(dataset, tmp_path, column, change, words):
    damaged = rewritten(dataset, tmp_path / "damaged", column, change)
    with pytest.raises(InvalidValueError, match=f"damaged, episode 0.*{words}"):
        retargeted_in(damaged, "fetch")


@pytest.mark.parametrize("more", [["--task", "fetch", "wipe"], ["--task", "fetch", "--only", "human"]])
def test_labels_are_of_one_task_and_all_of_a_person(dataset, tmp_path, capsys, more):
    assert main(["train", "--dataset", str(dataset), "--output", str(tmp_path / "x"), *more]) == 1
    assert "they are of one --task, and all of them a person's" in capsys.readouterr().err


@pytest.mark.long
def test_frames_of_labels_are_learned_from_beside_and_without_joints(dataset, tmp_path, capsys):
    policy = tmp_path / "policy"
    command = ["train", "--task", "fetch", "--dataset", str(dataset), "--output", str(policy)]
    assert main([*command, "--steps", "2", "--batch-size", "4", "--width", "32"]) == 0
    told = retargeted_in(dataset, "fetch")
    num = int(re.search(r"2 steps on (\d+) samples", capsys.readouterr().out)[1])
    assert num == len(samples_of(told))
    frames = len(told[0])
    beside_grips = num - len(samples(told[0], np.random.default_rng(0), beside=2, off_plan=1))
    assert 3.5 * frames < num - beside_grips <= 4 * frames
    assert 0 < beside_grips <= 3 * 2 * (ROWS_BEFORE + ROWS_AFTER + 10)  # it takes the cup, and lets it go
    config = (policy / "config.json").read_text()
    assert '"use_joints": false' in config
    assert '"use_joints": true' not in config


def test_labels_that_were_made_without_a_task_are_refused_with_the_command_that_makes_others(
    found, tmp_path, capsys
):
    folder = tmp_path / "data"
    export_lerobot([Labelled(labels=each, joined=found.joined) for each in found.labels], folder)
    command = ["train", "--task", "fetch", "--dataset", str(folder), "--output", str(tmp_path / "policy")]
    assert main(command) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "labels of a capture without joints of a robot" in said
    assert "make them anew with `capture label ... --task fetch`" in said


def test_labels_that_were_made_for_another_robot_lack_the_scene_that_train_needs(found, tmp_path, capsys):
    labelled = [Labelled(labels=each, joined=found.joined) for each in found.labels]
    names = sorted(found.labels[0].glimpses)
    folder = tmp_path / "data"
    export_lerobot(on_robot(labelled, replace(of_task("fetch"), scene=None)), folder, scene=points_of(names))
    command = ["train", "--task", "fetch", "--dataset", str(folder), "--output", str(tmp_path / "policy")]
    assert main(command) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "labels of a capture without the scene as policies of fetch know it" in said


def test_labels_of_two_paces_are_not_learned_together(dataset, tmp_path, capsys):
    slower = tmp_path / "slower"
    shutil.copytree(dataset, slower)
    info = slower / "meta" / "info.json"
    said = json.loads(info.read_text())
    said["features"]["action"]["info"]["slower"] = 1.5
    info.write_text(json.dumps(said))
    command = ["train", "--task", "fetch", "--output", str(tmp_path / "policy"), "--steps", "2"]
    assert main([*command, "--dataset", str(dataset), str(slower)]) == 1
    assert "a policy is of one pace against the person" in capsys.readouterr().err
