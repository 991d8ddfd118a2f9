"""Checks a robot's file for unknown keys before any driver is made: `check_sections`, `check_options`."""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from robot_runtime.core.plan.limits import USUAL_JOINT, PartLimits, refuse_units
from robot_runtime.core.plan.part_latency import latencies_ns
from robot_runtime.core.values.fields import (
    ActionField,
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
    JointVelocity,
)
from robot_runtime.errors import InvalidValueError, nearest, placed
from robot_runtime.robot_file.kinds import misfit
from robot_runtime.robot_file.kinematics import KEYS as KINEMATICS_KEYS
from robot_runtime.robot_file.limits import LIMIT_KEYS
from robot_runtime.robot_file.names import DATA_SHEETS, SHIPPED_DRIVERS, TELEOPERATORS

Table = Mapping[str, Any]
_SECTIONS = (
    "name",
    "model",
    "devices",
    "parts",
    "sensors",
    "cameras",
    "operator",
    "control_hz",
    "state_limits",
    "camera_limits",
)
_OF_PART = ("driver", "limits", "latency_s", "home", "command", "joint_names", "kinematics")
"""Keys of a part that its driver does not get."""
_OF_CAMERA = ("driver", "calibration", "match")
"""Keys of a camera that its driver does not get."""
_OPERATOR = ("arm", "hold_to_run", "teleop")
_COMMANDS: Mapping[str, Callable[[str, int, tuple[str, ...]], ActionField]] = {
    "joint_position": lambda part, n, names: JointPosition(n, part=part, names=names),
    "joint_velocity": lambda part, n, names: JointVelocity(n, part=part, names=names),
    "hand_pose": lambda part, n, names: EndEffectorPose(part=part),
    "base_twist": lambda part, n, names: BaseTwist(part=part),
    "base_pose": lambda part, n, names: BasePose(part=part),
    "gripper_width": lambda part, n, names: GripperWidth(part=part),
}
"""The commands that a part may take, by their names in a file."""


def check_sections(table: Table) -> None:
    """Check that everything in the file is known, as far as possible without making a driver."""
    check_keys("the file", table, _SECTIONS)
    if not table.get("parts"):
        raise InvalidValueError("a robot has parts: [parts.arm], with its driver")
    for section in ("devices", "parts", "sensors", "cameras", "operator"):
        tables = table.get(section, {})
        if not isinstance(tables, Mapping):
            raise InvalidValueError(f"{section} is a table of tables, [{section}.NAME], got {tables!r:.60}")
        if section == "operator":
            check_keys("operator", tables, _OPERATOR)
        for name, each in tables.items():
            where = f"{section}.{name}"
            if not isinstance(each, Mapping):
                raise InvalidValueError(f"{where} is a table, [{where}], got {each!r:.60}")
            if not isinstance(each.get("driver"), str):
                others = [other for other, its in tables.items() if "driver" in its]
                if "driver" not in each and (meant := nearest(name, others)):
                    raise InvalidValueError(f"{section} has no {name}{meant}")
                shipped = TELEOPERATORS if where == "operator.teleop" else SHIPPED_DRIVERS
                raise InvalidValueError(
                    f"{where} needs its driver, as driver = NAME: one of {', '.join(shipped)}, "
                    "or file.py:Class, or package.module:Class"
                )
            if each["driver"].startswith("@") and (extra := of_driver(where, each)):
                raise InvalidValueError(
                    f"{where} is {each['driver']!r}, which is made already: {', '.join(extra)} belongs "
                    "into its table in [devices]"
                )
    for name, each in table["parts"].items():
        _check_part(f"parts.{name}", each)
    for name, each in table.get("cameras", {}).items():
        if "match" in each and "calibration" not in each:
            raise InvalidValueError(
                f"cameras.{name}.match needs the camera's calibration beside it: calibration = FILE of "
                "calibrate hand-eye, or chest"
            )


def _check_part(where: str, table: Table) -> None:
    if "limits" in table:
        if not isinstance(table["limits"], Mapping):
            raise InvalidValueError(f"{where}.limits is a table, got {table['limits']!r:.60}")
        check_keys(f"{where}.limits", table["limits"], LIMIT_KEYS)
        sheet = table["limits"].get("of")
        if sheet is not None and ":" not in str(sheet) and str(sheet) not in DATA_SHEETS:
            raise InvalidValueError(
                f"{where}.limits.of is {sheet!r}, expected a data sheet: {', '.join(DATA_SHEETS)}, or "
                f"package.module:LIMITS{nearest(str(sheet), DATA_SHEETS)}"
            )
    if "kinematics" in table:
        if not isinstance(table["kinematics"], Mapping):
            raise InvalidValueError(f"{where}.kinematics is a table, got {table['kinematics']!r:.60}")
        check_keys(f"{where}.kinematics", table["kinematics"], KINEMATICS_KEYS)
    if (command := table.get("command")) is not None and str(command) not in _COMMANDS:
        raise InvalidValueError(
            f"{where}.command is {command!r}, expected one of {', '.join(_COMMANDS)}"
            f"{nearest(str(command), _COMMANDS)}"
        )
    try:
        latencies_ns({where: table.get("latency_s", 0.0)}, (where,))
    except InvalidValueError as error:
        raise placed(error, f"{where}.latency_s") from None
    home = table.get("home", [])
    if not isinstance(home, list) or not all(map(_is_finite, home)):
        raise InvalidValueError(f"{where}.home takes a list of finite numbers [rad], got {home!r:.60}")
    names = table.get("joint_names", [])
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise InvalidValueError(f"{where}.joint_names takes a list of texts, got {names!r:.60}")


def _is_finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def check_keys(where: str, table: Table, known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise InvalidValueError(
                f"{where} has an unknown key {key!r}{nearest(key, known)}; known are {', '.join(known)}"
            )


def of_driver(where: str, table: Table) -> dict[str, Any]:
    reserved = _reserved(where)
    return {key: value for key, value in table.items() if key not in reserved}


def _reserved(where: str) -> tuple[str, ...]:
    if where.startswith("parts."):
        return _OF_PART
    return _OF_CAMERA if where.startswith("cameras.") else ("driver",)


def check_options(where: str, text: str, driver: Callable[..., Any], options: Table) -> None:
    """Check that the driver takes these options, without calling it."""
    try:
        signature = inspect.signature(driver)
    except (TypeError, ValueError):
        return
    known = [
        name
        for name, each in signature.parameters.items()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    if not any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values()):
        for key in options:
            if key not in known:
                reserved = _reserved(where)
                raise InvalidValueError(
                    f"{where} has an unknown key {key!r}{nearest(key, (*reserved, *known))}; {text} takes "
                    f"{', '.join(known) or 'nothing'}"
                )
    needed = [
        name
        for name in known
        if signature.parameters[name].default is inspect.Parameter.empty and name not in options
    ]
    if needed:
        raise InvalidValueError(f"{where} lacks {', '.join(needed)}, which {text} needs")
    for key, value in options.items():
        if wanted := misfit(driver, key, value):
            raise InvalidValueError(f"{where}.{key} takes {wanted}, got {value!r:.60}")


def action_field(part: str, table: Table, driver: Any) -> ActionField | None:
    """Return the commands that the part takes, where its table declares unusual ones."""
    names: tuple[str, ...] = tuple(table.get("joint_names") or getattr(driver, "joint_names", None) or ())
    if not names and "command" not in table:
        return None
    num_joints = getattr(driver, "num_joints", 0)
    if names and len(names) != num_joints:
        raise InvalidValueError(
            f"parts.{part}.joint_names are {len(names)}, {type(driver).__name__} has {num_joints} joints"
        )
    return _COMMANDS[table.get("command", "joint_position")](part, num_joints, names)


def check_home(home: Mapping[str, tuple[float, ...]], parts: Table, limits: Mapping[str, PartLimits]) -> None:
    for name, q in home.items():
        num_joints = getattr(parts[name], "num_joints", 0)
        if len(q) != num_joints:
            raise InvalidValueError(
                f"parts.{name}.home has {len(q)} numbers, "
                f"{type(parts[name]).__name__} has {num_joints} joints"
            )
        allowed = limits.get(name)
        if not getattr(allowed, "unusual", False):
            refuse_units(f"parts.{name}.home", q, USUAL_JOINT["q_min"])
        low, high = getattr(allowed, "q_min", None), getattr(allowed, "q_max", None)
        if low is not None and high is not None:
            for i, each in enumerate(q):
                if not low[i] <= each <= high[i]:
                    raise InvalidValueError(
                        f"parts.{name}.home: joint {i + 1} is {each:g} rad, its limits are from "
                        f"{low[i]:g} to {high[i]:g}"
                    )
