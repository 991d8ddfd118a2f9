"""Limits in degrees or millimetres are refused where they are made, in a robot's file and in Python alike."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

import robot_runtime as rr
from drivers.fer import FER_LIMITS
from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm
from robot_runtime.core.plan.limits import BaseLimits, GripperLimits, JointLimits, MotionLimits, PartLimits
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.forms import Forms
from robot_runtime.robot_file.limits import limits_of

JOINTS = {"q_min": -3.0, "q_max": 3.0, "dq_max": 2.0, "ddq_max": 9.0, "dddq_max": 999.0}
FINGERS = {"low": 0.0, "high": 0.08, "speed": 0.1, "acceleration": 1.0, "jerk": 20.0}
WHEELS = {"speed": [0.8, 0.8, 1.6], "acceleration": [1.0, 1.0, 2.5], "jerk": [20.0, 20.0, 50.0]}
SLOW = {"speed": 0.1, "acceleration": 1.0, "jerk": 20.0}
IN_ANOTHER_UNIT = [
    ("arm", {**JOINTS, "q_min": -170.0, "q_max": 170.0}, "q_min is -170 rad", "degrees"),
    ("arm", {**JOINTS, "q_max": [3, 170]}, "q_max is 170 rad", "degrees"),
    ("arm", {**JOINTS, "dq_max": 90.0}, "dq_max is 90 rad/s", "degrees/s"),
    ("arm", {**JOINTS, "ddq_max": 300.0}, "ddq_max is 300 rad/s²", "degrees/s²"),
    ("arm", {**JOINTS, "dddq_max": 286_000.0}, "dddq_max is 286000 rad/s³", "degrees/s³"),
    ("arm", {**JOINTS, "hand_translation": SLOW | {"speed": 250.0}}, "hand_translation.speed is 250", "mm/s"),
    ("arm", {**JOINTS, "hand_rotation": SLOW | {"speed": 90.0}}, "hand_rotation.speed is 90", "degrees/s"),
    ("gripper", {**FINGERS, "high": 80.0}, "the gripper's high is 80 m", "mm"),
    ("gripper", {**FINGERS, "speed": 100.0}, "the gripper's speed is 100 m/s", "mm/s"),
    ("gripper", {**FINGERS, "acceleration": 2000.0}, "the gripper's acceleration is 2000 m/s²", "mm/s²"),
    ("base", {**WHEELS, "speed": [500, 500, 1]}, "the base's speed is 500 m/s", "mm/s"),
    ("base", {**WHEELS, "speed": [0.5, 0.5, 45]}, "the base's speed is 45 rad/s", "degrees/s"),
]


def from_file(part: str, table: dict[str, Any]) -> PartLimits:
    driver = IdealArm(q=[0.0, 0.0]) if part == "arm" else None
    return limits_of(f"parts.{part}.limits", table, driver, part, lambda name: FR3_LIMITS)


def motion(table: dict[str, Any], size: int) -> MotionLimits:
    names = ("speed", "acceleration", "jerk")
    return MotionLimits(**{name: np.broadcast_to(np.array(table[name], float), size) for name in names})


def from_python(part: str, table: dict[str, Any]) -> PartLimits:
    unusual = table.get("unusual", False)
    match part:
        case "arm":
            joints = {name: np.broadcast_to(np.array(table[name], float), 2) for name in JOINTS}
            hand = {name: motion(table[name], 3) for name in table if name.startswith("hand_")}
            return rr.Limits(**joints, **hand, unusual=unusual).parts["arm"]
        case "gripper":
            width = {"gripper_min": table["low"], "gripper_max": table["high"]}
            return rr.Limits(**width, gripper=motion(table, 1), unusual=unusual).parts["gripper"]
    return rr.Limits(base=motion(table, 3), unusual=unusual).parts["base"]


@pytest.mark.parametrize("door", [from_file, from_python])
@pytest.mark.parametrize(("part", "table", "sentence", "unit"), IN_ANOTHER_UNIT)
def test_limits_in_another_unit_are_refused_with_that_unit_unless_they_are_declared(
    door: Callable[[str, dict[str, Any]], PartLimits],
    part: str,
    table: dict[str, Any],
    sentence: str,
    unit: str,
) -> None:
    with pytest.raises(InvalidValueError) as refused:
        door(part, table)
    assert sentence in str(refused.value)
    assert f"is that in {unit}?" in str(refused.value)
    limits = door(part, {**table, "unusual": True})
    assert isinstance(limits, JointLimits | GripperLimits | BaseLimits)
    assert limits.unusual


def test_a_declaration_outlives_a_change_of_other_limits() -> None:
    wide = np.array([1000.0])
    turntable = rr.Limits(
        q_min=-wide, q_max=wide, dq_max=wide / 500, ddq_max=wide / 100, dddq_max=wide, unusual=True
    )
    assert turntable.replace(dq_max=np.array([1.0])).arm().q_max == wide
    base = rr.Limits(base=motion({**WHEELS, "speed": [50, 50, 1]}, 3), unusual=True)
    assert base.replace(base=motion({**WHEELS, "speed": [60, 60, 1]}, 3)).base is not None


def test_every_data_sheet_of_ours_is_within_what_machines_have() -> None:
    for sheet in (FR3_LIMITS, FER_LIMITS):
        assert not any(getattr(limits, "unusual", False) for limits in sheet.parts.values())


def test_a_log_that_was_written_before_limits_could_be_declared_is_still_read() -> None:
    forms = Forms()
    wide = from_python("arm", {**JOINTS, "dq_max": 90.0, "unusual": True})
    form = forms.form_of(wide)
    del form["unusual"]
    assert forms.decode(msgspec.msgpack.encode(form)).dq_max.tolist() == [90.0, 90.0]
