"""Labels that people gave episodes afterwards: lines of meta/annotations.jsonl, which is append-only.

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
    """A change of one label of one episode."""

    episode: int
    field: str
    """Field: task or outcome."""
    old: str | None
    """Value before the change; None: unknown."""
    new: str
    by: str
    """Author of the change."""
    at: str
    """Calendar time of the change, UTC."""
    why: str = ""


def annotations_of(root: Path) -> list[Annotation]:
    """All annotations of a dataset, oldest first. InvalidValueError: a line is not an annotation."""
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
    """Append lines; they are on the disk when this returns."""
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
    """Name of the user who is logged in."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def now() -> str:
    """Calendar time, UTC, in the form of annotations."""
    return datetime.now(UTC).isoformat(timespec="seconds")
