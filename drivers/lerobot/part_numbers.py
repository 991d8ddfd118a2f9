"""Converts a LeRobot device's flat dictionary to numbers of parts in SI units, and back: `PartNumbers`.
Pure."""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drivers.lerobot.tables import Base, Gripper, Joints, Numbers, Table
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.conventions import Linear

_WINDOW_NS = 50_000_000
"""Speeds are taken over this long: positions come in coarse steps [ns]."""


@dataclass(frozen=True)
class _Column:
    """One number of a part: its features and conversions."""

    measured: str
    commanded: str
    read: Linear
    write: Linear


class PartNumbers:
    """The mapping between features and the numbers of parts."""

    def __init__(
        self,
        tables: Mapping[str, Table],
        *,
        measured: Iterable[str],
        commanded: Iterable[str] | None,
        others: Mapping[str, float],
    ) -> None:
        """
        measured, commanded: features of observations and of actions, numbers alone; None: it is only read.
        others: values of features of actions that belong to no part.

        ValueError: tables and features do not fit; the message names them.
        """
        here, goes = list(measured), None if commanded is None else list(commanded)
        self._columns = {part: _columns(table) for part, table in tables.items()}
        self._speeds: dict[str, list[str]] = {}
        for part, columns in self._columns.items():
            _check(part, [column.measured for column in columns], here, "measures")
            _check(part, [column.commanded for column in columns], here if goes is None else goes, "takes")
            table = tables[part]
            speeds = [_motor(column.measured) + ".vel" for column in columns]
            if isinstance(table, Joints) and table.unit != "percent" and set(speeds) <= set(here):
                self._speeds[part] = speeds
        taken = [column.commanded for columns in self._columns.values() for column in columns]
        if len(set(taken)) < len(taken):
            raise ValueError(f"features belong to one part each, got {', '.join(sorted(taken))}")
        self._others = {} if goes is None else _others(goes, taken, others)

    @staticmethod
    def features_of(tables: Mapping[str, Table]) -> list[str]:
        """Return the features of a device that has only these parts."""
        return [column.measured for table in tables.values() for column in _columns(table)]

    def read(self, observation: Mapping[str, float]) -> dict[str, Numbers]:
        """Return the numbers of every part, SI."""
        return {
            part: [column.read.ours(float(observation[column.measured])) for column in columns]
            for part, columns in self._columns.items()
        }

    def speeds(self, observation: Mapping[str, float]) -> dict[str, Numbers]:
        """Return the speeds of joints, for the parts that measure them [rad/s]."""
        return {
            part: [
                column.read.scale * float(observation[name])
                for column, name in zip(self._columns[part], names, strict=True)
            ]
            for part, names in self._speeds.items()
        }

    def action(self, numbers: Mapping[str, Numbers]) -> dict[str, float]:
        """Return the complete action for the device; `numbers` has every part."""
        out = dict(self._others)
        for part, columns in self._columns.items():
            for column, number in zip(columns, numbers[part], strict=True):
                out[column.commanded] = column.write.theirs(number)
        return out


class SpeedEstimate:
    """Speeds of joints from their positions, over the last 50 ms: late by half of that, but not all noise."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, Numbers]] = deque()

    def take(self, t_ns: int, q: Numbers) -> Numbers:
        """Add a measurement; return the current speeds [rad/s]."""
        self._seen.append((t_ns, q))
        while len(self._seen) > 2 and t_ns - self._seen[1][0] >= _WINDOW_NS:
            self._seen.popleft()
        before_ns, before = self._seen[0]
        if t_ns <= before_ns:
            return [0.0] * len(q)
        return [(new - old) / ((t_ns - before_ns) / NS_PER_S) for new, old in zip(q, before, strict=True)]


def add_up(x_WB: Numbers, V_WB_B: Numbers, duration_s: float) -> Numbers:
    """Return the pose of a base after a constant twist: (x, y, yaw) [m, m, rad]."""
    (x, y, yaw), (vx, vy, wz) = x_WB, V_WB_B
    middle = yaw + 0.5 * wz * duration_s
    c, s = math.cos(middle) * duration_s, math.sin(middle) * duration_s
    return [x + c * vx - s * vy, y + s * vx + c * vy, yaw + wz * duration_s]


def _others(goes: list[str], taken: list[str], others: Mapping[str, float]) -> dict[str, float]:
    """Return the values of features that belong to no part: speeds of joints 0, the rest as declared."""
    unknown = sorted(set(others) - set(goes))
    if unknown:
        raise ValueError(f"others: it takes no {', '.join(unknown)}, but {', '.join(goes)}")
    speeds = {_motor(name) + ".vel" for name in taken}
    out = dict.fromkeys(sorted(speeds & set(goes) - set(taken)), 0.0) | dict(others)
    left = [name for name in goes if name not in taken and name not in out]
    if left:
        raise ValueError(
            f"it also takes {', '.join(left)}: put them into parts, or declare their values, "
            f"others={{{left[0]!r}: 0.0}}"
        )
    return out


def _columns(table: Table) -> list[_Column]:
    match table:
        case Joints(joints=joints):
            return [
                _Column(_position(name), _position(name), linear, linear)
                for name, linear in zip(joints, table.to_rad(), strict=True)
            ]
        case Gripper(gripper=name, action=action):
            read, write = table.to_width("closed", "open"), table.to_width("action_closed", "action_open")
            return [_Column(_position(name), _position(action or name), read, write)]
        case Base(base=names):
            return [
                _Column(name, name, linear, linear) for name, linear in zip(names, table.to_si(), strict=True)
            ]


def _position(name: str) -> str:
    """Return the feature of a motor's position; a name with a dot is a feature already."""
    return name if "." in name else f"{name}.pos"


def _motor(feature: str) -> str:
    return feature.rpartition(".")[0]


def _check(part: str, wanted: list[str], has: list[str], verb: str) -> None:
    missing = [name for name in wanted if name not in has]
    if missing:
        raise ValueError(f"part {part}: it {verb} no {', '.join(missing)}, but {', '.join(has) or 'nothing'}")
