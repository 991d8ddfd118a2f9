"""A folder of runs: names new logs, and removes those that are too old or too many."""

import contextlib
import fcntl
import os
import re
import tempfile
import time
from datetime import datetime
from pathlib import Path

from robot_runtime.errors import InvalidValueError
from robot_runtime.log.config import LogConfig, RunInfo
from robot_runtime.log.file import PROFILE, LogFile
from robot_runtime.log.records import scan

_NAME = re.compile(r"\d{8}-\d{6}-[a-z0-9_]*(-\d+)?\.mcap")
_MAX_TASK = 40
_TRIES = 1000


def new_file(config: LogConfig, info: RunInfo) -> LogFile:
    """Open the file of a new run, with a unique name, after removing old runs.

    InvalidValueError: the folder is not writable.
    """
    began = datetime.fromtimestamp(info.started_wall_ns / 1e9).strftime("%Y%m%d-%H%M%S")
    task = _plain(info.task) or _plain(info.robot) or "run"
    try:
        config.folder.mkdir(parents=True, exist_ok=True)
        tidy(config)
        for number in range(1, _TRIES):
            name = f"{began}-{task}{'' if number == 1 else f'-{number}'}.mcap"
            with contextlib.suppress(FileExistsError):
                return LogFile(config.folder / name, info)
    except OSError as error:
        raise _refusal(config, error) from error
    raise InvalidValueError(f"{config.folder} has {_TRIES} logs of this second already")


def _plain(text: str) -> str:
    """Make it part of a file name."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:_MAX_TASK]


def check_folder(config: LogConfig) -> None:
    """InvalidValueError: it is not writable."""
    try:
        config.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=config.folder) as file:
            file.write(bytes(4096))
    except OSError as error:
        raise _refusal(config, error) from error


def _refusal(config: LogConfig, error: OSError) -> InvalidValueError:
    why = error.strerror or error
    return InvalidValueError(f"no log can be written to {config.folder}: {why}; --no-log runs without one")


def tidy(config: LogConfig, *, now_s: float | None = None) -> list[Path]:
    """Remove logs beyond the maximum age, and the oldest beyond the maximum size; returns what was removed.

    Only files that are our logs, by name and by content, and that no process is writing.
    """
    now_s = time.time() if now_s is None else now_s
    found = []
    for path in config.folder.iterdir():
        with contextlib.suppress(OSError):
            if _NAME.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                found.append((path.stat().st_mtime, path.stat().st_size, path))
    found.sort()
    total, gone = sum(size for _, size, _ in found), []
    for written_s, size, path in found:
        is_old = config.max_age_s is not None and now_s - written_s > config.max_age_s
        is_much = config.max_bytes is not None and total > config.max_bytes
        if (is_old or is_much) and _is_ours(path) and _removed(path):
            total -= size
            gone.append(path)
    return gone


def _is_ours(path: Path) -> bool:
    try:
        return scan(path).profile == PROFILE
    except InvalidValueError:
        return False


def _removed(path: Path) -> bool:
    """Remove it unless it is being written; return whether it is gone."""
    try:
        number = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(number)
    return True
