"""A robot of LeRobot: `LeRobotDevice` and its parts. `drivers.lerobot` describes what stops it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from drivers.child import Child
from drivers.lerobot.camera import SharedCamera
from drivers.lerobot.messages import LIBRARY_START_S, DeviceConfig, DeviceOrder, DeviceReport, Facts
from drivers.lerobot.pictures import Pictures
from drivers.lerobot.tables import Base, Gripper, Joints, Numbers, Table, Unit, tables_from_plain
from robot_runtime.core.robot import ArmState, BaseState, GripperState
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import (
    ArmCommand,
    BaseCommand,
    BaseTwistCommand,
    GripperCommand,
    JointCommand,
)
from robot_runtime.core.values.fields import JointPosition
from robot_runtime.errors import DriverError, InvalidValueError
from robot_runtime.robot.lease import check_free


class DeviceChild:
    """The process of a robot or a teleoperator, and its reports."""

    def __init__(self, module: str, config: DeviceConfig, *, what: str) -> None:
        """InvalidValueError: an invalid number. DriverError: it cannot be set up."""
        self.silence_s = config.silence_s
        for name in ("rate_hz", "silence_s", "state_timeout_s"):
            value = getattr(config, name)
            if not 0.0 < value < 1e4:
                raise InvalidValueError(f"{name} is above 0, got {value:g}")
        self.what, self._timeout_ns = what, round(config.state_timeout_s * NS_PER_S)
        self.address = address_of(config.config, what)
        check_free(self.address)
        check_ports(config.config, what)
        self.child = Child(module, config, DeviceOrder, DeviceReport, what=what, start_s=LIBRARY_START_S)
        self.facts = msgspec.json.decode(self.child.greeting, type=Facts)
        self._order = DeviceOrder()

    def report(self) -> DeviceReport:
        """Return the newest state; DriverError: it is too old, or there is a fault."""
        report = self.child.report()
        if report.fault:
            raise DriverError(f"{self.what}: {report.fault}")
        age_ns = time.monotonic_ns() - report.t_ns
        if age_ns > self._timeout_ns:
            raise DriverError(f"{self.what}: no state for {age_ns / NS_PER_S:.2f} s: {self.child.trouble}")
        return report

    def put(self, part: str, numbers: Numbers | None) -> None:
        """Command a part; None: hold."""
        order = DeviceOrder(number=self._order.number + 1, parts=self._order.parts | {part: numbers})
        self._order = order
        self.child.orders.put(order)


class LeRobotDevice:
    """Any robot of LeRobot or a plug-in, in its own process."""

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
        others: Mapping[str, float] | None = None,
        rate_hz: float = 60.0,
        silence_s: float = 0.25,
        state_timeout_s: float = 0.25,
    ) -> None:
        """Import LeRobot in a separate process and connect, which takes some seconds; move nothing.

        type, config: as for LeRobot's commands, `--robot.type` and other options that begin with `--robot.`.
        plugins: modules that register types, in addition to those that LeRobot finds by itself.
        parts: the features of each part; None: by their names. See `drivers.lerobot.tables`.
        joint_unit: of positions, "deg", "rad" or "percent"; None: by the type and its `use_degrees`.
        joint_ranges: of joints in percent by name, the angles of -100 % and 100 % [rad]; by default from the
            calibration.
        stroke_m: opening of its grippers at 100 % [m].
        others: values of features of actions that belong to no part.
        rate_hz: how often it is read and commanded, if it is fast enough.
        silence_s: its parts hold after this long without a command [s].
        state_timeout_s: a state older than this is a fault [s].

        InvalidValueError: an invalid number or table. DriverError: it cannot be set up; the message states
            why, and how to calibrate it if necessary.
        """
        plain = DeviceConfig(
            type=type,
            config=dict(config or {}),
            plugins=list(plugins),
            parts=tables_from_plain(parts or {}),
            joint_unit=checked_unit(joint_unit),
            joint_ranges=checked_ranges(joint_ranges or {}),
            stroke_m=stroke_m,
            others=dict(others or {}),
            rate_hz=rate_hz,
            silence_s=silence_s,
            state_timeout_s=state_timeout_s,
        )
        self._own = DeviceChild("drivers.lerobot.robot_process", plain, what=f"LeRobot's {type}")
        facts = self._own.facts
        self.parts: dict[str, LeRobotJoints | LeRobotGripper | LeRobotBase] = {
            name: _part(self._own, name, table) for name, table in facts.parts.items()
        }
        """Name -> its driver, for `Robot`."""
        place = max(facts.cameras.values(), key=lambda size: size[0] * size[1], default=(1, 1))
        child = self._own.child
        self.cameras: dict[str, SharedCamera] = {
            name: SharedCamera(
                Pictures(child.descriptor, size, place=place, index=i), size, self._fault, self._own.what
            )
            for i, (name, size) in enumerate(facts.cameras.items())
        }
        """Name -> camera, of the cameras in its observations."""

    def __getattr__(self, name: str) -> Any:
        """Return a part or a camera by its name."""
        for found in (self.__dict__.get("parts", {}), self.__dict__.get("cameras", {})):
            if name in found:
                return found[name]
        raise AttributeError(f"a LeRobotDevice has no {name!r}; it has {', '.join(dir(self))}")

    def __dir__(self) -> list[str]:
        return [*self.parts, *self.cameras, "parts", "cameras", "actions", "pid", "stop", "close"]

    @property
    def actions(self) -> tuple[JointPosition, ...]:
        """Names of its joints, for `Robot`."""
        return tuple(
            JointPosition(part.num_joints, part=name, names=part.joint_names)
            for name, part in self.parts.items()
            if isinstance(part, LeRobotJoints)
        )

    @property
    def pid(self) -> int:
        """Id of the process that communicates with the robot."""
        return self._own.child.pid

    def stop(self) -> None:
        """Make all its parts hold."""
        for part in self.parts.values():
            part.stop()

    def close(self) -> None:
        """Make it hold, disconnect it and end its process; may be called twice."""
        self._own.child.close()

    def _fault(self) -> str:
        """Return why there are no more images; empty: there are."""
        return self._own.child.report().fault or self._own.child.ended


class _Part:
    """A part of a device."""

    def __init__(self, device: DeviceChild, name: str) -> None:
        self.silence_s = device.silence_s
        self._device, self._name = device, name
        self.address = device.address

    def stop(self) -> None:
        """Hold; the next `write` resumes."""
        self._device.put(self._name, None)

    def _tell(self, numbers: np.ndarray, size: int) -> None:
        if numbers.shape != (size,) or not np.isfinite(numbers).all():
            raise DriverError(
                f"{self._name} of {self._device.what}: expected {size} finite numbers, got {numbers}"
            )
        self._device.report()  # a device with a fault takes no commands
        self._device.put(self._name, numbers.tolist())


class LeRobotJoints(_Part):
    """An arm of a LeRobot robot, or another group of its joints: positions."""

    def __init__(self, device: DeviceChild, name: str, table: Joints) -> None:
        super().__init__(device, name)
        motors = [each.removesuffix(".pos") for each in table.joints]
        self.joint_names: tuple[str, ...] = tuple(table.names or (each.replace(".", "_") for each in motors))
        """Names of the joints, as policies know them."""

    @property
    def num_joints(self) -> int:
        return len(self.joint_names)

    def read(self) -> ArmState:
        """Read the state; speeds are measured where possible, else from positions over 50 ms."""
        report = self._device.report()
        return ArmState(
            t_ns=report.t_ns,
            q=np.array(report.parts[self._name]),
            dq=np.array(report.speeds[self._name]),
        )

    def write(self, command: ArmCommand) -> ArmCommand:
        if not isinstance(command, JointCommand):
            raise DriverError(
                f"{self._name} of {self._device.what}: expected joint positions, got {type(command).__name__}"
            )
        self._tell(command.q, self.num_joints)
        return command


class LeRobotGripper(_Part):
    """A gripper of a LeRobot robot."""

    def __init__(self, device: DeviceChild, name: str, table: Gripper) -> None:
        super().__init__(device, name)
        self._stroke_m = table.stroke_m

    def read(self) -> GripperState:
        report = self._device.report()
        return GripperState(width=report.parts[self._name][0], t_ns=report.t_ns)

    def write(self, command: GripperCommand) -> GripperCommand:
        """Send a width, clipped to the range from closed to open."""
        width = command.width
        if not np.isfinite(width):
            raise DriverError(f"{self._name} of {self._device.what}: expected a finite width, got {width}")
        width = min(max(width, 0.0), self._stroke_m)
        self._tell(np.array([width]), 1)
        return GripperCommand(width=width)


class LeRobotBase(_Part):
    """A mobile base of a LeRobot robot; its pose is the sum of its measured twists."""

    def read(self) -> BaseState:
        report = self._device.report()
        return BaseState(
            t_ns=report.t_ns,
            x_WB=np.array(report.parts[self._name]),
            V_WB_B=np.array(report.speeds[self._name]),
        )

    def write(self, command: BaseCommand) -> BaseTwistCommand:
        if not isinstance(command, BaseTwistCommand):
            raise DriverError(
                f"{self._name} of {self._device.what}: expected twists, got {type(command).__name__}"
            )
        self._tell(command.V_WB_B, 3)
        return command


def _part(device: DeviceChild, name: str, table: Table) -> LeRobotJoints | LeRobotGripper | LeRobotBase:
    match table:
        case Joints():
            return LeRobotJoints(device, name, table)
        case Gripper():
            return LeRobotGripper(device, name, table)
        case Base():
            return LeRobotBase(device, name)


def checked_unit(unit: str | None) -> Any:
    """InvalidValueError: there is no such unit."""
    if unit not in (None, "deg", "rad", "percent"):
        raise InvalidValueError(f"joint_unit is deg, rad or percent, got {unit!r}")
    return unit


def checked_ranges(ranges: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """InvalidValueError: one of them is invalid."""
    out = {}
    for name, ends in ranges.items():
        if len(ends) != 2 or not np.isfinite(ends).all() or ends[0] == ends[1]:
            raise InvalidValueError(f"joint_ranges are two different angles each [rad], {name} has {ends!r}")
        out[name] = (float(ends[0]), float(ends[1]))
    return out


def address_of(config: Mapping[str, Any], what: str) -> str:
    """Return the device's address, by ports and hosts in its configuration; empty if it has none."""

    def places(table: Mapping[str, Any]) -> Iterator[str]:
        for key, value in table.items():
            if isinstance(value, Mapping):
                yield from places(value)
            elif isinstance(value, str) and key.endswith(("port", "ip", "host", "address", "interface")):
                yield value

    found = ", ".join(places(config))
    return f"{what} at {found}" if found else ""


def check_ports(config: Mapping[str, Any], what: str) -> None:
    """DriverError: a serial port of the configuration is missing; checked before a slow start."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            check_ports(value, what)
        elif (
            key == "port"
            and isinstance(value, str)
            and value.startswith("/dev/")
            and not Path(value).exists()
        ):
            found = sorted(map(str, (*Path("/dev").glob("ttyACM*"), *Path("/dev").glob("ttyUSB*"))))
            raise DriverError(
                f"{what}: there is no {value}; serial ports here: {', '.join(found) or 'none'}. "
                "lerobot-find-port finds the right one"
            )
