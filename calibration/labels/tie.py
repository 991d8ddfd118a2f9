"""Ties: anchors in the form that the labels' pose graph uses."""

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class Tie:
    """An anchor in the pose graph: both devices saw the same board."""

    chest_ns: int
    hand_ns: int
    """Mean times of the views of each device, on the chest's clock [ns]."""
    X_WcWh: pin.SE3
    """The hand's world in the chest's by these views."""
    X_WcB: pin.SE3
    """The board in the chest's world, by its own odometry at the time."""
    covariance: np.ndarray
    """Covariance (6, 6) of X_WcWh: (p, rotation vector) perturbed on the left, about the board's position."""

    def __post_init__(self) -> None:
        """Check the covariance; InvalidValueError: it is not one."""
        P = np.asarray(self.covariance)
        if P.shape != (6, 6) or not np.isfinite(P).all() or np.linalg.eigvalsh(0.5 * (P + P.T))[0] < -1e-9:
            raise InvalidValueError(f"expected an anchor's covariance (6, 6), finite and positive, got {P}")

    @property
    def tilt(self) -> float:
        """Angle between the verticals of both worlds [rad]; 0 for gravity-aligned odometries."""
        return float(np.arccos(np.clip(self.X_WcWh.rotation[2, 2], -1.0, 1.0)))

    @property
    def level(self) -> pin.SE3:
        """X_WcWh without its tilt about the board: both worlds are gravity-aligned."""
        R = self.X_WcWh.rotation
        yaw = np.arctan2(R[1, 0] - R[0, 1], R[0, 0] + R[1, 1])
        turn = pin.utils.rotate("z", float(yaw))
        b = self.X_WcB.translation
        return pin.SE3(turn, b - turn @ self.X_WcWh.actInv(b))


def board_off(first: Tie, tie: Tie) -> np.ndarray:
    """Position of the board in the chest's odometry relative to the first tie."""
    X = tie.X_WcB * first.X_WcB.inverse()
    return np.concatenate([tie.X_WcB.translation - first.X_WcB.translation, pin.log3(X.rotation)])
