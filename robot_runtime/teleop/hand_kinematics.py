"""How joints have to turn for a hand to go: `hand_velocity`, and kinematics of robots that only know forward.

One bounded, damped least-squares step, as `core/plan/whole_body.py` takes them. An arm of fewer than six
joints gives up orientation first: a radian counts as `ROTATION_WEIGHT` metres.
"""

from collections.abc import Mapping

import numpy as np
import pinocchio as pin

from robot_runtime.core.plan.limits import JointLimits
from robot_runtime.core.plan.predict import HandPose, hand_pose_of
from robot_runtime.core.plan.whole_body import ArmKinematics, WholeBody, bounded_velocity
from robot_runtime.core.values.shapes import Float

ROTATION_WEIGHT = 0.05
"""Of arms that cannot place and turn a hand at once [m/rad]."""
_STEP = 1e-5
"""Of a difference quotient [rad]."""
_SINGULAR, _MAX_DAMPING = 0.06, 0.04
"""As `WholeBodyGains` has them."""
_POSTURE_RATE, _POSTURE_SPEED = 0.5, 0.2
"""How an arm with a joint to spare comes back to the posture it was engaged in [1/s], [rad/s]."""
_GOING = 0.05
"""As long as its hand goes about so fast, m/s and rad/s together: an arm whose hand stands is to stand."""


class ForwardKinematics:
    """`ArmKinematics` of a robot of which only the hand's pose by joints is known, by differences."""

    def __init__(self, hand_pose: HandPose) -> None:
        self.forward = hand_pose

    def jacobian(self, q: Float[np.ndarray, " N"]) -> Float[np.ndarray, "6 N"]:
        """Twist of E (linear, angular), expressed in B at E, per joint velocity."""
        X_BE = self.forward(q)
        R_EB, p = X_BE.rotation.T.copy(), np.array(X_BE.translation)
        out = np.empty((6, len(q)))
        for i in range(len(q)):
            moved = np.array(q, dtype=float)
            moved[i] += _STEP
            X = self.forward(moved)
            out[:3, i] = (X.translation - p) / _STEP
            out[3:, i] = pin.log3(X.rotation @ R_EB) / _STEP
        return out


def kinematics_of(
    part: str,
    whole_body: WholeBody | Mapping[str, WholeBody] | None,
    hand_pose: HandPose | Mapping[str, HandPose] | None,
) -> ArmKinematics | None:
    """What the robot knows of an arm: of its whole body, else of its hand's pose by joints; None: nothing."""
    bodies = {whole_body.part: whole_body} if isinstance(whole_body, WholeBody) else whole_body or {}
    if part in bodies:
        return bodies[part].kinematics
    forward = hand_pose_of(hand_pose, part)
    return None if forward is None else ForwardKinematics(forward)


def pose_error(X_BE: pin.SE3, target: pin.SE3) -> Float[np.ndarray, "6"]:
    """From here to the target, expressed in B: translation [m] and rotation vector [rad]."""
    return np.concatenate(
        [target.translation - X_BE.translation, pin.log3(target.rotation @ X_BE.rotation.T)]
    )


def shortened(v: Float[np.ndarray, " n"], longest: float) -> Float[np.ndarray, " n"]:
    """The vector, no longer than that."""
    norm = float(np.linalg.norm(v))
    return v if norm <= longest else v * (longest / norm)


def hand_velocity(
    kinematics: ArmKinematics,
    limits: JointLimits,
    q: Float[np.ndarray, " N"],
    twist: Float[np.ndarray, "6"],
    *,
    posture: Float[np.ndarray, " N"],
    share: float,
    dt_s: float,
) -> Float[np.ndarray, " N"]:
    """Joint velocities [rad/s] that give the hand its twist (m/s, rad/s in B), as near as the joints can.

    posture: what joints to spare are drawn to [rad]. share: of the joints' speeds, the most that is used.
    dt_s: for how long they hold: no joint passes its range.
    """
    J = kinematics.jacobian(q)
    if q.size < 6:
        weights = np.array([1.0, 1.0, 1.0, *([ROTATION_WEIGHT] * 3)])
        J, twist = weights[:, None] * J, weights * twist
    smallest = float(np.linalg.svd(J, compute_uv=False)[-1])
    near = max(0.0, 1.0 - (smallest / _SINGULAR) ** 2) if q.size >= 6 else 0.1
    going = min(float(np.linalg.norm(twist)) / _GOING, 1.0)
    dq_0 = shortened(_POSTURE_RATE * (posture - q), _POSTURE_SPEED) * going if q.size > 6 else 0.0 * q
    speed = share * limits.dq_max
    lower = np.minimum(np.maximum(-speed, (limits.q_min - q) / dt_s), 0.0)
    upper = np.maximum(np.minimum(speed, (limits.q_max - q) / dt_s), 0.0)
    return bounded_velocity(J, twist, dq_0, lower, upper, near * _MAX_DAMPING**2)
