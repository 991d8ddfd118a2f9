"""The scripted experts' demonstrations as a dataset."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from policies.flow.checkpoint import load
from policies.flow.demonstrations import load_demonstrations
from policies.lerobot.data import NUM_COMMITTED, ROWS, load_dataset
from policies.load import load_policy
from policies.vision.estimator import Estimator
from robot_runtime.cli import main
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.errors import InvalidValueError
from sim.demonstrations.recording import record_expert
from sim.experts import action_spec_of
from sim.scene.render import Renderer, RenderingUnavailableError
from sim.scene.world import World
from sim.tasks import make_task

pytest.importorskip("datasets", reason="writes LeRobot datasets")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("recorded") / "fetch"


@pytest.fixture
def recorded(folder, capfd) -> Path:
    """One episode of fetch, with nothing said about it."""
    if not folder.exists():
        try:
            Renderer(World(make_task("fetch")).model, size=(48, 48)).close()
        except RenderingUnavailableError as error:
            pytest.skip(str(error))
        cameras = ("chest", "wrist")
        kept = record_expert("fetch", folder, num_episodes=1, seed=1, cameras=cameras, size=(48, 48))
        assert kept == 1
        said = "".join(capfd.readouterr())
        assert "libx264" not in said
        assert "Map:" not in said
    return folder


@pytest.mark.long
def test_a_policy_that_sees_is_trained_on_recordings_and_says_how_well_it_sees(recorded, tmp_path, capfd):
    folder = tmp_path / "seeing"
    few = ("--random-views", "20", "--estimator-steps", "2", "--steps", "2", "--batch-size", "8")
    datasets = ("--dataset", str(recorded), str(recorded))
    assert main(["train", "--task", "fetch", "--output", str(folder), *datasets, *few]) == 0
    num_frames = len(load_dataset(recorded))
    assert f"2 steps on {2 * num_frames} samples" in capfd.readouterr().out
    training = json.loads((folder / "config.json").read_text())["training"]
    assert training["estimator_steps"] == 2
    assert training["glimpses"] == 20
    assert training["estimator_demonstrations_z"] > 0.0
    assert training["estimator_glimpses_z"] > 0.0
    policy = load_policy(folder)
    assert policy.info.schema.cameras == {"chest": (48, 48), "wrist": (48, 48)}
    seen = load_dataset(recorded)[0].observation
    rows = np.concatenate(
        list(policy.infer(ChunkRequest(observation=seen, sampler=ConstantSchedule(), seed=0)))
    )
    assert rows.shape == (32, 13)
    assert np.isfinite(rows).all()


@pytest.mark.long
def test_a_policy_that_sees_goes_on_from_one_that_is_told_and_with_episodes_without_pictures(
    recorded, tmp_path, capfd
):
    folder = tmp_path / "seeing"
    few = ("--random-views", "0", "--estimator-steps", "2", "--steps", "1", "--batch-size", "8")
    more = (
        "--init",
        "fetch",
        "--seed",
        "1",
        "--episodes",
        "1",
        "--demonstrations",
        str(tmp_path / "more.npz"),
    )
    command = ["train", "--task", "fetch", "--output", str(folder), "--dataset", str(recorded)]
    assert main([*command, *few, *more]) == 0
    num_frames, num_more = len(load_dataset(recorded)), len(load_demonstrations(tmp_path / "more.npz"))
    assert num_more > 100
    assert f"1 steps on {num_frames + num_more} samples" in capfd.readouterr().out
    training = json.loads((folder / "config.json").read_text())["training"]
    assert (training["init"], training["recorded"]) == ("fetch", num_frames)
    seeing, told = load(folder), load("fetch")
    assert seeing.info.schema.environment_state_dim == 40
    for one, other in zip(seeing.model.blocks.parameters(), told.model.blocks.parameters(), strict=True):
        assert float((one - other).abs().max()) < 0.05  # after one step


@pytest.mark.long
def test_a_policy_that_sees_goes_on_from_one_that_does_with_the_same_eyes_or_teaches_them_more(
    recorded, tmp_path, capfd
):
    one, two = tmp_path / "one", tmp_path / "two"
    command = ["train", "--task", "fetch", "--dataset", str(recorded), "--steps", "1", "--batch-size", "8"]
    few = ("--random-views", "0", "--estimator-steps", "2", "--init", "fetch")
    assert main([*command, *few, "--output", str(one)]) == 0
    again = [*command, "--init", str(one), "--output", str(two)]
    assert main([*again, "--random-views", "10"]) == 1
    assert (
        "keeps its encoder, which sees no --random-views without --estimator-steps" in capfd.readouterr().err
    )
    assert main(again) == 0
    eyes = [(folder / "estimator.safetensors").read_bytes() for folder in (one, two)]
    assert eyes[0] == eyes[1]
    first, second = load(one), load(two)
    assert second.training["init"] == "one"
    assert second.training["estimator_steps"] == 2
    assert np.array_equal(first.features.mean, second.features.mean)
    pairs = zip(first.model.parameters(), second.model.parameters(), strict=True)
    moved = [float((a - b).abs().max()) for a, b in pairs]
    assert 0.0 < max(moved) < 0.05  # after one step
    three = tmp_path / "three"
    taught = ("--output", str(three), "--estimator-steps", "1", "--random-views", "0")
    assert main([*again, *taught]) == 0
    assert load(three).training["estimator_steps"] == 3
    before, after = (Estimator.load(folder).network.parameters() for folder in (one, three))
    moved = [float((a - b).abs().max()) for a, b in zip(before, after, strict=True)]
    assert 0.0 < max(moved) < 0.01  # after one step


@pytest.mark.long
def test_a_robot_on_the_table_learns_to_see_without_glimpses(tmp_path, recorded):
    dataset, few = tmp_path / "track", ("--estimator-steps", "2", "--steps", "2", "--batch-size", "8")
    record_expert("track", dataset, num_episodes=1, seed=0, cameras=("overview",), size=(48, 48))
    command = ["train", "--task", "track", "--dataset", str(dataset), "--recipe", "prefix", *few]
    assert main([*command, "--output", str(tmp_path / "seeing")]) == 0
    assert load_policy(tmp_path / "seeing").info.schema.cameras == {"overview": (48, 48)}


@pytest.mark.long
def test_two_arms_are_recorded_by_name_and_a_policy_learns_from_them(tmp_path, recorded, capfd):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    folder, output = tmp_path / "two", tmp_path / "seeing"
    cameras = ("--cameras", "chest", "left_wrist", "right_wrist", "--size", "32", "32")
    assert main(["record", "--task", "handover", "--output", str(folder), "--episodes", "1", *cameras]) == 0
    dataset = LeRobotDataset("two", root=folder)
    frame, names = dataset[20], dataset.features["action"]["names"]
    assert names == list(action_spec_of("handover").names)
    seen = load_dataset(folder, make_task("handover").schema)[20].observation
    told = dict(
        zip(dataset.features["observation.state"]["names"], frame["observation.state"].numpy(), strict=True)
    )
    commanded = dict(zip(names, frame["action"].numpy(), strict=True))
    for arm, gripper in (("left_arm", "left_gripper"), ("right_arm", "right_gripper")):
        p_BE = [told[f"{arm}.{axis}"] for axis in "xyz"]
        np.testing.assert_allclose(seen.state.hand(arm).translation, p_BE, atol=1e-6)
        assert seen.state.gripper(gripper).width == pytest.approx(told[f"{gripper}.width"])
        np.testing.assert_allclose([commanded[f"{arm}.{axis}"] for axis in "xyz"], p_BE, atol=0.1)
    few = ("--estimator-steps", "1", "--steps", "1", "--batch-size", "8")
    command = ["train", "--task", "handover", "--dataset", str(folder), "--init", "handover", *few]
    assert main([*command, "--output", str(output)]) == 0
    policy = load_policy(output)
    assert set(policy.info.schema.cameras) == {"chest", "left_wrist", "right_wrist"}
    looked = load_dataset(folder)[20].observation
    (*_, rows) = policy.infer(ChunkRequest(observation=looked, sampler=ConstantSchedule(), seed=0))
    assert rows.shape[1] == 20
    assert np.isfinite(rows).all()


def test_a_recording_of_another_task_is_refused(recorded, tmp_path, capfd):
    output = str(tmp_path / "x")
    assert main(["train", "--task", "wipe", "--dataset", str(recorded), "--output", output]) == 1
    error = capfd.readouterr().err
    assert "the datasets show 'bring the cup from the table to the tray in the other room'" in error
    assert f"wipe is '{make_task('wipe').instruction}'" in error


def test_a_trained_policy_is_not_replaced_by_another(tmp_path, capfd):
    trained = tmp_path / "trained" / "config.json"
    trained.parent.mkdir()
    trained.write_text("{}")
    assert main(["train", "--task", "track", "--steps", "1", "--output", str(trained.parent)]) == 1
    assert f"--output {trained.parent} holds a trained policy: name another folder" in capfd.readouterr().err
    assert trained.read_text() == "{}"


def test_a_policy_of_another_task_to_go_on_from_is_refused_before_anything_is_learned(
    recorded, tmp_path, capfd
):
    output = tmp_path / "x"
    command = ["train", "--task", "fetch", "--dataset", str(recorded), "--output", str(output)]
    assert main([*command, "--init", "drawer-seeing"]) == 1
    error = capfd.readouterr().err
    assert f"drawer-seeing has learned {make_task('drawer').instruction!r}" in error
    assert f"fetch wants {make_task('fetch').instruction!r}" in error
    assert not output.exists()


@pytest.mark.long
def test_a_policy_that_is_told_the_scene_learns_where_it_led_itself_without_pictures(tmp_path, capfd):
    own, output = tmp_path / "own", tmp_path / "told"
    few = ["--task", "fetch", "--output", str(own), "--episodes", "1", "--seed", "5", "--cameras"]
    assert main(["record", *few, "--policy", "fetch"]) == 0
    command = ["train", "--task", "fetch", "--dataset", str(own), "--init", "fetch", "--output", str(output)]
    command += ["--recipe", "prefix", "--steps", "1", "--batch-size", "8"]
    assert main([*command, "--random-views", "5"]) == 1
    assert "have no pictures: no --estimator-steps and no --random-views" in capfd.readouterr().err
    assert main([*command, "--init", "fetch-seeing"]) == 1
    assert "takes 67 numbers, demonstrations have 41" in capfd.readouterr().err
    more = ("--episodes", "1", "--demonstrations", str(tmp_path / "more.npz"))
    assert main([*command, *more]) == 0
    num = len(load_dataset(own)), len(load_demonstrations(tmp_path / "more.npz"))
    assert f"1 steps on {sum(num)} samples" in capfd.readouterr().out
    learned, start = load(output), load("fetch")
    assert learned.info.schema == start.info.schema
    assert not learned.info.schema.cameras
    assert np.array_equal(learned.features.mean, start.features.mean)


def test_an_experts_episodes_are_recorded_with_pictures_and_with_its_plans(recorded):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset = LeRobotDataset("fetch", root=recorded)
    frames = [dataset[i] for i in range(0, len(dataset), 40)]
    assert len(frames) >= 5
    first = dataset.features["observation.state"]["names"].index("arm.x")
    for frame in frames:
        rows, d = frame[ROWS].numpy(), int(frame[NUM_COMMITTED])
        assert rows.shape == (32, 13)
        if d == 0:  # a plan starts at the hand
            hand = frame["observation.state"].numpy()[first : first + 3]
            np.testing.assert_allclose(rows[0, 3:6], hand, atol=0.05)
        for camera in ("chest", "wrist"):
            assert np.ptp(frame[f"observation.images.{camera}"].numpy()) > 0.2  # a picture, not a blank
    x = np.array([frame["observation.pose_world_base"].numpy() for frame in frames])
    assert np.ptp(x[:, 0]) > 1.0  # from one room to the other
    demonstrations = load_dataset(recorded)
    assert len(demonstrations) == len(dataset)
    for i, frame in zip(range(0, len(dataset), 40), frames, strict=True):
        seen = demonstrations[i].observation
        np.testing.assert_allclose(demonstrations[i].rows, frame[ROWS], atol=1e-6)
        assert demonstrations[i].num_committed == int(frame[NUM_COMMITTED])
        assert seen.task == frame["task"]
        np.testing.assert_allclose(seen.state.x_WB, frame["observation.pose_world_base"], atol=1e-6)
        hand = frame["observation.state"].numpy()[first : first + 3]
        np.testing.assert_allclose(seen.state.X_BE.translation, hand, atol=1e-6)
        np.testing.assert_allclose(seen.environment_state, frame["observation.environment_state"], atol=1e-6)
        for camera in ("chest", "wrist"):
            theirs = frame[f"observation.images.{camera}"].numpy().transpose(1, 2, 0) * 255
            assert np.abs(seen.images[camera].pixels - theirs).max() < 3.0


def test_an_episode_whose_saving_was_interrupted_is_left_out(recorded, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "interrupted"
    shutil.copytree(recorded, folder)
    (path,) = (folder / "data").rglob("*.parquet")
    table = pq.read_table(path)
    column = table.schema.get_field_index("episode_index")
    others = pa.array([1] * 30, type=table.schema.field(column).type)
    rest = table.slice(0, 30).set_column(column, table.schema.field(column), others)
    pq.write_table(pa.concat_tables([table, rest]), path)  # its numbers are there, its pictures are not
    demonstrations = load_dataset(folder)
    assert len(demonstrations) == len(load_dataset(recorded)) == table.num_rows


@pytest.mark.parametrize("more", [1, -1])
def test_a_video_that_is_too_short_or_too_long_is_refused(recorded, tmp_path, more):
    import pyarrow.parquet as pq

    folder = tmp_path / "other"
    shutil.copytree(recorded, folder)
    (path,) = (folder / "data").rglob("*.parquet")
    table = pq.read_table(path)
    num_frames = table.num_rows + more
    pq.write_table(table.take([*range(table.num_rows), 0][:num_frames]), path)
    with pytest.raises(InvalidValueError, match=f"has {table.num_rows} images for {num_frames} frames"):
        load_dataset(folder)


def test_recording_without_cameras_needs_no_graphics(tmp_path, monkeypatch):
    def no_context(width, height):
        raise RenderingUnavailableError("no EGL here")

    monkeypatch.setattr("sim.scene.render.make_context", no_context)
    kept = record_expert("track", tmp_path / "track", num_episodes=1, seed=0, cameras=(), size=(48, 48))
    assert kept == 1
    assert not load_dataset(tmp_path / "track")[0].observation.images


@pytest.mark.long
def test_a_recording_that_is_gone_on_with_is_the_one_that_was_never_interrupted(tmp_path, capfd):
    def record(name: str, episodes: int, *options: str, task: str = "track", seed: int = 3) -> int:
        what = ["--task", task, "--output", str(tmp_path / name), "--cameras", "--seed", str(seed)]
        return main(["record", *what, "--episodes", str(episodes), *options])

    assert record("whole", 2) == 0
    assert record("parts", 1) == 0
    assert record("parts", 2) == 1
    assert "exists (--resume goes on in one)" in capfd.readouterr().err
    (tmp_path / "parts/data/chunk-000/file-001.parquet").write_bytes(b"PAR1: what a kill leaves")
    assert len(load_dataset(tmp_path / "parts")) > 100  # passed over
    assert record("parts", 2, "--resume") == 0
    said = capfd.readouterr().out.replace("\n", "")
    assert "removed what a run that was killed had left: data/chunk-000/file-001.parquet" in said
    assert "1 episodes are there, going on with number 1" in said
    whole = {p.relative_to(tmp_path / "whole"): p for p in (tmp_path / "whole").rglob("*") if p.is_file()}
    assert len(whole) == 3 + 2 * 2  # info, statistics, tasks; numbers and an entry for each episode
    for name, path in whole.items():
        assert (tmp_path / "parts" / name).read_bytes() == path.read_bytes(), name
    assert record("parts", 2, "--resume") == 0
    assert "2 of 2 episodes of track" in capfd.readouterr().out
    assert record("parts", 3, "--resume", seed=4) == 1
    assert "is of track, seed 3, and this command of track, seed 4" in capfd.readouterr().err
    assert record("parts", 3, "--resume", "--policy", "track") == 1
    assert "and this command of track by track, seed 3" in capfd.readouterr().err
    assert record("parts", 1, "--resume") == 1
    assert "of 2 episodes that were tried 2 are in the dataset" in capfd.readouterr().err
    assert len(whole) == len([p for p in (tmp_path / "parts").rglob("*") if p.is_file()])
