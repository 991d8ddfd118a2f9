"""`capture match`: a robot's cameras against those of a capture or a dataset, and the file that it names."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pinocchio as pin
import pytest

from calibration.camera import CameraModel, Intrinsics, KannalaBrandt, Pinhole
from calibration.camera_match import CameraMatch, MountedCamera
from calibration.capture.raw import RawCapture
from calibration.captured_cameras import captured_cameras
from calibration.chest import ChestCamera, Mount
from calibration.commands.capture.match import CaptureMatch
from calibration.hand_eye import HandEye
from calibration.labels.closure import Tie
from calibration.labels.demonstration import labels_of
from calibration.labels.export_lerobot import META, Labelled, export_lerobot
from calibration.labels.joined import join
from calibration.labels.values import HandClock, LabelConfig
from calibration.matched_camera import MatchedCamera
from calibration.store import load, save
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot_file import RobotFile, open_robot
from tests.calibration.labels.walk import PITCH, R_CAMERA, X_HE, capture_of, odometry, tie, walk, world

RECORDED, DATASET = (96, 128), (48, 48)
HAND_LENS = KannalaBrandt(size=RECORDED, fx=46.0, fy=46.0, cx=63.0, cy=48.0, k1=0.02)
CHEST_LENS = Pinhole(size=RECORDED, fx=70.0, fy=70.0, cx=63.5, cy=47.5)
ROBOT_LENSES: dict[str, CameraModel] = {
    "wrist": KannalaBrandt(size=(120, 160), fx=50.0, fy=50.0, cx=80.0, cy=60.0),
    "chest": Pinhole(size=(120, 160), fx=70.0, fy=70.0, cx=80.0, cy=60.0),
}
X_EH = X_HE.inverse()
MOVED = pin.SE3(pin.exp3(np.deg2rad(5.0) * np.array([0.6, 0.8, 0.0])), np.array([0.02, 0.0, 0.0]))
"""By how far the robot's wrist camera is elsewhere."""
TEXT = """
[parts.arm]
driver = "ideal-arm"

[cameras.wrist]
driver = "my_camera.py:MyCamera"
calibration = "wrist.json"

[cameras.chest]
driver = "my_camera.py:MyCamera"
calibration = "chest.json"
"""
CAMERA = """
import numpy as np
from robot_runtime import Image

class MyCamera:
    def __init__(self, size: list[int] = [120, 160]):
        self.size = tuple(size)
    def read(self):
        return Image(t_ns=42, pixels=np.full((*self.size, 3), 90, np.uint8))
    def close(self):
        pass
"""


X_GC = pin.SE3(pin.utils.rotate("y", PITCH) @ R_CAMERA, np.array([0.15, 0.02, 1.33]))
"""The robot's chest camera, about where the person's is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Walked:
    raw: RawCapture
    tie: Tie


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Walked:
    truth, rng = walk(2, seconds=3.0), np.random.default_rng(0)
    chest, hand = (odometry(path, world(rng), rng) for path in (truth.chest, truth.camera))
    folder, cameras = tmp_path_factory.mktemp("rig") / "capture", {"chest": CHEST_LENS, "hand": HAND_LENS}
    raw = capture_of(folder, truth, chest, hand, size=RECORDED, cameras=cameras)
    return Walked(raw=raw, tie=tie(truth, chest, hand, 0, rng=rng))


@pytest.fixture(scope="module")
def capture(walked: Walked) -> Path:
    return walked.raw.path


@pytest.fixture(scope="module")
def dataset(walked: Walked, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Importing LeRobot takes seconds, so whoever wants this is long."""
    joined = join(walked.raw, [walked.tie], LabelConfig(use_tags=False), HandClock())
    labels = labels_of(joined, walked.raw.demonstrations()[0])
    folder = tmp_path_factory.mktemp("dataset") / "fetch"
    export_lerobot([Labelled(labels=labels, joined=joined)], folder, size=DATASET)
    return folder


def match_of(source: Path, robot: Path, **more: Any) -> int:
    """The command's exit code, at the size of a dataset's images, with its files in maps/."""
    size = DATASET if (source / "capture.json").is_file() else None
    return CaptureMatch(dataset=source, robot=robot, size=size, output=robot.parent / "maps", **more).main()


def hand_eye(X_EC: pin.SE3, lens: CameraModel) -> HandEye:
    return HandEye(X_EC=X_EC, X_AB=X_EC, covariance=np.eye(6) * 1e-8, num_views=20, camera=lens.to_dict())


@pytest.fixture
def robot(tmp_path: Path) -> Path:
    """A robot whose chest camera is about the person's, and whose wrist camera is moved."""
    (tmp_path / "my_camera.py").write_text(CAMERA)
    (tmp_path / "robot.toml").write_text(TEXT)
    save(tmp_path / "wrist.json", hand_eye(X_EH * MOVED, ROBOT_LENSES["wrist"]))
    lens = ROBOT_LENSES["chest"].to_dict()
    found = ChestCamera(X_GC=X_GC, covariance=np.eye(6) * 1e-8, source="", num_views=20, camera=lens)
    save(tmp_path / "chest.json", found)
    return tmp_path / "robot.toml"


def matched(robot: Path, name: str = "wrist") -> Path:
    """The robot's file with a match of one camera."""
    text = robot.read_text().replace(
        f"[cameras.{name}]", f'[cameras.{name}]\nmatch = "maps/{name}.match.json"'
    )
    robot.write_text(text)
    return robot


def test_a_capture_s_cameras_are_at_the_size_of_a_dataset_s_images(capture: Path) -> None:
    found = captured_cameras(capture, DATASET)
    assert {*found} == {"chest", "wrist"}
    assert found["wrist"].lens.size == found["chest"].lens.size == DATASET
    assert found["wrist"].lens.fx == pytest.approx(46.0 * 48 / 128)
    assert found["wrist"].X_MC is not None
    assert found["wrist"].X_MC.isApprox(X_EH)
    assert found["wrist"].distance_m == pytest.approx(0.2)
    assert captured_cameras(capture)["wrist"].lens == HAND_LENS


def test_of_a_capture_s_chest_camera_pitch_and_roll_are_kept_and_the_rest_is_the_robot_s(
    capture: Path,
) -> None:
    found = captured_cameras(capture)["chest"]
    assert found.stance is not None
    assert found.stance.pitch == pytest.approx(PITCH, abs=np.deg2rad(12.0))  # the person leans
    turned = pin.SE3(pin.utils.rotate("z", 0.3), np.zeros(3)) * X_GC
    camera, reasons = found.mounted(turned)
    assert [reason.name for reason in reasons] == ["pose-unknown"]
    again = Mount.of(camera.X_MC)
    assert again.pitch == pytest.approx(found.stance.pitch, abs=1e-9)
    assert again.roll == pytest.approx(found.stance.roll, abs=1e-9)
    np.testing.assert_allclose(camera.X_MC.translation, turned.translation)
    x, y, _ = camera.X_MC.rotation[:, 2]
    assert np.arctan2(y, x) == pytest.approx(0.3, abs=0.05)


def test_the_report_has_each_camera_and_the_written_files_make_the_robot_see_as_captured(
    capture: Path, robot: Path, capsys: pytest.CaptureFixture
) -> None:
    assert match_of(capture, robot) == 0
    said = capsys.readouterr().out
    assert "camera wrist: usable" in said
    assert "camera chest: usable" in said
    assert 'match = "maps/wrist.match.json"' in said
    match = load(robot.parent / "maps" / "wrist.match.json", CameraMatch)
    assert match.figures["mount_mm"] == pytest.approx(20.0, abs=0.01)
    assert match.figures["mount_deg"] == pytest.approx(5.0, abs=0.01)
    with open_robot(str(matched(matched(robot), "chest"))) as opened:
        for name in ("wrist", "chest"):
            camera = opened.robot.cameras[name]
            assert isinstance(camera, MatchedCamera)
            assert camera.unmatched.size == ROBOT_LENSES[name].size
            image = camera.read()
            assert image.t_ns == 42
            assert image.pixels.shape == (*DATASET, 3)
            assert np.median(image.pixels) == 90


@pytest.mark.long
def test_a_dataset_has_the_chest_camera_s_pose_in_the_base_and_the_distance_of_the_hands(
    dataset: Path, robot: Path
) -> None:
    found = captured_cameras(dataset)
    assert {*found} == {"chest", "wrist"}
    assert found["wrist"].lens.fx == pytest.approx(46.0 * 48 / 128)
    chest = found["chest"]
    assert chest.X_MC is not None
    assert Mount.of(chest.X_MC).pitch == pytest.approx(PITCH, abs=np.deg2rad(12.0))
    np.testing.assert_allclose(chest.X_MC.translation, X_GC.translation, atol=0.08)
    assert 0.2 < chest.distance_m < 0.8
    assert chest.sway is not None
    assert 0.001 < chest.sway[0] < 0.2
    assert match_of(dataset, robot, images=str(dataset)) == 0


def test_brightness_of_given_images_is_compared(
    capture: Path, robot: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = robot.parent / "now"
    folder.mkdir()
    for name in ("wrist", "chest"):
        cv2.imwrite(str(folder / f"{name}.png"), np.full((120, 160, 3), 240, np.uint8))
    assert match_of(capture, robot, images=str(folder)) == 0
    assert "brightness: the robot's images are" in capsys.readouterr().out
    cv2.imwrite(str(folder / "wrist.png"), np.full((240, 320, 3), 240, np.uint8))
    with pytest.raises(
        InvalidValueError, match=r"expected images of wrist of \(120, 160\).*got \(240, 320\)"
    ):
        match_of(capture, robot, images=str(folder))


def without_wrist(robot: Path) -> None:
    robot.write_text(TEXT.replace("cameras.wrist", "cameras.front"))


def without_calibration(robot: Path) -> None:
    robot.write_text(TEXT.replace('calibration = "wrist.json"', ""))


def lens_alone(robot: Path) -> None:
    save(robot.parent / "wrist.json", Intrinsics(camera=ROBOT_LENSES["wrist"]))


def chest_without_lens(robot: Path) -> None:
    found = load(robot.parent / "chest.json", ChestCamera)
    save(
        robot.parent / "chest.json",
        ChestCamera(X_GC=found.X_GC, covariance=np.eye(6), source="", num_views=9),
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without_wrist, "has no camera wrist, .*it has front, chest: add"),
        (without_calibration, "cameras.wrist needs its calibration"),
        (lens_alone, "cameras.wrist.calibration: expected .*hand_eye.*got one of kind camera"),
        (chest_without_lens, "cameras.chest.calibration: .*run calibrate chest again"),
    ],
)
def test_a_robot_that_cannot_be_matched_is_refused_in_a_sentence(
    capture: Path, robot: Path, change: Callable[[Path], None], says: str
) -> None:
    change(robot)
    with pytest.raises(InvalidValueError, match=says) as refused:
        match_of(capture, robot)
    assert "\n" not in str(refused.value)


@pytest.mark.long
def test_a_dataset_of_no_rig_or_of_two_is_refused_in_a_sentence(
    dataset: Path, robot: Path, tmp_path: Path
) -> None:
    two = tmp_path / "two"
    shutil.copytree(dataset, two)
    [file] = (two / META).glob("*.json")
    (two / META / "0.json").write_text(file.read_text().replace('"fx": 46.0', '"fx": 52.0'))
    with pytest.raises(InvalidValueError, match=r"of two rigs: the wrist camera of .* is another lens"):
        match_of(two, robot)
    shutil.rmtree(two / META)
    with pytest.raises(InvalidValueError, match="not made by capture label"):
        match_of(two, robot)


def test_a_camera_too_far_off_is_refused_and_its_file_cannot_be_used(
    capture: Path, robot: Path, capsys: pytest.CaptureFixture
) -> None:
    far = X_EH * pin.SE3(np.eye(3), np.array([0.08, 0.0, 0.0]))
    save(robot.parent / "wrist.json", hand_eye(far, ROBOT_LENSES["wrist"]))
    assert match_of(capture, robot) == 1
    assert "camera wrist: NOT USABLE" in capsys.readouterr().out
    with (
        pytest.raises(InvalidValueError, match=r"cameras.wrist.match: .*refused when it was made"),
        open_robot(str(matched(robot))),
    ):
        pass


def test_another_lens_size_or_camera_at_run_time_is_refused_in_a_sentence(capture: Path, robot: Path) -> None:
    match_of(capture, robot)
    matched(robot)

    def refused(says: str, *settings: str) -> None:
        with pytest.raises(InvalidValueError, match=says) as error, open_robot(str(robot), settings):
            pass
        assert "\n" not in str(error.value)

    refused(
        r"cameras.wrist.match: expected images of \(120, 160\).*got \(60, 80\)", "cameras.wrist.size=[60, 80]"
    )
    refused(
        r"expected the match of camera wrist, got that of chest",
        'cameras.wrist.match="maps/chest.match.json"',
    )
    refused(r"there is no such file", 'cameras.wrist.match="maps/other.json"')
    save(robot.parent / "wrist.json", hand_eye(X_EH, ROBOT_LENSES["wrist"]))
    refused(r"cameras.wrist.match: .*was made for another lens, size or pose")
    with RobotFile.load(robot).open(failed := {}) as opened:  # as the doctor does
        assert {*opened.robot.cameras} == {"chest"}
        assert {*failed} == {"cameras.wrist"}


def test_a_match_without_a_calibration_is_refused(robot: Path) -> None:
    robot.write_text(matched(robot).read_text().replace('calibration = "wrist.json"', ""))
    with pytest.raises(InvalidValueError, match=r"cameras.wrist.match needs the camera's calibration"):
        RobotFile.load(robot)


def test_equal_cameras_are_the_same_but_for_rounding() -> None:
    one = MountedCamera(lens=HAND_LENS, X_MC=X_EH)
    assert one.is_same(
        MountedCamera(lens=HAND_LENS, X_MC=X_EH * pin.SE3(pin.exp3(np.full(3, 1e-9)), np.zeros(3)))
    )
    assert not one.is_same(MountedCamera(lens=HAND_LENS, X_MC=X_EH * MOVED))
