"""A leader arm, a gamepad or another teleoperator of LeRobot: `LeRobotTeleoperator`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from drivers.lerobot.device import DeviceChild, checked_ranges, checked_unit
from drivers.lerobot.messages import DeviceConfig
from drivers.lerobot.tables import Base, Gripper, Joints, Table, Unit, tables_from_plain


@dataclass(frozen=True, kw_only=True)
class Target:
    """The targets of a teleoperator for a robot."""

    t_ns: int
    """Time of the reading, on the robot's monotonic clock."""
    values: Mapping[str, float]
    """Column name -> value, SI: arm.shoulder_pan [rad], gripper.width [m], base.vx [m/s], base.wz [rad/s]."""


class LeRobotTeleoperator:
    """Any teleoperator of LeRobot or a plug-in, in its own process; it is only read."""

    def __init__(
        self,
        type: str,
        *,
        config: Mapping[str, Any] | None = None,
        plugins: Sequence[str] = (),
        parts: Mapping[str, Mapping[str, Any]] | None = None,
        joint_unit: Unit | None = None,
        joint_ranges: Mapping[str, Sequence[float]] | None = None,
        stroke_m: float | None = None,
        rate_hz: float = 60.0,
        state_timeout_s: float = 0.25,
    ) -> None:
        """The arguments are those of `LeRobotDevice`; parts here are those of the robot that it drives.

        InvalidValueError, DriverError: as there.
        """
        plain = DeviceConfig(
            type=type,
            config=dict(config or {}),
            plugins=list(plugins),
            parts=tables_from_plain(parts or {}),
            joint_unit=checked_unit(joint_unit),
            joint_ranges=checked_ranges(joint_ranges or {}),
            stroke_m=stroke_m,
            others={},
            rate_hz=rate_hz,
            silence_s=1.0,
            state_timeout_s=state_timeout_s,
        )
        what = f"LeRobot's teleoperator {type}"
        self._own = DeviceChild("drivers.lerobot.teleoperator_process", plain, what=what)
        self.columns: dict[str, list[str]] = {}
        """Part -> names of its columns."""
        for part, table in self._own.facts.parts.items():
            match table:
                case Joints():
                    names = table.names or [
                        each.removesuffix(".pos").replace(".", "_") for each in table.joints
                    ]
                case Gripper():
                    names = ["width"]
                case Base():
                    names = ["vx", "vy", "wz"]
            self.columns[part] = [f"{part}.{name}" for name in names]

    @property
    def tables(self) -> Mapping[str, Table]:
        """Part -> its table."""
        return self._own.facts.parts

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns."""
        return tuple(name for names in self.columns.values() for name in names)

    @property
    def pid(self) -> int:
        """Id of the process that reads it."""
        return self._own.child.pid

    def read(self) -> Target:
        """Return the newest targets; never waits. DriverError: it is too old, or there is a fault."""
        report = self._own.report()
        values: dict[str, float] = {}
        for part, names in self.columns.items():
            is_base = isinstance(self._own.facts.parts[part], Base)
            numbers = report.speeds[part] if is_base else report.parts[part]
            values |= dict(zip(names, numbers, strict=True))
        return Target(t_ns=report.t_ns, values=MappingProxyType(values))

    def close(self) -> None:
        """Disconnect it and end its process; may be called twice."""
        self._own.child.close()
