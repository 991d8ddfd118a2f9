"""A robot's shape from its own model: `Body` has links with meshes, and places them by measured numbers.

    robot.urdf     urdf_body     visuals, one colour each
    robot.xml      mujoco_body   geoms that are drawn, and the scene around the robot if the file has one

Numbers are named as in states (`arm.joint_1`, `gripper.width`, `base.x`); joints of the model are found by
these names, or in their order (`joints_by_column`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.transforms import quaternion_from_rotation

_JOINT = re.compile(r"(?P<part>[^.]+)\.(?P<joint>[^.]+)$")
_OTHERS = {"x", "y", "z", "yaw", "vx", "vy", "wz", "width", *(f"r{i}" for i in range(1, 7))}
"""Columns that are not joints."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Shape:
    """A mesh that moves with a link."""

    link: str
    vertices: np.ndarray
    """(V, 3) [m], in the link's frame."""
    faces: np.ndarray
    """(F, 3) indices of vertices."""
    rgba: tuple[float, float, float, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class Placed:
    """The pose of a link in the world of its model."""

    p: np.ndarray
    """(3,) [m]"""
    wxyz: np.ndarray
    """(4,) unit quaternion."""

    @property
    def X(self) -> pin.SE3:
        """The same as a pose."""
        w, x, y, z = self.wxyz
        return pin.SE3(pin.Quaternion(w, x, y, z).matrix(), self.p)


class Body(Protocol):
    """A model of a robot, or of several and their surroundings."""

    @property
    def shapes(self) -> Sequence[Shape]: ...

    @property
    def floor_z(self) -> float:
        """Height of the floor, which is drawn as a grid [m]."""
        ...

    def hand_of(self, part: str) -> str | None:
        """The link that the last joint of a part moves; None: none of its joints is in the model."""
        ...

    def placed(self, numbers: Mapping[str, float]) -> dict[str, Placed]:
        """Poses of all links; joints without a number stay where the model has them."""
        ...

    def link_at(self, numbers: Mapping[str, float], link: str) -> pin.SE3:
        """X_WL of one link."""
        ...


def joints_by_column(
    columns: Iterable[str], joints: Sequence[str], fingers: Sequence[str] = ()
) -> dict[str, str]:
    """Assign a joint of the model to each joint column: by name, by name with the part's, or in order.

    joints: the movable ones of the model, except its fingers, base first.

        arm.shoulder_pan     shoulder_pan
        left_arm.joint_1     left_fr3_joint1, the first that begins as the part does
        arm.joint_1          fr3_joint1, the first of all
    """
    out: dict[str, str] = {}
    free = [name for name in joints if name not in fingers]
    parts: dict[str, list[str]] = {}
    for column in columns:
        if (found := _JOINT.match(column)) and found["joint"] not in _OTHERS:
            parts.setdefault(found["part"], []).append(column)
    for part, mine in parts.items():
        names = [column.partition(".")[2] for column in mine]
        for spelled in (names, [f"{part}_{name}" for name in names], [f"{part}/{name}" for name in names]):
            if set(spelled) <= set(free):
                out |= zip(mine, spelled, strict=True)
                break
    left = [name for name in free if name not in out.values()]
    for part, mine in parts.items():
        if mine[0] in out:
            continue
        prefix = part.split("_")[0] + "_"
        begins = [name for name in left if name.startswith(prefix)]
        taken = (begins or left)[: len(mine)]
        if len(taken) == len(mine):
            out |= zip(mine, taken, strict=True)
            left = [name for name in left if name not in taken]
    return out


def base_pose(numbers: Mapping[str, float], base: str = "base") -> pin.SE3:
    """X_WB of a mobile base; the origin for a robot without one, or whose base is not measured."""
    x, y, yaw = (numbers.get(f"{base}.{axis}", 0.0) for axis in ("x", "y", "yaw"))
    return pin.SE3(pin.rpy.rpyToMatrix(0.0, 0.0, yaw), np.array([x, y, 0.0]))


def placed_at(X: pin.SE3) -> Placed:
    return Placed(p=np.array(X.translation), wxyz=quaternion_from_rotation(X.rotation))


def fingers_by_column(columns: Iterable[str], fingers: Sequence[str]) -> dict[str, list[str]]:
    """The fingers of each gripper: with several grippers, those whose names begin as the part's does."""
    grippers = [column for column in columns if column.endswith(".width")]
    if len(grippers) < 2:
        return {column: list(fingers) for column in grippers if fingers}
    out = {}
    for column in grippers:
        prefix = column.split("_")[0] + "_"
        if mine := [name for name in fingers if name.startswith(prefix)]:
            out[column] = mine
    return out
