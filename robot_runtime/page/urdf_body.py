"""A body loaded from a URDF file by Pinocchio."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin

from robot_runtime.errors import InvalidValueError
from robot_runtime.page.body import (
    Placed,
    Shape,
    base_pose,
    fingers_by_column,
    joints_by_column,
    placed_at,
)

GREY = (0.75, 0.77, 0.80, 1.0)


class UrdfBody:
    """The body of a URDF file; its root is at the origin, or moved by the columns of `base`."""

    def __init__(self, path: Path, columns: Iterable[str], *, folders: Sequence[Path] = ()) -> None:
        """
        columns: names of the measured numbers.
        folders: where packages of `package://` are looked up, besides the file's own.
        InvalidValueError: the file is not a URDF, or its meshes are missing.
        """
        known = [str(each) for each in (path.parent, *path.parents[1:3], *folders)]
        try:
            self._model = pin.buildModelFromUrdf(str(path))
            visuals = pin.buildGeomFromUrdf(
                self._model, str(path), pin.GeometryType.VISUAL, package_dirs=known
            )
        except (ValueError, RuntimeError) as error:
            raise InvalidValueError(f"{path} is no URDF that can be shown: {error}") from error
        self._data = self._model.createData()
        names = list(self._model.names)[1:]
        fingers = [name for name in names if "finger" in name.lower()]
        self._joints = joints_by_column(columns, names, fingers)
        self._fingers = fingers_by_column(columns, fingers)
        self.shapes = [_urdf_shape(self._model, each) for each in visuals.geometryObjects]
        self.floor_z = 0.0
        self._neutral = pin.neutral(self._model)

    def hand_of(self, part: str) -> str | None:
        mine = [joint for column, joint in self._joints.items() if column.startswith(f"{part}.")]
        return max(mine, key=self._model.getJointId) if mine else None

    def placed(self, numbers: Mapping[str, float]) -> dict[str, Placed]:
        self._move(numbers)
        X_WB = base_pose(numbers)
        poses = zip(self._model.names, self._data.oMi, strict=True)
        return {name: placed_at(X_WB * X) for name, X in poses}

    def link_at(self, numbers: Mapping[str, float], link: str) -> pin.SE3:
        self._move(numbers)
        return base_pose(numbers) * self._data.oMi[self._model.getJointId(link)]

    def _move(self, numbers: Mapping[str, float]) -> None:
        q = self._neutral.copy()
        for column, joint in self._joints.items():
            if column in numbers:
                self._set(q, joint, numbers[column])
        for column, fingers in self._fingers.items():
            for finger in fingers if column in numbers else ():
                self._set(q, finger, numbers[column] / len(fingers))
        pin.forwardKinematics(self._model, self._data, q)

    def _set(self, q: np.ndarray, joint: str, value: float) -> None:
        found = self._model.joints[self._model.getJointId(joint)]
        if found.nq == 2:  # a continuous joint
            q[found.idx_q : found.idx_q + 2] = np.cos(value), np.sin(value)
        elif found.nq == 1:
            q[found.idx_q] = value


def _urdf_shape(model: Any, drawn: Any) -> Shape:
    vertices, faces = _coal_mesh(drawn.geometry)
    scaled = vertices * (np.ones(3) if hasattr(drawn.geometry, "num_vertices") else np.ravel(drawn.meshScale))
    X = drawn.placement
    return Shape(
        link=model.names[drawn.parentJoint],
        vertices=scaled @ X.rotation.T + X.translation,
        faces=faces,
        rgba=_colour(drawn.meshColor),
    )


def _colour(rgba: np.ndarray) -> tuple[float, float, float, float]:
    r, g, b, alpha = map(float, rgba)
    return (r, g, b, alpha) if alpha > 0.0 else GREY


def _coal_mesh(geometry: Any) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces that Pinocchio has loaded."""
    import trimesh

    kind = type(geometry).__name__
    if hasattr(geometry, "num_vertices"):
        faces = [[t[0], t[1], t[2]] for t in (geometry.tri_indices(i) for i in range(geometry.num_tris))]
        return np.array(geometry.vertices()), np.array(faces)
    match kind:
        case "Box":
            made = trimesh.creation.box(2.0 * geometry.halfSide)
        case "Sphere":
            made = trimesh.creation.icosphere(subdivisions=3, radius=geometry.radius)
        case "Cylinder":
            made = trimesh.creation.cylinder(geometry.radius, 2.0 * geometry.halfLength)
        case "Capsule":
            made = trimesh.creation.capsule(2.0 * geometry.halfLength, geometry.radius)
            made.apply_translation(-made.bounds.mean(axis=0))  # older versions put its origin at its end
        case _:
            return np.zeros((0, 3)), np.zeros((0, 3), int)
    return np.array(made.vertices), np.array(made.faces)
