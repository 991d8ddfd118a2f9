"""A dataset that is learnt from is one, of the rate that rows have."""

import json

import pytest
from rich.progress import Progress

from policies.lerobot.data import load_dataset
from policies.lerobot.describe import Numbers, Told
from robot_runtime.cli.train import Train
from robot_runtime.cli.train_data import demonstrations
from robot_runtime.errors import InvalidValueError


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
        Numbers.of_dataset(tmp_path, Told())


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
