"""A dataset that is learnt from is of the rate that rows have."""

import json

import pytest
from rich.progress import Progress

from robot_runtime.cli.train import Train
from robot_runtime.cli.train_data import demonstrations
from robot_runtime.errors import InvalidValueError


def test_a_dataset_of_another_rate_is_refused_with_both(tmp_path):
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text(json.dumps({"fps": 15, "features": {}}))
    options = Train(task=("track",), output=tmp_path / "out", dataset=(tmp_path,))
    with pytest.raises(InvalidValueError, match="has 15 frames a second; rows here are 20 a second"):
        demonstrations(options, Progress())
