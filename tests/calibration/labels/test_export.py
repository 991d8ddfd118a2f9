"""Labels become datasets that stock readers read, and our check finds nothing wrong with."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from calibration.anchor import Anchor
from calibration.commands.capture.reach import Target, at_least_pace
from calibration.labels.columns import ACTION_NAMES, BASE_POSES, columns, points_of
from calibration.labels.demonstration import labels_of
from calibration.labels.export_lerobot import META, Labelled, export_lerobot
from calibration.labels.export_umi import export_umi
from calibration.labels.feasibility import feasibility, moved_base, place_robot
from calibration.labels.joined import join
from calibration.labels.smoothing import Pace
from calibration.labels.values import HandClock, LabelConfig
from calibration.store import save
from calibration.verdict import Verdict
from robot_runtime.cli import main
from robot_runtime.core.values.transforms import rotation_from_6d
from robot_runtime.errors import InvalidValueError
from tests.calibration.labels.walk import X_HE, capture_of, odometry, tie, walk, world

SIZE = (48, 64)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory) -> Labelled:
    return labelled_in(tmp_path_factory.mktemp("export") / "capture", LabelConfig(use_tags=False))


def labelled_in(folder, config: LabelConfig) -> Labelled:
    truth = walk(2, seconds=6.0)
    rng = np.random.default_rng(0)
    chest, hand = (odometry(path, world(rng), rng) for path in (truth.chest, truth.camera))
    capture = capture_of(folder, truth, chest, hand, size=SIZE)
    joined = join(capture, [tie(truth, chest, hand, 0, rng=rng)], config, HandClock())
    return Labelled(labels=labels_of(joined, capture.demonstrations()[0]), joined=joined)


class Ball:
    """An arm whose hand gets everywhere within a metre of its shoulder, and turns as it likes."""

    num_joints = 6
    q_home = np.zeros(6)
    dq_max = np.full(6, 10.0)

    def solve(self, X_BE: pin.SE3, q_start: np.ndarray) -> tuple[np.ndarray, bool]:
        p = X_BE.translation - [0.0, 0.0, 0.8]
        return np.concatenate([p, pin.log3(X_BE.rotation)]), bool(np.linalg.norm(p) < 0.75)


def test_a_dataset_of_a_capture_is_one_that_the_check_finds_good(labelled, tmp_path):
    from robot_runtime.dataset.check.dataset import Robot, check_dataset
    from robot_runtime.dataset.stored import StoredDataset

    folder = tmp_path / "dataset"
    [written] = export_lerobot([labelled], folder, scene=points_of(["cup"]))
    assert written.num_frames == len(labelled.labels)
    report = check_dataset(StoredDataset(folder), Robot(), with_pictures=True)
    assert report.is_usable, report.to_dict()
    assert len(list((folder / META).glob("*.json"))) == 1
    again = export_lerobot([labelled], folder, scene=points_of(["cup"]))
    assert again[0].why == "in the dataset already"


def test_what_a_robot_does_slower_than_the_person_is_a_dataset_of_its_own(labelled, tmp_path):
    from robot_runtime.dataset.check.dataset import Robot, check_dataset
    from robot_runtime.dataset.stored import StoredDataset

    slow = labelled_in(tmp_path / "capture", LabelConfig(use_tags=False, slower=1.5))
    [written] = export_lerobot([slow], tmp_path / "dataset", scene=points_of(["cup"]))
    assert written.num_frames == pytest.approx(1.5 * len(labelled.labels), abs=2)
    report = check_dataset(StoredDataset(tmp_path / "dataset"), Robot(), with_pictures=True)
    assert report.is_usable, report.to_dict()
    assert "stale" not in {finding.check for finding in report.findings}
    with pytest.raises(InvalidValueError, match=r"takes 1\.5 times as long as the person, here 1: "):
        export_lerobot([labelled], tmp_path / "dataset", scene=points_of(["cup"]))
    with pytest.raises(InvalidValueError, match=r"is 1\.5 times slower; the first"):
        export_lerobot([labelled, slow], tmp_path / "both")


def test_stock_lerobot_reads_it_and_base_and_hand_give_back_the_hand(labelled, tmp_path):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    folder = tmp_path / "dataset"
    export_lerobot([labelled], folder)
    data = LeRobotDataset("a/b", root=folder)
    row = data[len(data) // 2]
    base, hand = row["action"][:3].double().numpy(), row["action"][3:12].double().numpy()
    X_WB = pin.SE3(pin.utils.rotate("z", base[2]), np.array([*base[:2], 0.0]))
    X_BE = pin.SE3(rotation_from_6d(hand[3:]), hand[:3])
    world_hand = row["observation.pose_world_hand"].double().numpy()
    np.testing.assert_allclose((X_WB * X_BE).translation, world_hand[:3], atol=1e-6)
    assert row["observation.images.chest"].shape == (3, *SIZE)
    assert row["capture.time_ns.state"].item() == labelled.labels.t_ns[len(data) // 2]
    assert tuple(data.features["labels.world"]["names"]) == ACTION_NAMES


def test_a_base_that_turns_round_turns_on_in_all_its_columns(labelled):
    labels = labelled.labels
    turns = np.linspace(3.0, 10.0, len(labels)) - labels.x_WG[0, 2]
    turned = [np.column_stack([x[:, :2], x[:, 2] + turns]) for x in (labels.x_WG, labels.x_WP)]
    told = columns(replace(labels, x_WG=turned[0], x_WP=turned[1]))
    for name in ("action", "labels.world", "labels.chest", BASE_POSES, "label.person"):
        yaw = told[name][:, 2]
        assert np.abs(np.diff(yaw)).max() < 1.0, name
        assert yaw[-1] - yaw[0] > 5.0, name


def test_what_is_of_other_labels_does_not_go_into_a_dataset(labelled, tmp_path):
    export_lerobot([labelled], tmp_path / "dataset")
    with pytest.raises(InvalidValueError, match="decoupled labels, here world"):
        export_lerobot([labelled], tmp_path / "dataset", kind="world")
    with pytest.raises(InvalidValueError, match="environment_state"):
        export_lerobot([labelled], tmp_path / "dataset", scene=points_of(["cup"]))


def test_stock_zarr_reads_the_umi_dataset(labelled, tmp_path):
    import zarr

    path = tmp_path / "umi.zarr"
    written = export_umi([labelled], path, side=32)
    rows = written.num_rows
    assert str(written) == f"1 episodes, {rows} rows, with images (camera0_rgb)"
    found = zarr.open(str(path), mode="r")
    assert found["meta/episode_ends"][:].tolist() == [rows] == [len(labelled.labels)]
    np.testing.assert_allclose(found["data/robot0_eef_pos"][:], labelled.labels.X_WE.p, atol=1e-6)
    assert found["data/camera0_rgb"].shape == (rows, 32, 32, 3)
    assert found["data/camera0_rgb"][rows - 1].max() > 0
    for name in ("eef_rot_axis_angle", "gripper_width", "demo_start_pose", "demo_end_pose"):
        assert found[f"data/robot0_{name}"].shape[0] == rows
    with pytest.raises(InvalidValueError, match="exists"):
        export_umi([labelled], path)


def test_a_robot_is_put_where_its_arm_reaches_most(labelled):
    x_GB = place_robot([labelled.labels], Ball())
    done = feasibility(labelled.labels, reach=Ball(), x_GB=x_GB)
    assert done.reached_share > 0.98
    assert done.verdict.ok, str(done.verdict)
    np.testing.assert_allclose(done.x_WB, moved_base(labelled.labels.x_WG, x_GB))


def test_what_a_robot_cannot_do_is_named(labelled):
    far = feasibility(labelled.labels, reach=Ball(), x_GB=np.array([-1.5, 0.0, 0.0]))
    assert "out-of-reach" in far.verdict.names
    slow = feasibility(labelled.labels, pace=Pace(speed=0.1, turn=0.1))
    assert "base-too-fast" in slow.verdict.names
    aside = feasibility(labelled.labels, x_GB=np.array([0.0, 0.0, np.pi / 2]), is_holonomic=False)
    assert "sideways-way" in aside.verdict.names


def test_rows_are_drawn_by_what_stops_the_robot_there(labelled, tmp_path):
    from calibration.labels.picture import draw_reach, rows_by_verdict

    half = Ball()
    half.dq_max = np.full(6, 0.2)
    done = feasibility(labelled.labels, reach=half, x_GB=np.array([-0.1, 0.0, np.pi / 2]), is_holonomic=False)
    rows = rows_by_verdict(done)
    assert (sum(each.astype(int) for each in rows.values()) == 1).all()
    assert (rows["out of reach"] == ~done.reached).all()
    assert rows["too fast"].any()
    assert done.is_sideways.mean() > 0.2
    for each in (replace(labelled, done=done), replace(labelled, done=feasibility(labelled.labels))):
        draw_reach([each] * 2, tmp_path / "reach.png")
        assert (tmp_path / "reach.png").stat().st_size > 10_000


def at_pace(labelled: Labelled, slower: float) -> Labelled:
    joined = replace(labelled.joined, config=replace(labelled.joined.config, slower=slower))
    return Labelled(labels=labels_of(joined, joined.capture.demonstrations()[0]), joined=joined)


@pytest.mark.parametrize(
    ("share", "bound", "is_kept"), [(0.5, 2.0, True), (1.3, 2.0, True), (3.0, 2.0, False)]
)
def test_the_shortest_pace_that_the_robot_s_limits_allow_is_chosen(labelled, share, bound, is_kept):
    arm = Ball()
    asked = feasibility(labelled.labels, reach=arm, x_GB=np.zeros(3)).joint_share
    arm.dq_max = arm.dq_max * asked / share  # so that a joint would need that share of its limit
    target = Target(name="ball", reach=arm, place=lambda labels: np.zeros(3))
    tried = []

    def of(slower: float) -> list[Labelled]:
        tried.append(slower)
        return [at_pace(labelled, slower)]

    [found], _, slower = at_least_pace(of, target, bound)
    if is_kept:
        assert max(1.0, share) - 0.03 <= slower <= max(1.0, share) + 0.1
        assert found.done.joint_share < 1.05
        assert found.labels.slower == slower
    else:
        assert slower == 1.0  # what cannot be kept does not slow down the others
        assert not found.done.verdict.ok
        assert "joints-too-fast" in found.done.verdict.names
    assert len(tried) < 6


def test_fingers_that_open_further_than_the_robot_s_are_told_and_no_reason_to_refuse(labelled):
    widest = float(np.nanmax(labelled.labels.width))
    assert feasibility(labelled.labels, most_width_m=widest).verdict.names == ()
    narrow = feasibility(labelled.labels, most_width_m=widest / 2).verdict
    assert (narrow.names, narrow.ok) == (("wider-than-gripper",), True)
    assert f"{1e3 * widest:.0f} mm; the robot's to {5e2 * widest:.0f} mm" in str(narrow.reasons[0].what)


def test_the_hand_camera_of_the_capture_is_not_the_tcp(labelled):
    at = labelled.labels.X_WE[5] * X_HE.inverse()
    assert np.linalg.norm(at.translation - labelled.labels.X_WE.p[5]) == pytest.approx(
        float(np.linalg.norm(X_HE.translation)), abs=1e-9
    )


def test_what_the_check_refuses_is_not_exported(tmp_path, capsys):
    truth, rng = walk(2, seconds=6.0), np.random.default_rng(0)
    p = truth.camera.p.copy()
    p[60:70] += [0.0, 0.0, 0.08]  # tracking slipped and came back
    hand = replace(truth.camera, p=p)
    capture = capture_of(tmp_path / "capture", truth, truth.chest, hand, lean=False)
    seen = tie(truth, truth.chest, truth.camera, 0, rng=rng)
    anchor = Anchor(
        X_WcWh=seen.X_WcWh, X_WcB=seen.X_WcB, covariance=seen.covariance, chest_ns=seen.chest_ns,
        hand_ns=seen.hand_ns, residuals={}, board={}, verdict=Verdict(),
    )  # fmt: skip
    save(tmp_path / "anchor.json", anchor)
    command = [
        "capture",
        "label",
        str(capture.path),
        "--shared-clock",
        "--anchors",
        f"{tmp_path}/anchor.json",
    ]
    assert main([*command, "--umi", str(tmp_path / "a.zarr")]) == 1
    said = capsys.readouterr()
    assert "pose-jump" in said.out
    assert "no demonstration can be used" in said.err
    assert not (tmp_path / "a.zarr").exists()
