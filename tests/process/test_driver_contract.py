"""Every shipped driver keeps the same promises; a driver more is a row more."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from drivers.cameras import OpenCvCamera
from drivers.franka import HOME, FrankaArm, FrankaGripper
from drivers.ideal import IdealArm, IdealGripper
from drivers.lerobot import LeRobotDevice
from drivers.ros import RosBase, RosCamera, RosGripper, RosJoints
from drivers.rosbridge import RosBridge
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.robot import ArmState
from robot_runtime.core.values.command import BaseTwistCommand, GripperCommand, JointCommand, PartCommand
from robot_runtime.robot.driver_contract import Tried, broken_promises
from sim.devices.franka import FrankaRobot
from sim.devices.ros import RosRobot
from tests.process.feetech_bus import FeetechBus
from tests.process.pedal import Pedal
from tests.process.picture_server import PictureServer

Case = Callable[[], AbstractContextManager[Tried]]


@contextmanager
def franka(part: str) -> Iterator[Tried]:
    """The arm or the hand of a franky-sim; its process is killed for it to be gone."""
    with TemporaryDirectory() as folder:
        robot = FrankaRobot(Path(folder)).wait()
        if part == "arm":
            driver = FrankaArm(robot.host, needs_real_time=False, state_timeout_s=2.0, log_folder=folder)
        else:
            driver = FrankaGripper(robot.host)
        try:
            first = JointCommand(q=np.array(HOME)) if part == "arm" else GripperCommand(width=0.04)
            yield Tried(driver=driver, first=first, cut_off=robot.kill, notices_s=3.0)
        finally:
            driver.close()
            robot.kill()


def numbers_of(message: object) -> list[float]:
    """All that a ROS message holds."""
    if isinstance(message, dict):
        return [each for value in message.values() for each in numbers_of(value)]
    if isinstance(message, list):
        return [each for value in message for each in numbers_of(value)]
    return [] if isinstance(message, str | bool) or message is None else [float(message)]  # type: ignore[arg-type]


@contextmanager
def ros(make: Callable[[RosBridge], object], first: PartCommand | None = None) -> Iterator[Tried]:
    """A part behind a rosbridge server; the server ends for it to be gone."""
    with RosRobot() as robot:
        bridge = RosBridge(robot.url)
        try:
            yield Tried(
                driver=make(bridge),
                received=lambda: [x for _, message in robot.published for x in numbers_of(message)],
                first=first,
                cut_off=None if first is None else robot.end,  # a camera waits for its next picture
                close=bridge.close,
            )
        finally:
            bridge.close()


@contextmanager
def so101() -> Iterator[Tried]:
    """LeRobot's SO-101 on a bus of servos, which is unplugged for it to be gone."""
    bus = FeetechBus()
    with TemporaryDirectory() as folder:
        bus.calibrate(Path(folder), "mine")
        config = {"port": bus.port, "id": "mine", "calibration_dir": folder}
        device = LeRobotDevice(
            "so101_follower",
            config=config,
            plugins=["tests.process.patient_feetech"],
            stroke_m=0.07,
            state_timeout_s=2.0,
        )
        try:
            yield Tried(
                patience_s=15.0,
                driver=device.arm,
                first=JointCommand(q=np.zeros(5)),
                cut_off=bus.close,
                notices_s=4.0,
                close=device.close,
            )
        finally:
            device.close()


@contextmanager
def stream() -> Iterator[Tried]:
    """OpenCV's camera at a stream of pictures that ends."""
    with PictureServer() as server:
        camera = OpenCvCamera(server.url, open_s=20.0)
        try:
            yield Tried(driver=camera, cut_off=server.__exit__, notices_s=3.0)
        finally:
            camera.close()


@contextmanager
def pedal() -> Iterator[Tried]:
    """A pedal that is pulled out."""
    with TemporaryDirectory() as folder:
        made = Pedal(Path(folder))
        try:
            yield Tried(driver=made.switch(), cut_off=made.unplug)
        finally:
            made.unplug()


def ideal(driver: object, first: PartCommand) -> Case:
    return lambda: nullcontext(Tried(driver=driver, first=first))


DRIVERS: dict[str, Case] = {
    "ideal arm": ideal(IdealArm(clock=MonotonicClock()), JointCommand(q=np.array(HOME))),
    "ideal gripper": ideal(IdealGripper(), GripperCommand(width=0.04)),
    "ROS base": lambda: ros(RosBase, BaseTwistCommand(V_WB_B=np.zeros(3))),
    "ROS joints": lambda: ros(
        lambda bridge: RosJoints(bridge, ("shoulder", "elbow"), command_topic="/arm"),
        JointCommand(q=np.array([-0.25, 0.5])),
    ),
    "ROS gripper": lambda: ros(
        lambda bridge: RosGripper(bridge, "elbow", command_topic="/gripper"), GripperCommand(width=1.0)
    ),
    "ROS camera": lambda: ros(lambda bridge: RosCamera(bridge, "/chest")),
    "LeRobot arm": so101,
    "OpenCV camera": stream,
    "pedal": pedal,
    "Franka arm": lambda: franka("arm"),
    "Franka gripper": lambda: franka("gripper"),
}
"""Name -> the driver, just made, and what is around it."""


@pytest.mark.parametrize("name", DRIVERS)
def test_a_driver_keeps_its_promises(name):
    with DRIVERS[name]() as tried:
        assert broken_promises(replace(tried, refuses_nan=True)) == []


class Sloppy:
    """An arm that breaks a promise wherever it can."""

    num_joints = 2

    def __init__(self) -> None:
        self.q, self.is_gone = np.zeros(2), False
        self.told: list[float] = []

    def read(self) -> ArmState:
        if self.is_gone:
            time.sleep(0.01)
        return ArmState(t_ns=time.monotonic_ns(), q=self.q, dq=np.zeros(2))

    def write(self, command: JointCommand) -> None:
        self.told += command.q.tolist()

    def stop(self) -> None:
        if self.told:
            raise RuntimeError("stopped already")

    def close(self) -> None:
        pass


def test_a_driver_that_breaks_its_promises_is_told_which():
    sloppy = Sloppy()

    def cut_off() -> None:
        sloppy.is_gone = True

    tried = Tried(driver=sloppy, received=lambda: sloppy.told, cut_off=cut_off, notices_s=0.1)
    said = "\n".join(broken_promises(replace(tried, patience_s=0.3)))
    for words in (
        "write() took nan",
        "write() took inf",
        "a number that is not finite reached the device",
        "stop, twice: it raised RuntimeError: stopped already",
        "a device that is gone: read() noticed it after",
        "closed: stop() raised RuntimeError",
        "closed: read() after it raised nothing, expected DriverError",
        "closed: write() after it raised nothing, expected DriverError",
    ):
        assert words in said


class ReversedArm(IdealArm):
    """Reads its joints in one order, and is told them in the other."""

    def write(self, command):
        return super().write(JointCommand(q=command.q[::-1]))


class WaitingArm(IdealArm):
    """Waits for its device's next state."""

    def read(self):
        time.sleep(0.03)
        return super().read()


class MillimetreGripper(IdealGripper):
    """Told metres, it sends millimetres."""

    def write(self, command):
        return super().write(GripperCommand(width=1000.0 * command.width))


@pytest.mark.parametrize(
    ("driver", "sentence"),
    [
        (ReversedArm(), "commanded to stay where it is measured, joint 2 went"),
        (WaitingArm(), "read() took 30 ms or more; it gives the newest state and waits for none"),
        (MillimetreGripper(width=0.04), "commanded to stay where it is measured, it went 40 away"),
    ],
    ids=["joints in reverse order", "a read of 30 ms", "a gripper in millimetres"],
)
def test_a_promise_that_is_not_kept_is_named(driver, sentence):
    broken = broken_promises(driver)
    assert any(sentence in each for each in broken), broken
