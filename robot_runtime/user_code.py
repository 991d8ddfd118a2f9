"""Code of a user's that a command has loaded: its errors are shown as hers, and it can be loaded anew."""

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType

from robot_runtime.errors import RobotRuntimeError

_packages: set[str] = set()
"""Top-level modules that were named."""
_folders: set[str] = set()
"""Where the files are that were named: what lies beside them is the user's, too."""


class UserCodeError(RobotRuntimeError):
    """Code that a user named has failed; holds its own traceback."""

    def __init__(self, text: str, error: BaseException, trace: TracebackType | None) -> None:
        lines = traceback.format_exception(type(error), error, trace, chain=True)
        super().__init__(f"{text} failed:\n{''.join(lines).rstrip()}")


def note_package(name: str) -> None:
    """A module of the user's is about to be imported."""
    _packages.add(name.partition(".")[0])


def note_folder(folder: Path) -> None:
    """A file of the user's is about to be run, which lies there."""
    _folders.add(str(folder))


def of_user(error: BaseException) -> TracebackType | None:
    """Where an error's traceback enters the user's code; None if it does not."""
    trace = error.__traceback__
    while trace is not None and not _is_users(trace.tb_frame.f_globals):
        trace = trace.tb_next
    return trace


def forget() -> None:
    """What the user named, and what lies beside it, is loaded anew when it is asked for again.

    What was loaded goes on working as it is.
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
