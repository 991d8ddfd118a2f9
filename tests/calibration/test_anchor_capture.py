"""An anchor of a capture on disk, as the command makes it."""

from pathlib import Path

import numpy as np
import pytest

from calibration.anchor import Anchor
from calibration.store import load
from robot_runtime.cli import main
from sim.capture.drills import anchor_take
from sim.capture.rig import CLEAN, RigConfig
from sim.capture.session import simulate_session


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("session")
    takes = [anchor_take(np.random.default_rng(0), stations=3)]
    simulate_session(takes, RigConfig(noise=CLEAN, seed=3, glimpses=False, tags=False), folder)
    return folder


def test_the_command_finds_the_anchor_of_a_capture(session, tmp_path, capsys):
    file = tmp_path / "anchor.json"
    assert main(["calibrate", "anchor", str(session / "capture"), "--output", str(file)]) == 0
    assert "usable" in capsys.readouterr().out
    anchor = load(file, Anchor)
    assert anchor.residuals["held_out_px"] < 0.5
    assert anchor.sigma[0] < 1e-3  # m


def test_a_hand_or_a_clip_that_is_not_there_is_said(session, tmp_path, capsys):
    to = ["--output", str(tmp_path / "anchor.json")]
    assert main(["calibrate", "anchor", str(session / "capture"), "--hand", "left_hand", *to]) == 1
    assert "valid: chest, hand" in capsys.readouterr().err
