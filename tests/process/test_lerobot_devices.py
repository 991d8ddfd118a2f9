"""What a LeRobot device's own process does, in this one: made by name, refused in words, held in trouble."""

import io
import json
import os
import time

import numpy as np
import pytest

pytest.importorskip("lerobot")

from drivers.child import MESSAGES, SLOT, Newest
from drivers.lerobot.camera_process import CameraLoop
from drivers.lerobot.known import known_of
from drivers.lerobot.loading import RefusedError, connect, make_device
from drivers.lerobot.messages import CameraConfig, CameraReport, DeviceConfig, DeviceOrder, DeviceReport
from drivers.lerobot.pictures import Pictures
from drivers.lerobot.robot_process import DeviceLoop
from drivers.lerobot.tables import tables_from_features, tables_from_plain
from tests.process import patient_feetech
from tests.process.feetech_bus import FeetechBus

PLUGINS = ["tests.process.lerobot_rover"]
PATIENT = ["tests.process.patient_feetech"]
PARTS = {
    "lift": {"joints": ["arm_lift"], "unit": "deg"},
    "gripper": {"gripper": "arm_gripper", "stroke_m": 0.1},
    "base": {"base": ["x.vel", "y.vel", "theta.vel"], "angle_unit": "deg"},
}


def config(name, **said):
    return DeviceConfig(
        **{
            "type": name,
            "config": {},
            "plugins": PLUGINS,
            "parts": {},
            "joint_unit": None,
            "joint_ranges": {},
            "stroke_m": 0.07,
            "others": {},
            "rate_hz": 60.0,
            "silence_s": 10.0,
            "state_timeout_s": 0.05,
        }
        | said
    )


@pytest.fixture
def memory():
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, MESSAGES)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def rover(tmp_path, memory):
    device = make_device("robot", "tests_rover", {"folder": str(tmp_path)}, PLUGINS)
    connect("robot", "tests_rover", device)
    plain = config("tests_rover", parts=tables_from_plain(PARTS))
    return DeviceLoop(plain, device, memory, is_read_only=False)


def sent(folder):
    return json.loads((folder / "sent.json").read_text())


@pytest.mark.parametrize(
    ("name", "plain", "plugins", "words"),
    [
        ("so101_folower", {}, (), "knows no robot 'so101_folower'; did you mean so101_follower"),
        ("so101_follower", {"port": "x", "speed": 3}, (), "its configuration: .*speed"),
        ("so101_follower", {}, (), "its configuration: .*port"),
        ("nothing", {}, ("no_such_plugin",), "no_such_plugin does not import: ModuleNotFoundError"),
        ("koch_follower", {"port": "x"}, (), "ImportError: 'dynamixel-sdk' is required"),
    ],
)
def test_a_device_that_cannot_be_made_is_refused_with_the_reason(name, plain, plugins, words):
    with pytest.raises(RefusedError, match=words):
        make_device("robot", name, plain, plugins)


def test_an_arm_that_is_not_calibrated_is_refused_with_the_command_that_does_it(tmp_path, monkeypatch):
    bus = FeetechBus()
    for name in ("so101_follower", "so100_follower"):
        plain = {"port": bus.port, "id": "other", "calibration_dir": str(tmp_path)}
        device = make_device("robot", name, plain, PATIENT)
        with pytest.raises(
            RefusedError, match=rf"other.json is not there.*lerobot-calibrate --robot.type={name} .*=other"
        ):
            connect("robot", name, device)
    bus.calibrate(tmp_path, "other")
    bus.servos[2].put(9, 900)  # another arm's file
    device = make_device("robot", "so101_follower", plain, PATIENT)
    with pytest.raises(RefusedError, match=r"other.json does not fit what its motors hold"):
        connect("robot", "so101_follower", device)
    bus.is_silent = True
    monkeypatch.setattr(patient_feetech, "PATIENCE_MS", 20.0)
    device = make_device("robot", "so101_follower", plain, PATIENT)
    with pytest.raises(RefusedError, match="does not connect: "):
        connect("robot", "so101_follower", device)
    bus.close()


def test_a_question_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())  # as empty as the process has it
    device = make_device("robot", "tests_rover", {"folder": str(tmp_path), "asks": True}, PLUGINS)
    with pytest.raises(RefusedError, match=r"asks a question while it connects; .*lerobot-calibrate"):
        connect("robot", "tests_rover", device)


def test_what_an_arm_says_in_per_cent_is_known_by_its_calibration(tmp_path):
    bus = FeetechBus()
    bus.calibrate(tmp_path, "mine")
    plain = {"port": bus.port, "id": "mine", "calibration_dir": str(tmp_path)}
    tables = {}
    for use_degrees in (True, False):
        device = make_device("robot", "so101_follower", plain | {"use_degrees": use_degrees})
        known = known_of(config("so101_follower"), device)
        tables[use_degrees] = tables_from_features(device.action_features, known)
    assert tables[True]["arm"].unit == "deg"
    assert tables[False]["arm"].unit == "percent"
    np.testing.assert_allclose(tables[False]["arm"].ranges, [(-np.pi / 2, np.pi / 2)] * 5, rtol=1e-3)
    bus.close()


def test_features_that_do_not_fit_the_parts_are_refused(tmp_path, memory):
    device = make_device("robot", "tests_rover", {"folder": str(tmp_path)}, PLUGINS)
    for plain, words in (
        (config("tests_rover"), "declare the unit of arm_lift"),
        (
            config("tests_rover", parts=tables_from_plain({"lift": PARTS["lift"]})),
            "also takes arm_gripper.pos",
        ),
    ):
        with pytest.raises(RefusedError, match=words):
            DeviceLoop(plain, device, memory, is_read_only=False)


def test_parts_that_were_told_nothing_are_held_where_they_were_and_a_stop_holds_what_is_measured(
    rover, memory, tmp_path
):
    orders = Newest(DeviceOrder, memory)
    rover.look()
    assert not (tmp_path / "sent.json").exists()  # nothing was told, so nothing is sent
    orders.put(DeviceOrder(number=1, parts={"base": [0.2, 0.0, np.pi]}))
    rover.look()
    assert sent(tmp_path) == pytest.approx(
        {"arm_lift.pos": 0.0, "arm_gripper.pos": 50.0, "x.vel": 0.2, "y.vel": 0.0, "theta.vel": 180.0}
    )
    orders.put(DeviceOrder(number=2, parts={"base": None, "lift": [0.5], "gripper": [0.02]}))
    rover.look()
    assert sent(tmp_path)["theta.vel"] == 0.0
    orders.put(DeviceOrder(number=3, parts={"base": None, "lift": [0.5], "gripper": None}))
    rover.look()
    assert sent(tmp_path)["arm_gripper.pos"] == pytest.approx(20.0)  # what it holds it goes on to hold
    assert sent(tmp_path)["arm_lift.pos"] == pytest.approx(np.degrees(0.5))
    rover.end()
    assert (tmp_path / "disconnected").exists()


@pytest.mark.parametrize(
    ("trouble", "words"),
    [("raise", "ConnectionError: no status packet"), ("nan", "expected finite measurements")],
)
def test_a_device_that_raises_or_measures_nonsense_is_a_fault_for_good_and_its_base_is_told_to_stand(
    trouble, words, rover, memory, tmp_path
):
    Newest(DeviceOrder, memory).put(DeviceOrder(number=1, parts={"base": [0.2, 0.0, 0.0]}))
    reports = Newest(DeviceReport, memory, 2 * SLOT)
    rover.look()
    (tmp_path / trouble).touch()
    rover.look()
    assert not reports.get()[1].fault  # once may happen
    time.sleep(0.06)
    rover.look()
    assert words in reports.get()[1].fault
    assert sent(tmp_path)["x.vel"] == 0.0
    (tmp_path / trouble).unlink()
    rover.look()
    assert words in reports.get()[1].fault


def test_a_camera_of_another_size_than_asked_for_is_refused(tmp_path, memory):
    for width, words in ((640, "expected a width of 640, got 64"), (64, "")):
        plain = {"folder": str(tmp_path), "height": 48, "width": width, "fps": 30}
        camera = make_device("camera", "tests_camera", plain, PLUGINS)
        connect("camera", "tests_camera", camera)
        settings = CameraConfig(type="tests_camera", config=plain, plugins=PLUGINS, latency_s=0.0)
        if words:
            with pytest.raises(RefusedError, match=words):
                CameraLoop(settings, camera, memory)
        else:
            CameraLoop(settings, camera, memory)
            assert Newest(CameraReport, memory, 2 * SLOT).get()[1].num_frames == 1
            number, image = Pictures(memory, (48, 64)).get()
            assert (number, image.pixels.shape) == (1, (48, 64, 3))


def test_pictures_of_several_cameras_lie_beside_each_other_and_the_newest_is_whole(memory):
    sizes = {"wide": (20, 60), "high": (50, 10)}
    place = (20, 60)
    ours = [Pictures(memory, size, place=place, index=i) for i, size in enumerate(sizes.values())]
    theirs = [Pictures(memory, size, place=place, index=i) for i, size in enumerate(sizes.values())]
    for shade in range(7):
        for pictures, size in zip(ours, sizes.values(), strict=True):
            pictures.put(np.full((*size, 3), shade, dtype=np.uint8), shade)
    for pictures, size in zip(theirs, sizes.values(), strict=True):
        number, image = pictures.get(after=6)
        assert (number, image.t_ns, image.pixels.shape[:2]) == (7, 6, size)
        assert (image.pixels == 6).all()
        assert pictures.get(after=7) is None
    with pytest.raises(ValueError, match="expected an image"):
        ours[0].put(np.zeros((9, 9, 3), dtype=np.uint8), 0)
