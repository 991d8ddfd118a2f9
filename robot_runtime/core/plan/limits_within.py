"""Checks limits against those of the hardware: `beyond`."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from robot_runtime.core.plan.limits import (
    GripperLimits,
    JointLimits,
    MotionLimits,
    NumbersLimits,
    PartLimits,
)

_JOINTS = ("q_min", "q_max", "dq_max", "ddq_max", "dddq_max")
_MOTION = ("speed", "acceleration", "jerk")
_HAND = ("hand_translation", "hand_rotation")
_SLACK = 1e-9


def beyond(limits: PartLimits, hardware: PartLimits, *, whose: str) -> Iterator[str]:
    """A phrase for each number beyond the hardware's: `q_max of joint 4 is 0, beyond the -0.15 of it`.

    Limits that the hardware does not declare, and limits of another kind, are ignored.
    """
    for name, value, bound, is_low in _bounds(limits, hardware):
        mine, its = np.atleast_1d(value), np.atleast_1d(bound)
        for i, (each, end) in enumerate(zip(mine, its, strict=False)):
            if each < end - _SLACK if is_low else each > end + _SLACK:
                what = name if np.size(value) == 1 else f"{name} of {_axis(name)} {i + 1}"
                yield f"{what} is {each:g}, beyond the {end:g} of {whose}"


def _axis(name: str) -> str:
    return "joint" if name in _JOINTS else "axis"


def _bounds(limits: PartLimits, most: PartLimits) -> list[tuple[str, Any, Any, bool]]:
    """Tuples of (name, its numbers, the hardware's, whether it is a lower limit)."""
    if isinstance(limits, JointLimits) and isinstance(most, JointLimits):
        out = [(name, getattr(limits, name), getattr(most, name), name == "q_min") for name in _JOINTS]
        for hand in _HAND:
            out += _motion(f"{hand}.", getattr(limits, hand), getattr(most, hand))
        return out
    if isinstance(limits, NumbersLimits) or isinstance(most, NumbersLimits):
        return []
    out = []
    if isinstance(limits, GripperLimits) and isinstance(most, GripperLimits):
        out += [("low", limits.low, most.low, True), ("high", limits.high, most.high, False)]
    return out + _motion("", getattr(limits, "motion", None), getattr(most, "motion", None))


def _motion(prefix: str, mine: object, its: object) -> list[tuple[str, Any, Any, bool]]:
    if not (isinstance(mine, MotionLimits) and isinstance(its, MotionLimits)):
        return []
    return [(prefix + name, getattr(mine, name), getattr(its, name), False) for name in _MOTION]
