"""Tables of the raw zone: CSV files of named columns, each row complete or absent.

A line's end completes a row. A file that a crash or an empty battery has cut ends in the middle of a row;
that row is left out, and the file is reported as cut.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robot_runtime.errors import InvalidValueError

INT, REAL, WORD = "whole number", "number", "word"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Names and types of a table's columns."""

    columns: tuple[tuple[str, str], ...]
    """(name, `INT`, `REAL` or `WORD`)."""

    @property
    def header(self) -> str:
        """The file's first line, without its end."""
        return ",".join(name for name, _ in self.columns)

    def line(self, values: Sequence[object]) -> str:
        """One row with its line's end; numbers are read back to the last bit."""
        return ",".join(map(_text, values)) + "\n"


FRAMES = Layout(columns=(("index", INT), ("t_ns", INT), ("exposure_ns", INT)))
POSES = Layout(
    columns=(
        ("t_ns", INT),
        *((name, REAL) for name in ("px", "py", "pz", "qw", "qx", "qy", "qz")),
        ("tracking", WORD),
    )
)
IMU = Layout(columns=(("t_ns", INT), *((name, REAL) for name in ("wx", "wy", "wz", "ax", "ay", "az"))))
GRIPPER = Layout(columns=(("t_ns", INT), ("width_m", REAL)))
TAGS = Layout(
    columns=(("t_ns", INT), ("tag", INT), *((f"{axis}{k}", REAL) for k in range(4) for axis in "uv"))
)
MARKS = Layout(columns=(("t_ns", INT), ("what", WORD), ("by", WORD)))
CORNERS = Layout(
    columns=(("t_ns", INT), ("role", WORD), ("index", INT), ("corner", INT), ("u", REAL), ("v", REAL))
)
GLIMPSES = Layout(
    columns=(
        ("t_ns", INT),
        ("role", WORD),
        ("name", WORD),
        *((each, REAL) for each in ("x", "y", "z", "sigma")),
    )
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Contents of one file."""

    columns: dict[str, np.ndarray]
    """Name -> (N,) int64, float64 or text."""
    is_cut: bool
    """Whether the file ends in the middle of a row, which is left out."""

    def rows(self, *names: str) -> np.ndarray:
        """The named columns as an array (N, len(names))."""
        return np.stack([self.columns[name] for name in names], axis=1)


def read(path: Path, layout: Layout) -> Table:
    """Read a file of that layout; InvalidValueError names file, line, expected and actual value."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"{path}: expected text in UTF-8, byte {error.start} is none") from None
    lines = text.split("\n")
    is_cut = lines.pop() != ""
    if lines:
        header = lines.pop(0).rstrip("\r")
        if header != layout.header:
            raise InvalidValueError(
                f"{path}, line 1: expected the columns {layout.header}, got {header[:200]}"
            )
    blocks = [
        _block(path, layout, lines[i : i + _BLOCK], i + 2) for i in range(0, max(1, len(lines)), _BLOCK)
    ]
    columns = {name: np.concatenate([block[name] for block in blocks]) for name, _ in layout.columns}
    return Table(columns=columns, is_cut=is_cut)


def rising(path: Path, t_ns: np.ndarray, *, strictly: bool = True) -> None:
    """Check that the times of a file rise; InvalidValueError names the line where they do not."""
    wrong = np.flatnonzero(np.diff(t_ns) <= 0 if strictly else np.diff(t_ns) < 0)
    if wrong.size:
        i = int(wrong[0]) + 1
        raise InvalidValueError(
            f"{path}, line {i + 2}: expected times that rise, got {t_ns[i]} ns after {t_ns[i - 1]} ns: the "
            "device's clock jumped back, or two recordings are in one file"
        )


_BLOCK = 50_000
"""Rows held as text and numbers at once: an hour of an IMU would otherwise take a gigabyte."""


def _block(path: Path, layout: Layout, lines: Sequence[str], first: int) -> dict[str, np.ndarray]:
    """Parse rows of a table into columns; first: the number of their first line in the file."""
    rows = [line.rstrip("\r").split(",") for line in lines]
    wanted = len(layout.columns)
    for i, row in enumerate(rows):
        if len(row) != wanted:
            raise InvalidValueError(f"{path}, line {i + first}: expected {wanted} values, got {len(row)}")
    turned = list(zip(*rows, strict=True)) if rows else [()] * wanted
    return {
        name: _column(path, name, kind, cells, first)
        for (name, kind), cells in zip(layout.columns, turned, strict=True)
    }


_PARSED = {INT: (int, np.int64), REAL: (float, np.float64)}


def _column(path: Path, name: str, kind: str, cells: Sequence[str], first: int) -> np.ndarray:
    if kind == WORD:
        return np.array(cells, dtype=str)
    parse, dtype = _PARSED[kind]
    try:
        out = np.array([parse(cell) for cell in cells], dtype=dtype)
    except (ValueError, OverflowError):
        i = next(i for i, cell in enumerate(cells) if not _is(parse, cell))
        raise InvalidValueError(
            f"{path}, line {i + first}, column {name}: expected a {kind}, got {cells[i]!r:.60}"
        ) from None
    if kind == REAL and not np.isfinite(out).all():
        i = int(np.flatnonzero(~np.isfinite(out))[0])
        raise InvalidValueError(f"{path}, line {i + first}, column {name}: expected a number, got {cells[i]}")
    return out


def _is(parse: type, cell: str) -> bool:
    try:
        return abs(parse(cell)) < 2**63
    except ValueError:
        return False


def _text(value: object) -> str:
    if isinstance(value, str):
        if "," in value or "\n" in value or "\r" in value:
            raise InvalidValueError(f"expected a word without comma and line end, got {value!r:.60}")
        return value
    if isinstance(value, int | np.integer):
        return str(int(value))
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise InvalidValueError(f"expected finite numbers in a table, got {number}")
    return repr(number)
