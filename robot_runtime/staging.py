"""Folders that are there whole or not at all: written beside, under a hidden name, then renamed.

PARENT/.NAME.PID.unfinished  ─►  PARENT/NAME
"""

import contextlib
import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_ENDING = ".unfinished"


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A place beside `path`, not there yet, which gets its name when all went well and is gone otherwise.

    OSError: `path` cannot be written, or something is there by then.
    """
    place = place_beside(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        yield place
        place.rename(path)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def place_beside(path: Path) -> Path:
    """Where this process writes what `path` is to be; what processes that are gone left of it is removed."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{_ENDING}"):
        number = left.name.removeprefix(f".{path.name}.").removesuffix(_ENDING)
        if number.isdecimal() and not _is_running(int(number)):
            shutil.rmtree(left, ignore_errors=True)
    return path.with_name(f".{path.name}.{os.getpid()}{_ENDING}")


def _is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's
    return True
