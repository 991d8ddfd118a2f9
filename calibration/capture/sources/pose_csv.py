"""Poses and widths as a table whose header names its columns, in any order: `read_pose_csv`, `time_column`.

    t_s,x,y,z,qw,qx,qy,qz             a column t_ns, t_us, t_ms or t_s has the unit in its name
    qx,qy,qz,qw,tx,ty,tz,t_ns         columns that are not needed are ignored

`timestamp` and `time` have no unit in their name, so they are read as seconds with a decimal point, or as
whole nanoseconds.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibration.capture.sources.axes import OPTICAL, ns_of, text_of, trajectory
from calibration.capture.values import TRACKING
from calibration.trajectory import Trajectory
from robot_runtime.errors import InvalidValueError

UNITS_NS = {"t_ns": 1, "t_us": 1_000, "t_ms": 1_000_000, "t_s": 1_000_000_000}
_NO_UNIT = ("timestamp", "time", "t")
_SPELLINGS = (
    ("x", "y", "z", "qw", "qx", "qy", "qz"),
    ("px", "py", "pz", "qw", "qx", "qy", "qz"),
    ("tx", "ty", "tz", "qw", "qx", "qy", "qz"),
    ("p_x", "p_y", "p_z", "q_w", "q_x", "q_y", "q_z"),
    ("x", "y", "z", "q_w", "q_x", "q_y", "q_z"),
)
WANTED = "t_ns or t_s, x, y, z, qw, qx, qy and qz, in any order"


def names_in(line: str, *, least: int = 2) -> list[str]:
    """Names of columns in a header line; empty: it is none, as it begins with a number or has too few."""
    names = [cell.strip().lower() for cell in line.lstrip("#").split(",")]
    try:
        float(names[0])
    except ValueError:
        return names if len(names) >= least else []
    return []


def time_column(where: object, names: Sequence[str]) -> tuple[int, int | None]:
    """(index, its unit [ns]) of the column of times; the unit is None where its name has none."""
    for name in (*UNITS_NS, *_NO_UNIT):
        if name in names:
            return list(names).index(name), UNITS_NS.get(name)
    raise InvalidValueError(
        f"{where}, line 1: expected a column of times, {', '.join(UNITS_NS)}; got {', '.join(names)}"
    )


def time_of(where: str, cell: str, unit_ns: int | None) -> int:
    """A time in whole nanoseconds; where: prefix of errors."""
    cell = cell.strip()
    if unit_ns == 1 and "." in cell:
        raise InvalidValueError(
            f"{where}: expected whole nanoseconds in t_ns, got {cell!r:.30}: if these are seconds, name the "
            "column t_s"
        )
    if unit_ns is None:
        unit_ns = UNITS_NS["t_s"] if "." in cell else 1
    try:
        return ns_of(cell, unit_ns=unit_ns)
    except InvalidValueError as error:
        raise InvalidValueError(f"{where}: {error}") from None


def read_pose_csv(path: Path, *, axes: str = OPTICAL, up: str = "z", offset_ns: int = 0) -> Trajectory:
    """Read poses; a column `tracking` (ok, limited or lost) is optional.

    InvalidValueError names file and line.
    """
    header, *rows = list(csv.reader(text_of(path).splitlines()))
    names = names_in(",".join(header))
    at, unit_ns = time_column(path, names)
    columns = next((each for each in _SPELLINGS if set(each) <= set(names)), None)
    if columns is None:
        raise InvalidValueError(f"{path}, line 1: expected the columns {WANTED}; got {', '.join(names)}")
    wanted = [names.index(name) for name in columns]
    state_at = names.index("tracking") if "tracking" in names else None
    t_ns: list[int] = []
    numbers: list[list[float]] = []
    states: list[int] = []
    for number, row in enumerate(rows, start=2):
        if not row or not "".join(row).strip():
            continue
        where = f"{path}, line {number}"
        if len(row) != len(names):
            raise InvalidValueError(f"{where}: expected {len(names)} values, as in line 1; got {len(row)}")
        t_ns.append(time_of(where, row[at], unit_ns) + offset_ns)
        try:
            numbers.append([float(row[i]) for i in wanted])
            states.append(TRACKING["ok" if state_at is None else row[state_at].strip().lower()])
        except (ValueError, KeyError) as error:
            raise InvalidValueError(
                f"{where}: expected numbers, and tracking {', '.join(TRACKING)}: {error}"
            ) from None
    if not t_ns:
        raise InvalidValueError(f"{path} has no poses in it")
    values = np.array(numbers)
    return trajectory(
        path,
        np.array(t_ns, dtype=np.int64),
        values[:, :3],
        values[:, 3:],
        axes=axes,
        up=up,
        tracking=np.array(states, dtype=np.uint8),
    )
