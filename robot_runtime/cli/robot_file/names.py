"""Drivers and data sheets by the names that a robot's file gives them."""

import importlib
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import robot_runtime
from robot_runtime.cli.load_object import load_object
from robot_runtime.core.plan.limits import Limits
from robot_runtime.errors import InvalidValueError, nearest

DRIVERS = "robot_runtime.drivers"
"""Group of the entry points that name drivers."""
SHIPPED_DRIVERS: Mapping[str, str] = {
    "franka-arm": "drivers.franka:FrankaArm",
    "franka-gripper": "drivers.franka:FrankaGripper",
    "rosbridge": "drivers.rosbridge:RosBridge",
    "ros-base": "drivers.ros:RosBase",
    "ros-joints": "drivers.ros:RosJoints",
    "ros-gripper": "drivers.ros:RosGripper",
    "ros-camera": "drivers.ros:RosCamera",
    "lerobot": "drivers.lerobot:LeRobotDevice",
    "lerobot-camera": "drivers.lerobot:LeRobotCamera",
    "key": "drivers.terminal_key:KeySwitch",
    "input-device": "drivers.input_device:InputSwitch",
    "gamepad": "drivers.input_device:GamepadSwitch",
    "opencv": "drivers.cameras:OpenCvCamera",
    "realsense": "drivers.cameras:RealSenseCamera",
    "fitted": "drivers.cameras:Fitted",
    "ideal-arm": "drivers.ideal:IdealArm",
    "ideal-gripper": "drivers.ideal:IdealGripper",
}
"""Short name -> where it is; imported when it is asked for, as each needs an extra of its own."""
TELEOPERATORS: Mapping[str, str] = {
    "keyboard": "drivers.keyboard:KeyboardTeleoperator",
    "gamepad": "drivers.gamepad:GamepadTeleoperator",
    "spacemouse": "drivers.spacemouse:SpaceMouseTeleoperator",
    "webxr": "drivers.webxr:WebXrTeleoperator",
    "lerobot": "drivers.lerobot.leading:LeRobotLeader",
}
"""What a person leads a robot with, by short name."""
DATA_SHEETS: Mapping[str, str] = {"fr3": "drivers.fr3:FR3_LIMITS", "fer": "drivers.fer:FER_LIMITS"}
"""Name -> limits of that robot's parts."""
_SHIPPED = "drivers"


def driver_named(text: str, folder: Path, shipped: Mapping[str, str] = SHIPPED_DRIVERS) -> Callable[..., Any]:
    """The class, or the function, that makes the driver.

    folder: where files are looked for: that of the robot's file. shipped: by short name.
    InvalidValueError: there is none of that name, or it cannot be called. ModuleNotFoundError: its extra is
    not installed.
    """
    found: object
    if text in shipped:
        found = _shipped(shipped[text])
    elif ":" in text:
        if text.startswith(f"{_SHIPPED}."):
            _share_drivers()
        found = load_object(_beside(text, folder), group=DRIVERS, what="driver")
    else:
        known = [*shipped, *sorted(entry_points(group=DRIVERS).names)]
        if text not in known:
            raise InvalidValueError(
                f"unknown driver {text!r}{nearest(text, known)}; known are {', '.join(known)}, and "
                "file.py:Class or package.module:Class names one of your own"
            )
        found = load_object(text, group=DRIVERS, what="driver")
    if not callable(found):
        raise InvalidValueError(f"{text} is no driver's class but a {type(found).__name__}")
    return found


def data_sheet(text: str) -> Limits:
    """Limits by name; InvalidValueError: there are none."""
    found = (
        _shipped(DATA_SHEETS[text])
        if text in DATA_SHEETS
        else load_object(text, group=DRIVERS, what="data sheet")
    )
    if not isinstance(found, Limits):
        raise InvalidValueError(f"{text} are no robot_runtime.Limits but a {type(found).__name__}")
    return found


def _shipped(text: str) -> object:
    """What lies beside `robot_runtime`. ModuleNotFoundError: its extra is not installed."""
    _share_drivers()
    place, _, name = text.partition(":")
    found: object = getattr(importlib.import_module(place), name)
    return found


def _share_drivers() -> None:
    """A user's folder may be called `drivers`, too: modules of both are found, the shipped ones first."""
    shipped = Path(robot_runtime.__file__).parents[1]
    if _SHIPPED not in sys.modules:
        sys.path.insert(0, str(shipped))
        try:
            importlib.import_module(_SHIPPED)
        finally:
            sys.path.remove(str(shipped))
    package = sys.modules[_SHIPPED]
    theirs = [str(Path.cwd() / _SHIPPED), *getattr(package, "__path__", ())]
    package.__path__ = list(dict.fromkeys([str(shipped / _SHIPPED), *theirs]))


def _beside(text: str, folder: Path) -> str:
    """A file is named as it lies beside the robot's file."""
    place, _, name = text.rpartition(":")
    is_file = place.endswith(".py") and not Path(place).is_absolute()
    return f"{folder / place}:{name}" if is_file else text
