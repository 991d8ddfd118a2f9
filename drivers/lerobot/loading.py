"""LeRobot's devices by type name and plain configuration. Only a device's own process imports this.

Registered types are those of LeRobot's own packages, of its plug-ins (installed distributions that begin with
`lerobot_robot_` and so on), and of named modules.
"""

import difflib
import importlib
import inspect
import logging
import pkgutil
import sys
import time
from collections.abc import Sequence
from importlib.metadata import distributions
from typing import Any, Literal

import draccus
import lerobot.cameras
import lerobot.robots
import lerobot.teleoperators
from draccus.utils import DecodingError
from lerobot.cameras import make_cameras_from_configs
from lerobot.robots import make_robot_from_config
from lerobot.teleoperators import make_teleoperator_from_config

from robot_runtime.errors import nearest

logger = logging.getLogger(__name__)

Kind = Literal["robot", "camera", "teleoperator"]
_PACKAGES: dict[Kind, Any] = {
    "camera": lerobot.cameras,
    "robot": lerobot.robots,
    "teleoperator": lerobot.teleoperators,
}
_PREFIXES = ("lerobot_robot_", "lerobot_camera_", "lerobot_teleoperator_")
CLOCK_NS = time.monotonic_ns() - time.perf_counter_ns()
"""Offset from LeRobot's clock, `perf_counter`, to the monotonic clock."""


class RefusedError(Exception):
    """A device that cannot be set up; the message states why, for the operator."""


def make_device(kind: Kind, name: str, plain: dict[str, Any], plugins: Sequence[str] = ()) -> Any:
    """Make a robot, camera or teleoperator, not connected yet; RefusedError: it cannot be made."""
    failed = _import_all(kind, plugins)
    configs: Any = getattr(_PACKAGES[kind], f"{kind.capitalize()}Config")
    known = sorted(configs.get_known_choices())
    if name not in known:
        near = nearest(name, known) or f"; known are {', '.join(known)}"
        unknown = f"LeRobot knows no {kind} {name!r}{near}"
        likely = sorted(failed, key=lambda each: -difflib.SequenceMatcher(None, name, each).ratio())
        raise RefusedError(unknown + "".join(f". {each} does not import: {failed[each]}" for each in likely))
    try:
        config = draccus.decode(configs, {"type": name, **plain})
    except (DecodingError, TypeError, ValueError) as error:
        raise RefusedError(f"its configuration: {_one_line(error)}") from None
    try:
        match kind:
            case "robot":
                return make_robot_from_config(config)
            case "teleoperator":
                return make_teleoperator_from_config(config)
        return make_cameras_from_configs({name: config})[name]
    except Exception as error:  # a plug-in's code may raise anything
        raise RefusedError(_one_line(error.__cause__ or error)) from None  # not the whole configuration


TRIES = 3
"""A servo that answers once after more than 50 ms counts as missing on its serial bus."""


def connect(kind: Kind, name: str, device: Any) -> None:
    """Connect without prompts; RefusedError: it fails, or how to calibrate the device."""
    try:
        _connect(device)
        is_calibrated = kind == "camera" or device.is_calibrated
    except EOFError:
        raise RefusedError(
            f"it asks a question while it connects; {_calibrate(kind, name, device)}"
        ) from None
    except Exception as error:  # a plug-in's own code
        disconnect(device)
        raise RefusedError(f"does not connect: {_one_line(error)}") from None
    if not is_calibrated:
        disconnect(device)
        raise RefusedError(_calibrate(kind, name, device))


def _connect(device: Any) -> None:
    takes_calibrate = "calibrate" in inspect.signature(device.connect).parameters
    for left in reversed(range(TRIES)):
        try:
            device.connect(calibrate=False) if takes_calibrate else device.connect()
            return
        except RuntimeError as error:  # LeRobot's, of motors that do not answer
            if not left:
                raise
            logger.warning("connecting once more: %s", _one_line(error))
            disconnect(device)


def disconnect(device: Any) -> None:
    """Disconnect; failures are logged."""
    try:
        if device.is_connected:
            device.disconnect()
    except Exception as error:  # a plug-in's own code, of a device that may be gone
        logger.warning("disconnecting: %s", _one_line(error))


def _calibrate(kind: Kind, name: str, device: Any) -> str:
    option = "robot" if kind == "robot" else "teleop"
    given = [f"--{option}.type={name}"]
    for key in ("port", "id"):
        value = getattr(getattr(device, "config", None), key, None)
        given += [] if value is None else [f"--{option}.{key}={value}"]
    file = getattr(device, "calibration_fpath", None)
    has = "does not fit what its motors hold" if getattr(device, "calibration", None) else "is not there"
    return f"it is not calibrated ({file} {has}): lerobot-calibrate {' '.join(given)}"


def _import_all(kind: Kind, plugins: Sequence[str]) -> dict[str, str]:
    """Import all modules that register types; return the plug-ins that fail, and why."""
    failed: dict[str, str] = {}
    for package in (lerobot.cameras, _PACKAGES[kind]):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            try:
                importlib.import_module(module.name)
            except ImportError as error:  # it needs a library that is not installed
                logger.debug("%s: %s", module.name, error)
    found = {dist.metadata["Name"] for dist in distributions()}
    for name in (*sorted(each for each in found if each and each.startswith(_PREFIXES)), *plugins):
        try:
            if name.partition(".")[0] in sys.stdlib_module_names:  # registers no types
                raise ImportError("it is of Python's standard library")
            importlib.import_module(name)
        except Exception as error:  # a plug-in's own code
            failed[name] = _one_line(error)
    return failed


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]
