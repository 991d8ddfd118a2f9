"""Forward kinematics of an arm from a URDF: `hand_pose_of`.

[parts.arm.kinematics]
urdf = "so101.urdf"              beside the robot's file
frame = "gripper_frame_link"     of the end effector
joints = ["shoulder_pan", ...]   of the arm, in the driver's order; default: all movable ones
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robot_runtime.core.plan.predict import HandPose
from robot_runtime.errors import InvalidValueError

KEYS = ("urdf", "frame", "joints")


def hand_pose_of(where: str, table: Mapping[str, Any], driver: object, folder: Path) -> HandPose:
    """Return the forward kinematics of an arm. InvalidValueError: the file does not describe it, or there is
    none."""
    import pinocchio as pin

    from robot_runtime.core.plan.kinematics import ModelKinematics

    for key in ("urdf", "frame"):
        if not isinstance(table.get(key), str):
            raise InvalidValueError(
                f"{where} needs {key}, a text: a URDF file, and the frame of its end effector"
            )
    path = folder / table["urdf"]
    if not path.is_file():
        raise InvalidValueError(f"{where}.urdf: there is no file {path}")
    try:
        model = pin.buildModelFromUrdf(str(path))
    except Exception as error:  # any error of its parser
        raise InvalidValueError(f"{where}.urdf: {path} is no URDF: {error}") from None
    names = list(model.names)[1:]  # the first is the world's
    joints = table.get("joints", names)
    if not isinstance(joints, list) or (unknown := [each for each in joints if each not in names]):
        raise InvalidValueError(
            f"{where}.joints: {path.name} has {', '.join(names)}, got {unknown or joints!r:.60}"
        )
    locked = [model.getJointId(each) for each in names if each not in joints]
    if locked:
        model = pin.buildReducedModel(model, locked, pin.neutral(model))
    kept = list(model.names)[1:]
    num_joints = getattr(driver, "num_joints", 0)
    if model.nq != num_joints or len(joints) != num_joints:
        raise InvalidValueError(
            f"{where}: {path.name} has {len(joints)} joints, {', '.join(kept)}, {type(driver).__name__} has "
            f"{num_joints}: joints = [...] names the arm's"
        )
    try:
        kinematics = ModelKinematics(model, table["frame"])
    except ValueError as error:
        raise InvalidValueError(f"{where}.frame: {error}") from None
    order = [joints.index(each) for each in kept]
    if order == list(range(len(order))):
        return kinematics.forward
    return lambda q: kinematics.forward(np.asarray(q)[order])
