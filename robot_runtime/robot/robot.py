"""A robot is the drivers it has: `Robot` reads them into one state and writes one command to all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from robot_runtime.core.robot import Arm, Gripper, MobileBase
from robot_runtime.core.values.command import Command, PartCommand
from robot_runtime.core.values.fields import check_part
from robot_runtime.core.values.state import (
    ARM,
    BASE,
    GRIPPER,
    ArmState,
    BaseState,
    GripperState,
    PartState,
    RobotState,
)
from robot_runtime.errors import InvalidValueError

Driver = Arm | Gripper | MobileBase


@dataclass(frozen=True, eq=False, init=False)
class Robot:
    """Named parts, each with its driver; owned by the control thread.

    Robot(arm=MyArm(), gripper=MyGripper())
    Robot(left_arm=MyArm("left"), right_arm=MyArm("right"), head=MyHead(), base=MyBase())
    """

    parts: Mapping[str, Driver]

    def __init__(self, parts: Mapping[str, Driver] | None = None, **named: Driver | None) -> None:
        """InvalidValueError: a part has a name that is none."""
        mine = {} if parts is None else dict(parts)
        mine |= {name: driver for name, driver in named.items() if driver is not None}
        for name in mine:
            check_part(name)
        self.__dict__["parts"] = MappingProxyType(mine)

    @property
    def arm(self) -> Arm | None:
        return self.parts.get(ARM)  # type: ignore[return-value]

    @property
    def gripper(self) -> Gripper | None:
        return self.parts.get(GRIPPER)  # type: ignore[return-value]

    @property
    def base(self) -> MobileBase | None:
        return self.parts.get(BASE)  # type: ignore[return-value]

    def read(self) -> RobotState:
        """The state now; stamped with the oldest of its measurements."""
        states: dict[str, PartState] = {}
        times: list[int] = []
        for name, driver in self.parts.items():
            measured = driver.read()
            if isinstance(measured, ArmState | BaseState | GripperState):
                states[name] = measured
                if measured.t_ns is not None:
                    times.append(measured.t_ns)
            else:
                states[name] = GripperState(width=measured)
        if not times:
            raise InvalidValueError("a robot needs an arm or a mobile base whose measurements have a time")
        return RobotState(t_ns=min(times), t_newest_ns=max(times), parts=states)

    def write(self, command: Command) -> Command:
        """Send the command to every part it speaks of; returns what the drivers really sent."""
        sent: dict[str, PartCommand] = {}
        for name, told in command.parts.items():
            driver = self.parts.get(name)
            sent[name] = told if driver is None else driver.write(told)  # type: ignore[arg-type]
        return Command(sent)

    def stop(self) -> None:
        """Make every part safe, the base first."""
        for _, driver in sorted(self.parts.items(), key=lambda each: each[0] != BASE):
            driver.stop()
