"""A user's own object, named on a command line: `load_object`.

    my_robot.py:robot          of a file; its folder is searched for its imports
    my_package.robots:robot    of a module, of this folder or installed
    my_robot                   an entry point that an installed package declares in the group

Errors in the user's own code are shown as by Python: with their traceback.
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from robot_runtime.errors import InvalidValueError, RobotRuntimeError, UnknownNameError
from robot_runtime.user_code import UserCodeError, note_folder, note_package, of_user

FORMS = "path/to/file.py:object, package.module:object, or the name of an entry point"


def is_object(text: str, *, group: str) -> bool:
    """Whether a text names an object, and not a folder or a known name."""
    if "://" in text or Path(text).is_dir():
        return False
    return ":" in text or text.endswith(".py") or text in entry_points(group=group).names


def is_factory(found: object) -> bool:
    """Whether an object is a class or a function that can be called without arguments."""
    if not (inspect.isclass(found) or inspect.isroutine(found)):
        return False
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        return False
    return True


def load_object(text: str, *, group: str, what: str) -> object:
    """Load the object that the text names.

    group: of the entry points, as `robot_runtime.robots`. what: its kind, for errors, as "robot".
    InvalidValueError: it names no object. UnknownNameError: no object has that name. UserCodeError: the
    file, the module or the entry point does not import.
    """
    place, colon, name = text.rpartition(":")
    if not colon:
        return _entry_point(text, group=group, what=what)
    if not place or not name.isidentifier():
        raise InvalidValueError(f"a {what} is named as {FORMS}; got {text!r}")
    module = _file(Path(place), what) if place.endswith(".py") else _module(place, what)
    try:
        found: object = getattr(module, name)
    except AttributeError:
        has = [
            key for key, value in vars(module).items() if not (key.startswith("_") or inspect.ismodule(value))
        ]
        raise UnknownNameError(f"object of {place}", name, has) from None
    if inspect.isclass(found) or inspect.isroutine(found):  # the file may have imported it
        refuse_standard_library(str(getattr(found, "__module__", "")), what)
    return found


def refuse_standard_library(module: str, what: str) -> None:
    """InvalidValueError: the module is of the standard library, whose import or call may do anything."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise InvalidValueError(
            f"{module} is of Python's standard library: expected a {what} of yours, named as {FORMS}"
        )


def load_made(text: str, *, group: str, what: str, is_one: Callable[[object], bool]) -> object:
    """As `load_object`, or make it with a function without arguments. UserCodeError: that failed.

    is_one: whether an object is of the kind; InvalidValueError if it is not.
    """
    found = load_object(text, group=group, what=what)
    if is_one(found):
        return found
    if not callable(found):
        raise InvalidValueError(f"{text} is no {what} but a {type(found).__name__}")
    try:
        made = found()
    except RobotRuntimeError:
        raise
    except Exception as error:
        raise UserCodeError(f"{text}()", error, of_user(error)) from None
    if not is_one(made):
        raise InvalidValueError(f"{text}() made no {what} but a {type(made).__name__}")
    return made


def _entry_point(name: str, *, group: str, what: str) -> object:
    if name.endswith(".py"):
        raise InvalidValueError(f"{name} names a file; name the {what} in it too, as {name}:{what}")
    found = entry_points(group=group)
    if name not in found.names:
        valid = ", ".join(sorted(found.names)) or "none is installed"
        raise InvalidValueError(
            f"unknown {what} {name!r}: a {what} is named as {FORMS} of the group {group} ({valid})"
        )
    note_package(found[name].module)
    try:
        return found[name].load()
    except Exception as error:
        raise UserCodeError(f"the entry point {name!r} of {group}", error, of_user(error)) from None


def _file(path: Path, what: str) -> ModuleType:
    if not path.is_file():
        raise InvalidValueError(f"a {what} is looked for in {path}, and there is no such file")
    path = path.resolve()
    note_folder(path.parent)
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if known is not None or not name.isidentifier() or name in sys.stdlib_module_names:
        name = f"user_{name}"  # another module has that name
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        raise UserCodeError(str(path), error, of_user(error)) from None
    return module


def _module(name: str, what: str) -> ModuleType:
    refuse_standard_library(name, what)
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    note_package(name)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidValueError(
                f"a {what} is looked for in the module {name}, and there is no module {error.name}, neither "
                "in this folder nor installed"
            ) from None
        raise UserCodeError(f"import {name}", error, of_user(error)) from None
    except Exception as error:
        raise UserCodeError(f"import {name}", error, of_user(error)) from None
