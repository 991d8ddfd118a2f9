"""`HandVelocity`: how fast a hand moves, as a sensor, for policies that do not know the arm's joints."""

import numpy as np

from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.robot import Arm
from robot_runtime.core.values.shapes import Float

HAND_VELOCITY = "hand_velocity"
"""What policies learned from people call it."""
_STEP_S = 1e-3


class HandVelocity:
    """Velocity of an arm's hand in the base, by joints and forward kinematics.

        Robot(arm=arm, hand_velocity=HandVelocity(arm, hand_pose), ...)

    A person's demonstration has no joint velocities, and no single pose says which way a hand is going.
    """

    num_values = 3

    def __init__(self, arm: Arm, hand_pose: HandPose) -> None:
        """hand_pose: X_BE by joints. The arm's driver is read once more by each `read`."""
        self._arm, self._hand_pose = arm, hand_pose

    def read(self) -> Float[np.ndarray, "3"]:
        """That of E against B, in the axes of B [m/s]."""
        state = self._arm.read()
        step = 0.5 * _STEP_S * state.dq
        ahead, behind = (self._hand_pose(state.q + way * step).translation for way in (1.0, -1.0))
        out: Float[np.ndarray, 3] = (ahead - behind) / _STEP_S
        return out
