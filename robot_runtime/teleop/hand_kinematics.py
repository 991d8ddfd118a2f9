"""Joint velocities for an end-effector twist: `HandJacobian`, and Jacobians from forward kinematics.

One bounded, damped least-squares step, as `core/plan/whole_body.py` takes them. An arm of fewer than six
joints gives up orientation first: a radian counts as `ROTATION_WEIGHT` metres.
"""

from collections.abc import Mapping

import numpy as np
import pinocchio as pin

from robot_runtime.core.plan.predict import HandPose, hand_pose_of
from robot_runtime.core.plan.whole_body import ArmKinematics, WholeBody, bounded_velocity
from robot_runtime.core.values.shapes import Float

ROTATION_WEIGHT = 0.05
"""Weight of rotation for arms that cannot control position and orientation at once [m/rad]."""
_STEP = 1e-5
"""Step of a difference quotient [rad]."""
_SINGULAR, _MAX_DAMPING = 0.06, 0.04
"""The values of `WholeBodyGains`."""
_POSTURE_RATE, _POSTURE_SPEED = 0.5, 0.2
"""How a redundant arm returns to the posture in which it was engaged [1/s], [rad/s]."""
_GOING = 0.5
"""End-effector speed above which it does so fully, m/s and rad/s together."""


class ForwardKinematics:
    """`ArmKinematics` from forward kinematics alone, with a Jacobian by differences."""

    def __init__(self, hand_pose: HandPose) -> None:
        self.forward = hand_pose

    def jacobian(self, q: Float[np.ndarray, " N"]) -> Float[np.ndarray, "6 N"]:
        """Return the twist of E (linear, angular), expressed in B at E, per joint velocity."""
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
    """Return the kinematics of an arm, from its whole body, else from `hand_pose`; None: unknown."""
    bodies = {whole_body.part: whole_body} if isinstance(whole_body, WholeBody) else whole_body or {}
    if part in bodies:
        return bodies[part].kinematics
    forward = hand_pose_of(hand_pose, part)
    if forward is None:
        return None
    owner = getattr(forward, "__self__", None)
    if callable(getattr(owner, "jacobian", None)) and forward == getattr(owner, "forward", None):
        return owner  # a method of an object with a Jacobian
    return ForwardKinematics(forward)


def pose_error(X_BE: pin.SE3, target: pin.SE3) -> Float[np.ndarray, "6"]:
    """Return the error to the target, expressed in B: translation [m] and rotation vector [rad]."""
    return np.concatenate(
        [target.translation - X_BE.translation, pin.log3(target.rotation @ X_BE.rotation.T)]
    )


def shortened(v: Float[np.ndarray, " n"], longest: float) -> Float[np.ndarray, " n"]:
    """Return the vector, shortened to at most `longest`."""
    norm = float(np.linalg.norm(v))
    return v if norm <= longest else v * (longest / norm)


class HandJacobian:
    """Joint velocities at q for an end-effector twist, by one damped least-squares step."""

    def __init__(self, kinematics: ArmKinematics, q: Float[np.ndarray, " N"]) -> None:
        J = self._J = kinematics.jacobian(q)
        self._weights: np.ndarray = np.ones(6)
        if q.size < 6:
            self._weights = np.array([1.0, 1.0, 1.0, *([ROTATION_WEIGHT] * 3)])
        self._weighted = self._weights[:, None] * J
        smallest = float(np.linalg.svd(self._weighted, compute_uv=False)[-1])
        near = max(0.0, 1.0 - (smallest / _SINGULAR) ** 2) if q.size >= 6 else 0.1
        self._damping = near * _MAX_DAMPING**2
        self._free = np.full(q.size, np.inf)

    def twist(self, dq: Float[np.ndarray, " N"]) -> Float[np.ndarray, "6"]:
        """Return the twist of the end effector in B for joint velocities."""
        return np.asarray(self._J @ dq)

    def joints(
        self,
        twist: Float[np.ndarray, "6"],
        *,
        free: Float[np.ndarray, " N"] | None = None,
        lower: Float[np.ndarray, " N"] | None = None,
        upper: Float[np.ndarray, " N"] | None = None,
    ) -> Float[np.ndarray, " N"]:
        """Return the closest joint velocities within the bounds; free: of the null space; None: zero."""
        return bounded_velocity(
            self._weighted,
            self._weights * twist,
            np.zeros_like(self._free) if free is None else free,
            -self._free if lower is None else lower,
            self._free if upper is None else upper,
            self._damping,
        )


def posture_velocity(
    q: Float[np.ndarray, " N"], posture: Float[np.ndarray, " N"], speed: float
) -> Float[np.ndarray, " N"]:
    """Return the velocity of a redundant arm towards its posture [rad/s]; speed: of its end effector, m/s and
    rad/s together: an arm whose end effector rests is to rest."""
    if q.size <= 6:
        return np.zeros(q.size)
    return shortened(_POSTURE_RATE * (posture - q), _POSTURE_SPEED) * min(speed / _GOING, 1.0)
