"""Two hands in one dataset: each is where it was, on the one base that carries both."""

from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

from calibration.anchor import Anchor
from calibration.capture.raw import CaptureWriter, RawCapture
from calibration.capture.values import DeviceInfo, Setup
from calibration.labels.columns import ACTION_NAMES, columns
from calibration.labels.demonstration import from_base
from calibration.labels.export_lerobot import Labelled, export_lerobot
from calibration.labels.two_hands import label_both
from calibration.labels.values import LabelConfig
from calibration.trajectory import Trajectory
from calibration.verdict import Verdict
from robot_runtime.core.values.transforms import rotation_from_6d
from robot_runtime.errors import InvalidValueError
from tests.calibration.labels.walk import RATE_HZ, X_HE, Walk, odometry, tie, walk, world

SIZE = (48, 64)
HANDS = ("right_hand", "left_hand")
TO_THE_LEFT = np.array([0.0, 0.45, 0.0])


def captured(folder: Path) -> tuple[RawCapture, dict[str, list[Anchor]], dict[str, Walk]]:
    """A walk with two hands, 0.45 m apart across the person's heading."""
    rng, truth = np.random.default_rng(0), walk(2, seconds=6.0)
    aside = [
        pin.SE3(X.rotation, X.translation + pin.utils.rotate("z", yaw) @ TO_THE_LEFT)
        for X, yaw in zip(truth.camera, truth.x_WG[:, 2], strict=True)
    ]
    left = Walk(**{**vars(truth), "camera": Trajectory.of(truth.t_ns, aside)})
    truths = {"right_hand": truth, "left_hand": left}
    poses = {"chest": odometry(truth.chest, world(rng), rng)}
    poses |= {role: odometry(each.camera, world(rng), rng) for role, each in truths.items()}
    info = {"kind": "simulated", "size": SIZE, "fps": RATE_HZ}
    devices = {role: DeviceInfo(**info, X_HE=X_HE, gripper="sensor") for role in HANDS}
    setup = Setup(devices={"chest": DeviceInfo(**info), **devices}, more={"board_height_m": 0.0})
    with CaptureWriter(folder, setup) as writer:
        for k, (role, each) in enumerate(poses.items()):
            writer.poses(role, each)
            for i, t_ns in enumerate(truth.t_ns.tolist()):
                bar = np.full((*SIZE, 3), 40, dtype=np.uint8)
                bar[:, (3 * i) % SIZE[1] :] = 120 + 40 * k
                writer.picture(role, t_ns, bar)
                if role != "chest" and i % 4 == 0:
                    writer.width(role, t_ns, 0.02 * k)
        writer.mark(int(truth.t_ns[0]), "begin", "test")
        writer.mark(int(truth.t_ns[-1]) + 1, "end", "test")
    anchors = {
        role: [
            Anchor(
                **vars(tie(each, poses["chest"], poses[role], 0, rng=rng)),
                residuals={}, board={}, verdict=Verdict(),
            )
        ]
        for role, each in truths.items()
    }  # fmt: skip
    return RawCapture.open(folder), anchors, truths


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[Labelled, dict[str, Walk]]:
    capture, anchors, truths = captured(tmp_path_factory.mktemp("both") / "capture")
    config = LabelConfig(use_tags=False, has_shared_clock=True)
    [labelled], without = label_both(capture, config, anchors=anchors)
    assert without == []
    return labelled, truths


def test_each_hand_is_where_it_was_seen_from_the_chest(both):
    labelled, truths = both
    assert all(each.labels.verdict.ok for each in labelled.both)
    for each, role in zip(labelled.both, HANDS, strict=True):
        t_ns, truth = each.labels.t_ns, truths[role]
        X_CW = [X.inverse() for X in truth.chest.sampled(t_ns)]
        hand = truth.camera.sampled(t_ns).then(X_HE)
        wanted = np.array([X.act(p) for X, p in zip(X_CW, hand.p, strict=True)])
        np.testing.assert_allclose(each.labels.X_CE.p, wanted, atol=2e-3)
    right, left = (each.labels for each in labelled.both)
    np.testing.assert_array_equal(right.t_ns, left.t_ns)
    np.testing.assert_array_equal(right.x_WG, left.x_WG)
    np.testing.assert_allclose(from_base(left.x_WG, left.X_GE).p, left.X_WE.p, atol=1e-9)


@pytest.mark.long
def test_one_dataset_has_both_hands_and_three_cameras(both, tmp_path):
    from robot_runtime.dataset.check.dataset import Robot, check_dataset
    from robot_runtime.dataset.stored import StoredDataset

    labelled, _ = both
    folder = tmp_path / "dataset"
    [written] = export_lerobot([labelled], folder)
    assert written.num_frames == len(labelled.labels)
    stored = StoredDataset(folder)
    report = check_dataset(stored, Robot(), with_pictures=True)
    assert report.is_usable, report.to_dict()
    names = stored.features["action"]["names"]
    assert [name for name in names if name.endswith("_arm.x")] == ["right_arm.x", "left_arm.x"]
    assert [name for name in names if "gripper" in name] == ["right_gripper.width", "left_gripper.width"]
    assert {name for name in stored.features if "images" in name} == {
        f"observation.images.{camera}" for camera in ("chest", "right_wrist", "left_wrist")
    }
    assert export_lerobot([labelled], folder)[0].why == "in the dataset already"
    alone = Labelled(labels=labelled.labels, joined=labelled.joined)
    with pytest.raises(InvalidValueError, match="one demonstration has two hands"):
        export_lerobot([labelled, alone], tmp_path / "mixed")


@pytest.mark.long
def test_base_and_left_hand_of_an_action_give_back_the_left_hand(both, tmp_path):
    from calibration.labels.columns import with_other_hand

    labelled, _ = both
    right, left = (each.labels for each in labelled.both)
    out = with_other_hand(columns(right), right, left)
    one = len(ACTION_NAMES)
    action = out["action"]
    assert action.shape == (len(right), 2 * one - 3)
    np.testing.assert_allclose(action[:, :one], columns(right)["action"])
    R = rotation_from_6d(action[0, one + 3 : one + 9])
    np.testing.assert_allclose(R, left.X_GE.R[0], atol=1e-6)
    np.testing.assert_allclose(action[:, one : one + 3], left.X_GE.p, atol=1e-6)
    np.testing.assert_allclose(action[:, -1], 0.04, atol=1e-6)


def test_both_hands_are_asked_of_a_capture_that_has_them(tmp_path):
    from tests.calibration.labels.walk import capture_of

    truth = walk(2, seconds=2.0)
    capture = capture_of(tmp_path / "capture", truth, truth.chest, truth.camera)
    with pytest.raises(InvalidValueError, match="has no left_hand and no right_hand"):
        label_both(capture, LabelConfig())
