"""Limits as a robot's file writes them: `limits_of`.

[parts.arm.limits]                     joints: a single number applies to all of them
of = "fr3"                             a data sheet; values that are not given here come from it
share = 0.2                            of its speeds and accelerations
q_min = [...]

[parts.gripper.limits]                 fingers
low, high, speed, acceleration, jerk

[parts.base.limits]                    (vx, vy, wz)
speed, acceleration, jerk = [x, y, yaw]; a speed of 0 along y: a differential base

unusual = true                         any of them: values beyond those of usual machines are intended
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from robot_runtime.core.plan.limits import (
    BaseLimits,
    GripperLimits,
    JointLimits,
    Limits,
    MotionLimits,
    PartLimits,
)
from robot_runtime.core.plan.limits_within import beyond
from robot_runtime.core.values.state import ARM, BASE, GRIPPER
from robot_runtime.errors import InvalidValueError

_JOINTS = ("q_min", "q_max", "dq_max", "ddq_max", "dddq_max")
_MOTION = ("speed", "acceleration", "jerk")
_UNUSUAL = "unusual"
_HAND = ("hand_translation", "hand_rotation")
LIMIT_KEYS = ("of", "share", _UNUSUAL, *_JOINTS, *_HAND, "low", "high", *_MOTION)
Sheets = Callable[[str], Limits]


def limits_of(where: str, table: Mapping[str, Any], driver: Any, part: str, sheets: Sheets) -> PartLimits:
    """Read the limits of one part.

    where: its place in the file, for errors. driver: of the part; it may have `limits` of its own, of the
        hardware. sheets: finds a data sheet by name.
    InvalidValueError: a number is missing, has another size or unit, or goes beyond the hardware's.
    """
    if not isinstance(table.get(_UNUSUAL, False), bool):
        raise InvalidValueError(f"{where}.{_UNUSUAL} takes true or false, got {table[_UNUSUAL]!r:.60}")
    kind = _kind(table, driver, part)
    of = None if "of" not in table else str(table["of"])
    sheet = None if of is None else _of_sheet(where, sheets(of), kind, of)
    share = _share(where, table, sheet)
    try:
        match kind:
            case "arm":
                limits: PartLimits = _joint_limits(where, table, driver, sheet, share)
            case "gripper":
                limits = _gripper_limits(where, table, sheet, share)
            case _:
                motion = _motion(where, table, 3, getattr(sheet, "motion", None), share, may_be_zero=True)
                limits = BaseLimits(motion=motion, unusual=_is_unusual(table, sheet))
    except InvalidValueError as error:
        if str(error).startswith(where):
            raise
        raise InvalidValueError(f"{where}: {error}") from None
    for whose, most in (("the data sheet", sheet), (type(driver).__name__, getattr(driver, "limits", None))):
        if isinstance(most, JointLimits | GripperLimits | BaseLimits):
            for phrase in beyond(limits, most, whose=whose):
                raise InvalidValueError(f"{where}: {phrase}")
    return limits


def _kind(table: Mapping[str, Any], driver: Any, part: str) -> str:
    if hasattr(driver, "num_joints"):
        return ARM
    if {"low", "high"} & table.keys() or part.endswith(GRIPPER):
        return GRIPPER
    return BASE if part.endswith(BASE) or isinstance(table.get("speed"), list) else GRIPPER


def _of_sheet(where: str, sheet: Limits, kind: str, name: str) -> PartLimits:
    """Return the data sheet's part of that kind; there is one of each."""
    kinds = {ARM: JointLimits, GRIPPER: GripperLimits, BASE: BaseLimits}
    for limits in sheet.parts.values():
        if isinstance(limits, kinds[kind]):
            return limits
    raise InvalidValueError(f"{where}.of: {name} has no part of the kind {kind}")


def _share(where: str, table: Mapping[str, Any], sheet: PartLimits | None) -> float:
    share = table.get("share", 1.0)
    if "share" in table and sheet is None:
        raise InvalidValueError(f"{where}.share is a share of a data sheet's: of = NAME is missing")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 < share <= 1.0:
        raise InvalidValueError(f"{where}.share takes a number above 0 and up to 1, got {share!r}")
    return float(share)


def _joint_limits(
    where: str, table: Mapping[str, Any], driver: Any, sheet: PartLimits | None, share: float
) -> JointLimits:
    _refuse_others(where, table, (*_JOINTS, *_HAND), "joints")
    n = int(driver.num_joints)
    given: dict[str, Any] = {
        name: _numbers(f"{where}.{name}", table[name], n) for name in _JOINTS if name in table
    }
    hand: dict[str, Any] = {
        name: _motion(f"{where}.{name}", table[name], 3, None, 1.0) for name in _HAND if name in table
    }
    if isinstance(sheet, JointLimits):
        if len(sheet.q_min) != n:
            raise InvalidValueError(
                f"{where}.of is of {len(sheet.q_min)} joints, {type(driver).__name__} has {n}"
            )
        slower: dict[str, Any] = {"dq_max": share * sheet.dq_max, "ddq_max": share * sheet.ddq_max}
        for name in _HAND:
            if (motion := getattr(sheet, name)) is not None:
                slower[name] = _slowed(motion, share)
        limits = slower | given | hand
        ends = {"q_min": sheet.q_min, "q_max": sheet.q_max} | given
    else:
        _need(where, given, _JOINTS)
        limits, ends = given | hand, given
    for i, (low, high) in enumerate(zip(ends["q_min"], ends["q_max"], strict=True)):
        if not low < high:
            raise InvalidValueError(
                f"{where}: q_min of joint {i + 1} is {low:g}, which is not below its q_max, {high:g}"
            )
    limits[_UNUSUAL] = _is_unusual(table, sheet)
    return replace(sheet, **limits) if isinstance(sheet, JointLimits) else JointLimits(**limits)


def _is_unusual(table: Mapping[str, Any], sheet: PartLimits | None) -> bool:
    return bool(table.get(_UNUSUAL, getattr(sheet, _UNUSUAL, False)))


def _gripper_limits(
    where: str, table: Mapping[str, Any], sheet: PartLimits | None, share: float
) -> GripperLimits:
    _refuse_others(where, table, ("low", "high", *_MOTION), "a gripper")
    known = sheet if isinstance(sheet, GripperLimits) else None
    motion = _motion(where, table, 1, None if known is None else known.motion, share)
    if known is None:
        _need(where, table, ("low", "high"))
    low, high = (
        float(_numbers(f"{where}.{name}", table.get(name, getattr(known, name, 0.0)), 1)[0])
        for name in ("low", "high")
    )
    if low > high:
        raise InvalidValueError(f"{where}: low is {low:g} m, which is above its high, {high:g} m")
    return GripperLimits(low=low, high=high, motion=motion, unusual=_is_unusual(table, sheet))


def _motion(
    where: str,
    table: Mapping[str, Any],
    size: int,
    sheet: MotionLimits | None,
    share: float,
    *,
    may_be_zero: bool = False,
) -> MotionLimits:
    """may_be_zero: whether a speed may be 0."""
    if not isinstance(table, Mapping):
        raise InvalidValueError(f"{where} is a table of {', '.join(_MOTION)}, got {table!r:.60}")
    given = {
        name: _numbers(f"{where}.{name}", table[name], size, may_be_zero=may_be_zero and name == "speed")
        for name in _MOTION
        if name in table
    }
    if sheet is not None:
        return replace(_slowed(sheet, share), **given)
    _need(where, given, _MOTION)
    return MotionLimits(**given)


def _slowed(motion: MotionLimits, share: float) -> MotionLimits:
    return replace(motion, speed=share * motion.speed, acceleration=share * motion.acceleration)


def _numbers(where: str, value: Any, size: int, *, may_be_zero: bool = False) -> np.ndarray:
    """Convert to an array; one number applies to all."""
    try:
        array = np.asarray(value, dtype=float)
        if isinstance(value, bool):
            raise TypeError
    except (TypeError, ValueError, OverflowError):
        raise InvalidValueError(f"{where} takes numbers, got {value!r:.60}") from None
    is_speed = where.rpartition(".")[2] in (*_JOINTS[2:], *_MOTION)
    is_positive = (array >= 0.0 if may_be_zero else array > 0.0).all()
    if not np.isfinite(array).all() or (is_speed and not is_positive):
        raise InvalidValueError(
            f"{where} takes {'numbers above 0' if is_speed else 'finite numbers'}, got {value}"
        )
    if array.ndim == 0:
        return np.full(size, float(array))
    if array.shape != (size,):
        raise InvalidValueError(f"{where} takes {size} numbers, or one for all, got {len(value)}")
    return array


def _need(where: str, given: Mapping[str, Any], names: tuple[str, ...]) -> None:
    if missing := [name for name in names if name not in given]:
        raise InvalidValueError(f"{where} lacks {', '.join(missing)}; of = NAME takes them from a data sheet")


def _refuse_others(where: str, table: Mapping[str, Any], names: tuple[str, ...], what: str) -> None:
    if others := [name for name in table if name not in (*names, "of", "share", _UNUSUAL)]:
        raise InvalidValueError(f"{where} has {', '.join(others)}; limits of {what} are {', '.join(names)}")
