"""Arm kinematics from a Pinocchio model: `ModelKinematics`, which a run's log can hold."""

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.shapes import Float


class ModelKinematics:
    """Forward kinematics and Jacobian of E in the mobile base B. Not for sharing between threads.

    ModelKinematics(pin.buildModelFromUrdf("arm.urdf"), "tool0")
    """

    def __init__(
        self,
        model: pin.Model,
        frame: str,
        *,
        X_FE: pin.SE3 | None = None,
        p_BA: tuple[float, float, float] = (0.0, 0.0, 0.0),
        yaw: float = 0.0,
    ) -> None:
        """
        model: the arm alone, N joints, in the frame A of its mount.
        frame: name of the model's frame that carries the end effector, F.
        X_FE: the end effector in it; None: they are the same.
        p_BA, yaw: the mount in B: its position [m] and its rotation about the vertical [rad].
        ValueError: the model has no such frame, no joint, or one with more positions than velocities.
        """
        if not 0 < model.nq == model.nv:  # Pinocchio's Jacobian of a model without joints ends the process
            raise ValueError(
                f"expected a model of one or more joints with a position for each velocity, got {model.nq} "
                f"positions and {model.nv} velocities"
            )
        if not model.existFrame(frame):
            known = ", ".join(each.name for each in model.frames)
            raise ValueError(f"the model has no frame {frame!r}; it has {known}")
        self.model, self.frame, self.yaw = model, frame, float(yaw)
        self.p_BA: tuple[float, ...] = tuple(map(float, p_BA))
        self.X_FE = pin.SE3.Identity() if X_FE is None else X_FE.copy()
        self._p_BA = np.array(self.p_BA)
        self._R_BA = None if yaw == 0.0 else pin.utils.rotate("z", yaw)
        self._memory, self._id = model.createData(), model.getFrameId(frame)

    def forward(self, q: Float[np.ndarray, " N"]) -> pin.SE3:
        """`X_BE` at joint positions q (N,) [rad]."""
        pin.framesForwardKinematics(self.model, self._memory, q)
        return self.last()

    def last(self) -> pin.SE3:
        """`X_BE` of the last call's joints."""
        X_AE = self._memory.oMf[self._id] * self.X_FE
        if self._R_BA is not None:
            return pin.SE3(self._R_BA @ X_AE.rotation, self._R_BA @ X_AE.translation + self._p_BA)
        X_AE.translation = X_AE.translation + self._p_BA
        return X_AE

    def jacobian(self, q: Float[np.ndarray, " N"]) -> Float[np.ndarray, "6 N"]:
        """Twist of E (linear, angular), expressed in B at E, per joint velocity."""
        pin.computeJointJacobians(self.model, self._memory, q)
        hand = pin.updateFramePlacement(self.model, self._memory, self._id)
        J_E = pin.getFrameJacobian(self.model, self._memory, self._id, pin.LOCAL_WORLD_ALIGNED)
        J_E = J_E.reshape(6, -1)  # of one joint it is (6,)
        lever = hand.rotation @ self.X_FE.translation
        J_E[:3] -= pin.skew(lever) @ J_E[3:]
        if self._R_BA is not None:
            J_E = np.concatenate([self._R_BA @ J_E[:3], self._R_BA @ J_E[3:]])
        return J_E
