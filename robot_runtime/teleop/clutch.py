"""The clutch: motion of the leader counts from where both were when it was engaged. Pure; no clock.

    leader    ──●·····●───────●             · moved without the clutch: nothing happens
                 1    2       3
    robot     ──●─────●───────●             1 released   2 engaged again: it resumes from where it is
                      |<-   ->|             2 to 3     as far and as the leader since 2

Whatever the leader's pose is when it engages, the first target is the robot's commanded pose, up to the
rounding of a product of rotations.
"""

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class HandClutch:
    """Clutch of an end effector that follows a controller, a phone or another end effector."""

    X_BE: pin.SE3
    """The commanded pose of the robot's end effector when the clutch was engaged."""
    X_LH: pin.SE3
    """The leader's pose at that moment, in its own frame L."""
    R_BL: Float[np.ndarray, "3 3"]
    """Rotation of the leader's frame in the robot's."""
    translation_scale: float = 1.0
    rotation_scale: float = 1.0

    def target(self, X_LH: pin.SE3) -> pin.SE3:
        """Return `X_BE` for the leader's current pose: the same motion, about the robot's end effector.

        p_BE = p_BE_0 + s R_BL (p_LH - p_LH_0)
        R_BE = exp(r log(R_BL R_LH R_LH_0^T R_BL^T)) R_BE_0
        """
        moved = self.R_BL @ (X_LH.translation - self.X_LH.translation)
        turned = self.R_BL @ pin.log3(X_LH.rotation @ self.X_LH.rotation.T)
        return pin.SE3(
            pin.exp3(self.rotation_scale * turned) @ self.X_BE.rotation,
            self.X_BE.translation + self.translation_scale * moved,
        )


class JointClutch:
    """Clutch of an arm that follows a leader arm, joint by joint; the offset may shrink with time."""

    def __init__(self, q: Float[np.ndarray, " N"], q_leader: Float[np.ndarray, " N"]) -> None:
        """Both as they are when it is engaged [rad]. InvalidValueError: their numbers of joints differ."""
        if q.shape != q_leader.shape:
            raise InvalidValueError(f"the leader has {q_leader.size} joints, the arm {q.size}")
        self.offset = np.array(q - q_leader)
        """Offset of the robot from the leader [rad]."""

    def target(self, q_leader: Float[np.ndarray, " N"], align: float = 0.0) -> Float[np.ndarray, " N"]:
        """Return joints (N,) [rad]; align: by how much each joint's offset shrinks first [rad]."""
        if align > 0.0:
            self.offset = np.sign(self.offset) * np.maximum(np.abs(self.offset) - align, 0.0)
        return q_leader + self.offset


class OpeningClutch:
    """Clutch of a gripper that follows a leader's gripper or a trigger, as shares of its range.

    The offset between them shrinks when the gripper reaches an end of its range, so that both agree
    after one whole stroke:

        trigger   1.0 ──► 0.4 ──► 0.7          engaged with the trigger open, the gripper holding at 0.3
        gripper   0.3 ──► 0.0 ──► 0.3          at 0.0 the offset has shrunk: from here on it follows at once
    """

    def __init__(self, opening: float, leader: float) -> None:
        """Both as they are when it is engaged."""
        self._offset = opening - leader

    def target(self, leader: float) -> float:
        """Return the opening, 0 to 1."""
        opening = min(max(leader + self._offset, 0.0), 1.0)
        self._offset = opening - leader
        return opening
