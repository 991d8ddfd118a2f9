"""A newcomer's first capture: made by a command, and good for the others."""

from pathlib import Path

import pytest

from calibration.capture.raw import RawCapture
from robot_runtime.cli import main


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures") / "sample"
    assert main(["capture", "sample", "--output", str(folder), "--demonstrations", "1", "--seed", "1"]) == 0
    return folder


def test_a_sample_is_a_capture_whose_demonstrations_can_be_used(sample, capsys):
    assert main(["capture", "check", str(sample)]) == 0
    said = capsys.readouterr().out
    assert "1 of 1 demonstrations can be used" in said
    assert "━" not in said  # bars go when all is done
    assert {"chest", "hand"} == set(RawCapture.open(sample).devices)


def test_nothing_of_the_simulation_is_left_beside_or_in_it(sample):
    assert [path.name for path in sample.parent.iterdir()] == ["sample"]
    assert not list(sample.rglob("truth*"))
