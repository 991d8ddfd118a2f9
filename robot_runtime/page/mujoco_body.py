"""A body loaded from a MuJoCo model, with the robot's surroundings."""

from collections.abc import Iterable, Mapping
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


class MujocoBody:
    """Shows the robot and its fixed surroundings from the model; free bodies are left out."""

    def __init__(
        self, model: Any, columns: Iterable[str], *, joints: Mapping[str, str] | None = None
    ) -> None:
        """
        model: a `mujoco.MjModel`.
        columns: names of the measured numbers.
        joints: joint of each joint column; None: as `joints_by_column` finds them.
        """
        import mujoco

        self._mujoco, self._model, self._data = mujoco, model, mujoco.MjData(model)
        kinds = {int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)}
        names = [model.joint(i).name for i in range(model.njnt) if model.jnt_type[i] in kinds]
        fingers = [name for name in names if "finger" in name.lower()]
        columns = list(columns)
        base = {f"base.{axis}": f"base_{axis}" for axis in ("x", "y", "yaw") if f"base_{axis}" in names}
        if joints is None:
            joints = joints_by_column(columns, [name for name in names if name not in base.values()], fingers)
        self._joints = {**joints, **base}
        self._fingers = fingers_by_column(columns, fingers)
        self._moves_base = bool(base)
        self._bodies = {self._link(i): i for i in range(model.nbody)}
        known = {*self._joints.values(), *(name for each in self._fingers.values() for name in each)}
        self.shapes = [*self._drawn(self._shown(known))]
        planes = model.geom_pos[model.geom_type == int(mujoco.mjtGeom.mjGEOM_PLANE), 2]
        self.floor_z = float(min(planes, default=0.0))

    @classmethod
    def load(cls, path: Path, columns: Iterable[str]) -> "MujocoBody":
        """InvalidValueError: the file is not a MuJoCo model."""
        import mujoco

        try:
            spec = mujoco.MjSpec.from_file(str(path))
            beside = path.parent / "meshes"
            if beside.is_dir() and not (path.parent / spec.meshdir).is_dir():  # as franky-sim's has it
                spec.meshdir = str(beside)
            model = spec.compile()
        except ValueError as error:
            raise InvalidValueError(f"{path} is no model that MuJoCo can load: {error}") from error
        return cls(model, columns)

    def hand_of(self, part: str) -> str | None:
        mine = [joint for column, joint in self._joints.items() if column.startswith(f"{part}.")]
        if not mine:
            return None
        return self._link(max(self._model.joint(joint).bodyid[0] for joint in mine))

    def placed(self, numbers: Mapping[str, float]) -> dict[str, Placed]:
        self._move(numbers)
        return {self._link(i): placed_at(self._at(i, numbers)) for i in range(self._model.nbody)}

    def link_at(self, numbers: Mapping[str, float], link: str) -> pin.SE3:
        self._move(numbers)
        return self._at(self._bodies[link], numbers)

    def _at(self, body: int, numbers: Mapping[str, float]) -> pin.SE3:
        w, x, y, z = self._data.xquat[body]
        X = pin.SE3(pin.Quaternion(w, x, y, z).matrix(), self._data.xpos[body])
        return X if self._moves_base else base_pose(numbers) * X

    def _move(self, numbers: Mapping[str, float]) -> None:
        q = self._model.qpos0.copy()
        for column, joint in self._joints.items():
            if column in numbers:
                q[self._model.joint(joint).qposadr[0]] = numbers[column]
        for column, fingers in self._fingers.items():
            for finger in fingers if column in numbers else ():
                q[self._model.joint(finger).qposadr[0]] = numbers[column] / len(fingers)
        self._data.qpos[:] = q
        self._mujoco.mj_kinematics(self._model, self._data)

    def _link(self, body: int) -> str:
        return self._model.body(body).name or f"body_{body}"

    def _shown(self, known: set[str]) -> set[int]:
        """Bodies whose pose is known: every movable joint above them is a known one."""
        model, out = self._model, set()
        for i in range(model.nbody):
            first, num = model.body_jntadr[i], model.body_jntnum[i]
            own = {model.joint(j).name for j in range(first, first + num)}
            is_above_shown = i == 0 or model.body_parentid[i] in out
            if is_above_shown and own <= known and model.body_mocapid[i] < 0:
                out.add(i)
        return out

    def _drawn(self, bodies: set[int]) -> Iterable[Shape]:
        model = self._model
        has_visuals = {int(model.geom_bodyid[i]) for i in range(model.ngeom) if model.geom_group[i] == 2}
        for i in range(model.ngeom):
            body = int(model.geom_bodyid[i])
            group = 2 if body in has_visuals else model.geom_group[i]
            if body not in bodies or model.geom_group[i] != group or group > 2:
                continue
            if (mesh := _mujoco_mesh(self._mujoco, model, i)) is None:
                continue
            w, x, y, z = model.geom_quat[i]
            R = pin.Quaternion(w, x, y, z).matrix()
            material = model.geom_matid[i]
            rgba = model.geom_rgba[i] if material < 0 else model.mat_rgba[material]
            if rgba[3] > 0.0:
                yield Shape(
                    link=self._link(body),
                    vertices=mesh[0] @ R.T + model.geom_pos[i],
                    faces=mesh[1],
                    rgba=(float(rgba[0]), float(rgba[1]), float(rgba[2]), float(rgba[3])),
                )


def _mujoco_mesh(mujoco: Any, model: Any, geom: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Vertices in the geom's frame, and faces; None: a kind that is not drawn."""
    import trimesh

    a, b, c = model.geom_size[geom]
    kinds = mujoco.mjtGeom
    match kinds(model.geom_type[geom]):
        case kinds.mjGEOM_MESH:
            mesh = model.geom_dataid[geom]
            v, n = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
            f, m = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
            return model.mesh_vert[v : v + n].copy(), model.mesh_face[f : f + m].copy()
        case kinds.mjGEOM_BOX:
            made = trimesh.creation.box([2.0 * a, 2.0 * b, 2.0 * c])
        case kinds.mjGEOM_SPHERE:
            made = trimesh.creation.icosphere(subdivisions=3, radius=a)
        case kinds.mjGEOM_ELLIPSOID:
            made = trimesh.creation.icosphere(subdivisions=3)
            made.apply_scale([a, b, c])
        case kinds.mjGEOM_CYLINDER:
            made = trimesh.creation.cylinder(a, 2.0 * b)
        case kinds.mjGEOM_CAPSULE:
            made = trimesh.creation.capsule(2.0 * b, a)
            made.apply_translation(-made.bounds.mean(axis=0))  # older versions put its origin at its end
        case _:
            return None
    return np.array(made.vertices), np.array(made.faces)
