"""A dataset that is learnt from is one, of the rate that rows have."""

import json
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from rich.progress import Progress

from policies.commands.train import Train
from policies.lerobot.data import load_dataset
from policies.lerobot.describe import Declared, Numbers
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from sim.commands.train_data import demonstrations, training_data
from sim.demonstrations.demonstrations import collect
from sim.tasks import make_task


def test_a_dataset_of_another_rate_is_refused_with_both(tmp_path):
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text(json.dumps({"fps": 15, "features": {}}))
    options = Train(task=("track",), output=tmp_path / "out", dataset=(tmp_path,))
    with pytest.raises(InvalidValueError, match="has 15 frames a second; rows here are 20 a second"):
        demonstrations(options, Progress())


def test_a_raw_capture_is_named_where_a_dataset_is_wanted(tmp_path):
    (tmp_path / "capture.json").write_text("{}")
    options = Train(task=("fetch",), output=tmp_path / "out", dataset=(tmp_path,))
    with pytest.raises(InvalidValueError, match="it is a raw capture: see capture label"):
        demonstrations(options, Progress())
    with pytest.raises(InvalidValueError, match="it is a raw capture: see capture label"):
        load_dataset(tmp_path)
    with pytest.raises(InvalidValueError, match="it is a raw capture: see capture label"):
        Numbers.of_dataset(tmp_path, Declared())


def test_demonstrations_without_the_numbers_of_the_scene_are_refused_before_the_training(tmp_path):
    found = collect("track", num_episodes=1, seed=0, num_workers=1)
    blind = [
        replace(d, observation=structs.replace(d.observation, environment_state=np.zeros(0))) for d in found
    ]
    options = Train(task=("track",), output=tmp_path / "out", dataset=(tmp_path,))
    wanted = make_task("track").schema.environment_state_dim
    with pytest.raises(
        InvalidValueError, match=rf"expected {wanted} numbers of the scene .* got 0: record it"
    ):
        training_data(options, blind, None, Progress())


@pytest.mark.parametrize(
    ("loss", "network"), [(310_520.0, "flow"), (float("nan"), "flow"), (float("inf"), "act")]
)
def test_a_training_whose_loss_is_far_off_says_so_and_fails(tmp_path, loss, network):
    (tmp_path / "config.json").write_text(json.dumps({"training": {"final_loss": loss}}))
    options = Train(task=("track",), output=tmp_path, network=network)
    times = {"train_s": 1.0, "train_cpu_s": 1.0}
    with pytest.raises(RobotRuntimeError, match=r"the loss at the end is .* do not run the policy"):
        options.report("recipe prefix", num_steps=1, num_samples=1, times=times)


@pytest.mark.parametrize(
    ("recipe", "rows", "words"),
    [
        ("prefix", 0, "max_delay is 1 or more .* got 0; recipe plain has none"),
        ("lambda-mask", 0, "max_delay is 1 or more"),
        ("mixed-schedule", 40, r"max_delay lies in 0\.\.31 for chunks of 32 rows, got 40"),
        ("offset", 32, r"max_delay lies in 0\.\.31"),
    ],
)
def test_delays_that_nothing_can_be_learned_of_are_refused_before_the_work(tmp_path, recipe, rows, words):
    options = Train(task=("track",), output=tmp_path / "out", recipe=recipe, max_delay=rows)
    with pytest.raises(InvalidValueError, match=words):
        options.main()
    assert not (tmp_path / "out").exists()
