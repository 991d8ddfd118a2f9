"""An anchor as the graph of the labels sees it."""

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class Tie:
    """An anchor, as the graph sees it: where both saw the same board."""

    chest_ns: int
    hand_ns: int
    """When, in the middle of the views of each, on the chest's clock [ns]."""
    X_WcWh: pin.SE3
    """The hand's world in the chest's, by these views."""
    X_WcB: pin.SE3
    """The board in the chest's world, by its own odometry at the time."""
    covariance: np.ndarray
    """(6, 6) of X_WcWh: (p, rotation vector) perturbed on the left, about the board's place."""

    def __post_init__(self) -> None:
        """InvalidValueError: no covariance."""
        P = np.asarray(self.covariance)
        if P.shape != (6, 6) or not np.isfinite(P).all() or np.linalg.eigvalsh(0.5 * (P + P.T))[0] < -1e-9:
            raise InvalidValueError(f"an anchor's covariance is (6, 6), finite and positive, got {P}")

    @property
    def tilt(self) -> float:
        """Between the verticals of both worlds [rad]; 0 for odometries that know what is up."""
        return float(np.arccos(np.clip(self.X_WcWh.rotation[2, 2], -1.0, 1.0)))

    @property
    def level(self) -> pin.SE3:
        """X_WcWh without its tilt, the board where it is: both worlds know what is up."""
        R = self.X_WcWh.rotation
        yaw = np.arctan2(R[1, 0] - R[0, 1], R[0, 0] + R[1, 1])
        turn = pin.utils.rotate("z", float(yaw))
        b = self.X_WcB.translation
        return pin.SE3(turn, b - turn @ self.X_WcWh.actInv(b))


def board_off(first: Tie, tie: Tie) -> np.ndarray:
    """Where the chest's odometry has the board, less where it had it first."""
    X = tie.X_WcB * first.X_WcB.inverse()
    return np.concatenate([tie.X_WcB.translation - first.X_WcB.translation, pin.log3(X.rotation)])
