"""What people said of episodes afterwards: lines of meta/annotations.jsonl, to which is only added.

{"episode": 3, "field": "outcome", "old": "unknown", "new": "failure", "by": "ana", "at": "2026-11-26T..."}
"""

import getpass
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from robot_runtime.errors import InvalidValueError

ANNOTATIONS = "meta/annotations.jsonl"


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """One label of one episode that was changed."""

    episode: int
    field: str
    """task or outcome."""
    old: str | None
    """What it was before; None: nobody had said."""
    new: str
    by: str
    """Who says so."""
    at: str
    """When it was said, by the calendar, UTC."""
    why: str = ""


def annotations_of(root: Path) -> list[Annotation]:
    """All of a dataset, oldest first. InvalidValueError: a line is no annotation."""
    path = root / ANNOTATIONS
    if not path.is_file():
        return []
    out = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            out.append(Annotation(**json.loads(line)))
        except (TypeError, ValueError) as error:
            if number == len(path.read_text().splitlines()):
                break  # cut off while it was written
            raise InvalidValueError(f"line {number} of {path} is no annotation: {error}") from error
    return out


def annotate(root: Path, annotations: Iterable[Annotation]) -> None:
    """Add lines; they are on the disk when this returns."""
    lines = "".join(json.dumps(asdict(each)) + "\n" for each in annotations)
    if not lines:
        return
    path = root / ANNOTATIONS
    if path.is_file() and path.read_bytes()[-1:] not in (b"", b"\n"):
        lines = "\n" + lines  # the last one was cut off
    with path.open("a") as file:
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def who() -> str:
    """The user who is logged in."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def now() -> str:
    """By the calendar, UTC, as annotations say it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
