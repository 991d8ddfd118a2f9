"""Folders that exist whole or not at all: written beside under a hidden name, then renamed.

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
    """Yield a new path beside `path`, which is renamed to it on success and removed otherwise.

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
    """Return where this process writes `path`; remove leftovers of ended processes."""
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
        pass  # of another user
    return True
