"""Trajectories as text: TUM's (`timestamp tx ty tz qx qy qz qw`), UMI's camera_trajectory.csv, and tables.

Quaternions of the first two are x y z w; a table's header names its columns (`pose_csv`). No file declares
its axes and up axis: the caller does.
ORB-SLAM3's inertial modes have z up; its others have the first camera's axes, which are of no use here.
"""

import csv
from pathlib import Path

import numpy as np

from calibration.capture.sources.axes import OPTICAL, ns_of, text_of, trajectory
from calibration.capture.sources.pose_csv import names_in, read_pose_csv
from calibration.trajectory import LOST, OK, Trajectory
from robot_runtime.errors import InvalidValueError

_UMI = ("timestamp", "is_lost", "x", "y", "z", "q_x", "q_y", "q_z", "q_w")


def read_trajectory(path: Path, *, axes: str = OPTICAL, up: str = "z", offset_ns: int = 0) -> Trajectory:
    """Read poses from a file of any of these forms; offset_ns is added to their times.

    InvalidValueError names file and line.
    """
    lines = _lines(path)
    if lines and lines[0][1].startswith("frame_idx,"):
        return _umi(path, axes, up, offset_ns)
    if lines and names_in(lines[0][1]):
        return read_pose_csv(path, axes=axes, up=up, offset_ns=offset_ns)
    t_ns, numbers = [], []
    for number, line in lines:
        if line.startswith("#"):
            continue
        cells = line.replace(",", " ").split()
        if len(cells) != 8:
            raise InvalidValueError(
                f"{path}, line {number}: expected 8 numbers, timestamp tx ty tz qx qy qz qw, got {len(cells)}"
            )
        t_ns.append(_time(path, number, cells[0]) + offset_ns)
        numbers.append(_numbers(path, number, cells[1:]))
    if not t_ns:
        raise InvalidValueError(f"{path} has no poses in it")
    rows = np.array(numbers)
    return trajectory(
        path, np.array(t_ns, dtype=np.int64), rows[:, :3], rows[:, [6, 3, 4, 5]], axes=axes, up=up
    )


def _umi(path: Path, axes: str, up: str, offset_ns: int) -> Trajectory:
    """Read the output of UMI's SLAM pipeline: one row per image, zeros where tracking was lost."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows or any(name not in rows[0] for name in _UMI):
        raise InvalidValueError(f"{path}, line 1: expected the columns {', '.join(_UMI)}")
    t_ns: list[int] = []
    numbers: list[list[float]] = []
    tracking: list[int] = []
    for i, row in enumerate(rows):
        is_lost = str(row["is_lost"]).strip().lower() in ("true", "1")
        t_ns.append(_time(path, i + 2, row["timestamp"]) + offset_ns)
        cells = [row[name] or "0" for name in _UMI[2:]]
        last = numbers[-1] if numbers else [0.0] * 6 + [1.0]
        numbers.append(last if is_lost else _numbers(path, i + 2, cells))
        tracking.append(LOST if is_lost else OK)
    values = np.array(numbers)
    return trajectory(
        path,
        np.array(t_ns, dtype=np.int64),
        values[:, :3],
        values[:, [6, 3, 4, 5]],
        axes=axes,
        up=up,
        tracking=np.array(tracking, dtype=np.uint8),
    )


def _lines(path: Path) -> list[tuple[int, str]]:
    text = text_of(path)
    return [(i + 1, line.strip()) for i, line in enumerate(text.splitlines()) if line.strip()]


def _time(path: Path, number: int, cell: str) -> int:
    try:
        return ns_of(cell)
    except InvalidValueError as error:
        raise InvalidValueError(f"{path}, line {number}: {error}") from None


def _numbers(path: Path, number: int, cells: list[str]) -> list[float]:
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        raise InvalidValueError(
            f"{path}, line {number}: expected numbers, got {' '.join(cells)[:80]}"
        ) from None
