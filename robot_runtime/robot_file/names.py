"""Finds drivers and data sheets by their names in a robot's file."""

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import robot_runtime
from robot_runtime.core.plan.limits import Limits
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot_file.code import Code, check_driver

TELEOP = "teleop"
"""Key of [operator] that names the teleoperator."""
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
    "key": "robot_runtime.robot.terminal_key:KeySwitch",
    "input-device": "drivers.input_device:InputSwitch",
    "gamepad": "drivers.input_device:GamepadSwitch",
    "opencv": "drivers.cameras:OpenCvCamera",
    "realsense": "drivers.cameras:RealSenseCamera",
    "fitted": "drivers.cameras:Fitted",
    "ideal-arm": "drivers.ideal:IdealArm",
    "ideal-gripper": "drivers.ideal:IdealGripper",
}
"""Short name -> its location; imported on demand, as each needs its own extra."""
TELEOPERATORS: Mapping[str, str] = {
    "keyboard": "drivers.keyboard:KeyboardTeleoperator",
    "gamepad": "drivers.gamepad:GamepadTeleoperator",
    "spacemouse": "drivers.spacemouse:SpaceMouseTeleoperator",
    "webxr": "drivers.webxr:WebXrTeleoperator",
    "lerobot": "drivers.lerobot.leading:LeRobotLeader",
}
"""Teleoperators by short name."""
DATA_SHEETS: Mapping[str, str] = {"fr3": "drivers.fr3:FR3_LIMITS", "fer": "drivers.fer:FER_LIMITS"}
"""Name -> limits of that robot's parts."""
_SHIPPED = "drivers"


def shipped_for(kind: str) -> Mapping[str, str]:
    """Return the short names of drivers. kind: a section of the file, or `TELEOP`."""
    return TELEOPERATORS if kind == TELEOP else SHIPPED_DRIVERS


def code_of(text: str, folder: Path | None, shipped: Mapping[str, str]) -> Code:
    """Find a driver's code without importing it; as `Code.of`."""
    if text in shipped or text.startswith(f"{_SHIPPED}."):
        _share_drivers()
    return Code.of(text, folder, shipped)


def driver_named(text: str, folder: Path | None, kind: str) -> Callable[..., Any]:
    """Return the class or function that makes the driver, without calling it.

    folder: of the robot file; None: the user typed the name. kind: section of the file.
    InvalidValueError: no driver has that name, or it is no driver. ModuleNotFoundError: its extra is not
    installed.
    """
    shipped = shipped_for(kind)
    code = code_of(text, folder, shipped)
    found = _shipped(code.name) if text in shipped else code.load()
    return check_driver(text, found, kind, is_users=code.defines(found))


def data_sheet(text: str, folder: Path) -> Limits:
    """Return limits by name; InvalidValueError: there are none.

    folder: of the robot file.
    """
    code = Code.of(text, folder, DATA_SHEETS, what="data sheet")
    found = _shipped(code.name) if text in DATA_SHEETS else code.load("data sheet")
    if not isinstance(found, Limits):
        raise InvalidValueError(f"{text} are no robot_runtime.Limits but a {type(found).__name__}")
    return found


def shipped_driver(name: str) -> Callable[..., Any]:
    """Return a driver's class by its short name. ModuleNotFoundError: its extra is not installed."""
    found = _shipped(SHIPPED_DRIVERS[name])
    assert callable(found)
    return found


def _shipped(text: str) -> object:
    """Import an object from the packages beside `robot_runtime`. ModuleNotFoundError: its extra is not
    installed."""
    _share_drivers()
    place, _, name = text.partition(":")
    found: object = getattr(importlib.import_module(place), name)
    return found


def _share_drivers() -> None:
    """Let a user's folder `drivers` coexist: modules of both are found, the shipped ones first."""
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
