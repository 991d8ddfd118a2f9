"""`train --dataset` learns from the images of captures, without a simulated task or positions of objects."""

import json
from pathlib import Path

import numpy as np
import pytest

from policies.lerobot.data import load_dataset
from policies.load import load_policy
from robot_runtime.cli import main
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.fields import EndEffectorPose, Reference, WorldEndEffectorPose
from sim.experts import action_spec_of
from sim.tasks import make_task
from tests.policies.label_dataset import TASK, write_labels

pytest.importorskip("lerobot", reason="its datasets")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    return write_labels(tmp_path_factory.mktemp("labels") / "dots")


def trained(dataset: Path, output: Path, *more: str, steps: int = 3) -> int:
    arguments = ["train", "--dataset", str(dataset), "--output", str(output), "--steps", str(steps)]
    return main([*arguments, "--batch-size", "8", *more])


@pytest.mark.long
def test_a_policy_follows_what_it_sees_and_knows_its_robot_rows_and_task(dataset, tmp_path):
    assert trained(dataset, tmp_path / "dots", "--image-side", "32", "--horizon", "8", steps=150) == 0
    policy = load_policy(tmp_path / "dots")
    assert policy.info.tasks == (TASK,)
    assert dict(policy.info.schema.cameras) == {"chest": (24, 32), "wrist": (24, 32)}
    assert set(policy.info.schema.parts) == {"arm", "gripper", "base"}
    assert policy.info.action_spec.horizon == 8
    seen = [d.observation for d in load_dataset(dataset, None, _rows(policy), most_pixels=32)]
    first = [next(o for o in seen if o.images["chest"].pixels[:, half].max() > 128) for half in _HALVES]
    for side, observation in zip((-1, 1), first, strict=True):
        request = ChunkRequest(observation=observation, sampler=ConstantSchedule(), seed=0)
        rows = np.concatenate(list(policy.infer(request)))
        assert np.sign(rows[-1][4] - hand_of(observation).translation[1]) == side


def hand_of(observation):
    X_BE = observation.state.arm("arm").X_BE
    assert X_BE is not None
    return X_BE


_HALVES = (slice(0, 16), slice(16, 32))


def _rows(policy):
    from policies.lerobot.rows import FromActions

    return FromActions(spec=policy.info.action_spec, hand_poses={})


@pytest.mark.parametrize(
    ("labels", "field"),
    [("world", WorldEndEffectorPose()), ("relative", EndEffectorPose(Reference.RELATIVE))],
)
@pytest.mark.long
def test_rows_are_in_the_frame_of_labels(dataset, tmp_path, labels, field):
    assert trained(dataset, tmp_path / "p", "--image-side", "32", "--labels", labels, "--history", "2") == 0
    info = load_policy(tmp_path / "p").info
    assert field in info.action_spec.fields
    assert info.n_obs_steps == 2


@pytest.mark.long
@pytest.mark.parametrize(("network", "history"), [("act", 1), ("diffusion", 2)])
def test_lerobots_policies_learn_from_the_same_images(dataset, tmp_path, network, history):
    options = "--network", network, "--image-side", "64", "--history", str(history), "--horizon", "8"
    assert trained(dataset, tmp_path / "p", *options) == 0
    policy = load_policy(tmp_path / "p")
    assert set(policy.info.schema.cameras) == {"chest", "wrist"}
    demonstration = load_dataset(dataset, None, _rows(policy), most_pixels=64, n_obs_steps=history)[5]
    request = ChunkRequest(observation=demonstration.observation, sampler=ConstantSchedule(), seed=0)
    rows = np.concatenate(list(policy.infer(request)))
    assert rows.shape == (8, 13)
    assert np.isfinite(rows).all()


def test_a_simulated_task_gives_the_rows_and_has_to_be_the_one_that_is_shown(tmp_path, capsys):
    wipe = make_task("wipe").instruction
    folder = write_labels(tmp_path / "wipe", episodes=2, frames=40, num_joints=7, task=wipe)
    assert trained(folder, tmp_path / "p", "--image-side", "32", "--task", "wipe", steps=2) == 0
    info = load_policy(tmp_path / "p").info
    assert info.tasks == (wipe,)
    assert info.action_spec == action_spec_of("wipe")
    assert trained(folder, tmp_path / "q", "--task", "clear", steps=2) == 1
    assert "is not --task clear" in capsys.readouterr().err.replace("\n", " ")


def test_larger_images_are_reduced_and_earlier_observations_are_of_the_same_episode(dataset):
    from policies.commands.train import Train
    from policies.commands.train_images import _spec
    from policies.lerobot.rows import FromActions

    spec = _spec(Train(dataset=(dataset,), output=Path("p"), horizon=4))
    rows = FromActions(spec=spec, hand_poses={})
    frames = load_dataset(dataset, None, rows, most_pixels=32, n_obs_steps=3)
    assert frames[0].observation.images["wrist"].pixels.shape == (24, 32, 3)
    lengths = [len(frame.observation.history) for frame in frames]
    assert lengths.count(0) == lengths.count(1) == 4  # one each for every episode
    assert set(lengths) == {0, 1, 2}


def test_images_are_as_old_as_on_the_robot_and_of_the_same_episode(dataset):
    from policies.commands.train import Train
    from policies.commands.train_images import _spec
    from policies.lerobot.rows import FromActions

    spec = _spec(Train(dataset=(dataset,), output=Path("p"), horizon=4))
    rows = FromActions(spec=spec, hand_poses={})
    frames = [d.observation for d in load_dataset(dataset, None, rows, image_age_ns=120_000_000)]
    ages = [o.state.t_ns - o.images["chest"].t_ns for o in frames if o.state.t_ns > 150_000_000]
    assert set(ages) == {150_000_000}  # a frame each 50 ms
    first = [o for o in frames if o.state.t_ns == 0]
    assert [o.images["wrist"].t_ns for o in first] == [0] * 4


@pytest.mark.parametrize(
    ("how", "options", "expected"),
    [
        ({"num_joints": 0}, (), "without joints of a robot"),
        ({"kind": "world"}, (), "actions in the room"),
        ({"cameras": ()}, ("--encoder", "small"), "no images"),
        ({}, ("--mask", "wrist=0.5"), "TOP,LEFT,BOTTOM,RIGHT"),
        ({}, ("--mask", "front=0,0,1,1"), "the cameras are chest, wrist"),
        ({}, ("--encoder", "nowhere.pt"), "there is no file nowhere.pt"),
        ({}, ("--recipe", "offset"), "recipe plain, prefix"),
        ({}, ("--random-views", "10"), "needs the scene of a simulator"),
        ({}, ("--encoder", "small", "--estimator-steps", "5"), "--estimator-steps needs the scene"),
        ({}, ("--init", "track", "--mask", "wrist=0,0,1,1"), "go with a new policy"),
        ({}, ("--init", "track"), "has no image encoder"),
        ({}, ("--network", "act", "--device", "cuda"), "--network flow"),
        ({}, ("--network", "act", "--encoder", "small"), "--network flow"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(tmp_path, capsys, how, options, expected):
    folder = write_labels(tmp_path / "labels", episodes=2, frames=34, **how)
    assert trained(folder, tmp_path / "p", *options) == 1
    error = capsys.readouterr().err
    assert expected in error.replace("\n", " ")
    assert "Traceback" not in error
    assert not (tmp_path / "p").exists()


def test_a_policy_goes_on_with_its_own_encoder_and_observations(dataset, tmp_path):
    few = "--image-side", "32", "--horizon", "8"
    assert trained(dataset, tmp_path / "one", *few, "--history", "2", "--mask", "chest=0,0,1,1", steps=2) == 0
    assert trained(dataset, tmp_path / "two", *few, "--init", str(tmp_path / "one"), steps=2) == 0
    one, two = (load_policy(tmp_path / name) for name in ("one", "two"))
    assert two.info.n_obs_steps == one.info.n_obs_steps == 2
    encoder = json.loads((tmp_path / "two" / "encoder.json").read_text())
    assert encoder["masked"][0] == [0.0, 0.0, 1.0, 1.0]


def test_datasets_of_different_cameras_are_not_mixed(tmp_path, capsys):
    one = write_labels(tmp_path / "one", episodes=1, frames=34)
    two = write_labels(tmp_path / "two", episodes=1, frames=34, cameras=("chest",))
    arguments = ["train", "--dataset", str(one), str(two), "--output", str(tmp_path / "p"), "--steps", "2"]
    assert main(arguments) == 1
    assert "one rig" in capsys.readouterr().err.replace("\n", " ")


def test_the_card_names_the_cameras_and_the_record_their_sizes(dataset, tmp_path):
    assert trained(dataset, tmp_path / "p", "--image-side", "32", steps=2) == 0
    training = json.loads((tmp_path / "p" / "config.json").read_text())["training"]
    assert training["images"] == "chest 24x32, wrist 24x32"
    card = (tmp_path / "p" / "README.md").read_text()
    assert "images of chest and wrist" in card
