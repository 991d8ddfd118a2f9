"""Code that a robot file names: `Code` finds it, importing nothing; `check_driver` refuses other objects.

    "franka-arm"               shipped
    "my_arm.py:MyArm"          a file in the folder of the robot file, or below it
    "my_package.arms:MyArm"    a module of your own sources, or of an installed package that declares an entry
                               point in the group `robot_runtime.drivers`
    "my-arm"                   such an entry point

A robot file from an untrusted source must not run a program by naming it: the standard library, other
packages and files elsewhere are refused before an import, and anything but a driver before a call.
"""

import inspect
import os
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import robot_runtime
from robot_runtime.core.robot import Arm, Camera, Sensor, Switch
from robot_runtime.core.teleop import Teleoperator
from robot_runtime.errors import InvalidValueError, nearest
from robot_runtime.load_object import load_object, refuse_standard_library

DRIVERS = "robot_runtime.drivers"
"""The group of entry points that name drivers."""
PROTOCOLS: Mapping[str, type] = {
    "parts": Arm,
    "sensors": Sensor,
    "cameras": Camera,
    "operator": Switch,
    "teleop": Teleoperator,
}
"""Section of a robot file -> protocol of its drivers; grippers and bases have an arm's methods."""
_OURS = Path(robot_runtime.__file__).parents[1]
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Code:
    """The location of an object that a robot file names."""

    name: str
    """module:object, or file.py:object with the whole path."""
    file: Path | None
    """None: Python does not find the module, or it has no file."""
    is_users: bool = False
    """Whether it is a file beside the robot file, or one typed by the user."""
    entry_point: str = ""

    def __str__(self) -> str:
        return self.name if self.is_users else f"{self.name}, {self.file or 'which is not found'}"

    @classmethod
    def of(
        cls, text: str, folder: Path | None, shipped: Mapping[str, str], *, what: str = "driver"
    ) -> "Code":
        """
        folder: of the robot file; None: the user typed the text, and any file is allowed.
        shipped: short names. what: the kind of object, for errors.
        InvalidValueError: a robot file may not name it; the message lists what it may.
        """
        if text in shipped:
            return cls(shipped[text], file_of(shipped[text].partition(":")[0]))
        place, colon, name = text.rpartition(":")
        if not colon:
            found = entry_points(group=DRIVERS)
            known = [*shipped, *sorted(found.names)]
            if text not in found.names:
                raise InvalidValueError(
                    f"unknown {what} {text!r}{nearest(text, known)}; known are {', '.join(known)}, and "
                    "file.py:Class or package.module:Class names one of your own"
                )
            return cls(found[text].value, file_of(found[text].module), entry_point=text)
        if place.endswith(".py"):
            path = Path(os.path.abspath((folder or Path()) / place))
            if folder is not None and not path.is_relative_to(os.path.abspath(folder)):
                raise InvalidValueError(
                    f"{text} is outside the folder of the robot file: expected a file in {folder} or below; "
                    "copy it there, or install it as a package"
                )
            return cls(f"{path}:{name}", path, is_users=True)
        refuse_standard_library(place, what)
        file = file_of(place)
        if folder is not None and file is not None:
            _refuse_undeclared(text, place, file, shipped, what)
        return cls(text, file)

    def load(self, what: str = "driver") -> object:
        """Import it. As `load_object`."""
        return load_object(self.entry_point or self.name, group=DRIVERS, what=what)

    def defines(self, found: object) -> bool:
        """Whether a file of the user's defines the object itself and did not import it."""
        module = sys.modules.get(getattr(found, "__module__", ""))
        file = getattr(module, "__file__", None)
        return (
            self.is_users and file is not None and self.file is not None and Path(file) == self.file.resolve()
        )


def file_of(module: str) -> Path | None:
    """Find the file, or the folder, that a module would be imported from; imports nothing."""
    root, *rest = module.split(".")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        spec = find_spec(root)
    except (ImportError, ValueError):  # ValueError: a module without a spec, as __main__
        return None
    loaded = getattr(sys.modules.get(root), "__path__", None)
    places = list(loaded or (spec.submodule_search_locations if spec else None) or ())
    name = root
    for each in rest:
        if spec is None:
            return None
        name = f"{name}.{each}"
        spec = PathFinder.find_spec(name, places)
        places = list(spec.submodule_search_locations or ()) if spec else []
    if spec is None:
        return None
    return Path(spec.origin) if spec.has_location and spec.origin else Path(places[0]) if places else None


def _refuse_undeclared(text: str, place: str, file: Path, shipped: Mapping[str, str], what: str) -> None:
    """Refuse installed packages that declare no drivers, and internals of this one."""
    root = place.partition(".")[0]
    if root in ("robot_runtime", "drivers", "policies", "sim", "calibration") and file.is_relative_to(_OURS):
        if text not in shipped.values():
            raise InvalidValueError(f"{text} is no {what}; the shipped ones are {', '.join(shipped)}")
        return
    declared = {each.module.partition(".")[0] for each in entry_points(group=DRIVERS)}
    if not set(_INSTALLED).isdisjoint(file.parts) and root not in declared:
        raise InvalidValueError(
            f"{text} is of the installed package {root}, which declares no entry point in the group "
            f"{DRIVERS}: expected a package that does; or import the {what} in a file beside the robot "
            "file, and name it as file.py:Class"
        )


def check_driver(text: str, found: object, kind: str, *, is_users: bool) -> Callable[..., object]:
    """Return the class or function that makes a driver, without calling it.

    kind: section of the robot file. is_users: whether its source is a file beside the robot file: functions
    there need no return annotation, and a device may be of any class.
    InvalidValueError: it is no driver; the message lists the missing methods.
    """
    is_function = inspect.isfunction(found)
    made = _returned(found) if is_function else found
    if not isinstance(made, type) and not is_function:
        raise InvalidValueError(
            f"{text} is no driver's class but a {type(found).__name__}: expected a class, or a function that "
            "makes a driver"
        )
    protocol = PROTOCOLS.get(kind)
    if not isinstance(made, type) and not is_users:
        name = "MyDevice" if protocol is None else protocol.__name__
        raise InvalidValueError(
            f"{text} is a function that does not declare what it makes: expected a return annotation, as "
            f"-> {name}"
        )
    methods = _methods(protocol) if protocol is not None else () if is_users else ("close",)
    if isinstance(made, type) and (lacking := [each for each in methods if not hasattr(made, each)]):
        raise InvalidValueError(
            f"{text} is no driver: expected a class with the methods {', '.join(methods)}, got "
            f"{made.__name__} without {', '.join(lacking)}"
        )
    return typing.cast(Callable[..., object], found)


def _methods(protocol: type) -> tuple[str, ...]:
    """Return the methods of a protocol, without properties: many drivers set those in `__init__`."""
    return tuple(
        name for name, each in vars(protocol).items() if inspect.isfunction(each) and not name.startswith("_")
    )


def _returned(function: Any) -> object:
    """Return the class in a function's return annotation; None: it has none."""
    try:
        kind = typing.get_type_hints(function).get("return")
    except Exception:  # the user's annotations may raise anything, as for undefined names
        return None
    return typing.get_origin(kind) or kind
