"""The cube to be grasped in tasks."""

import mujoco
import numpy as np
from jaxtyping import Float

from sim.scene.model import ROBOT, SCENE

CUBE_SIZE = 0.045
"""Length of its edges [m]."""


def add_cube(spec: mujoco.MjSpec, p_BO: Float[np.ndarray, "3"], *, conaffinity: int = ROBOT | SCENE) -> None:
    """Add a free body `cube` that friction can hold.

    conaffinity: contact bits of bodies it collides with.
    """
    cube = spec.worldbody.add_body(name="cube", pos=p_BO)
    cube.add_freejoint(name="cube")
    cube.add_geom(
        name="cube",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[CUBE_SIZE / 2] * 3,
        mass=0.2,
        solref=[0.004, 1.0],
        friction=[1.0, 0.02, 0.001],
        condim=4,
        rgba=[0.85, 0.20, 0.18, 1.0],
        contype=SCENE,
        conaffinity=conaffinity,
    )


def yaw_from_quaternion(quat: Float[np.ndarray, "4"]) -> float:
    """Yaw of a quaternion (wxyz) about the vertical [rad]."""
    w, x, y, z = quat
    return float(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))
