"""Commands: `Command`, one absolute setpoint for each named part of a robot."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypedDict, Unpack

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import ARM, BASE, GRIPPER
from robot_runtime.core.values.transforms import pose_from_quaternion


@dataclass(frozen=True, kw_only=True, eq=False)
class JointCommand:
    """Joint position setpoint."""

    q: Float[np.ndarray, " N"]
    """(N,) [rad]"""


@dataclass(frozen=True, kw_only=True, eq=False)
class JointVelocityCommand:
    """Joint velocity setpoint, until the next one."""

    dq: Float[np.ndarray, " N"]
    """(N,) [rad/s]"""


@dataclass(frozen=True, kw_only=True, eq=False)
class PoseCommand:
    """End-effector setpoint."""

    p_BE: Float[np.ndarray, "3"]
    """(3,) [m] in the mobile base."""
    quat_BE: Float[np.ndarray, "4"]
    """(4,) unit, wxyz."""

    @property
    def X_BE(self) -> pin.SE3:
        return pose_from_quaternion(self.p_BE, self.quat_BE)


@dataclass(frozen=True, kw_only=True, eq=False)
class BasePoseCommand:
    """Base pose setpoint (x, y, yaw) in the world [m, m, rad]."""

    x_WB: Float[np.ndarray, "3"]


@dataclass(frozen=True, kw_only=True, eq=False)
class BaseTwistCommand:
    """Base velocity setpoint (vx, vy, wz) expressed in B [m/s, m/s, rad/s]."""

    V_WB_B: Float[np.ndarray, "3"]


@dataclass(frozen=True, kw_only=True)
class GripperCommand:
    """Finger distance setpoint [m]."""

    width: float


@dataclass(frozen=True, kw_only=True, eq=False)
class NumbersCommand:
    """Plain numbers, in the part's own units."""

    values: Float[np.ndarray, " K"]
    is_held: bool = True
    """Whether they hold until the next row is due; otherwise they are positions on a path between rows."""


ArmCommand = JointCommand | JointVelocityCommand | PoseCommand
BaseCommand = BasePoseCommand | BaseTwistCommand
PartCommand = ArmCommand | GripperCommand | BaseCommand | NumbersCommand


class _OfDefaultParts(TypedDict, total=False):
    arm: ArmCommand | None
    gripper: GripperCommand | None
    base: BaseCommand | None


@dataclass(frozen=True, eq=False, init=False)
class Command:
    """The absolute setpoints of one instant, by part; a part that is not named is left alone.

    Command({"left_arm": JointCommand(q=q), "left_gripper": GripperCommand(width=0.04)})
    Command(arm=JointCommand(q=q), gripper=GripperCommand(width=0.04))
    """

    parts: Mapping[str, PartCommand]

    def __init__(
        self, parts: Mapping[str, PartCommand] | None = None, **of_default_parts: Unpack[_OfDefaultParts]
    ) -> None:
        """of_default_parts: `arm`, `gripper`, `base`; they override `parts`; None: left alone."""
        if of_default_parts:
            mine = {} if parts is None else dict(parts)
            for name, command in of_default_parts.items():
                if name not in _DEFAULT_PARTS:
                    raise TypeError(f"a command takes arm, gripper, base or parts={{...}}, not {name}")
                if command is not None:
                    mine[name] = command  # type: ignore[assignment]
                else:
                    mine.pop(name, None)
            parts = mine
        self.__dict__["parts"] = _NONE if parts is None else MappingProxyType(parts)

    @property
    def arm(self) -> ArmCommand | None:
        """The command of the part "arm"."""
        return self.parts.get(ARM)  # type: ignore[return-value]

    @property
    def gripper(self) -> GripperCommand | None:
        """The command of the part "gripper"."""
        return self.parts.get(GRIPPER)  # type: ignore[return-value]

    @property
    def base(self) -> BaseCommand | None:
        """The command of the part "base"."""
        return self.parts.get(BASE)  # type: ignore[return-value]

    def with_parts(self, parts: Mapping[str, PartCommand]) -> "Command":
        """The command with these parts in place of those of the same names."""
        return Command({**self.parts, **parts})


_NONE: Mapping[str, PartCommand] = MappingProxyType({})
_DEFAULT_PARTS = (ARM, GRIPPER, BASE)
