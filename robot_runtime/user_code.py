"""User code that a command has loaded: its errors keep their traceback, and it can be reloaded."""

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType

from robot_runtime.errors import RobotRuntimeError

_packages: set[str] = set()
"""Top-level modules that the user named."""
_folders: set[str] = set()
"""Folders of the files that the user named: files beside them count as the user's, too."""


class UserCodeError(RobotRuntimeError):
    """Code that a user named has failed; holds its own traceback."""

    def __init__(self, text: str, error: BaseException, trace: TracebackType | None) -> None:
        lines = traceback.format_exception(type(error), error, trace, chain=True)
        super().__init__(f"{text} failed:\n{''.join(lines).rstrip()}")


def note_package(name: str) -> None:
    """Note that a module of the user is about to be imported."""
    _packages.add(name.partition(".")[0])


def note_folder(folder: Path) -> None:
    """Note the folder of a user's file that is about to be run."""
    _folders.add(str(folder))


def of_user(error: BaseException) -> TracebackType | None:
    """Return where an error's traceback enters the user's code; None if it does not."""
    trace = error.__traceback__
    while trace is not None and not _is_users(trace.tb_frame.f_globals):
        trace = trace.tb_next
    return trace


def forget() -> None:
    """Unload what the user named, and what is beside it, so that it is loaded again on the next use.

    Objects that were loaded keep working.
    """
    for name, module in list(sys.modules.items()):
        if name != "__main__" and isinstance(module, ModuleType) and _is_users(vars(module)):
            del sys.modules[name]
    importlib.invalidate_caches()


def _is_users(module: dict[str, object]) -> bool:
    if str(module.get("__name__", "")).partition(".")[0] in _packages:
        return True
    file = module.get("__file__")
    return isinstance(file, str) and str(Path(file).parent) in _folders
