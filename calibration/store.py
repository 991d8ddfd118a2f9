"""Self-describing JSON files: `save`, `load`.

{
 "kind": "anchor", "version": 1, "date": ..., "made_by": {...},
 "units": {...}, "frames": {...},            of the numbers in content
 "content": {..., "verdict": {...}},         `to_dict` of the value
 "sha256": ...                               of kind, version, units, frames and content
}
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import pinocchio as pin

from calibration.verdict import Verdict
from robot_runtime.core.values.transforms import pose_from_numbers, pose_to_numbers
from robot_runtime.errors import InvalidValueError
from robot_runtime.results import keep_text, made_by


class Storable(Protocol):
    """A value that a file can hold. `to_dict` gives JSON types; a verdict is under `verdict`."""

    KIND: ClassVar[str]
    VERSION: ClassVar[int]
    UNITS: ClassVar[Mapping[str, str]]
    """Name of a number in `to_dict` -> its unit; m, rad and s may be omitted."""
    FRAMES: ClassVar[Mapping[str, str]]
    """Name of a pose or a point in `to_dict` -> its frames, in words."""

    def to_dict(self) -> dict[str, Any]: ...

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self: ...


@dataclass(frozen=True, kw_only=True)
class Stored[T: Storable]:
    """A value with the date and hash of its file."""

    value: T
    date: str
    sha256: str
    """SHA-256 of the content: the name of a calibration in datasets."""


def save(path: Path, value: Storable) -> str:
    """Write a value; the file is replaced as a whole. Returns its sha256."""
    body = _body(value)
    digest = _digest(body)
    head = {"kind": body["kind"], "version": body["version"]}
    origin = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "made_by": made_by()}
    keep_text(
        path, json.dumps({**head, **origin, **body, "sha256": digest}, indent=1, allow_nan=False) + "\n"
    )
    return digest


def fingerprint(value: Storable) -> str:
    """The sha256 that a file of this value has."""
    return _digest(_body(value))


def load[T: Storable](path: Path, kind: type[T], *, even_refused: bool = False) -> T:
    """Read a value of this kind.

    even_refused: also accept a value whose own verdict refuses it.
    InvalidValueError: no such file, another kind or version, changed by hand, or refused by its verdict.
    """
    return load_stored(path, kind, even_refused=even_refused).value


def load_stored[T: Storable](path: Path, kind: type[T], *, even_refused: bool = False) -> Stored[T]:
    """As `load`, with the file's date and sha256."""
    data = _read(path)
    if (found := data.get("kind")) != kind.KIND:
        raise InvalidValueError(f"{path}: expected a file of kind {kind.KIND!r}, got {found!r}")
    if (version := data.get("version")) != kind.VERSION:
        raise InvalidValueError(
            f"{path}: expected version {kind.VERSION} of a {kind.KIND} file, got {version!r}: it was written "
            f"by {'a newer' if _is_newer(version, kind) else 'another'} robot-runtime"
        )
    body = {name: data.get(name) for name in ("kind", "version", "units", "frames", "content")}
    if _digest(body) != data.get("sha256"):
        raise InvalidValueError(
            f"{path}: its content is not what was written (sha256 differs): it was changed by hand or "
            f"damaged; measure again, or fetch the original"
        )
    content = data.get("content")
    if not isinstance(content, dict):
        raise InvalidValueError(f"{path}: its content is no {kind.KIND}: expected a JSON object")
    try:
        verdict_data = content.get("verdict")
        verdict = Verdict() if verdict_data is None else Verdict.from_dict(verdict_data)
        value = kind.from_dict(content) if verdict.ok or even_refused else None
    except InvalidValueError as error:
        raise InvalidValueError(f"{path}: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise InvalidValueError(f"{path}: its content is no {kind.KIND}: {error!r}") from error
    if value is None:
        why = "; ".join(str(each) for each in verdict.reasons if each.is_fatal)
        raise InvalidValueError(f"{path}: this {kind.KIND} was refused when it was made: {why}")
    return Stored(value=value, date=str(data.get("date")), sha256=str(data["sha256"]))


def kind_of(path: Path) -> str:
    """Kind of the value in a file; InvalidValueError: it holds none."""
    kind = _read(path).get("kind")
    if not isinstance(kind, str):
        raise InvalidValueError(f"{path}: expected a calibration file with a kind; got none")
    return kind


def pose_to_json(X_AB: pin.SE3) -> dict[str, list[float]]:
    """A pose as position [m] and quaternion wxyz."""
    numbers = [*pose_to_numbers(X_AB)]
    return {"p": numbers[:3], "q_wxyz": numbers[3:]}


def pose_from_json(data: Mapping[str, Any]) -> pin.SE3:
    """Pose from JSON. InvalidValueError: not three finite numbers and a unit quaternion."""
    p, q = data["p"], data["q_wxyz"]
    try:
        numbers = [float(each) for each in (*p, *q)]
    except (TypeError, ValueError, OverflowError):
        numbers = []
    if len(numbers) != 7:
        raise InvalidValueError(
            f"expected a position and a unit quaternion wxyz, got {p!r:.60} and {q!r:.60}"
        )
    is_unit = len(p) == 3 and len(q) == 4 and abs(math.hypot(*numbers[3:]) - 1.0) < 1e-3
    if not is_unit or not all(map(math.isfinite, numbers)):
        raise InvalidValueError(f"expected a position and a unit quaternion wxyz, got {p} and {q}")
    return pose_from_numbers(tuple(numbers))  # type: ignore[arg-type]


def _body(value: Storable) -> dict[str, Any]:
    return {
        "kind": value.KIND,
        "version": value.VERSION,
        "units": {"length": "m", "angle": "rad", "time": "s", "quaternion": "wxyz", **value.UNITS},
        "frames": dict(value.FRAMES),
        "content": value.to_dict(),
    }


def _is_newer(version: object, kind: type[Storable]) -> bool:
    return isinstance(version, int) and version > kind.VERSION


def _digest(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse_constant(name: str) -> float:
    raise ValueError(f"a calibration has finite numbers, got {name}")


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except FileNotFoundError:
        raise InvalidValueError(f"{path}: there is no such file") from None
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"{path}: expected JSON: {error}") from error
    if not isinstance(data, dict):
        raise InvalidValueError(f"{path}: expected a calibration file, got JSON of another form")
    return data
