"""Mounts of a scene's arms, by name, and each arm's joints, fingers and servos in the physics."""

from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.schema import Schema
from sim.scene.kinematics import NUM_JOINTS, Q_HOME, Kinematics
from sim.scene.mobile_base import P_BA

MOUNT_Y = 0.80
"""Distance of each of two arms from the midpoint between them, along y [m]."""


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One arm of a robot: names of its parts, and its mount."""

    arm: str = "arm"
    gripper: str = "gripper"
    prefix: str = ""
    """Prefix of its bodies, joints, actuators and cameras in the scene."""
    p_BA: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Position of its mount A in B [m]."""
    yaw: float = 0.0
    """Yaw of A in B [rad]."""
    posture: tuple[float, ...] = Q_HOME
    """Preferred joints in the null space of the end effector [rad]."""


TABLE_MOUNTS = (Mount(),)
BASE_MOUNTS = (Mount(p_BA=P_BA),)
FACING_MOUNTS = (
    Mount(
        arm="left_arm",
        gripper="left_gripper",
        prefix="left_",
        p_BA=(0.0, MOUNT_Y, 0.0),
        yaw=-np.pi / 2,
        posture=(*Q_HOME[:6], Q_HOME[6] - np.pi / 2),
    ),
    Mount(
        arm="right_arm",
        gripper="right_gripper",
        prefix="right_",
        p_BA=(0.0, -MOUNT_Y, 0.0),
        yaw=np.pi / 2,
    ),
)
"""Two arms at opposite sides of a table that face each other: x of B points away from an observer who has the
left arm to the left."""


def mounts_of(schema: Schema) -> tuple[Mount, ...]:
    """Mounts of the robot of a schema."""
    if FACING_MOUNTS[0].arm in schema.parts:
        return FACING_MOUNTS
    return BASE_MOUNTS if schema.has_base else TABLE_MOUNTS


class ArmInScene:
    """One arm with its fingers, in the state of a scene."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, mount: Mount) -> None:
        self.mount, self._model, self._data = mount, model, data
        self.kinematics = Kinematics(p_BA=mount.p_BA, yaw=mount.yaw)
        first = model.joint(f"{mount.prefix}fr3_joint1")
        self._q, self._dq = _from(first.qposadr[0], NUM_JOINTS), _from(first.dofadr[0], NUM_JOINTS)
        finger = model.joint(f"{mount.prefix}finger_joint1")
        self._fingers, self._dfingers = _from(finger.qposadr[0], 2), _from(finger.dofadr[0], 2)
        self._servos = _from(model.actuator(f"{mount.prefix}fr3_joint1").id, NUM_JOINTS)
        self._width = model.actuator(f"{mount.prefix}width").id

    @property
    def q(self) -> Float[np.ndarray, "7"]:
        """Joint positions (7,) [rad], a copy."""
        return self._data.qpos[self._q].copy()

    @property
    def dq(self) -> Float[np.ndarray, "7"]:
        """Joint velocities (7,) [rad/s], a copy."""
        return self._data.qvel[self._dq].copy()

    @property
    def torques(self) -> Float[np.ndarray, "7"]:
        """Joint torques of the servos, without gravity compensation (7,) [Nm], a copy."""
        return self._data.qfrc_actuator[self._dq].copy()

    @property
    def gripper_width(self) -> float:
        """Distance between the fingers [m]."""
        left, right = self._data.qpos[self._fingers]
        return float(left + right)

    @property
    def joint_target(self) -> Float[np.ndarray, "7"]:
        """Setpoint of the joint servos [rad], a copy."""
        return self._data.ctrl[self._servos].copy()

    def set_joint_target(self, q: Float[np.ndarray, "7"]) -> Float[np.ndarray, "7"]:
        """Set the setpoint of the joint servos, clipped to the joint limits; returns what was set."""
        limits = self._model.actuator_ctrlrange[self._servos]
        self._data.ctrl[self._servos] = np.clip(q, limits[:, 0], limits[:, 1])
        return self.joint_target

    def set_gripper_target(self, width: float) -> float:
        """Set the setpoint of the gripper width, clipped to its range [m]; returns what was set."""
        low, high = self._model.actuator_ctrlrange[self._width]
        self._data.ctrl[self._width] = min(max(width, low), high)
        return float(self._data.ctrl[self._width])

    def place(self, q: Float[np.ndarray, "7"], width: float) -> None:
        """Place arm and fingers, at zero velocity, with setpoints; for `Task.reset` only."""
        self._data.qpos[self._q] = q
        self._data.qpos[self._fingers] = width / 2
        self._data.qvel[self._dq] = 0.0
        self._data.qvel[self._dfingers] = 0.0
        self.set_joint_target(q)
        self.set_gripper_target(width)


def _from(first: int, num: int) -> slice:
    return slice(int(first), int(first) + num)
