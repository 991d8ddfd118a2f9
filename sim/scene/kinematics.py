"""End-effector kinematics of the FR3 with Pinocchio: `forward` and a damped Newton inverse.

The model is read from the pristine `fr3.xml`, never from the composed scene: Pinocchio's MJCF parser drops
bodies inside `<frame>`, which `MjSpec.attach` writes, without a warning. A test compares it with MuJoCo.
"""

from functools import cache
from pathlib import Path

import franky_sim
import numpy as np
import pinocchio as pin
from jaxtyping import Float

from robot_runtime.core.plan.kinematics import ModelKinematics

NUM_JOINTS = 7
ASSETS = Path(franky_sim.__file__).parent / "assets"
P_HAND_E = (0.0, 0.0, 0.1034)
"""E in the hand body [m]: between the fingertip pads, axes of the hand body. Pointing down, z_E = -z_B."""
Q_HOME = (0.0, -np.pi / 4, 0.0, -3 * np.pi / 4, 0.0, np.pi / 2, np.pi / 4)
"""Home joints: pointing down over the table, elbow up, forearm in the vertical plane [rad]."""
R_DOWN = np.diag([1.0, -1.0, -1.0])
"""R_BE of an end effector that points down, fingers opening along y."""
LIMIT_MARGIN = 0.02
"""Margin of the inverse from the joint limits [rad]."""
SHOULDER_Z = 0.333
"""Height of joint 2 over B [m]."""
UPPER_ARM, FOREARM = (0.0825, 0.316), (-0.0825, 0.384)
"""Shoulder to elbow and elbow to wrist, (forward, up) with the arm stretched upwards [m]."""
WRIST_OUT, WRIST_UP = 0.088, 0.107 + P_HAND_E[2]
"""From joint 6 outwards to the axis of a hand that points down, and from E up to joint 6 [m]."""
_ELBOW_JOINT = 2
_MAX_STEP = 0.5


@cache
def _arm_model() -> pin.Model:
    model = pin.buildModelFromMJCF(str(ASSETS / "fr3.xml"))
    if model.nq != NUM_JOINTS + 2:
        raise ImportError(f"expected 9 joints of fr3.xml in Pinocchio, got {model.nq}")
    fingers = [model.getJointId(f"finger_joint{i}") for i in (1, 2)]
    return pin.buildReducedModel(model, fingers, pin.neutral(model))


class Kinematics:
    """Forward and inverse kinematics of E in B; not thread-safe.

    Seven joints reach a pose in a one-parameter family of postures. The inverse picks the one with joint 3 at
    zero, so that upper arm and forearm stay in one vertical plane: with that row added the Jacobian is
    square, and q is a smooth function of the pose, whatever the arm did before, wherever that posture
    reaches it without passing a singularity.
    """

    def __init__(self, *, p_BA: tuple[float, float, float] = (0.0, 0.0, 0.0), yaw: float = 0.0) -> None:
        """The arm mount in B: its position [m] and yaw [rad]."""
        X_hand_E = pin.SE3(np.eye(3), np.array(P_HAND_E))
        self.model_kinematics = ModelKinematics(_arm_model(), "hand", X_FE=X_hand_E, p_BA=p_BA, yaw=yaw)
        """The kinematics without the inverse, as stored in a run's log."""
        model = self.model_kinematics.model
        self.q_min: Float[np.ndarray, 7] = model.lowerPositionLimit + LIMIT_MARGIN
        self.q_max: Float[np.ndarray, 7] = model.upperPositionLimit - LIMIT_MARGIN

    def forward(self, q: Float[np.ndarray, "7"]) -> pin.SE3:
        """`X_BE` at joint positions q (7,) [rad]."""
        return self.model_kinematics.forward(q)

    def jacobian(self, q: Float[np.ndarray, "7"]) -> Float[np.ndarray, "6 7"]:
        """Twist of E (linear, angular), expressed in B at E, per joint velocity."""
        return self.model_kinematics.jacobian(q)

    def solve(
        self,
        X_BE_target: pin.SE3,
        q_start: Float[np.ndarray, "7"],
        *,
        tolerance: float = 1e-6,
        max_iterations: int = 30,
    ) -> Float[np.ndarray, "7"]:
        """Joint positions (7,) [rad] with E at the target and joint 3 at zero, within the limits.

        Ends when position [m], rotation [rad] and joint 3 [rad] are all within the tolerance; a target out
        of reach gives the last iterate, so check `forward(q)` where it matters.
        """
        q = np.clip(np.asarray(q_start, dtype=float), self.q_min, self.q_max)
        system = np.zeros((NUM_JOINTS, NUM_JOINTS))
        residual = np.zeros(NUM_JOINTS)
        for _ in range(max_iterations):
            system[:6] = self.jacobian(q)
            X_BE = self.model_kinematics.last()
            residual[:3] = X_BE_target.translation - X_BE.translation
            residual[3:6] = X_BE.rotation @ pin.log3(X_BE.rotation.T @ X_BE_target.rotation)
            system[6, _ELBOW_JOINT] = 1.0
            residual[6] = -q[_ELBOW_JOINT]
            if np.abs(residual).max() < tolerance:
                break
            damping = 1e-2 * min(1.0, float(residual @ residual))
            normal = system.T @ system
            normal[np.diag_indices(NUM_JOINTS)] += damping
            step = np.linalg.solve(normal, system.T @ residual)
            q = np.clip(q + np.clip(step, -_MAX_STEP, _MAX_STEP), self.q_min, self.q_max)
        return q


def solve_down(p_BE: Float[np.ndarray, "H 3"], yaw: Float[np.ndarray, " H"]) -> Float[np.ndarray, "H 7"]:
    """Joint positions of end effectors that point down: `Kinematics.solve` in closed form, for whole plans.

    The arm lies in the vertical plane through E. Leans are angles in it: 0 is up, pi/2 is outwards.
    yaw: of the end effector about the vertical, zero with the fingers opening along y [rad].
    A target out of reach gives the stretched arm.
    """
    azimuth = np.arctan2(p_BE[:, 1], p_BE[:, 0])
    out = np.hypot(p_BE[:, 0], p_BE[:, 1]) - WRIST_OUT
    up = p_BE[:, 2] + WRIST_UP - SHOULDER_Z
    upper, fore = np.hypot(*UPPER_ARM), np.hypot(*FOREARM)
    cos_bend = (out**2 + up**2 - upper**2 - fore**2) / (2.0 * upper * fore)
    bend = np.arccos(np.clip(cos_bend, -1.0, 1.0))
    lean = np.arctan2(out, up) - np.arctan2(fore * np.sin(bend), upper + fore * np.cos(bend))
    q_2 = lean - np.arctan2(*UPPER_ARM)
    lean_forearm = lean + bend - np.arctan2(*FOREARM)
    zero = np.zeros_like(azimuth)
    return np.column_stack(
        [azimuth, q_2, zero, q_2 - lean_forearm, zero, lean_forearm, azimuth - yaw + np.pi / 4]
    )
