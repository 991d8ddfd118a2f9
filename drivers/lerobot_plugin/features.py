"""LeRobot's names for the numbers of a robot: `tables_of`, for `PartNumbers`."""

from typing import Literal

from drivers.lerobot.tables import Base, Gripper, Joints, Table
from robot_runtime.core.plan.limits import GripperLimits
from robot_runtime.core.values.fields import joint_names
from robot_runtime.core.values.schema import ArmSchema, Schema
from robot_runtime.core.values.state import RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.robot import Robot

_COLUMNS_OF_BASE = ("vx", "vy", "wz")
_MOTORS_OF_BASE = ("x.vel", "y.vel", "theta.vel")


def tables_of(
    robot: Robot, state: RobotState, *, names: str, joint_unit: Literal["deg", "rad"]
) -> dict[str, Table]:
    """Make the table of every part; InvalidValueError: a gripper without limits, whose range is unknown."""
    schema = robot.schema(state)
    out: dict[str, Table] = {}
    for part in robot.parts:
        match robot.kind(part), names:
            case "arm", "columns":
                out[part] = Joints(joints=[f"{part}.{name}" for name in _joints(schema, part)], unit="rad")
            case "arm", _:
                motors = [f"{_prefix(part, 'arm')}{name}.pos" for name in _joints(schema, part)]
                out[part] = Joints(joints=motors, unit=joint_unit)
            case "gripper", "columns":
                stroke_m = _stroke_m(robot, part)
                out[part] = Gripper(gripper=f"{part}.width", open=stroke_m, stroke_m=stroke_m)
            case "gripper", _:
                out[part] = Gripper(gripper=f"{part}.pos", stroke_m=_stroke_m(robot, part))
            case _, "columns":
                vx, vy, wz = (f"{part}.{name}" for name in _COLUMNS_OF_BASE)
                out[part] = Base(base=(vx, vy, wz), angle_unit="rad")
            case _:
                x, y, theta = (_prefix(part, "base") + name for name in _MOTORS_OF_BASE)
                out[part] = Base(base=(x, y, theta), angle_unit=joint_unit)
    return out


def _joints(schema: Schema, part: str) -> tuple[str, ...]:
    arm = schema.parts[part]
    assert isinstance(arm, ArmSchema)
    return arm.names or joint_names(arm.num_joints)


def _prefix(part: str, kind: str) -> str:
    """Return left_ for left_arm, nothing for arm, head_ for head."""
    side = part.removesuffix(kind)
    return side if side != part or not side else f"{part}_"


def _stroke_m(robot: Robot, part: str) -> float:
    limits = None if robot.limits is None else robot.limits.parts.get(part)
    if not isinstance(limits, GripperLimits):
        raise InvalidValueError(f"expected limits of {part}, which define how far it opens")
    return float(limits.high)
