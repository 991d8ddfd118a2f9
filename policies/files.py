"""Reads untrusted files: JSON within bounds, weights as finite tensors, or a CheckpointError.

Nothing in them is imported, called or unpickled; names in a file are looked up in lists of ours.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from robot_runtime.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

METADATA, OLDER_METADATA = "policy.json", "robot_runtime.json"
"""The file that marks a folder as a described LeRobot policy."""
OPENPI = "openpi.json"
"""The file that marks a folder as a policy on an external openpi server."""
ESTIMATOR = "estimator.json"
"""The file that marks a policy that estimates the scene from images."""
ENCODER = "encoder.json"
"""The file that marks a policy whose image encoder was trained with it."""

MAX_JSON_BYTES = 4 * 2**20
MAX_DEPTH = 24
MAX_TEXT = 4096
MAX_SIZE, MAX_LAYERS = 65_536, 256
"""Limits of a network: numbers in a layer, layers."""
MAX_NUMBER = 1e12
"""Largest number in a file, either sign."""


def metadata_file(folder: Path) -> Path:
    """The file that declares what LeRobot's files leave open, under its older name if only that exists."""
    older = folder / OLDER_METADATA
    return older if older.is_file() and not (folder / METADATA).is_file() else folder / METADATA


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; CheckpointError if it is missing, damaged or out of bounds."""
    try:
        if not path.is_file():
            raise CheckpointError(f"{path.parent} has no {path.name}")
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise CheckpointError(f"{path} has {size} bytes, at most {MAX_JSON_BYTES} are read")
        data = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except RecursionError as error:
        raise CheckpointError(f"{path} is nested deeper than {MAX_DEPTH} levels") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: expected JSON, {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} is damaged: expected a JSON object, got {type(data).__name__}")
    if (wrong := _out_of_bounds(data)) is not None:
        raise CheckpointError(f"{path} {wrong}")
    return data


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """The tensors of a safetensors file, all finite; CheckpointError if missing, damaged or not finite."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise CheckpointError(f"{path.parent} has no {path.name}")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: expected safetensors, {error}") from error
    refuse_unfinite(tensors, str(path))
    return tensors


def refuse_unfinite(tensors: "dict[str, Tensor]", what: str) -> None:
    """CheckpointError names the tensor that holds NaN or infinite numbers."""
    import torch

    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise CheckpointError(f"{what}: {name} holds NaN or infinite numbers")


def value_of[T](kind: type[T], data: object) -> T:
    """A plain value, or a frozen dataclass by its fields' names; ValueError names what does not fit.

    Types are checked (`msgspec.convert`), and an unknown field is refused.
    """
    if is_dataclass(kind) and isinstance(data, dict):
        refuse_unknown(data, [field.name for field in fields(kind)])
    try:
        return msgspec.convert(data, kind)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


def refuse_unknown(data: Mapping[str, object], known: Sequence[str]) -> None:
    """ValueError names unknown keys: a misspelt one would count as not given."""
    if unknown := sorted(str(key)[:40] for key in data.keys() - set(known)):
        raise ValueError(f"there is no {', '.join(unknown[:8])!a}, but {', '.join(known)}")


def refuse_oversized(sizes: object) -> None:
    """ValueError: a whole number in a frozen dataclass is negative or beyond the limits of a network."""
    for name, value in vars(sizes).items():
        most = MAX_LAYERS if "layers" in name else MAX_SIZE
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, int) and not 0 <= each <= most:
                raise ValueError(f"{name} lies in 0..{most}, got {each}")


def whole_number(data: dict[str, Any], key: str, least: int, most: int) -> int:
    """A whole number under a key; ValueError: it is something else or out of bounds."""
    value = data[key]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{key} is a whole number from {least} to {most}, got {value!r}")
    return value


def number(data: dict[str, Any], key: str, otherwise: float) -> float:
    """The number under a key, or the default; ValueError: it is something else."""
    value = data.get(key, otherwise)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{key} is a number, got {value!r}")
    return float(value)


def texts(data: dict[str, Any], key: str) -> tuple[str, ...]:
    """The texts under a key, empty if it is missing; ValueError: it is not a list of texts."""
    value = data.get(key, ())
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{key} is a list of texts, got {value!r}")
    return tuple(value)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"expected finite numbers, got {name}")


def _out_of_bounds(data: Any) -> str | None:
    """What is too deep, too long or too large, or None; iterative, because recursion has its own limit."""
    open_parts: list[tuple[Any, int]] = [(data, 1)]
    while open_parts:
        part, depth = open_parts.pop()
        if depth > MAX_DEPTH:
            return f"is nested deeper than {MAX_DEPTH} levels"
        match part:
            case str() if len(part) > MAX_TEXT:
                return f"holds a text of {len(part)} characters, at most {MAX_TEXT} are read"
            case int() | float() if not math.isfinite(part) or abs(part) > MAX_NUMBER:
                return f"holds a number beyond {MAX_NUMBER:g}"
            case dict():
                open_parts += [(value, depth + 1) for pair in part.items() for value in pair]
            case list():
                open_parts += [(value, depth + 1) for value in part]
    return None


_WHOLE, _END = 256_000_000, 64_000_000


def fingerprint(folder: Path) -> str:
    """SHA-256 of the weights in a folder, *.safetensors by their names; empty if there are none.

    A file beyond 256 MB counts by its size and its first and last 64 MB: hashing gigabytes would delay the
    server's start.
    """
    files = sorted(folder.glob("*.safetensors"))
    out = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        out.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            if size <= _WHOLE:
                out.update(file.read())
                continue
            out.update(file.read(_END))
            file.seek(size - _END)
            out.update(file.read(_END))
    return out.hexdigest() if files else ""
