"""A capture's labels are what the check believes, whoever asks for them."""

import numpy as np
import pinocchio as pin
import pytest

from calibration.anchor import Anchor
from calibration.capture.raw import RawCapture
from calibration.labels.export_lerobot import provenance
from calibration.labels.label import label_capture
from calibration.labels.values import LabelConfig
from calibration.store import pose_to_json
from calibration.verdict import Verdict
from robot_runtime.errors import InvalidValueError
from tests.calibration.labels.walk import capture_of, odometry, tie, walk, world

CONFIG = LabelConfig(use_tags=False, has_shared_clock=True)


@pytest.fixture
def captured(tmp_path) -> tuple[RawCapture, Anchor]:
    """A good one, and the anchor of it."""
    rng, truth = np.random.default_rng(0), walk(2, seconds=6.0)
    chest, hand = odometry(truth.chest, world(rng), rng), odometry(truth.camera, world(rng), rng)
    found = tie(truth, chest, hand, 0, rng=rng)
    anchor = Anchor(**vars(found), residuals={}, board={}, verdict=Verdict())
    return capture_of(tmp_path / "capture", truth, chest, hand), anchor


def test_a_good_capture_gives_labels_that_can_be_used(captured):
    capture, anchor = captured
    found = label_capture(capture, CONFIG, anchors=[anchor])
    [labels] = found.labels
    assert labels.verdict.ok
    assert found.without == ()
    assert "anchor_0" in found.joined.hashes


def test_what_the_check_refuses_is_labelled_and_refused(captured):
    capture, anchor = captured
    table = capture.path / "hand" / "gripper.csv"
    table.chmod(0o644)
    table.write_text(table.read_text().replace("0.04", "0.05", 1))
    [labels] = label_capture(RawCapture.open(capture.path), CONFIG, anchors=[anchor]).labels
    assert not labels.verdict.ok
    assert "changed" in labels.verdict.names


def test_labels_want_an_anchor_and_a_hand_that_are_there(captured):
    capture, anchor = captured
    with pytest.raises(InvalidValueError, match="at least one anchor"):
        label_capture(capture, CONFIG, anchors=[])
    with pytest.raises(InvalidValueError, match="no anchor clip"):
        label_capture(capture, CONFIG)
    with pytest.raises(InvalidValueError, match="has no left_hand"):
        label_capture(capture, CONFIG, anchors=[anchor], hand="left_hand")


def test_a_tcp_that_is_found_after_the_recording_is_given_to_its_labels(captured):
    capture, anchor = captured
    there = label_capture(capture, CONFIG, anchors=[anchor]).labels[0].X_WE
    aside = capture.devices["hand"].info.X_HE * pin.SE3(np.eye(3), np.array([0.0, 0.0, 0.1]))
    found = label_capture(RawCapture.open(capture.path), CONFIG, anchors=[anchor], X_HE=aside)
    off = found.labels[0].X_WE.p - there.p
    np.testing.assert_allclose(np.linalg.norm(off, axis=1), 0.1, atol=1e-6)
    assert found.labels[0].verdict.ok  # nothing of the capture was changed
    assert provenance(found.joined)["devices"]["hand"]["pose_camera_tcp"] == pose_to_json(aside)
